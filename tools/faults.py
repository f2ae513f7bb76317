"""Put faults into the modules, one at a time: `tools/faults.py [MODULE ...]`.

Each tests/MODULE/faults.toml lists faults of a module: the old text, the new one, and
which tests must then fail. They run against a copy of the sources, and pass without a
fault. A fault that ends or blocks the tests' process counts as caught.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
PASSED, FAILED = 0, 1  # pytest's exit codes; higher ones are for tests that cannot run
LIMIT = 900  # seconds for a module's tests, on a busy machine


def read_faults(module) -> list[dict[str, str]]:
    """Return the faults of a module, such as `fft`."""
    return tomllib.loads((TESTS / f"{module}/faults.toml").read_text())["fault"]


def apply_fault(text, fault) -> str:
    """Return the text of a module with a fault, or raise ValueError."""
    if (count := text.count(fault["old"])) != 1:
        raise ValueError(f"{fault['what']}: found {count} times, not once")
    return text.replace(fault["old"], fault["new"])


def run_tests(module, source, selection) -> str:
    """Run the selected tests of a module against a copy of the sources."""
    line = [sys.executable, "-m", "pytest", "-qx", "-mnot weekly"]
    line += ["-p", "no:cacheprovider", f"tests/{module}"]
    line += ["-o", f"pythonpath={source} docs/_ext tools tests"]
    place = {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [*line, "-k", selection],
            check=False,
            cwd=ROOT,
            env=os.environ | place,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return "held up"
    if done.returncode > FAILED:
        print(done.stdout, done.stderr)
        return "not run"
    return {PASSED: "passed", FAILED: "failed"}.get(done.returncode, "killed")


def find_missed(module) -> list[str]:
    """Try all faults of a module; return those that no test notices."""
    listed, found = read_faults(module), []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(shutil.copytree(ROOT / "src", f"{folder}/src"))
        file = source / f"examples/{module}.py"
        whole = file.read_text()
        every = " or ".join(f"({fault['caught_by']})" for fault in listed)
        if (now := run_tests(module, source, every)) != "passed":
            found.append(f"{module}: tests {now} without a fault")
        for fault in listed:
            file.write_text(apply_fault(whole, fault))
            now = run_tests(module, source, fault["caught_by"])
            caught = now not in ("passed", "not run")
            word = "caught" if caught else "MISSED"
            print(f"{word} ({now}) {module}: {fault['what']}")
            sys.stdout.flush()
            found += [] if caught else [f"{module}: {fault['what']}"]
    return found


def main(modules) -> int:
    """Try the faults of the named modules, or of all; return 1 if one is missed."""
    modules = modules or sorted(f.parent.name for f in TESTS.glob("*/faults.toml"))
    found = [words for module in modules for words in find_missed(module)]
    print(*[f"MISSED {words}" for words in found] or ["all are caught"], sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
