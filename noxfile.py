#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox[uv]>=2025.2.9"]
# ///
"""The chores of Shardbook: `nox -l` lists them, one line each."""

import os
import shutil
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "tests", "docs"]

BUILD = Path("docs/_build")
STRICT = "-W", "--keep-going", "-n", "-j", "auto"  # every warning, of every page
FACTS = nox.project.load_toml("pyproject.toml")["tool"]["shardbook"]
JAX = "jax", "jaxlib"
MANY = min((os.cpu_count() or 1) + 1, 4)  # some tests wait
WORKERS = f"-n={MANY}", "--dist=worksteal"  # mostly file by file
FUZZ = "-o=python_files=fuzz_*.py", "--hypothesis-profile=brief"
FUZZ += "-n=2", "--dist=loadfile"  # the outcomes of a module are counted together
FUZZ += ("--max-worker-restart=0",)  # or a file whose test ends its process runs again
LINT = (
    "ruff check --output-format=concise",
    "ruff format --check --output-format=concise",
    "codespell",
)
BESIDE_JAX = "grain h5py orbax-checkpoint tensorstore zarr hypothesis mpi4py optax rich"
BESIDE_JAX += " pytest>=9 pytest-timeout pytest-xdist"
OTHER_JAX = {
    "--jax=oldest": [f"--with={name}=={FACTS['oldest-jax']}" for name in JAX],
    "--jax=newest": ["--with=jax"],
}
BOOK = Path(".nox/book")  # the environment of all sessions that only follow the lock


def book(session):
    """Sync the book's environment with the lock; return what runs programs in it."""
    bin_folder = BOOK.resolve() / "bin"
    if not (bin_folder / "python").exists():
        make = nox.virtualenv.UV, "venv", "--quiet", f"--python={sys.executable}"
        session.run_install(*make, str(BOOK))
    sync = nox.virtualenv.UV, "pip", "sync", "--quiet", "requirements.lock"
    session.run_install(*sync, f"--python={bin_folder / 'python'}")
    (packages,) = BOOK.glob("[Ll]ib/**/site-packages")
    paths = (
        str(Path(name).resolve())
        for name in ("src", "docs/_ext", "tools", "benchmarks")
    )
    (packages / "shardbook.pth").write_text("\n".join(paths))  # Python looks there
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    here = {"PATH": path, "VIRTUAL_ENV": str(BOOK.resolve())}
    here["PYTHONDONTWRITEBYTECODE"] = ""  # imports are thrice as slow without

    def run(program, *arguments, call=session.run):
        call(str(bin_folder / program), *arguments, env=here)

    return run


def is_built(folder):
    """Return whether the site in `folder` is newer than all that it is made of."""
    end = folder / "find-index.js"  # docs/_ext/search_index.py writes it last
    made_of = (f for place in ("docs", "src") for f in Path(place).rglob("*.*"))
    passing = {"_build", "__pycache__"}
    files = [f for f in made_of if f.is_file() and not passing & {*f.parts}]
    files += [Path("requirements.lock")]
    return end.exists() and end.stat().st_mtime > max(f.stat().st_mtime for f in files)


def build(run, folder, *files):
    """Build the site into `folder`; after a failure forget what was read.

    files: the sources of the pages to write, instead of all that are new.
    """
    doctrees = folder.with_suffix(".doctrees")
    try:
        run("sphinx-build", *STRICT, f"-d={doctrees}", "docs", str(folder), *files)
    except nox.command.CommandFailed:
        shutil.rmtree(doctrees, ignore_errors=True)  # else the next build is green
        raise


def find_module_tests():
    """Return the folders with the tests of modules."""
    modules = sorted(Path("src/examples").glob("[!_]*.py"))
    return [f"tests/{module.stem}" for module in modules]


def build_if_old(run):
    """Build the site, if it is older than what it is made of."""
    if not is_built(BUILD / "html"):
        build(run, BUILD / "html")


@nox.session(python=False)
def docs(session):
    """Build the site; `-- --archive` packs it into a file, `--twice` compares two."""
    run = book(session)
    run("python", "tools/install_kernels.py", call=session.run_install)
    build(run, BUILD / "html")
    if "--archive" in session.posargs:
        run("python", "tools/archive.py", str(BUILD / "html"))
    if "--twice" in session.posargs:
        run("python", "tools/reproducible.py", str(BUILD / "html"))


