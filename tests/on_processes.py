"""What tests of several processes share."""

import pytest

from examples.processes import ProcessesError


def refused(group, *args, **options):
    """Run what must fail; return what each process raised."""
    with pytest.raises(ProcessesError) as caught:
        group.run(*args, **options)
    return [shown.error for shown in caught.value.output.shown]
