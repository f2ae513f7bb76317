"""What tests of several processes share."""

import os

import pytest

from examples.processes import Processes, ProcessesError

SLOW = 300  # seconds after which a test has failed


def begin(count, devices=1, names="", env=None):
    """Start processes that end nobody for being slow, and run a first cell in them."""
    flags = {"XLA_FLAGS": os.environ["XLA_FLAGS"]}  # XLA's own limits are far away
    group = Processes(count, devices, timeout=SLOW, env=flags | (env or {}))
    group.grace = SLOW
    group.run(names)
    return group


class Group:
    """Processes for the tests of a file, which start anew once one has ended."""

    def __init__(self, *arguments, **options):
        self.begin = lambda: begin(*arguments, **options)
        self.processes = ()

    def alive(self):
        """Return the processes, all of which live."""
        if not self.processes or any(map(has_ended, self.processes.ids)):
            self.close()
            self.processes = self.begin()
        return self.processes

    def close(self):
        """End the processes, if there are any."""
        if self.processes:
            self.processes.close()


def has_ended(child):
    """Return whether a child of this process has ended; its code is left to others."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def refused(group, *args, **options):
    """Run what must fail; return what each process raised."""
    with pytest.raises(ProcessesError) as caught:
        group.run(*args, **options)
    return [shown.error for shown in caught.value.output.shown]
