"""The chores of Shardbook: `nox -l` lists them, one line each."""

import contextlib
import os
import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "tests", "docs"]

TOOL = nox.project.load_toml("pyproject.toml")["tool"]
BOOK = Path(".nox/book").resolve()  # the environment of all that follows the lock
os.environ |= {
    "PATH": f"{BOOK / 'bin'}{os.pathsep}{os.environ['PATH']}",
    "VIRTUAL_ENV": str(BOOK),
    "PYTHONDONTWRITEBYTECODE": "",  # imports are thrice as slow without byte code
}
SITE = "docs/_build/html"
SPHINX = "sphinx-build", "-j=auto", f"-d={SITE}.doctrees", "docs", SITE
KERNELS = Path("docs/_build/kernels/requirements.lock")  # what they have
STRICT = "-W", "--keep-going", "-n"  # every warning, of every page
WORKERS = f"-n={min((os.cpu_count() or 1) + 1, 4)}", "--dist=worksteal"  # some wait
FUZZ = "-o=python_files=fuzz_*.py", "--hypothesis-profile=brief"
FUZZ += ("-n=2", "--dist=worksteal")
FUZZ += ("--max-worker-restart=0",)  # or a file whose test ends its process runs again
OLDEST = TOOL["shardbook"]["oldest-jax"]
OTHER_JAX = {"--jax=oldest": f"jax=={OLDEST} jaxlib=={OLDEST}", "--jax=newest": "jax"}
BESIDE_JAX = "grain h5py orbax-checkpoint tensorstore zarr hypothesis mpi4py optax rich"
BESIDE_JAX += " pytest>=9 pytest-timeout pytest-xdist"


def sync(session):
    """Sync the book's environment with the lock."""
    if not (BOOK / "bin/python").exists():
        make = nox.virtualenv.UV, "venv", "--quiet", f"--python={sys.executable}"
        session.run_install(*make, str(BOOK))
    session.run_install(nox.virtualenv.UV, "pip", "sync", "-q", "requirements.lock")
    (packages,) = BOOK.glob("[Ll]ib/**/site-packages")
    paths = (str(Path(name).resolve()) for name in TOOL["pytest"]["pythonpath"])
    (packages / "shardbook.pth").write_text("\n".join(paths))  # Python looks there


def build(session, *files):
    """Build the site, or only these pages; after a failure forget what was read."""
    try:
        session.run(*SPHINX, *files, *STRICT)
    except nox.command.CommandFailed:
        shutil.rmtree(f"{SITE}.doctrees", ignore_errors=True)  # else the next is green
        raise


@nox.session(python=False)
def docs(session):
    """Build the site; `-- --archive` packs it into a file, `--twice` compares two."""
    sync(session)
    lock = Path("requirements.lock").read_text()
    if not KERNELS.exists() or KERNELS.read_text() != lock:  # else it takes 2 s
        session.run_install("python", "tools/install_kernels.py")
    build(session)
    if "--archive" in session.posargs:
        session.run("python", "tools/archive.py", SITE)
    if "--twice" in session.posargs:
        session.run("bash", "tools/reproducible.sh", SITE)


@nox.session(python=False)
def tests(session):
    """Run the tests; `-- --jax=oldest`, or `newest`: of the modules, on that JAX."""
    sync(session)
    first, *words = session.posargs or ["all"]
    if first in OTHER_JAX:
        packages = f"{OTHER_JAX[first]} {BESIDE_JAX}".split()
        alone = "--quiet --isolated --no-project --with=" + " --with=".join(packages)
        modules = sorted(Path("src/examples").glob("[!_]*.py"))
        folders = (f"tests/{module.stem}" for module in modules)
        # with LLVM's optimisation, as readers have it: see tests/conftest.py
        line = "uv", "run", *alone.split(), "pytest", *WORKERS, *folders, *words
        session.run(*line, env={"XLA_FLAGS": "--xla_backend_optimization_level=3"})
    elif first != "all":
        session.run("pytest", *WORKERS, first, *words)
    else:
        pytest = "pytest", "-p=incremental"  # which leaves out what has passed
        session.run(*pytest, *WORKERS, "-m", "not processes and not weekly")
        session.run(*pytest, "-n=2", "-m", "processes and not weekly")


@nox.session(python=False)
def lint(session):
    """Check style, format and spelling."""
    sync(session)
    with contextlib.ExitStack() as stack:  # which runs all three, also after a failure
        stack.callback(session.run, "codespell")
        for command in ["format", "--check"], ["check"]:
            stack.callback(session.run, "ruff", *command, "--output-format=concise")


@nox.session(python=False)
def fuzz(session):
    """Fuzz the modules: stored cases, then ten new ones of each target."""
    sync(session)
    session.run("pytest", *FUZZ, *session.posargs)


@nox.session(python=False)
def links(session):
    """Follow links inside the built site; old anchors stay; `-- --external` others."""
    sync(session)
    session.run("python", "tools/anchors.py", SITE)
    how = ["--offline", "--include-fragments", "--index-files="]
    if session.posargs:
        how = ["--accept=200..=399,403,405,429,503"]
    how += "--no-progress", "--extensions=html", r"--exclude-path=_static|404\.html$"
    session.run("lychee", *how, SITE, "docs/_build/published.html")


@nox.session(python=False)
def page(session):
    """Play and check pages: `-- arrays/meshes`; `--write` accepts what cells gave."""
    sync(session)
    if "--write" in session.posargs:
        session.run("python", "tools/expect.py", *session.posargs)
        return
    build(session, *(f"docs/{name}.md" for name in session.posargs))
    names = " or ".join(name.rpartition("/")[2] for name in session.posargs)
    tests = "tests/test_pages.py", "tests/test_exercises.py"
    session.run("pytest", "-q", *tests, "-k", names)


@nox.session(python=False)
def browser(session):
    """Open every page of the built site in Chromium; try what a reader would."""
    sync(session)
    npm = "npm", "install", "--no-save", "--no-package-lock"
    session.run_install(*npm, "--prefix=docs/_build/npm", "axe-core@4.14.1")
    session.run("pytest", "-n=auto", "tests/browser", *session.posargs)


@nox.session(python=False)
def remeasure(session):
    """Measure all kept tables again; `-- lu fft` does two, `-- pods -- h100` a part."""
    sync(session)
    if "programs" in session.posargs and "--" not in session.posargs:
        session.run(*SPHINX, "-q")  # pages leave their programs
    session.run("python", "benchmarks/remeasure.py", *session.posargs)


@nox.session(python=False)
def lock(session):
    """Write requirements.lock anew, with the newest versions."""
    sync(session)
    session.run("uv", "lock", "--upgrade")
    export = "uv", "export", "--quiet", "--all-groups", "--no-emit-project"
    session.run(*export, "--no-annotate", "--no-header", "-o=requirements.lock")
    session.run("python", "tools/copies.py")
