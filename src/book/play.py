"""Run the notebook of a page, as readers download it, in an empty folder.

The kernel has what the page says it needs, at the versions of requirements.lock, and
nothing else. What its cells show is what the site shows. Two kinds of cells come in
between and leave no name behind: some try answers to exercises, one gives `measure` its
hook (see tools/measure_hook.py).
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output
from traitlets.config import Config
from uv import find_uv_bin

from book import exercises, export, marks

OWN = re.compile(r"JAX_|XLA_|TF_|PYTHON|IPYTHON|MATPLOTLIB|OPENBLAS")  # not a reader's
XLA_FLAGS = (
    "--xla_backend_optimization_level=0 "  # of LLVM, after all that pages show of XLA
    # a collective waits for a device that stands still
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=600 "
    "--xla_cpu_collective_call_terminate_timeout_seconds=900"
)
CLIENT = {  # the limits, in seconds, only end a hang
    "allow_errors": True,
    "coalesce_streams": True,  # a kernel may send what it prints in pieces
    "extra_arguments": ["--InlineBackend.figure_formats=svg"],
    "iopub_timeout": 120,
    "startup_timeout": 300,
    "timeout": 900,
}
MEASURING = "examples.communication"
HOOK = marks.ROOT / "tools/measure_hook.py"
ADD_HOOK = """\
__import__("runpy").run_path(__import__("os").environ["BOOK_HOOK"])["install"]()"""


@cache
def make_kernel(needs, folder) -> str:
    """Return the name of a kernel that has what `needs` lists and nothing else.

    It is made in `folder`, or brought to the locked versions; Jupyter finds it there.
    """
    name = "-".join(["shardbook", *needs])
    uv, python = find_uv_bin(), str(folder / name / "bin/python")
    if not Path(python).exists():
        make = uv, "venv", "--quiet", "--python", sys.executable, folder / name
        subprocess.run(make, check=True)
    install = uv, "pip", "install", "--quiet", "--exact", "--python", python
    versions = "--constraint", marks.ROOT / "requirements.lock"
    packages = [*export.requirements(needs, marks.ROOT), "ipykernel"]
    subprocess.run([*install, *versions, *packages], check=True)
    start = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": start, "display_name": name, "language": "python"}
    kernel = folder / "jupyter/kernels" / name / "kernel.json"
    kernel.parent.mkdir(parents=True, exist_ok=True)
    kernel.write_text(json.dumps(spec))
    os.environ["JUPYTER_PATH"] = str(folder / "jupyter")
    return name


def make_notebook(page, modules) -> NotebookNode:
    """Return the notebook of a page, with the cells that come in between."""
    notebook = export.notebook(page, modules)
    exercises.add_attempts(notebook, page)
    for place, cell in enumerate(notebook.cells):
        first = cell.source.partition("\n")[0]
        if MEASURING in cell.source and is_own(cell) and not first.startswith("%%"):
            notebook.cells.insert(place, new_code_cell(ADD_HOOK, id="hook"))
            break
    return notebook


def is_own(cell) -> bool:
    """Return whether a cell is one of the page's own, and has code."""
    return cell.cell_type == "code" and cell.id.startswith("cell-")


def play_page(page, modules, kernel, variables) -> NotebookNode:
    """Return the notebook of a page as it ran.

    modules: the folder with the modules that pages import; kernel: its name; variables:
    of the environment, beside those that a reader has.
    """
    notebook = make_notebook(page, modules)
    clean = {name: v for name, v in os.environ.items() if not OWN.match(name)}
    with TemporaryDirectory() as folder, TemporaryDirectory() as profile:
        own = {"IPYTHONDIR": profile, "BOOK_HOOK": str(HOOK)}
        files = {"transport": "ipc", "ip": f"{profile}/socket"}  # ports may be taken
        client = NotebookClient(
            notebook,
            kernel_name=kernel,
            resources={"metadata": {"path": folder}},
            config=Config(KernelManager=files),
            **CLIENT,
        )
        asyncio.run(run_cells(client, clean | variables | own))
    return notebook


async def run_cells(client, environment):
    """Run all cells, also after an error; one that ends the kernel ends the run.

    Only the page's own cells have numbers.
    """
    notebook = client.nb
    client.reset_execution_trackers()
    async with client.async_setup_kernel(env=environment):
        reply = await client.async_wait_for_reply(client.kc.kernel_info())
        notebook.metadata["language_info"] = reply["content"]["language_info"]
        for index, cell in enumerate(notebook.cells):
            try:
                await client.async_execute_cell(cell, index, store_history=is_own(cell))
            except (CellTimeoutError, DeadKernelError) as error:
                kind, words = type(error).__name__, str(error)
                end = new_output("error", ename=kind, evalue=words, traceback=[words])
                cell.outputs.append(end)
                return
