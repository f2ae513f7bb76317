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


def share_processes(*arguments, **options):
    """Return a fixture of processes for a file, which start anew once one has ended."""
    group = None

    @pytest.fixture
    def living(request):
        nonlocal group
        if group is None or any(map(has_ended, group.ids)):
            group = begin(*arguments, **options)
            request.node.parent.addfinalizer(group.close)
        return group

    return living


def has_ended(child):
    """Return whether a child of this process has ended; its code is left to others."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def refused(group, *args, **options):
    """Run what must fail; return what each process raised."""
    with pytest.raises(ProcessesError) as caught:
        group.run(*args, **options)
    return [shown.error for shown in caught.value.output.shown]
