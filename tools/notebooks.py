"""Play all pages as a reader does: `tools/notebooks.py [--changes=5] [PAGE ...]`.

Each page's notebook is executed in an empty folder, in an environment that has only
what the page says it needs (and the kernel), at the versions of requirements.lock, and
without the book's environment variables. At each exercise its stub and the answers of
`tests/wrong_answers` are tried, on a copy of the names that the page has so far: all
must fail. So must at each check some percent of its changes (see changes.py), others on
each day, if `--changes` asks for them. What the cells show is compared with what the
site shows, where there is one, but for what is kept of other machines, which a reader's
notebook has not. One more run at a time than there are cores; all failures are named,
and `docs/_build/played.json` keeps what became of each page, for the tests to read.
"""

import argparse
import ast
import asyncio
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat.v4 import new_code_cell
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[1]
DOCS, MODULES = ROOT / "docs", ROOT / "src/examples"
FOLDER = DOCS / "_build/notebooks"
SITE = DOCS / "_build/html"
WRONG = ROOT / "tests/wrong_answers"
PLAYED = DOCS / "_build/played.json"
TRY = Path(__file__).with_name("attempt.py")  # what the kernel is given to try answers
MINE = re.compile(r"JAX_|XLA_|TF_|PYTHON|IPYTHON|MATPLOTLIB|OPENBLAS")
PINNED = re.compile(r"^[\w.-]+==[^\s\\]+(?: ;[^\\\n]+)?", re.M)
TRYING = """\
def _try(sources, names, own):
    exec({module!r}, own)
    print("\\noutcome", own[{how!r}](sources, names))
_try({sources!r}, globals(), {{}})"""  # leaves no other name behind
NONSENSE = re.compile(
    r"(ProcessesError: .* raised )?(Attribute|Import|Name|Syntax)Error"
)
ELSEWHERE = re.compile(  # the table of other machines, in HTML and in text
    r'<div[^>]*aria-label="The same program, elsewhere">.*?</table></div>'
    r"|^compiled for .*\n(?:.+\n)*?temporaries.*\n?",
    re.M,
)
CHART = re.compile(r'<svg [^>]*aria-label="([^"]*)".*?</svg>(?=</div>)', re.S)
OTHERS = "TPU v5p", "H100"  # a reader's charts do not have their bars
NUMBERED = re.compile(r"(?<=cell )\d+(?=>|&gt;)")  # of processes: tries count, too
OUTCOME = re.compile(r"^outcome (.*)$", re.M)

sys.path[:0] = [str(ROOT / "src"), str(DOCS / "_ext")]  # explorers import modules

import changes  # noqa: E402
import kept  # noqa: E402
from book import export, guards, kernels, marks  # noqa: E402  (lies in docs/_ext)
from book.page import Page  # noqa: E402


def pages(names) -> list[Page]:
    """Return the named pages, such as `arrays/meshes`, or all that have cells."""
    return kept.named(names, DOCS)


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


# ------------------------------------------------------- the exercises and the checks


def wrong_answers(name) -> list[dict]:
    """Return the wrong answers to an exercise, each with its reason."""
    file = WRONG / f"{name}.toml"
    return tomllib.loads(file.read_text())["wrong"] if file.exists() else []


def replaced(stub, answer) -> str:
    """Return the stub with other code above its last statement."""
    last = ast.parse(re.sub(r"\A%%.*", "", stub)).body[-1]
    return "\n".join([answer, *stub.splitlines()[last.lineno - 1 :]])


def answers(page) -> dict[str, list[str]]:
    """Return for each stub its exercise, and it with no and with each wrong answer."""
    found = {}
    for number, cell in enumerate(page.cells, 1):
        if "exercise" in cell.tags:
            name = cell.tags[cell.tags.index("exercise") + 1]
            wrong = (each["answer"] for each in wrong_answers(name))
            tries = [replaced(cell.source, answer) for answer in wrong]
            found[f"cell-{number}"] = name, [cell.source, *tries]
    return found


def with_tries(notebook, page, lies):
    """Put before each stub and each check a cell that tries what must fail there."""
    told, cells = answers(page), []
    for cell in notebook.cells:
        if cell.id in told:
            name, sources = told[cell.id]
            cells.append(trial(f"try-{name}", "attempts", sources))
        if cell.id in lies:
            sources = [code for _, code in lies[cell.id]]
            cells.append(trial(f"lie-{cell.id}", "failures", sources))
        cells.append(cell)
    notebook.cells = cells


def trial(name, how, sources):
    """Return a cell that runs sources by a function of attempt.py."""
    code = TRYING.format(module=TRY.read_text(), how=how, sources=sources)
    return new_code_cell(code, id=name)


