"""Prepare the start of each kernel that runs a page: IPython's, in its own folder.

It adds the bases of errors (`start_kernel.py`), and columns for other machines to
programs that are measured (`program_table.py`, `tools/measure_hook.py`).

Here are also XLA's flags for all kernels, and limits that only end a hang.
"""

import shutil
from pathlib import Path

from traitlets.config import Configurable

START = Path(__file__).with_name("start_kernel.py")
HOOK = Path(__file__).with_name("program_table.py")
MEASURE = Path(__file__).resolve().parents[2] / "tools/measure_hook.py"
FLAGS = (  # a collective waits for a device that stands still
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=600 "
    "--xla_cpu_collective_call_terminate_timeout_seconds=900"
)
SECONDS = 900  # that a cell may take
FIGURES = "get_config().InlineBackend.figure_formats = {'svg'}\n"
SETTINGS = {
    "KernelManager": {"transport_encryption": "auto"},  # ipykernel warns otherwise
    "NotebookClient": {"iopub_timeout": 120, "startup_timeout": 300},
}
Configurable.config.default_args = (SETTINGS,)  # neither caller can be given them
WATCH = """\
import runpy
runpy.run_path({hook!r})["watch"]()
del runpy
"""


def prepare_profile(folder: Path):
    """Make a folder the `IPYTHONDIR` of a kernel that plays a page."""
    profile = folder / "profile_default"
    (profile / "startup").mkdir(parents=True, exist_ok=True)
    shutil.copy(START, profile / "startup")
    (profile / "startup/watch.py").write_text(WATCH.format(hook=str(HOOK)))
    (profile / "ipython_kernel_config.py").write_text(FIGURES)
