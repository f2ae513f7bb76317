"""Two shardings: when they are the same, and what is reason where they differ."""

import itertools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import SingleDeviceSharding
from on_devices import AUTO, EXPLICIT, even, mesh_of, on, table

from examples.shardings import Mistake, differences, mistake, notation, parse

WORDING = Path(__file__).parents[1] / "wording/shardings.txt"
P, SHAPE = jax.P, (8, 8)


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


# ------------------------------------------------ a sharding: every right one counts


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
    answers = P(None, "x"), table(None, "x"), described
    for answer, target in itertools.product(answers, ("0,1,2,3 4,5,6,7", *answers)):
        assert same(answer, target)
    assert same(P("x", "y"), P("x", "y", None), (8, 8, 2))


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
    (lambda: on(mesh_of(2, 2), "x", "y"), "0 2 / 4 6", "OTHER_DEVICES", 1),
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


SWAPPED = on(mesh_of(8, devices=[jax.devices()[i] for i in (*range(6), 7, 6)]), "x")
ABSTRACT = on(mesh_of(2, 4).abstract_mesh, "x")
OBLONG, CUBE, QUARTERS = (8, 24), (8, 2, 2), ("0 1 / 2 3", (4, 4))


@pytest.mark.parametrize(
    ("answer", "target", "shape", "words"),
    [
        (P("y"), "0,1,2,3 4,5,6,7", (4,), "cut into blocks 4, in the target 2"),
        (P("y"), "0,1,2,3 4,5,6,7", (4,), "0 holds element 0, .* wants elements 0-1"),
        (P("y", "x"), P("x", "y"), OBLONG, "this is the transposed sharding"),
        (P("x"), P("y"), OBLONG, "cut into blocks 2 x 1, in the target 4 x 1"),
        (SWAPPED, P(("x", "y")), SHAPE, "device 6 holds row 7, .* wants row 6"),
        (SWAPPED, P(("x", "y")), CUBE, "/ 4 / 5 / 7 / 6 instead of 0 / 1"),
        (SWAPPED, P(("x", "y")), CUBE, r"6 holds \[7:8, 0:2, 0:2\], .* \[6:7, 0:2,"),
        (P("z"), *QUARTERS, "refuses .*: ValueError: Resource axis: z of P"),
        (P("x", "x"), *QUARTERS, "refuses .*: DuplicateSpecError: A single Named"),
        (P(("x", "y")), *QUARTERS, "JAX refuses this sharding: IndivisibleError: "),
        (ABSTRACT, *QUARTERS, "JAX refuses this sharding: "),
        (P(None, None, "x"), *QUARTERS, "'x'. is for 3 axes, the array has 2"),
        (jnp.zeros(8), *QUARTERS, r"has the shape \(8,\), wanted is \(4, 4\)"),
    ],
    ids=itertools.count(),
)
@pytest.mark.usefixtures("mesh")
def test_a_reason_names_what_differs_or_does_not_fit(answer, target, shape, words):
    reasons, _ = differences(answer, target, shape)
    assert re.search(words, " ".join(reasons))


def test_a_pending_sum_is_not_a_sharding_of_the_sum(mesh):
    pending = jax.NamedSharding(mesh, P("x", unreduced={"y"}))
    reasons, _ = differences(pending, P("x"), SHAPE)
    assert reasons == ["its sums are pending (unreduced) over y"]
    with pytest.raises(ValueError, match="pending"):
        differences(P("x"), pending, SHAPE)


NO_SHARDINGS = [..., None, "x", 3.5, ("x", None), ["x"], np.ones(2), P("x")]


def test_the_words_for_mistakes_are_those_of_the_file():
    """The only place that fixes them: read what changed, then change the file."""
    pairs = [(answer(), target) for answer, target, *_ in MISTAKES]
    pairs += [(answer, EIGHT_COLUMNS) for answer in NO_SHARDINGS]
    lines = [line for pair in pairs for line in differences(*pair, SHAPE)[0]]
    assert lines == WORDING.read_text().splitlines()


# -------------------------------------------------------------- pictures in text


@pytest.mark.parametrize(
    ("picture", "shape"), [("0 2 / 4 6", (4, 4)), ("3,5 1", (8,)), ("10 11", (2, 2))]
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
        (P("x"), SHAPE, "a spec alone has no mesh"),
    ],
)
def test_what_is_no_picture_is_a_value_error(picture, shape, reason):
    with pytest.raises(ValueError, match=reason):
        differences(P(), picture, shape)
