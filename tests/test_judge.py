import html.parser
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from examples.communication import measure
from examples.judge import (
    Judge,
    Verdict,
    compare,
    differences,
    index_map,
    notation,
    parse,
)
from examples.pictures import draw

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
SHAPE = 8, 8
judge = Judge()
costly = Judge(measure=measure)


def mesh_of(*sizes, devices=None, kind=EXPLICIT):
    names = ("x", "y", "z")[: len(sizes)]
    return jax.make_mesh(sizes, names, (kind,) * len(sizes), devices=devices)


def on(mesh, *spec):
    return jax.NamedSharding(mesh, jax.P(*spec))


def even(*sizes):
    return mesh_of(*sizes, devices=jax.devices()[::2])


@pytest.fixture(params=[AUTO, EXPLICIT], ids=["auto", "explicit"])
def mesh(request):
    """The mesh 2 x 4 in context."""
    mesh = mesh_of(2, 4, kind=request.param)
    with jax.set_mesh(mesh):
        yield mesh


def a_table(*spec):
    return jax.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), jax.P(*spec))


def why(verdict):
    assert not verdict.passed
    return " ".join(verdict.reasons)


# ------------------------------------------------ a sharding: every right one counts


def test_any_spelling_of_a_sharding_is_right():
    names = jax.make_mesh((4, 2), ("model", "batch"))
    one, two, three = mesh_of(8), mesh_of(2, 4), mesh_of(2, 2, 2)
    for answer in (
        on(one, "x"),
        on(one, "x", None),
        on(one, ("x",)),
        on(two, ("x", "y")),
        on(two, ("x", "y"), None),
        on(three, ("x", "y", "z")),
        on(names, ("model", "batch")),
        on(mesh_of(8, kind=AUTO), "x"),
    ):
        rows = " / ".join("01234567")
        assert judge.sharding(answer, rows, SHAPE).require().passed
        for target in (on(one, "x"), on(two, ("x", "y"))):
            assert judge.sharding(answer, target, SHAPE).passed


def test_both_solutions_of_the_mysterious_sharding_are_right():
    target = "0 2 / 4 6 / 1 3 / 5 7"
    assert judge.sharding(on(mesh_of(2, 2, 2), ("z", "x"), "y"), target, SHAPE).passed
    order = np.array(jax.devices())[[0, 4, 1, 5, 2, 6, 3, 7]].reshape(2, 4)
    published = on(jax.sharding.Mesh(order, ("x", "y")), "y", "x")
    assert judge.sharding(published, target, SHAPE).passed


@pytest.mark.parametrize("spec", [("x",), (None, "x"), ("x", "y"), ("y", "x"), ()])
@pytest.mark.parametrize("sizes", [(8, 1), (2, 4), (4, 2)])
def test_two_shardings_are_the_same_exactly_if_jax_moves_nothing(sizes, spec):
    """JAX's own answer is the oracle: `is_equivalent_to`, on one order of devices."""
    mesh = mesh_of(*sizes)
    for other in itertools.product(["x", "y", None], repeat=2):
        if other[0] == other[1] and other[0]:
            continue
        mine, wanted = on(mesh, *other), on(mesh, *spec)
        equivalent = mine.is_equivalent_to(wanted, 2)
        assert judge.sharding(mine, wanted, SHAPE).passed == equivalent, (mine, wanted)


def test_a_spec_lies_over_the_mesh_in_context(mesh):
    assert judge.sharding(jax.P("x", "y"), "0 1 2 3 / 4 5 6 7", SHAPE).passed
    assert judge.sharding(jax.P("x", "y"), jax.P("x", "y", None), (8, 8, 2)).passed
    assert judge.sharding(jax.P(), ",".join("01234567"), SHAPE).passed
    assert not judge.sharding(jax.P("x"), "0 1 2 3 / 4 5 6 7", SHAPE).passed


def test_an_array_or_its_description_stands_for_its_sharding(mesh):
    answer = a_table(None, "x")
    described = jax.ShapeDtypeStruct(SHAPE, np.int8, sharding=on(mesh, None, "x"))
    for target in ("0,1,2,3 4,5,6,7", jax.P(None, "x"), answer, described):
        assert judge.sharding(answer, target, SHAPE).passed
        assert judge.sharding(described, target, list(SHAPE)).passed


def test_a_vector_and_three_axes_are_judged_too(mesh):
    assert judge.sharding(jax.P("x"), "0,1,2,3 4,5,6,7", (4,)).passed
    said = why(judge.sharding(jax.P("y"), "0,1,2,3 4,5,6,7", (4,)))
    assert "cut into blocks 4, in the target 2" in said
    assert "device 0 holds element 0, the target wants elements 0-1" in said
    three = 4, 4, 4
    assert judge.sharding(jax.P("x", None, "y"), jax.P("x", None, "y"), three).passed
    said = why(judge.sharding(jax.P("x", None, "y"), jax.P("x", "y"), three))
    assert "cut into blocks 2 x 1 x 4, in the target 2 x 4 x 1" in said
    assert "device 0 holds [0:2, 0:4, 0:1], the target wants [0:2, 0:1, 0:4]" in said


