"""Run the notebooks of all pages as a reader does: `tools/notebooks.py [PAGE ...]`.

`--sample` runs a third of them, drawn by the commit.

Each notebook is executed in an empty folder, in an environment that has only what the
page says it needs (and the kernel), at the versions of requirements.lock, and without
the book's environment variables. Two run at a time; all failures are named.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from jupyter_client import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[1]
DOCS, MODULES = ROOT / "docs", ROOT / "src/examples"
FOLDER = DOCS / "_build/notebooks"
MINE = re.compile(r"JAX_|XLA_|TF_|PYTHON|IPYTHON|MATPLOTLIB|OPENBLAS")
PINNED = re.compile(r"^[\w.-]+==[^\s\\]+(?: ;[^\\\n]+)?", re.M)
KernelManager.transport_encryption.default_value = "auto"  # ipykernel warns otherwise

sys.path.insert(0, str(DOCS / "_ext"))

from book import export  # noqa: E402  (lies in docs/_ext)
from book.page import Page  # noqa: E402
from book.page import pages as all_pages  # noqa: E402


def pages(names) -> list[Page]:
    """Return the named pages, such as `arrays/meshes`, or all that have cells."""
    found = (page for page in all_pages(DOCS) if page.is_notebook)
    return [page for page in found if not names or page.name in names]


def constraints(lock) -> str:
    """Return the versions in a lock file, without the hashes."""
    return "\n".join(line.strip() for line in PINNED.findall(lock)) + "\n"


def install(folder, packages):
    """Make a virtual environment with packages, of the locked versions."""
    versions = FOLDER / "constraints.txt"
    versions.write_text(constraints((ROOT / "requirements.lock").read_text()))
    python = folder / "bin/python"
    uv = find_uv_bin()
    make = uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder
    add = uv, "pip", "install", "--quiet", "--python", python
    subprocess.run(make, check=True)
    subprocess.run([*add, "--constraint", versions, *packages], check=True)


def environment(needs) -> str:
    """Return the name of a kernel that has what `needs` lists and nothing else."""
    name = "-".join(["shardbook", *needs])
    packages = [*export.requirements(needs, ROOT), "ipykernel"]
    folder, mark = FOLDER / name, FOLDER / name / "packages.txt"
    wanted = "\n".join([*packages, (ROOT / "requirements.lock").read_text()])
    if not mark.exists() or mark.read_text() != wanted:
        print("installing", *packages, flush=True)
        install(folder, packages)
        mark.write_text(wanted)
    python = str(folder / "bin/python")
    start = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel = FOLDER / "jupyter/kernels" / name / "kernel.json"
    kernel.parent.mkdir(parents=True, exist_ok=True)
    spec = {"argv": start, "display_name": name, "language": "python"}
    spec["metadata"] = {"supported_encryption": ["curve"]}
    kernel.write_text(json.dumps(spec))
    return name


def failure(notebook, error) -> str:
    """Say which cell of a notebook failed, and how."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                words = f"{output.ename}: {output.evalue}".partition("\n")[0]
                return f"{cell.id}: {words}\n{cell.source}"
    return str(error)


async def execute(notebook, kernel) -> str:
    """Run a notebook in an empty folder; return what failed, or nothing."""
    clean = {name: v for name, v in os.environ.items() if not MINE.match(name)}
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as own:
        where = {"metadata": {"path": empty}}
        client = NotebookClient(
            notebook, kernel_name=kernel, timeout=300, resources=where
        )
        mine = {"JAX_PLATFORMS": "cpu", "IPYTHONDIR": own}
        try:
            await client.async_execute(env=clean | mine)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            return failure(notebook, error)
    return ""


async def run(page, kernel, places) -> str:
    """Run a page's notebook; return what failed, or nothing."""
    try:
        text = export.notebook_text(page, MODULES)
    except ValueError as error:
        return str(error)
    async with places:
        start = time.monotonic()
        fault = await execute(nbformat.reads(text, as_version=4), kernel)
        word = "FAIL" if fault else "ok"
        print(f"{word:4} {time.monotonic() - start:5.1f} s  {page.name}", flush=True)
    return f"{page.name}, {fault}" if fault else ""


async def run_all(found) -> list[str]:
    """Run pages, two at a time; return what failed."""
    places = asyncio.Semaphore(2)
    needs = [page.needs for page in found]
    kernels = {" ".join(names): environment(names) for names in needs}
    jobs = (
        run(page, kernels[" ".join(names)], places)
        for page, names in zip(found, needs, strict=True)
    )
    return [fault for fault in await asyncio.gather(*jobs) if fault]


def commit() -> int:
    """Return the number of the commit that is checked out."""
    git = "git", "rev-parse", "HEAD"
    done = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout, 16)


def main(names) -> int:
    """Run the notebooks of the named pages, or of all; return 1 if one fails."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ["JUPYTER_PATH"] = str(FOLDER / "jupyter")
    found = pages([name for name in names if name != "--sample"])
    if "--sample" in names:
        found = found[commit() % 3 :: 3]
    faults = asyncio.run(run_all(found))
    for fault in faults:
        print(f"\nFAILED {fault}")
    print(f"{len(found) - len(faults)} of {len(found)} notebooks ran")
    return 1 if faults or not found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
