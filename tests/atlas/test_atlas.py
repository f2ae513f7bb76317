"""The atlas says what compilers do, and finds what changed."""

import os
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from examples import atlas
from examples.communication import read
from examples.machines import described

ROOT = Path(__file__).parents[2]
FEW = {  # of two groups: each operation compiles a program
    "elementwise": ["jnp.sin(x)", "x + 1"],
    "reductions": ["x.sum(0)", "jnp.median(v)"],
}
GROUPS = (*FEW,)
AUTO = jax.sharding.AxisType.Auto


def survey_few(*devices):
    """Survey those few."""
    with pytest.MonkeyPatch.context() as patch:
        for group, lines in FEW.items():
            patch.setitem(atlas.OPERATIONS, group, lines)
        return atlas.survey(read, GROUPS, *devices)


@pytest.fixture(scope="module")
def rows():
    return survey_few()


LINES = [line for group in atlas.OPERATIONS.values() for line in group]


def test_every_operation_stands_once_and_is_traced_on_one_device():
    assert len(LINES) == len(set(LINES)) > 100
    assert all(LINES)
    mesh = jax.make_mesh((1,), ("x",), axis_types=(AUTO,), devices=jax.devices()[:1])
    table = atlas.arguments(mesh)
    for line in LINES:
        f = atlas.function(line, table)
        jax.eval_shape(lambda f=f, **table: f(**table, N=64), **table)


@pytest.mark.parametrize("count", [1, 2])
def test_a_survey_is_of_the_devices_that_it_is_given(count):
    """It goes in the order of the table."""
    few = {row.operation: row for row in survey_few(jax.devices()[-count:])}
    assert [*few] == [line for lines in FEW.values() for line in lines]
    assert few["x.sum(0)"].sent == 2 * (count - 1) / count * 16 * 4
    assert any(row.collectives for row in few.values()) == (count > 1)


def test_both_types_of_axes_have_the_devices_that_are_given():
    for axis_type, line in (AUTO, "v @ v"), (jax.sharding.AxisType.Explicit, "x"):
        program = atlas._lower(line, axis_type, jax.devices()[4:6]).compile()
        (mesh,) = {each.mesh for each in jax.tree.leaves(program.input_shardings)}
        assert [*mesh.devices.flat] == jax.devices()[4:6]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("jnp.flip(v)", ("1 collective-permute", 32, "[64@x]", "[64@x]")),
        ("jnp.split(x, 2, 1)", ("", 0, "[64@x, 8], [64@x, 8]", "[64@x, 8], [64@x, 8]")),
        ("v @ v", ("1 all-reduce", 7, "[]", "ShardingTypeError")),
    ],
)
def test_known_operations_have_their_price(operation, expected):
    collectives, sent, output, _ = atlas._auto(operation, read, jax.devices())
    explicit, _ = atlas._explicit(operation, jax.devices())
    assert (collectives, sent, output, explicit) == expected


def test_a_loop_of_unknown_length_is_called_one():
    loop = "lax.while_loop(lambda v: v.max() > 1, lambda v: v / 2, v)"
    collectives, sent, *_ = atlas._auto(loop, read, jax.devices())
    assert collectives == "all-reduce in a loop"
    assert np.isnan(sent)


def test_what_the_compiler_warns_of_is_in_the_row_and_printed_nowhere(capfd):
    *_, warning = atlas._auto("jnp.fft.fft2(a)", read, jax.devices())
    assert capfd.readouterr().err == ""
    warns = jax.__version_info__ >= (0, 12)
    assert warning == ("Falling back to replicated" if warns else "")


CACHED = """
import jax
from examples import atlas, communication
jax.jit(jax.numpy.sin)(1.0)
atlas._auto("jnp.fft.fft2(a)", communication.read, jax.devices())
"""


def test_a_program_in_the_cache_is_compiled_again(run, tmp_path, monkeypatch):
    """For its warning; others are put there."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    run("-c", CACHED, cwd=ROOT / "src")
    assert list(tmp_path.glob("jit_sin-*"))
    assert not list(tmp_path.glob("*fft*"))


def test_stderr_is_given_back(capfd):
    with pytest.raises(ZeroDivisionError):
        atlas._capture_stderr(lambda: 1 / 0)
    os.write(2, b"heard\n")  # to the file that C++ writes to
    assert capfd.readouterr().err == "heard\n"


def test_a_table_comes_back_as_it_was_saved_in_whole_or_in_part(rows, tmp_path):
    path, odd = tmp_path / "a.csv", replace(rows[0], sent=np.nan, error='a "quoted", b')
    atlas.save([*rows[:2], odd], path)
    assert [*map(repr, atlas.load(path))] == [*map(repr, [*rows[:2], odd])]
    assert atlas.changes([odd], [atlas.load(path)[-1]]) == []
    machines = ["machine", "CPU", "H100", "H100"]
    lines = zip(machines, path.read_text().splitlines(), strict=True)
    path.write_text("\n".join(map(",".join, lines)))
    assert atlas.load(path, machine="H100")[0] == rows[1]
    for where in {"machine": "TPU"}, {"size": "64"}:
        with pytest.raises(ValueError, match=r"no row of .*a.csv has \{.*: pass what"):
            atlas.load(path, **where)


def test_changes_are_listed_field_by_field(rows):
    other = [replace(rows[1], sent=8.0, collectives="1 all-reduce"), *rows[2:]]
    added = replace(rows[0], operation="jnp.new(x)")
    assert atlas.changes(rows, rows) == []
    assert atlas.changes(rows, [*other, added]) == [
        (rows[1].operation, "collectives", "", "1 all-reduce"),
        (rows[1].operation, "sent", "0.0", "8.0"),
        ("jnp.new(x)", "operation", "", "jnp.new(x)"),
        (rows[0].operation, "operation", rows[0].operation, ""),
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([None], "read is a NoneType: pass a function"),
        ([read, ["shape"]], r"no group \['shape'\]: pass some of"),
        ([read, GROUPS, []], r"no devices: pass what jax.devices\(\) returns"),
        ([read, GROUPS, ["cpu:0"]], r"no devices: pass what jax.devices\(\) returns"),
    ],
    ids=["reader", "group", "nothing", "text"],
)
def test_a_survey_of_what_is_not_there_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        atlas.survey(*given)


# -------------------------------------------------------- the table of the book


@pytest.mark.weekly
@pytest.mark.parametrize(
    ("machine", "name"), [("TPU v5p", "v5p:2x2x2"), ("H100", "h100")]
)
def test_a_compiler_that_is_here_does_what_the_table_says(machine, name):
    """The page compares that of CPUs, all operations."""
    try:
        devices = described(name)
    except ModuleNotFoundError as missing:
        pytest.skip(str(missing))
    table = atlas.load(ROOT / "docs/reference/data/atlas.csv", machine=machine)
    rows = [row for row in table if row.group == "indexing"]
    assert atlas.changes(rows, atlas.survey(read, ["indexing"], devices)) == []