def test_one_device_is_a_mesh_as_well():
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    assert judge.sharding(here, "0", SHAPE).passed
    assert judge.sharding(on(mesh_of(1), "x"), here, SHAPE).passed
    assert judge.sharding(here, here, ()).passed


# ---------------------------------------------- a sharding: what is wrong with it


EIGHT_COLUMNS = "0 1 2 3 4 5 6 7"


@pytest.mark.parametrize(
    ("answer", "target", "reasons"),
    [
        (
            lambda: on(mesh_of(8), "x"),
            EIGHT_COLUMNS,
            [
                "rows and columns are swapped: this is the transposed sharding",
                "device 0 holds row 0, the target wants column 0",
            ],
        ),
        (
            lambda: on(mesh_of(4, 2), "x", "y"),
            "0 2 4 6 / 1 3 5 7",
            [
                "rows and columns are swapped: this is the transposed sharding",
                "device 0 holds rows 0-1 of columns 0-3, "
                "the target wants rows 0-3 of columns 0-1",
            ],
        ),
        (
            lambda: on(mesh_of(2, 4), "x"),
            "0 1 2 3 / 4 5 6 7",
            [
                "the array is cut into blocks 2 x 1, in the target 2 x 4",
                "device 0 holds rows 0-3, the target wants rows 0-3 of columns 0-1",
            ],
        ),
        (
            lambda: on(mesh_of(2, 4), "x", "y"),
            "0 2 4 6 / 1 3 5 7",
            [
                "the devices are in another order: "
                "0 1 2 3 / 4 5 6 7 instead of 0 2 4 6 / 1 3 5 7",
                "device 1 holds rows 0-3 of columns 2-3, "
                "the target wants rows 4-7 of columns 0-1",
            ],
        ),
        (
            lambda: on(mesh_of(2, 4), None, "x"),
            "0,2,4,6 1,3,5,7",
            [
                "the devices are in another order: "
                "0,1,2,3 4,5,6,7 instead of 0,2,4,6 1,3,5,7",
                "device 1 holds columns 0-3, the target wants columns 4-7",
            ],
        ),
        (
            lambda: on(even(4), None, "x"),
            EIGHT_COLUMNS,
            [
                "it uses 4 of the 8 devices: 0, 2, 4, 6",
                "device 0 holds columns 0-1, the target wants column 0",
            ],
        ),
        (
            lambda: on(mesh_of(2, 2, devices=jax.devices()[:4]), "x", "y"),
            "0 2 / 4 6",
            [
                "it uses the devices 0, 1, 2, 3; the target uses 0, 2, 4, 6",
                "device 1 holds rows 0-3 of columns 4-7, the target wants nothing",
            ],
        ),
        (
            lambda: on(mesh_of(8), "x"),
            "0 / 2 / 4 / 6",
            [
                "it uses the devices 0, 1, 2, 3, 4, 5, 6, 7; "
                "the target uses 0, 2, 4, 6",
                "device 0 holds row 0, the target wants rows 0-1",
            ],
        ),
        (
            lambda: jax.sharding.SingleDeviceSharding(jax.devices()[3]),
            EIGHT_COLUMNS,
            [
                "it uses 1 of the 8 devices: 3",
                "device 0 holds nothing, the target wants column 0",
            ],
        ),
        (
            lambda: on(mesh_of(8)),
            EIGHT_COLUMNS,
            [
                "every device holds the whole array (replicated)",
                "device 0 holds the whole array, the target wants column 0",
            ],
        ),
        (
            lambda: on(mesh_of(8), "x"),
            ",".join("01234567"),
            [
                "the target is replicated: no device holds only a part",
                "device 0 holds row 0, the target wants the whole array",
            ],
        ),
    ],
)
def test_it_says_in_words_what_is_wrong_with_a_sharding(answer, target, reasons):
    verdict = judge.sharding(answer(), target, SHAPE)
    assert list(verdict.reasons) == reasons
    assert not verdict.passed


def test_the_transposed_sharding_of_an_oblong_array_is_recognised():
    answer = on(mesh_of(2, 4), "y", "x")
    said = why(judge.sharding(answer, on(mesh_of(2, 4), "x", "y"), (8, 24)))
    assert "this is the transposed sharding" in said
    said = why(judge.sharding(on(mesh_of(2, 4), "x"), on(mesh_of(2, 4), "y"), (8, 24)))
    assert "transposed" not in said


