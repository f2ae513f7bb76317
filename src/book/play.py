"""Run the notebook of a page, as readers download it, in an empty folder.

The kernel has what the page says it needs, at the versions of requirements.lock, and
nothing else. What its cells show is what the site shows.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output
from uv import find_uv_bin

from book import exercises, export, kernels, marks

OWN = re.compile(r"JAX_|XLA_|TF_|PYTHON|IPYTHON|MATPLOTLIB|OPENBLAS")  # not a reader's
PINNED = re.compile(r"^[\w.-]+==[^\s\\]+(?: ;[^\\\n]+)?", re.M)
STARTS = 3  # another program may take a port between its choice and its use
LOCK = marks.ROOT / "requirements.lock"


class PageRun(NamedTuple):
    """The results of a page: cells by name, the language, answers, seconds."""

    cells: dict[str, NotebookNode]
    language: dict  # as the kernel describes it
    answers: dict[str, list[dict]]
    seconds: float


def constraints(lock) -> str:
    """Return the versions in a lock file, without the hashes."""
    return "\n".join(line.strip() for line in PINNED.findall(lock)) + "\n"


def install_packages(folder, packages):
    """Make a virtual environment with packages, of the locked versions."""
    versions = folder.parent / "constraints.txt"
    versions.write_text(constraints(LOCK.read_text()))
    python = folder / "bin/python"
    uv = find_uv_bin()
    make = uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder
    add = uv, "pip", "install", "--quiet", "--python", python
    subprocess.run(make, check=True)
    subprocess.run([*add, "--constraint", versions, *packages], check=True)


def make_kernel(needs, folder) -> str:
    """Return the name of a kernel that has what `needs` lists and nothing else.

    It is made in `folder`, where it is not there yet; Jupyter finds it there.
    """
    name = "-".join(["shardbook", *needs])
    packages = [*export.requirements(needs, marks.ROOT), "ipykernel"]
    place, mark = folder / name, folder / name / "packages.txt"
    wanted = "\n".join([*packages, LOCK.read_text()])
    kernel = folder / "jupyter/kernels" / name / "kernel.json"
    kernel.parent.mkdir(parents=True, exist_ok=True)
    if not mark.exists() or mark.read_text() != wanted:
        print("installing", *packages, flush=True)
        install_packages(place, packages)
        mark.write_text(wanted)
    python = str(place / "bin/python")
    start = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": start, "display_name": name, "language": "python"}
    spec["metadata"] = {"supported_encryption": ["curve"]}
    kernel.write_text(json.dumps(spec))
    os.environ["JUPYTER_PATH"] = str(folder / "jupyter")
    return name


def notebook_with_answers(page, modules) -> NotebookNode:
    """Return the notebook of a page, with cells that try answers to its exercises."""
    notebook = export.notebook(page, modules)
    exercises.add_attempts(notebook, page)
    return notebook


def play_page(page, modules, kernel, variables) -> PageRun:
    """Play a page.

    modules: the folder with the modules that pages import; kernel: its name; variables:
    of the environment, beside those that a reader has.
    """
    notebook = notebook_with_answers(page, modules)
    start = time.monotonic()
    clean = {name: v for name, v in os.environ.items() if not OWN.match(name)}
    with TemporaryDirectory() as empty, TemporaryDirectory() as own:
        kernels.prepare_profile(Path(own))
        environment = clean | variables | {"IPYTHONDIR": own}
        run_started(lambda: run_cells(notebook, kernel, empty, environment))
    cells = {cell.id: cell for cell in notebook.cells}
    language, seconds = notebook.metadata["language_info"], time.monotonic() - start
    return PageRun(cells, language, exercises.read_outcomes(notebook), seconds)


def run_started(run):
    """Run what runs cells; again, if the kernel ended before it answered."""
    for more in reversed(range(STARTS)):
        try:
            return asyncio.run(run())
        except RuntimeError as error:
            if not more or "Kernel died before replying" not in str(error):
                raise
    return None


async def run_cells(notebook, kernel, folder, environment):
    """Run all cells, also after an error; one that ends the kernel ends the run.

    Only the page's own cells have numbers.
    """
    client = NotebookClient(
        notebook,
        allow_errors=True,
        kernel_name=kernel,
        resources={"metadata": {"path": folder}},
        timeout=kernels.SECONDS,
    )
    client.reset_execution_trackers()
    async with client.async_setup_kernel(env=environment):
        reply = await client.async_wait_for_reply(client.kc.kernel_info())
        notebook.metadata["language_info"] = reply["content"]["language_info"]
        for index, cell in enumerate(notebook.cells):
            is_own = cell.id.startswith("cell-")
            try:
                await client.async_execute_cell(cell, index, store_history=is_own)
            except (CellTimeoutError, DeadKernelError) as error:
                kind, words = type(error).__name__, str(error)
                cell.outputs.append(
                    new_output("error", ename=kind, evalue=words, traceback=[words])
                )
                return