@nox.session(python=False)
def tests(session):
    """Run the tests; `-- --jax=oldest`, or `newest`: of the modules, on that JAX."""
    run = book(session)
    if {*session.posargs[:1]} & OTHER_JAX.keys():
        jax, *words = session.posargs
        others = [f"--with={name}" for name in BESIDE_JAX.split()]
        alone = "--quiet", "--isolated", "--no-project", *OTHER_JAX[jax], *others
        run("uv", "run", *alone, "pytest", *WORKERS, *find_module_tests(), *words)
    elif session.posargs:
        run("pytest", *WORKERS, *session.posargs)
    else:
        run("pytest", *WORKERS, "-m", "not processes and not weekly")
        run("pytest", "-n=2", "-m", "processes and not weekly")


@nox.session
def lint(session):
    """Check style, format and spelling."""
    session.install("--constraint=requirements.lock", "ruff", "codespell")
    failed = []
    for line in LINT:
        try:
            session.run(*line.split())
        except nox.command.CommandFailed:
            failed.append(line)
    if failed:
        session.error(f"failed: {', '.join(failed)}")


@nox.session(name="docs-live", default=False, python=False)
def docs_live(session):
    """Serve the site, and rebuild it on every save."""
    run = book(session)
    watch = "--watch=src", "--ignore=docs/_build/*"
    run("sphinx-autobuild", *watch, "docs", str(BUILD / "live"))


@nox.session(default=False, python=False)
def faults(session):
    """Put faults into the modules, and check that tests fail; `-- fft` does one."""
    run = book(session)
    run("python", "tools/faults.py", *session.posargs)


@nox.session(default=False, python=False)
def fuzz(session):
    """Fuzz the modules: stored cases, then ten new ones of each target."""
    run = book(session)
    run("pytest", *FUZZ, *session.posargs)


@nox.session(default=False, python=False)
def links(session):
    """Follow all links inside the site; old anchors stay; `-- --external` others."""
    run = book(session)
    build_if_old(run)
    only = "--no-progress", "--extensions=html", "--exclude-path=_static"
    if session.posargs == ["--external"]:
        accept = "--accept=200..=399,403,405,429,503"
        run("lychee", *only, accept, str(BUILD / "html"))
        return
    strict = "--offline", "--include-fragments", "--index-files="
    run("lychee", *strict, *only, r"--exclude-path=404\.html$", str(BUILD / "html"))
    run("python", "tools/anchors.py", str(BUILD / "html"))


@nox.session(default=False, python=False)
def page(session):
    """Play and check pages: `-- arrays/meshes`; `--write` accepts what cells gave."""
    run = book(session)
    if "--write" in session.posargs:
        run("python", "tools/expect.py", *session.posargs)
        return
    files = [f"docs/{name}.md" for name in session.posargs]
    build(run, BUILD / "html", *files)
    names = " or ".join(name.rpartition("/")[2] for name in session.posargs)
    tests = "tests/test_pages.py", "tests/test_exercises.py"
    run("pytest", "-q", *tests, "-k", names)


@nox.session(default=False, python=False)
def browser(session):
    """Open every page of the site in Chromium, and try what a reader would."""
    run = book(session)
    build_if_old(run)
    npm = "npm", "install", "--no-save", "--no-package-lock"
    axe = f"--prefix={BUILD / 'npm'}", "axe-core@4.14.1"
    session.run_install(*npm, *axe, external=True)
    run("pytest", "-n=auto", "tests/browser", *session.posargs)


@nox.session(default=False, python=False)
def cluster(session):
    """Submit the files of launch/ to a throwaway Slurm, and try them under MPI."""
    run = book(session)
    run("pytest", "tests/cluster", *session.posargs)


@nox.session(default=False, python=False)
def remeasure(session):
    """Measure all kept tables again; `-- lu fft` does two, `-- pods -- h100` a part."""
    run = book(session)
    if "programs" in session.posargs and "--" not in session.posargs:
        places = f"-d={BUILD / 'html.doctrees'}", "docs", str(BUILD / "html")
        run("sphinx-build", "-q", "-j=auto", *places)  # pages leave their programs
    run("python", "tools/remeasure.py", *session.posargs)


@nox.session(default=False, python=False)
def lock(session):
    """Write requirements.lock anew, with the newest versions."""
    run = book(session)
    run("uv", "lock", "--upgrade")
    export = "uv", "export", "--quiet", "--all-groups", "--no-emit-project"
    run(*export, "--no-annotate", "--no-header", "-o=requirements.lock")
    run("python", "tools/copies.py")


if __name__ == "__main__":
    nox.main()