def test_it_finds_the_device_that_differs_far_into_the_picture():
    order = [jax.devices()[i] for i in (0, 1, 2, 3, 4, 5, 7, 6)]
    said = why(
        judge.sharding(on(mesh_of(8, devices=order), "x"), "0/1/2/3/4/5/6/7", SHAPE)
    )
    assert "device 6 holds row 7, the target wants row 6" in said


def test_another_order_in_three_axes_is_told_too():
    order = jax.devices()[::-1]
    wanted, mine = on(mesh_of(8), "x"), on(mesh_of(8, devices=order), "x")
    said = why(judge.sharding(mine, wanted, (8, 2, 2)))
    assert "another order: 7 / 6 / 5 / 4 / 3 / 2 / 1 / 0 instead of 0 / 1" in said
    assert "device 0 holds [7:8, 0:2, 0:2], the target wants [0:1, 0:2, 0:2]" in said


def test_a_pending_sum_is_not_a_sharding_of_the_sum(mesh):
    pending = on(mesh_of(2, 4), "x")
    unreduced = jax.NamedSharding(pending.mesh, jax.P("x", unreduced={"y"}))
    said = why(judge.sharding(unreduced, pending, SHAPE))
    assert said == "its sums are pending (unreduced) over y"
    with pytest.raises(ValueError, match="pending"):
        judge.sharding(pending, unreduced, SHAPE)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (..., "the answer is three dots, unchanged; a sharding is wanted"),
        (None, "the answer is None; a sharding is wanted"),
        ("x", "the answer is 'x'; a sharding is wanted"),
        (3.5, "the answer is 3.5; a sharding is wanted"),
        (("x", None), "the answer is ('x', None); a sharding is wanted"),
        (["x"], "the answer is ['x']; a sharding is wanted"),
        (np.ones(SHAPE), "the answer is array([[1., 1., 1., 1., 1., 1., 1., 1.], [1.,"),
        (jax.P("x"), "a spec alone names no mesh: call jax.set_mesh(mesh) first"),
        (jax.ShapeDtypeStruct(SHAPE, float), "the answer is ShapeDtypeStruct("),
        (jax.sharding.AbstractMesh((8,), ("x",)), "the answer is AbstractMesh"),
        (on, "the answer is <function on at"),
    ],
)
def test_what_is_no_sharding_is_told_so_beside_the_target(answer, reason):
    verdict = judge.sharding(answer, EIGHT_COLUMNS, SHAPE)
    assert why(verdict).startswith(reason)
    assert [title for title, _ in verdict.pictures] == ["The target"]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (jax.P("z"), "ValueError: Resource axis: z of P('z',) is not found in mesh"),
        (jax.P("x", "x"), "DuplicateSpecError: A single NamedSharding spec"),
        (jax.P(("x", "y")), "IndivisibleError: "),
    ],
)
def test_what_jax_refuses_is_told_in_its_words(mesh, spec, said):
    verdict = judge.sharding(spec, "0 1 / 2 3", (4, 4))
    assert why(verdict).startswith(f"JAX refuses this sharding: {said}")


def test_a_spec_for_more_axes_than_there_are_is_told_so(mesh):
    said = why(judge.sharding(jax.P(None, None, "x"), "0 1 / 2 3", (4, 4)))
    assert said == "P(None, None, 'x') is for 3 axes, the array has 2"


def test_a_mesh_without_devices_is_refused(mesh):
    abstract = on(mesh.abstract_mesh, "x")
    assert "JAX refuses" in why(judge.sharding(abstract, "0 1 / 2 3", (4, 4)))


def test_an_array_of_another_shape_is_told_so(mesh):
    answer = jnp.zeros(8)
    said = why(judge.sharding(answer, EIGHT_COLUMNS, SHAPE))
    assert said == "the array has the shape (8,), wanted is (8, 8)"


# -------------------------------------------------------------- pictures in text


@pytest.mark.parametrize(
    ("picture", "shape"),
    [
        ("0 2 / 4 6", (4, 4)),
        ("0,1 2,3", (4, 4)),
        ("0,1 / 2,3", (4, 4)),
        ("0 1 2 3 / 4 5 6 7", (2, 4)),
        ("0 1 2 3", (8,)),
        ("3,5 1", (8,)),
        ("0", (5,)),
        ("10 11", (2, 2)),
    ],
)
def test_a_picture_is_read_back_as_it_was_written(picture, shape):
    assert notation(parse(picture, shape)) == picture


def test_a_picture_says_which_device_holds_what():
    left, right = slice(0, 3), slice(3, 6)
    whole = slice(0, 4)
    assert parse("0,7 2", (4, 6)) == {
        0: (whole, left),
        7: (whole, left),
        2: (whole, right),
    }
    assert parse("0 / 1", (4, 6))[1] == (slice(2, 4), slice(0, 6))
    assert parse("0 1", (6,)) == {0: (left,), 1: (right,)}


