"""What every module in src/examples promises, whatever it is about."""

import ast
import importlib
import re
import shutil
import sys
from pathlib import Path

import jax
import pytest
from cases import each_week

from book import marks

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "src/examples").glob("[!_]*.py"))
OWN = "main", "cost"  # which every module writes for itself
EXTRAS = {"optax": "Optax", "orbax": "Orbax"}  # which a module may import that says so
LONGER = {"block_qr", "cholesky", "lu"}  # factors, solutions, derivatives: one layout

# A process for each copy, which is forked as soon as JAX is imported: before it looks
# for devices, and with nothing of the others.
EACH_ALONE = """
import os, runpy, sys, warnings
import jax

warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)
sys.modules["examples"] = None  # no other module can be imported
devices, *names = sys.argv[1:]
for name in names:
    if not os.fork():
        os.chdir(name)
        sys.argv = [f"{name}.py"]
        runpy.run_path(f"{name}.py")  # an import looks for no device, or this raises:
        jax.config.update("jax_num_cpu_devices", int(devices))
        with open("printed", "w") as sys.stdout:
            runpy.run_path(f"{name}.py", run_name="__main__")
        break
    if os.wait()[1]:
        print(name)
"""


@pytest.mark.parametrize(
    ("devices", "first"), [(1, 0), (8, 1), each_week(1, 1), each_week(8, 0)]
)
def test_a_copy_runs_alone(devices, first, run, tmp_path, monkeypatch):
    """In the gate each once, half of them on one device.

    A process may call `jax.distributed.initialize` after an import.
    """
    proofs = {each.stem: mark_of_copy(each.stem, devices) for each in MODULES[first::2]}
    names = [name for name in proofs if marks.read_mark(proofs[name]) is None]
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for name in names:
        (tmp_path / name).mkdir()
        shutil.copy(ROOT / f"src/examples/{name}.py", tmp_path / name)
    assert run("-c", EACH_ALONE, str(devices), *names, cwd=tmp_path, devices=2) == ""
    assert all((tmp_path / name / "printed").stat().st_size for name in names)
    for name in names:
        marks.write_mark(proofs[name])


def mark_of_copy(name, devices):
    """Return the mark of a copy that has run alone on so many devices."""
    inputs = f"src/examples/{name}.py", "tests/test_modules.py", "requirements.lock"
    return marks.digest(inputs, marks.describe_environment(), f"{devices} devices")


def lines_of_code(module):
    """Count the lines of a module without docstrings, comments and blank lines."""
    tree = ast.parse(module.read_text())
    for node in ast.walk(tree):
        own = ast.Module, ast.ClassDef, ast.FunctionDef
        if isinstance(node, own) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return len([*filter(None, ast.unparse(tree).splitlines())])


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_a_module_is_small_and_free_and_needs_jax_alone(module):
    """Or one extra that it names. A longer one has two concepts: cut it in two."""
    text = module.read_text()
    assert text.startswith("# SPDX-License-Identifier: MIT-0\n")
    assert (lines_of_code(module) > 300) == (module.stem in LONGER)
    roots = {*re.findall(r"^ *(?:import (\w+)|from (\w+)[\w.]* import)", text, re.M)}
    others = {max(root) for root in roots} - sys.stdlib_module_names - {"jax", "numpy"}
    needs = text.rpartition("Copy this file alone: it needs ")[2].partition('"""')[0]
    assert others == {root for root, name in EXTRAS.items() if name in needs}
    assert len(others) <= 1


def test_a_repeated_function_is_the_same_everywhere():
    sources = {}
    for module in MODULES:
        for node in ast.parse(module.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name not in OWN:
                source = ast.unparse(node)
                assert sources.setdefault(node.name, source) == source, node.name


@pytest.mark.parametrize("kinds", [("Auto", "Explicit"), ("Auto", "Manual")])
def test_axes_of_two_types_are_refused_by_every_module(kinds):
    """`Manual` is an axis over which a `shard_map` around the call runs."""
    two = tuple(getattr(jax.sharding.AxisType, kind) for kind in kinds)
    mesh = jax.sharding.AbstractMesh((2, 4), ("x", "y"), axis_types=two)
    with jax.sharding.use_abstract_mesh(mesh):
        for module in MODULES:
            if "def mesh_sizes(" in module.read_text():
                own = importlib.import_module(f"examples.{module.stem}")
                assert own.mesh_sizes("x") == [2]
                with pytest.raises(ValueError, match="of two types"):
                    own.mesh_sizes("x", "y")
