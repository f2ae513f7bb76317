"""What every module in src/examples promises, whatever it is about."""

import ast
import re
import shutil
import sys
from pathlib import Path

import jax
import pytest
from cases import each_week

from book import marks
from examples import tsqr

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "src/examples").glob("[!_]*.py"))
OWN = "main", "cost"  # which every module writes for itself
EXTRAS = {"optax": "Optax", "orbax": "Orbax"}  # which a module may import that says so
COPIES = [(file.name, 1 + 7 * (n % 2)) for n, file in enumerate(MODULES)]
OTHERS = [each_week(name, 9 - devices) for name, devices in COPIES]
LONGER = {"block_qr", "cholesky", "lu"}  # factors, solutions, derivatives: one layout

ALONE = """
import runpy, sys, jax
sys.modules["examples"] = None  # no other module can be imported
_, name, devices = sys.argv
sys.argv = [name]
runpy.run_path(name)  # an import looks for no device, or this raises:
jax.config.update("jax_num_cpu_devices", int(devices))
runpy.run_path(name, run_name="__main__")
"""


@pytest.mark.parametrize(("name", "devices"), COPIES + OTHERS)
def test_a_copy_runs_alone(name, devices, run, tmp_path):
    """A process may call `jax.distributed.initialize` after an import."""
    inputs = f"src/examples/{name}", "tests/test_modules.py", "requirements.lock"
    mark = marks.digest(inputs, marks.describe_environment(), f"{devices} devices")
    if marks.read_mark(mark) is not None:
        pytest.skip("had passed")
    shutil.copy(ROOT / "src/examples" / name, tmp_path)
    assert run("-c", ALONE, name, str(devices), cwd=tmp_path)
    marks.write_mark(mark)


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
def test_axes_of_two_types_are_refused(kinds):
    """By `mesh_sizes`, of one text in all modules that have it.

    `Manual` is an axis over which a `shard_map` around the call runs.
    """
    two = tuple(getattr(jax.sharding.AxisType, kind) for kind in kinds)
    mesh = jax.sharding.AbstractMesh((2, 4), ("x", "y"), axis_types=two)
    with jax.sharding.use_abstract_mesh(mesh):
        assert tsqr.mesh_sizes("x") == [2]
        with pytest.raises(ValueError, match="of two types"):
            tsqr.mesh_sizes("x", "y")