@pytest.mark.parametrize(
    ("picture", "shape", "reason"),
    [
        ("0 1 / 2", SHAPE, "in equal blocks"),
        ("", SHAPE, "in equal blocks"),
        ("0 1 /", SHAPE, "in equal blocks"),
        ("0 1 2", SHAPE, "in equal blocks"),
        ("0 / 1", (8,), "in equal blocks"),
        ("0 1", (8, 8, 8), "does not cut the shape"),
        ("0 0", SHAPE, "'0' is no device, or one too many"),
        ("0 x", SHAPE, "'x' is no device"),
        ("0, 1", SHAPE, "'' is no device"),
    ],
)
def test_what_is_no_picture_is_a_value_error(picture, shape, reason):
    with pytest.raises(ValueError, match=reason):
        judge.sharding(jax.P(), picture, shape)


@pytest.mark.parametrize("target", [None, ..., ("x",), 3, jax.P("x")])
def test_what_is_no_target_is_a_value_error(target):
    with pytest.raises(ValueError, match=r"a sharding is wanted|a spec alone names no"):
        judge.sharding(jax.P(), target, SHAPE)


def test_where_one_sharding_lays_never_differs_from_itself():
    for spec in (("x",), ("y", "x"), ()):
        boxes = index_map(on(mesh_of(2, 4), *spec), SHAPE)
        assert differences(boxes, dict(reversed(boxes.items())), SHAPE) == []


# --------------------------------------------------------------------- a value


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (448, 448),
        (448.0, 448),
        (np.int64(448), 448),
        (jnp.asarray(448), 448),
        (10**12, 10**12),
        (1 / 3, 0.3333333),
        (1e-8 / 3, 1e-8 / 3 * (1 + 1e-6)),
        (float("nan"), float("nan")),
        (float("inf"), float("inf")),
        (1 + 2j, 1 + 2j),
        (True, True),
        (np.bool_(True), True),
        ("All-gather ", "all-gather"),
        ((2, 4), (2, 4)),
        ([2, 4], (2, 4)),
        (np.array([2, 4]), (2, 4)),
        (jnp.arange(3), np.arange(3)),
        ({"all-reduce": 1}, {"all-reduce": 1}),
        ({}, {}),
        ({1, 2}, {2, 1}),
        (None, None),
        (jax.P("x", None), jax.P("x", None)),
        ([(1, "a"), {"b": 2.0}], ((1, "A"), {"b": 2})),
    ],
)
def test_a_right_value_is_accepted(answer, expected):
    judge.value(answer, expected).require()


@pytest.mark.parametrize(
    ("answer", "expected", "reason"),
    [
        (3584, 448, "the answer is 3584, which is 8 times too large"),
        (56, 448, "the answer is 56, which is 8 times too small"),
        (-8, -1, "the answer is -8, which is 8 times too small"),
        (449, 448, "the answer is 449, which is too large"),
        (447.5, 448, "the answer is 447.5, which is too small"),
        (-448, 448, "the answer is -448, which is too small"),
        (0, 448, "the answer is 0, which is too small"),
        (-896, 448, "the answer is -896, which is too small"),
        (5, 0, "the answer is 5, which is too large"),
        (0.33, 1 / 3, "the answer is 0.33, which is too small"),
        (2 + 1j, 1 + 2j, "the answer is 2+1j, which is not right"),
        (1e-8, 2e-8, "the answer is 1e-08, which is 2 times too small"),
        (False, True, "the answer is False, which is not right"),
        (True, 3, "the answer is True; a number is wanted"),
        ("7", 7, "the answer is '7'; a number is wanted"),
        (None, 7, "the answer is None; a number is wanted"),
        (..., 7, "the answer is three dots, unchanged; a number is wanted"),
        (jax.P("x"), 7, "the answer is P('x',); a number is wanted"),
        ("rows", "columns", "the answer is 'rows', which is not right"),
        (..., "columns", "the answer is three dots, unchanged, which is not right"),
        (np.arange(2), "columns", "the answer is array([0, 1]), which is not right"),
        (3, (2, 4), "the number of values is 1, wanted is 2"),
        ((2, 4, 1), (2, 4), "the number of values is 3, wanted is 2"),
        ((4, 4), (2, 4), "the answer at [0] is 4, which is 2 times too large"),
        ({"all-gather": 1}, {"all-reduce": 1}, "a value ['all-gather'] that is not"),
        ({"b": 1, 2: 3}, 3, "the answer is {'b': 1, 2: 3}; a number is wanted"),
        (np.arange(3), 3, "the answer has the shape (3,), wanted is ()"),
        (np.arange(3), np.arange(4), "the answer has the shape (3,), wanted is (4,)"),
        ([1, 2, 3], np.arange(3), "the number of values is 3, wanted is 1"),
    ],
)
def test_it_says_what_is_wrong_with_a_value(answer, expected, reason):
    assert reason in why(judge.value(answer, expected))


