"""What every kernel that runs a page does first: IPython's start, in its own folder.

It keeps the bases of errors (`start_kernel.py`), and keeps what XLA compiles, as
`tools/compiled.py` says, from the first cell on that finds JAX imported.
"""

import shutil
from pathlib import Path

START = Path(__file__).with_name("start_kernel.py")
COMPILED = Path(__file__).resolve().parents[3] / "tools/compiled.py"
KEEP = """\
def _keep(shell):
    def keep(info=None):
        import runpy, sys
        if "jax" in sys.modules:
            shell.events.unregister("pre_run_cell", keep)
            runpy.run_path({module!r})["keep"]()
    shell.events.register("pre_run_cell", keep)
_keep(get_ipython())
del _keep
"""


def prepare(folder: Path) -> Path:
    """Make a folder the `IPYTHONDIR` of kernels; return the profile in it."""
    profile = folder / "profile_default"
    (profile / "startup").mkdir(parents=True, exist_ok=True)
    shutil.copy(START, profile / "startup")
    (profile / "startup/keep.py").write_text(KEEP.format(module=str(COMPILED)))
    return profile
