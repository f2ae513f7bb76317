"""Two shardings: when they are the same, and what is reason where they differ."""

import itertools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, SingleDeviceSharding
from on_devices import even, mesh_of, on, table

from examples.shardings import Mistake, differences, mistake, notation, parse

WORDING = Path(__file__).parents[1] / "wording/shardings.txt"
AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
SHAPE = 8, 8


@pytest.fixture
def mesh():
    """The mesh 2 x 4 in context."""
    mesh = mesh_of(2, 4)
    with jax.set_mesh(mesh):
        yield mesh


def same(answer, target, shape=SHAPE):
    reasons, maps = differences(answer, target, shape)
    assert bool(reasons) == (maps[0] != maps[1])
    return not reasons


def reasons_of(answer, target, shape=SHAPE):
    reasons, _ = differences(answer, target, shape)
    assert reasons
    return " ".join(reasons)


# ------------------------------------------------ a sharding: every right one counts


def test_any_spelling_of_a_sharding_is_right():
    names = jax.make_mesh((4, 2), ("model", "batch"))
    rows = on(mesh_of(2, 4), ("x", "y"))
    for answer in (
        on(mesh_of(8), "x", None),
        on(mesh_of(8, kind=AUTO), ("x",)),
        on(mesh_of(2, 2, 2), ("x", "y", "z")),
        on(names, ("model", "batch")),
        rows,
    ):
        assert same(answer, " / ".join("01234567"))
        assert same(answer, rows)


@pytest.mark.parametrize(("sizes", "kind"), [((8, 1), AUTO), ((2, 4), EXPLICIT)])
def test_two_shardings_are_the_same_exactly_if_jax_moves_nothing(sizes, kind):
    """JAX's own answer is the oracle: `is_equivalent_to`, on one order of devices."""
    mesh = mesh_of(*sizes, kind=kind)
    specs = ("x",), (None, "x"), ("y", "x"), (), ("x", "y"), ("y",), (None, "y")
    shardings = [on(mesh, *spec) for spec in specs]
    for mine, wanted in itertools.product(shardings, shardings[:4]):
        equivalent = mine.is_equivalent_to(wanted, 2)
        assert same(mine, wanted) == equivalent, (mine, wanted)


def test_a_spec_an_array_or_its_description_stands_for_its_sharding(mesh):
    described = jax.ShapeDtypeStruct(SHAPE, np.int8, sharding=on(mesh, None, "x"))
    for answer in jax.P(None, "x"), table(None, "x"), described:
        for target in (
            "0,1,2,3 4,5,6,7",
            jax.P(None, "x"),
            table(None, "x"),
            described,
        ):
            assert same(answer, target)
        assert not same(answer, "0 1 2 3 / 4 5 6 7")
    assert same(jax.P("x", "y"), jax.P("x", "y", None), (8, 8, 2))


def test_a_vector_is_judged_too(mesh):
    reason = reasons_of(jax.P("y"), "0,1,2,3 4,5,6,7", (4,))
    assert "cut into blocks 4, in the target 2" in reason
    assert "device 0 holds element 0, the target wants elements 0-1" in reason


def test_one_device_is_a_mesh_as_well():
    here = SingleDeviceSharding(jax.devices()[0])
    assert same(here, "0")
    assert same(on(mesh_of(1), "x"), here)
    assert same(here, here, ())


# ---------------------------------------------- a sharding: what is wrong with it

EIGHT_COLUMNS = "0 1 2 3 4 5 6 7"
ALL = ",".join("01234567")
MISTAKES = [  # answer, target, kind of mistake, first device that shows it
    (lambda: on(mesh_of(8), "x"), EIGHT_COLUMNS, "TRANSPOSED", 0),
    (lambda: on(mesh_of(4, 2), "x", "y"), "0 2 4 6 / 1 3 5 7", "TRANSPOSED", 0),
    (lambda: on(mesh_of(2, 4), "x"), "0 1 2 3 / 4 5 6 7", "OTHER_BLOCKS", 0),
    (lambda: on(mesh_of(2, 4), "x", "y"), "0 2 4 6 / 1 3 5 7", "OTHER_ORDER", 1),
    (lambda: on(mesh_of(2, 4), None, "x"), "0,2,4,6 1,3,5,7", "OTHER_ORDER", 1),
    (lambda: on(even(4), None, "x"), EIGHT_COLUMNS, "FEWER_DEVICES", 0),
    (
        lambda: on(mesh_of(2, 2, devices=jax.devices()[:4]), "x", "y"),
        "0 2 / 4 6",
        "OTHER_DEVICES",
        1,
    ),
    (lambda: on(mesh_of(8), "x"), "0 / 2 / 4 / 6", "OTHER_DEVICES", 0),
    (lambda: SingleDeviceSharding(jax.devices()[3]), EIGHT_COLUMNS, "FEWER_DEVICES", 0),
    (lambda: on(mesh_of(8)), EIGHT_COLUMNS, "REPLICATED", 0),
    (lambda: on(mesh_of(8), "x"), ALL, "NOT_REPLICATED", 0),
]