def test_every_wrong_entry_of_an_answer_is_named():
    verdict = judge.value((1, 5, "b"), (1, 4, "a"))
    assert len(verdict.reasons) == 2
    assert "[1]" in verdict.reasons[0]
    assert "[2]" in verdict.reasons[1]


def test_a_number_that_is_wanted_is_not_given_away():
    said = str(judge.value((449, "rows"), (448, "columns")))
    assert "448" not in said
    assert "columns" not in said


# --------------------------------------------------------------------- an array


def test_an_array_is_a_value_wherever_it_lies(mesh):
    x = a_table("x", "y")
    expected = np.arange(64.0).reshape(8, 8)
    assert judge.value(x, expected).passed
    assert "the answer is transposed" in why(judge.value(x, expected.T))
    twice = judge.value(2 * x, expected)
    assert twice.reasons == ("the answer is 2 times the right one",)


@pytest.mark.parametrize("answer", [None, ..., "x", True])
def test_what_is_no_array_is_told_so(answer):
    assert "a number is wanted" in why(judge.value(answer, np.ones(SHAPE)))
    assert "has the shape ()" in why(judge.value(3.0, np.ones(SHAPE)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "complex64"])
def test_values_are_compared_in_the_tolerance_of_their_dtype(dtype):
    wanted = jnp.asarray(np.linspace(1, 2, 8), dtype)
    step = float(jnp.finfo(dtype).eps)
    near = (np.asarray(wanted, complex if "complex" in dtype else float)) * (1 + step)
    far = near.copy()
    far[5] += 20 * step ** (2 / 3)
    assert judge.value(jnp.asarray(near, dtype), wanted).passed
    assert "the answer at [5] is" in why(judge.value(jnp.asarray(far, dtype), wanted))
    assert "1 of 8 elements are wrong" in why(judge.value(jnp.asarray(far), wanted))


def test_integers_and_booleans_are_compared_exactly():
    big = np.full(3, 2**30)
    assert judge.value(jnp.asarray(big), big).passed
    assert not judge.value(jnp.asarray(big + np.eye(3)[0].astype(int)), big).passed
    flags = np.array([True, False])
    assert judge.value(jnp.asarray(flags), flags).passed
    said = why(judge.value(jnp.asarray(~flags), flags))
    assert "at [0] is False, wanted is True; 2 of 2 elements are wrong" in said


def test_small_values_beside_large_ones_may_carry_the_rounding_of_the_large():
    wanted = np.array([1e6, 1e-3], np.float32)
    assert compare(wanted + np.float32([0, 1e-2]), wanted, 2e-5) is None
    assert compare(wanted + np.float32([0, 1e3]), wanted, 2e-5) is not None


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([[1, 3], [2, 4]], "is transposed"),
        ([[8, 16], [24, 32]], "is 8 times the right one"),
        ([[-1, -2], [-3, -4]], "is -1 times the right one"),
        ([[0, 0], [0, 0]], "at [0, 0] is 0, wanted is 1; 4 of 4 elements are wrong"),
        ([[1, 2], [3, np.nan]], "at [1, 1] is nan, wanted is 4; 1 of 4"),
        ([[1, np.inf], [3, 4]], "at [0, 1] is inf, wanted is 2; 1 of 4"),
        ([1, 2, 3, 4], "has the shape (4,), wanted is (2, 2)"),
    ],
)
def test_it_says_how_an_array_is_wrong(answer, reason):
    wanted = np.array([[1.0, 2.0], [3.0, 4.0]])
    assert reason in compare(np.array(answer, float), wanted, 1e-5)


def test_random_keys_are_values_too():
    key = jax.random.key(0)
    assert judge.value(key, jax.random.key(0)).passed
    assert not judge.value(key, jax.random.key(1)).passed
    assert judge.value(key, jax.random.key(0)).passed


# ------------------------------------------------------------------- a program


def gram(a):
    return a.T @ a


def test_a_right_program_is_accepted_however_it_is_written(mesh):
    a = a_table("x")

    @jax.jit
    def jitted(a):
        return jnp.einsum("ki,kj->ij", a, a, out_sharding=jax.P())

    def by_hand(a):
        @jax.shard_map(in_specs=jax.P("x"), out_specs=jax.P())
        def run(block):
            return jax.lax.psum(block.T @ block, "x")

        return run(a)

    for answer in (jitted, by_hand):
        verdict = costly.program(answer, gram, a, counts={"all-reduce": 1}, sent=256)
        assert verdict.require().facts == (
            "the value is right",
            "1 all-reduce sends 256 bytes a device",
            "sent: 256 of 256 bytes",
        )
        costly.program(answer, gram, a, outputs=256, sharding=jax.P())