def tried(notebook, prefix) -> dict[str, list]:
    """Return what became of what was tried, by the names of the cells that did it."""
    found = {}
    for cell in notebook.cells:
        said = [o.text for o in cell.get("outputs", []) if o.get("name") == "stdout"]
        if cell.id.startswith(prefix) and (last := OUTCOME.findall("".join(said))):
            found[cell.id.removeprefix(prefix)] = json.loads(last[-1])
    return found


def believed(page, notebook, lies):
    """Yield each changed check that passes, or is no program, with its line."""
    lines = {f"cell-{n}": cell.line for n, cell in enumerate(page.cells, 1)}
    for name, errors in tried(notebook, "lie-").items():
        for (claim, _), error in zip(lies[name], errors, strict=True):
            if not error or NONSENSE.match(error):
                yield f"{lines[name]} check: {claim}  {error}".rstrip()


def misjudged(name, found) -> list[str]:
    """Say which of the answers to an exercise the judge took for another."""
    stub, *wrong = found
    faults = ["its stub is accepted"] if stub.get("passed") else []
    faults += [each["error"] for each in found if "error" in each]
    for each, answer in zip(wrong, wrong_answers(name), strict=True):
        if each.get("passed"):
            faults.append(f"a wrong answer is accepted:\n{answer['answer']}")
        elif answer["reason"].casefold() not in each.get("text", "").casefold():
            faults.append(f"{answer['reason']!r} is not in {each.get('text')}")
    return [f"exercise {name}: {fault}" for fault in faults]


# --------------------------------------------------------------------- the outputs


def shown(cell) -> str:
    """Return what a cell shows in words: text, tables, the kind of an error."""
    outputs = [export.kept(o) for o in cell.outputs if not export.is_stderr(o)]
    tables = [o["data"].get("text/html", "") for o in outputs if "data" in o]
    error = guards.error_in(outputs)
    said = [guards.seen(outputs), *tables, " ".join(error[:2]) if error else ""]
    return NUMBERED.sub("", here("\n".join("".join(part) for part in said if part)))


def here(text) -> str:
    """Return text without what is of other machines, which a reader has not.

    A chart is what its label says: a name and a number for each bar.
    """
    return CHART.sub(bars_here, ELSEWHERE.sub("", text))


def bars_here(chart) -> str:
    """Return the bars of this machine as text."""
    bars = chart[1].removesuffix(".").split(". ")
    return ". ".join(bar for bar in bars if not any(name in bar for name in OTHERS))


def broken(page, notebook):
    """Yield each promise that a cell makes by its options and did not keep here."""
    strict = any(cell.options for cell in page.code)
    ran = {cell.id: cell for cell in notebook.cells}
    for number, cell in enumerate(page.cells, 1):
        if cell.code:
            outputs = ran[f"cell-{number}"].outputs
            options = {name: here(text) for name, text in cell.options.items()}
            promised = replace(cell, options=options)
            for _, words in guards.faults(promised, outputs, strict=strict):
                yield f"cell-{number} {words}"


def differences(page, notebook) -> list[str]:
    """List the cells that show the reader other words than the site does.

    None do if there is no site, or it is of another version of the page.
    """
    file = SITE / f"{page.name}.ipynb"
    if not file.exists():
        return []
    there = {cell.id: cell for cell in nbformat.read(file, as_version=4).cells}
    code = {c.id: c.source for c in notebook.cells if c.cell_type == "code"}
    if any(code.get(c.id, c.source) != c.source for c in there.values()):
        return []
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code" and there.get(cell.id, {}).get("outputs"):
            site, here = shown(there[cell.id]), shown(cell)
            if site != here:
                told = guards.difference(site, here)
                found.append(f"{cell.id} shows other words than the site\n{told}")
    return found


# ------------------------------------------------------------------------ the play


def failure(notebook, error) -> str:
    """Say which cell of a notebook failed, and how."""
    for cell in notebook.cells:
        expected = "raises-exception" in cell.metadata.get("tags", [])
        for output in cell.get("outputs", []):
            if output.output_type == "error" and not expected:
                words = f"{output.ename}: {output.evalue}".partition("\n")[0]
                return f"{cell.id}: {words}\n{cell.source}"
    return str(error)


async def execute(notebook, kernel) -> str:
    """Run a notebook in an empty folder; return what failed, or nothing."""
    clean = {name: v for name, v in os.environ.items() if not MINE.match(name)}
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as own:
        kernels.prepare(Path(own), elsewhere=False)
        where = {"metadata": {"path": empty}}
        client = NotebookClient(
            notebook, kernel_name=kernel, timeout=kernels.SECONDS, resources=where
        )
        mine = {"JAX_PLATFORMS": "cpu", "IPYTHONDIR": own, "XLA_FLAGS": kernels.FLAGS}
        try:
            await client.async_execute(env=clean | mine)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            return failure(notebook, error)
    return ""


