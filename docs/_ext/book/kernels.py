"""What every kernel that runs a page does first: IPython's start, in its own folder.

It keeps the bases of errors (`start_kernel.py`), and keeps what XLA compiles, as
`tools/compiled.py` says, from the first cell on that finds JAX imported. Programs that
are measured get columns for other machines (`answers.py`, `tools/elsewhere.py`).
"""

import shutil
from pathlib import Path

START = Path(__file__).with_name("start_kernel.py")
HOOK = Path(__file__).with_name("answers.py")
TOOLS = Path(__file__).resolve().parents[3] / "tools"
COMPILED, ELSEWHERE = TOOLS / "compiled.py", TOOLS / "elsewhere.py"
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
WATCH = """\
import runpy
runpy.run_path({hook!r})["watch"]()
del runpy
"""


def prepare(folder: Path, *, elsewhere=True) -> Path:
    """Make a folder the `IPYTHONDIR` of kernels; return the profile in it.

    elsewhere: whether `measure` has columns for other machines, as on the site; a
    reader's notebook has none.
    """
    profile = folder / "profile_default"
    (profile / "startup").mkdir(parents=True, exist_ok=True)
    shutil.copy(START, profile / "startup")
    (profile / "startup/keep.py").write_text(KEEP.format(module=str(COMPILED)))
    watch = WATCH.format(hook=str(HOOK))
    if elsewhere:
        (profile / "startup/watch.py").write_text(watch)
    return profile