def test_the_value_comes_first(mesh):
    a = a_table("x")
    verdict = costly.program(lambda a: 2 * a, np.asarray, a, counts={"all-reduce": 1})
    assert verdict.reasons == ("the value is 2 times the right one",)
    verdict = costly.program(lambda a: a.T, np.asarray, a, sharding=jax.P("y"))
    assert verdict.reasons == ("the value is transposed",)


def test_a_right_value_over_budget_is_not_accepted(mesh):
    a = a_table("x")

    def gather(a):
        return jax.lax.with_sharding_constraint(a, jax.P())

    if mesh.axis_types[0] == EXPLICIT:

        def gather(a):
            return jax.reshard(a, jax.P())

    for budget, reason in [
        ({"counts": {}}, "1 all-gather sends 128 bytes a device; the budget is 0"),
        (
            {"counts": {"all-reduce": 1}},
            "1 all-gather sends 128 bytes a device; the budget is exactly 1 all-reduce",
        ),
        (
            {"counts": {"all-gather": 2}},
            "1 all-gather sends 128 bytes a device; "
            "the budget is exactly 2 all-gathers",
        ),
        ({"sent": 127}, "a device sends 128 bytes, the budget allows 127"),
        ({"outputs": 255}, "outputs take 256 bytes, the budget allows 255"),
    ]:
        verdict = costly.program(gather, np.asarray, a, **budget)
        assert verdict.reasons == (f"the value is right, but {reason}",)
    for budget in ({"counts": {"all-gather": 1}}, {"sent": 128}):
        costly.program(gather, np.asarray, a, **budget).require()


def test_a_missing_collective_is_missed(mesh):
    a = a_table("x")
    verdict = costly.program(
        lambda a: a + 1, lambda a: a + 1, a, counts={"all-gather": 1}
    )
    assert "there is no collective; the budget is exactly 1 all-gather" in why(verdict)


def test_several_collectives_are_counted_together_and_named_apart(mesh):
    cost = SimpleNamespace(counts={"all-gather": 1, "all-reduce": 2}, sent=10)
    told = Judge(measure=lambda f, *args: cost)
    verdict = told.program(lambda a: a + 1, lambda a: a + 1, a_table("x"), counts={})
    assert "1 all-gather and 2 all-reduces send 10 bytes a device" in why(verdict)
    same = cost.counts.copy()
    told.program(lambda a: a + 1, lambda a: a + 1, a_table("x"), counts=same).require()


def test_temporaries_have_a_budget(mesh):
    a = jnp.ones((64, 64))

    def wasteful(a):
        return jnp.sort(jnp.sort(a @ a) @ a)

    used = measure(wasteful, a).temporaries
    costly.program(wasteful, wasteful, a, temporaries=used).require()
    said = why(costly.program(wasteful, wasteful, a, temporaries=used - 1))
    assert f"temporaries take {used} bytes, the budget allows {used - 1}" in said


def test_a_loop_of_unknown_length_exceeds_every_budget(mesh):
    x = jax.device_put(np.ones(4, np.float32), jax.P("x"))

    def halve(x):
        def turn(x):
            return x * jax.lax.psum(x, "x") / 4

        body = jax.shard_map(turn, in_specs=jax.P("x"), out_specs=jax.P("x"))
        return jax.lax.while_loop(lambda x: x.max() > 0.1, body, x)

    verdict = costly.program(halve, lambda x: x / 128, x, counts={}, sent=10**9)
    said = why(verdict)
    assert "unknown all-reduces send nan bytes a device" in said
    assert "a device sends nan bytes, the budget allows" in said


def test_it_is_measured_where_its_arguments_lie(mesh):
    def total(a):
        return a.sum()

    costly.program(total, np.sum, a_table(), counts={}).require()
    assert "all-reduce" in why(costly.program(total, np.sum, a_table("x"), counts={}))


def test_the_output_sharding_is_compared_by_where_it_lays(mesh):
    a = a_table("x")
    for target in (jax.P("x"), jax.P("x", None), "0,1,2,3 / 4,5,6,7", a.sharding, a):
        judge.program(lambda a: a + 1, lambda a: a + 1, a, sharding=target).require()
    verdict = judge.program(lambda a: a + 1, lambda a: a + 1, a, sharding=jax.P("y"))
    assert why(verdict).startswith("the value is right, but the array is cut")
    assert [title for title, _ in verdict.pictures] == ["The target", "Your answer"]


def test_an_empty_spec_is_a_demand_too(mesh):
    verdict = judge.program(
        lambda a: a + 1, lambda a: a + 1, a_table("x"), sharding=jax.P()
    )
    assert "the target is replicated" in why(verdict)