async def play(page, kernel, lies) -> dict:
    """Play a page; return its faults, exercises, changed checks, and seconds."""
    start = time.monotonic()
    count = sum(len(each) for each in lies.values())
    outcome = {"exercises": {}, "changes": count, "believed": []}
    try:
        text = export.notebook_text(page, MODULES)
    except ValueError as error:
        words = str(error).removeprefix(f"{page.name}: ")
        return outcome | {"faults": [words], "seconds": 0.0}
    notebook = nbformat.reads(text, as_version=4)
    with_tries(notebook, page, lies)
    fault = await execute(notebook, kernel)
    outcome["exercises"] = tried(notebook, "try-")
    faults = [fault] if fault else [*broken(page, notebook)]
    faults += [] if faults else differences(page, notebook)
    for name, found in outcome["exercises"].items():
        faults += misjudged(name, found)
    outcome["believed"] = [*believed(page, notebook, lies)]
    faults += [f"line {lie}" for lie in outcome["believed"]]
    seconds = round(time.monotonic() - start, 1)
    return outcome | {"faults": faults, "seconds": seconds}


def inputs_of(page) -> list[Path]:
    """Return the files that a play depends on, the player's own among them."""
    files = [WRONG / f"{exercise.name}.toml" for exercise in page.exercises]
    files += [page.file, *page.modules(MODULES), *page.data]
    files += [ROOT / "requirements.lock", *ROOT.glob("docs/_ext/book/*.py")]
    files += [TRY, ROOT / "tools/changes.py", ROOT / "tools/notebooks.py"]
    return [file for file in files if file.exists()]


def key_of(page) -> str:
    """Digest what a play depends on: its files, what the site shows, and Python."""
    site = SITE / f"{page.name}.ipynb"
    files = [*inputs_of(page), *[site] * site.exists()]
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    text = "\n".join([sys.version, *digests])
    return f"notebook-{hashlib.sha256(text.encode()).hexdigest()}"


async def run(page, kernel, places, percent, is_whole) -> dict:
    """Play a page when there is a place; in a whole run, mark it."""
    day = datetime.datetime.now(datetime.UTC).date()
    lies = changes.sample(page, percent, f"{day} {page.name}")
    key = key_of(page)
    async with places:
        outcome = await play(page, kernel, lies)
    word = "FAIL" if outcome["faults"] else "ok"
    print(f"{word:4} {outcome['seconds']:5.1f} s  {page.name}", flush=True)
    outcome["key"] = key
    if outcome["faults"]:
        marks.delete_mark(key)
    elif is_whole and key == key_of(page):
        marks.write_mark(key, json.dumps(outcome))
    return outcome


def prepare(found) -> dict[str, str]:
    """Make the environments of pages; return the kernel for each list of needs."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    return {" ".join(page.needs): environment(page.needs) for page in found}


async def run_all(found, percent, is_whole) -> dict[str, dict]:
    """Play pages, some of which wait, side by side; return what became of each."""
    places = asyncio.Semaphore((os.cpu_count() or 1) + 1)
    kernels = prepare(found)
    jobs = [
        run(page, kernels[" ".join(page.needs)], places, percent, is_whole)
        for page in found
    ]
    outcomes = await asyncio.gather(*jobs)
    return {page.name: each for page, each in zip(found, outcomes, strict=True)}


def played() -> dict[str, dict]:
    """Return what became of the pages that were played last, by name."""
    return json.loads(PLAYED.read_text()) if PLAYED.exists() else {}


def outcome(page) -> dict | None:
    """Return what became of a page when it was played last, if that was this page."""
    found = played().get(page.name, {})
    return found if found.get("key") == key_of(page) else None


def marked(found) -> dict[str, dict]:
    """Return what became of those pages that passed before, as they are now."""
    texts = {page.name: marks.read_mark(key_of(page)) for page in found}
    return {name: json.loads(text) for name, text in texts.items() if text}


def main(names, percent=0) -> int:
    """Play the named pages, or all that have no mark; return 1 if one fails."""
    os.environ["JUPYTER_PATH"] = str(FOLDER / "jupyter")
    found = pages(names)
    is_whole = not names and not percent
    before = marked(found) if is_whole else {}
    if before:
        print(f"{len(before)} notebooks had passed", flush=True)
    left = [page for page in found if page.name not in before]
    outcomes = before | asyncio.run(run_all(left, percent, is_whole))
    PLAYED.write_text(json.dumps(played() | outcomes, indent=1, sort_keys=True))
    for name, outcome in outcomes.items():
        for fault in outcome["faults"]:
            print(f"\nFAILED {name}, {fault}")
    failed = [name for name, outcome in outcomes.items() if outcome["faults"]]
    print(f"{len(found) - len(failed)} of {len(found)} notebooks ran")
    return 1 if failed or not found else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--changes", type=float, default=0, help="in percent")
    parser.add_argument("--install", action="store_true", help="and play nothing")
    parser.add_argument("pages", nargs="*")
    given = parser.parse_args()
    if given.install:
        prepare(pages(given.pages))
    else:
        sys.exit(main(given.pages, given.changes))