@pytest.mark.parametrize(
    ("answer", "target", "kind", "device"), MISTAKES, ids=map(str, range(11))
)
def test_it_finds_what_kind_of_mistake_a_sharding_is(answer, target, kind, device):
    reasons, (wanted, mine) = differences(answer(), target, SHAPE)
    assert mistake(mine, wanted) is Mistake[kind]
    assert reasons[1].startswith(f"device {device} holds")


def test_the_transposed_sharding_of_an_oblong_array_is_recognised():
    answer = on(mesh_of(2, 4), "y", "x")
    reason = reasons_of(answer, on(mesh_of(2, 4), "x", "y"), (8, 24))
    assert "this is the transposed sharding" in reason
    reason = reasons_of(on(mesh_of(2, 4), "x"), on(mesh_of(2, 4), "y"), (8, 24))
    assert "transposed" not in reason


def test_another_order_is_found_far_into_the_picture_and_in_three_axes():
    order = [jax.devices()[i] for i in (0, 1, 2, 3, 4, 5, 7, 6)]
    mine, wanted = on(mesh_of(8, devices=order), "x"), on(mesh_of(8), "x")
    assert "device 6 holds row 7, the target wants row 6" in reasons_of(mine, wanted)
    reason = reasons_of(mine, wanted, (8, 2, 2))
    assert "another order: 0 / 1 / 2 / 3 / 4 / 5 / 7 / 6 instead of 0 / 1" in reason
    assert "device 6 holds [7:8, 0:2, 0:2], the target wants [6:7, 0:2, 0:2]" in reason


def test_a_pending_sum_is_not_a_sharding_of_the_sum(mesh):
    rows = on(mesh, "x")
    pending = jax.NamedSharding(mesh, jax.P("x", unreduced={"y"}))
    reason = reasons_of(pending, rows)
    assert reason == "its sums are pending (unreduced) over y"
    with pytest.raises(ValueError, match="pending"):
        differences(rows, pending, SHAPE)


NO_SHARDINGS = [..., None, "x", 3.5, ("x", None), ["x"], np.ones(2)]


def test_the_words_for_mistakes_are_those_of_the_file():
    """The only place that fixes them: read what changed, then change the file."""
    pairs = [(answer(), target) for answer, target, *_ in MISTAKES]
    pairs += [(answer, EIGHT_COLUMNS) for answer in NO_SHARDINGS]
    lines = [line for pair in pairs for line in differences(*pair, SHAPE)[0]]
    assert lines == WORDING.read_text().splitlines()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda mesh: jax.P("z"), "refuses .*: ValueError: Resource axis: z of P"),
        (
            lambda mesh: jax.P("x", "x"),
            "refuses .*: DuplicateSpecError: A single Named",
        ),
        (
            lambda mesh: jax.P(("x", "y")),
            "JAX refuses this sharding: IndivisibleError: ",
        ),
        (lambda mesh: on(mesh.abstract_mesh, "x"), "JAX refuses this sharding: "),
        (lambda mesh: jax.P(None, None, "x"), "'x'. is for 3 axes, the array has 2"),
        (lambda mesh: jnp.zeros(8), r"has the shape \(8,\), wanted is \(4, 4\)"),
    ],
)
def test_what_jax_refuses_or_does_not_fit_is_a_reason(mesh, make, words):
    assert re.search(words, reasons_of(make(mesh), "0 1 / 2 3", (4, 4)))


def test_a_spec_without_a_mesh_is_refused_with_advice():
    reason = reasons_of(jax.P("x"), EIGHT_COLUMNS)
    assert reason == "a spec alone has no mesh: call jax.set_mesh(mesh) first"


# -------------------------------------------------------------- pictures in text


@pytest.mark.parametrize(
    ("picture", "shape"),
    [("0 2 / 4 6", (4, 4)), ("3,5 1", (8,)), ("10 11", (2, 2))],
)
def test_a_picture_is_read_back_as_it_was_written(picture, shape):
    assert notation(parse(picture, shape)) == picture


def test_a_picture_says_which_device_holds_what():
    whole, left, right = slice(0, 4), slice(0, 3), slice(3, 6)
    halves = {0: (whole, left), 7: (whole, left), 2: (whole, right)}
    assert parse("0,7 2", (4, 6)) == halves
    assert parse("0 / 1", (4, 6))[1] == (slice(2, 4), slice(0, 6))
    assert parse("0 1", (6,)) == {0: (left,), 1: (right,)}


@pytest.mark.parametrize(
    ("picture", "shape", "reason"),
    [
        ("0 1 / 2", SHAPE, "in equal blocks"),
        ("", SHAPE, "in equal blocks"),
        ("0 1 2", SHAPE, "in equal blocks"),
        ("0 1", (8, 8, 8), "does not cut the shape"),
        ("0 0", SHAPE, "'0' is no device, or one too many"),
        ("0 x", SHAPE, "'x' is no device"),
        ("0, 1", SHAPE, "'' is no device"),
        (None, SHAPE, "a sharding is wanted"),
        (jax.P("x"), SHAPE, "a spec alone has no mesh"),
    ],
)
def test_what_is_no_picture_is_a_value_error(picture, shape, reason):
    with pytest.raises(ValueError, match=reason):
        differences(jax.P(), picture, shape)