def test_trees_of_outputs_are_judged_leaf_by_leaf(mesh):
    a = a_table("x")

    def answer(a):
        return {"left": a, "right": [a.T, a.sum()]}

    def reference(a):
        return {"left": a, "right": (a.T, a.sum())}

    places = {"left": jax.P("x"), "right": (jax.P(None, "x"), None)}
    costly.program(answer, reference, a, sharding=places, outputs=999).require()
    places["right"] = (jax.P("x"), None)
    verdict = judge.program(answer, reference, a, sharding=places)
    assert "this is the transposed sharding" in why(verdict)
    verdict = judge.program(answer, lambda a: {"left": a, "right": (a, 0.0)}, a)
    assert "the value at ['right'][0] is transposed" in verdict.reasons
    with pytest.raises(ValueError, match="pytree structure error"):
        judge.program(answer, reference, a, sharding={"middle": jax.P()})
    said = why(judge.program(lambda a: (a, a), np.asarray, a))
    assert said == "the number of values is 2, wanted is 1"


def test_the_pictures_are_of_the_output_that_is_wrong(mesh):
    a = a_table("x")
    places = jax.P("x"), jax.P("y"), jax.P("x")
    verdict = judge.program(
        lambda a: (a, a, a), lambda a: (a, a, a), a, sharding=places
    )
    assert verdict.pictures[0][1] == "0,4 / 1,5 / 2,6 / 3,7"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "the answer is None; the function itself is wanted"),
        (..., "the answer is three dots, unchanged; the function itself is wanted"),
        (jax.P("x"), "the answer is P('x',); the function itself is wanted"),
        (lambda a: None, "the function returned None; return a jax.Array"),
        (lambda a: ..., "the function returned three dots, unchanged"),
        (lambda a: "a", "the function returned 'a'; return a jax.Array"),
        (lambda a: 3.0, "the function returned 3.0; return a jax.Array"),
        (lambda a: (a, None), "function returned None; return a jax.Array"),
        (lambda a: np.ones(3), "the function returned array([1., 1., 1.]); return"),
        (np.sin, "your function raised TracerArrayConversionError: The "),
        (lambda: 3, "your function raised TypeError: <lambda>() takes 0 positional"),
        (lambda a: a @ jnp.ones(5), "your function raised TypeError: dot_general"),
        (lambda a: 1 / 0, "your function raised ZeroDivisionError: division by zero"),
        (lambda a: a if a.sum() else 2 * a, "TracerBoolConversionError: Attempted"),
    ],
)
def test_a_program_that_cannot_be_judged_is_told_why(answer, reason):
    with jax.set_mesh(mesh_of(2, 4)):
        said = why(costly.program(answer, np.asarray, a_table("x"), counts={}))
    assert reason in said
    assert "\n" not in said


def test_a_pending_sum_is_no_result():
    def answer(a):
        return jnp.matmul(a, a.T, out_sharding=jax.P(unreduced={"x"}))

    with jax.set_mesh(mesh_of(2, 4)):
        said = why(judge.program(answer, lambda a: a @ a.T, a_table(None, "x")))
    assert said == "its sums are pending (unreduced) over x"


def test_an_array_in_place_of_the_function_is_told_so(mesh):
    a = a_table("x")
    said = why(judge.program(a + 1, lambda a: a + 1, a))
    assert said.startswith("the answer is Array([[ 1., 2.,")
    assert said.endswith("; the function itself is wanted")


def test_the_reference_gets_numpy_so_that_any_one_liner_will_do(mesh):
    kinds = []

    def reference(tree, n, key):
        kinds.extend(map(type, (tree["a"], n)))
        return n * tree["a"] + np.asarray(jax.random.uniform(key))

    def answer(tree, n, key):
        return n * tree["a"] + jax.random.uniform(key)

    tree = {"a": a_table("x")}
    judge.program(answer, reference, tree, 3, jax.random.key(0)).require()
    assert kinds == [np.ndarray, int]


def test_arguments_survive_a_program_that_donates_them(mesh):
    a = a_table("x")
    answer = jax.jit(lambda a: a + 1, donate_argnums=0)
    for _ in range(2):
        costly.program(answer, lambda a: a + 1, a, counts={}).require()


def test_coarse_arguments_allow_a_coarse_result(mesh):
    a = a_table().astype(jnp.bfloat16) / 64

    def reference(a):
        return a.astype(float) @ a.T.astype(float)

    judge.program(lambda a: a @ a.T, reference, a).require()
    far = judge.program(lambda a: (a @ a.T).at[:, 0].add(9), reference, a)
    assert "at [0, 0] is" in why(far)


def test_a_coarse_answer_to_a_fine_question_is_wrong(mesh):
    a = a_table("x") / 63
    rough = judge.program(lambda a: a.astype(jnp.bfloat16), np.asarray, a)
    assert "elements are wrong" in why(rough)


def test_complex_programs_are_judged(mesh):
    a = a_table("x") + 1j
    judge.program(jnp.fft.fft, np.fft.fft, a).require()
    assert "[" in why(judge.program(lambda a: jnp.fft.fft(a).conj(), np.fft.fft, a))


def test_a_budget_without_measure_is_a_value_error():
    with pytest.raises(ValueError, match=r"Judge\(draw, measure\)"):
        judge.program(gram, gram, np.ones(SHAPE), counts={})


def test_an_unknown_budget_is_a_value_error_before_any_work():
    with pytest.raises(ValueError, match="no budget is called send"):
        costly.program(lambda a: a, lambda a: a, jnp.ones(SHAPE), send=0)


# ------------------------------------------------------------------ the verdict


class Page(html.parser.HTMLParser):
    """Collects the tags, the styles and the text of an HTML fragment."""

    def __init__(self, text):
        super().__init__()
        self.open, self.styles, self.text, self.labels = [], "", "", []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.styles += dict(attrs).get("style") or ""
        self.labels.append(dict(attrs).get("aria-label"))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_require_returns_the_verdict_or_raises_its_text():
    good, bad = Verdict(), Verdict(("it is wrong",))
    assert good.require() is good
    assert good.passed
    with pytest.raises(AssertionError, match=r"Not yet\.\n- It is wrong\."):
        bad.require()


def test_a_verdict_prints_words_and_pictures():
    answer = on(mesh_of(2, 2, devices=jax.devices()[:4]), "x", "y")
    assert str(judge.sharding(answer, "0 2 / 1 3", SHAPE)) == (
        "Not yet.\n"
        "- Rows and columns are swapped: this is the transposed sharding.\n"
        "- Device 1 holds rows 0-3 of columns 4-7, "
        "the target wants rows 4-7 of columns 0-3.\n"
        "\nThe target:\n  0 2 / 1 3\n\nYour answer:\n  0 1 / 2 3"
    )
    assert repr(judge.value(1, 1)) == "Accepted."


def test_three_axes_are_told_in_text_too():
    halves = on(mesh_of(2, devices=jax.devices()[:2]), "x")
    text = str(judge.sharding(halves, halves, (2, 2, 2)))
    assert text == "Accepted.\n\nThe target:\n  0 / 1\n\nYour answer:\n  0 / 1"


@pytest.mark.parametrize("drawn", [None, draw], ids=["text", "drawn"])
def test_a_verdict_in_html_says_the_word_and_needs_no_colour(drawn):
    verdict = Judge(drawn).sharding(on(mesh_of(8), "x"), EIGHT_COLUMNS, SHAPE)
    page = Page(verdict._repr_html_())
    assert page.open == []
    assert "Verdict: Not yet" in page.labels
    assert "Not yet." in page.text
    for line in verdict.reasons:
        assert line[1:] in page.text
    assert "The target" in page.text
    assert "Your answer" in page.text
    plain = Page(
        judge.sharding(on(mesh_of(8), "x"), EIGHT_COLUMNS, SHAPE)._repr_html_()
    )
    assert "background" not in plain.styles
    assert not any(sign in plain.styles for sign in ("#", "rgb", " color:"))


def test_html_is_escaped():
    page = judge.value("<script>", "x")._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    odd = Verdict(pictures=(("<b>", "<i>"),))._repr_html_()
    assert "<b>" not in odd
    assert "<i>" not in odd


def test_what_draws_is_shown_as_it_draws_itself():
    shapes = []

    class Drawn:
        def _repr_html_(self):
            return "<em>drawn</em>"

    def drawing(boxes, shape):
        shapes.append((sorted(boxes), shape))
        return Drawn()

    verdict = Judge(drawing).sharding(on(even(2, 2), "x", "y"), "0 2 / 4 6", SHAPE)
    assert verdict._repr_html_().count("<em>drawn</em>") == 2
    assert shapes == [([0, 2, 4, 6], SHAPE)] * 2


def test_a_verdict_is_the_same_when_it_is_given_twice():
    def text():
        answer = on(mesh_of(2, 4), "x")
        return Judge(draw).sharding(answer, "0 2 / 4 6", SHAPE)._repr_html_()

    assert text() == text()


def test_a_judge_wants_a_shape_and_a_function():
    rows = jax.NamedSharding(jax.make_mesh((8,), ("x",)), jax.P("x"))
    assert Judge().sharding(rows, "0 1 2 3 4 5 6 7", 8).passed
    with pytest.raises(ValueError, match="the reference is None: pass a function"):
        Judge().program(jnp.sin, None, np.ones(3))
