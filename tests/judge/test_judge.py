from functools import partial
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import as_double, devices, mesh_of, on, table

from examples.communication import measure
from examples.judge import Judge, Verdict
from examples.pictures import draw
from examples.shardings import differences, notation

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
SHAPE = 8, 8
EIGHT = "0 1 2 3 4 5 6 7"
WORDING = Path(__file__).parents[1] / "wording/judge.txt"


judge = Judge(lambda boxes, shape: notation(boxes), measure, differences)


@pytest.fixture(params=[AUTO, EXPLICIT], ids=["auto", "explicit"])
def kind(request):
    """Either type of axes, those of the mesh 2 x 4 in context."""
    with devices(kind=request.param):
        yield request.param


@pytest.fixture
def mesh():
    """The mesh 2 x 4 in context."""
    with devices():
        yield


def reasons_of(verdict):
    assert not verdict.passed
    return " ".join(verdict.reasons)


# --------------------------------------------------------------------- a value


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (jnp.asarray(448), 448),
        (1 / 3, 0.3333333),
        (1e-8 / 3, 1e-8 / 3 * (1 + 1e-6)),
        (float("nan"), float("nan")),
        (1 + 2j, 1 + 2j),
        (np.bool_(True), True),
        ("All-gather ", "all-gather"),
        (np.array([2, 4]), (2, 4)),
        ({1, 2}, {2, 1}),
        (None, None),
        (jax.P("x", None), jax.P("x", None)),
        (jax.random.key(0), jax.random.key(0)),
        ([(1, "a"), {"b": 2.0}], ((1, "A"), {"b": 2})),
    ],
)
def test_a_right_value_is_accepted(answer, expected):
    judge.value(answer, expected).require()


SQUARE = np.array([[1.0, 2.0], [3.0, 4.0]])
VALUES = [  # answer, expected: the file says what is wrong
    (3584, 448),
    (56, 448),
    (-8, -1),
    (449, 448),
    (0, 448),
    (-896, 448),
    (5, 0),
    (2 + 1j, 1 + 2j),
    (1e-8, 2e-8),
    (False, True),
    (True, 3),
    ("7", 7),
    (..., 7),
    ("rows", "columns"),
    (..., "columns"),
    (3, (2, 4)),
    ((2, 4, 1), (2, 4)),
    ((4, 4), (2, 4)),
    ({"all-gather": 1}, {"all-reduce": 1}),
    (np.arange(3), np.arange(4)),
    ([1, 2, 3], np.arange(3)),
    (SQUARE.T, SQUARE),
    (8 * SQUARE, SQUARE),
    (0 * SQUARE, SQUARE),
    (np.where(SQUARE == 4, np.nan, SQUARE), SQUARE),
    (np.where(SQUARE == 2, np.inf, SQUARE), SQUARE),
]
PROGRAMS = [  # no function, or one that returns no array
    None,
    ...,
    lambda a: None,
    lambda a: 3.0,
    lambda a: (a, None),
    lambda a: np.ones(3),
]


def test_the_words_are_those_of_the_file():
    """The only place that fixes them: read what changed, then change the file."""
    verdicts = [judge.value(*pair) for pair in VALUES]
    verdicts += [judge.program(answer, np.asarray, 1.0) for answer in PROGRAMS]
    lines = [line for verdict in verdicts for line in verdict.reasons]
    assert lines == WORDING.read_text().splitlines()


def test_every_wrong_entry_of_an_answer_has_a_reason_and_none_is_given_away():
    verdict = judge.value((1, 449, "rows"), (1, 448, "columns"))
    first, second = verdict.reasons
    assert "[1]" in first
    assert "[2]" in second
    assert not {"448", "columns"} & {*str(verdict).split()}


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64"])
def test_values_are_compared_in_the_tolerance_of_their_dtype(dtype):
    wanted = jnp.asarray(np.linspace(1, 2, 8), dtype)
    step = float(jnp.finfo(dtype).eps)
    near = as_double(wanted) * (1 + step)
    far = near.copy()
    far[5] += 20 * step ** (2 / 3)
    assert judge.value(jnp.asarray(near, dtype), wanted).passed
    words = reasons_of(judge.value(jnp.asarray(far, dtype), wanted))
    assert words.startswith("the answer at [5] is")
    assert words.endswith("1 of 8 elements are wrong")


def test_integers_booleans_and_keys_are_compared_exactly():
    big, flags = np.full(3, 2**30), np.array([True, False])
    assert judge.value(jnp.asarray(big), big).passed
    assert not judge.value(jnp.asarray(big + np.arange(3)), big).passed
    words = reasons_of(judge.value(jnp.asarray(~flags), flags))
    assert "at [0] is False, wanted is True; 2 of 2 elements are wrong" in words
    assert not judge.value(jax.random.key(0), jax.random.key(1)).passed


# ------------------------------------------------------------------- a program


def gram(a):
    return a.T @ a


def test_a_right_program_is_accepted_however_it_is_written(kind):
    def by_hand(block):
        return jax.lax.psum(block.T @ block, "x")

    by_hand = jax.shard_map(by_hand, in_specs=jax.P("x"), out_specs=jax.P())
    jitted = jax.jit(lambda a: jnp.einsum("ki,kj->ij", a, a, out_sharding=jax.P()))
    for answer in (jitted, by_hand):
        budget = {"counts": {"all-reduce": 1}, "sent": 256, "outputs": 256}
        verdict = judge.program(answer, gram, table("x"), sharding=jax.P(), **budget)
        assert verdict.require().facts == (
            "the value is right",
            "on CPU 1 all-reduce sends 256 bytes a device",
            "sent: 256 of 256 bytes",
            "outputs: 256 of 256 bytes",
        )


def test_the_value_comes_first(mesh):
    a, budget = table("x"), {"counts": {"all-reduce": 1}, "sharding": jax.P("y")}
    verdict = judge.program(lambda a: 2 * a, np.asarray, a, **budget)
    assert verdict.reasons == ("the value is 2 times the right one",)


def test_a_right_value_over_budget_is_not_accepted(kind):
    lay = jax.reshard if kind == EXPLICIT else jax.lax.with_sharding_constraint
    budget = {"sent": 127, "outputs": 255, "temporaries": -1}
    budget = {"counts": {"all-reduce": 1}, **budget}
    verdict = judge.program(lambda a: lay(a, jax.P()), np.asarray, table("x"), **budget)
    *reasons, last = verdict.reasons
    assert reasons == [
        "the value is right, but on CPU 1 all-gather sends 128 bytes a device; "
        "the budget is exactly 1 all-reduce",
        "on CPU a device sends 128 bytes, the budget allows 127",
        "on CPU outputs take 256 bytes, the budget allows 255",
    ]
    assert last.startswith("on CPU temporaries take ")


@pytest.mark.parametrize(
    ("counts", "sent", "allowed", "words"),
    [
        ({}, 0, {"all-gather": 1}, "there is no collective; the budget is exactly 1 a"),
        (
            {"all-gather": 1, "all-reduce": 2},
            10,
            {},
            "all-gather and 2 all-reduces sen",
        ),
        ({"all-reduce": 2}, 10, {"all-reduce": 1}, "2 all-reduces send 10 bytes a dev"),
        ({"all-reduce": None}, np.nan, {}, "unknown all-reduces send nan bytes a devi"),
        ({"all-reduce": None}, np.nan, {}, "sends nan bytes, the budget allows 1000"),
    ],
)
def test_collectives_and_bytes_must_be_known_and_allowed(counts, sent, allowed, words):
    cost = SimpleNamespace(counts=counts, sent=sent)
    budget = {"counts": allowed, "sent": 1000}
    one = np.ones(8, np.float32)
    verdict = Judge(measure=lambda f, *args: cost).program(
        jnp.sin, np.sin, one, **budget
    )
    assert words in reasons_of(verdict)


def test_the_output_sharding_is_compared_by_where_it_lays(kind):
    a, add = table("x"), jax.jit(lambda a: a + 1)
    for target in jax.P("x"), "0,1,2,3 / 4,5,6,7", a:
        judge.program(add, lambda a: a + 1, a, sharding=target).require()
    verdict = judge.program(add, lambda a: a + 1, a, sharding=jax.P("y"))
    assert reasons_of(verdict).startswith("the value is right, but the array is cut")
    assert [title for title, _ in verdict.pictures] == ["The target", "Your answer"]
    verdict = judge.program(add, lambda a: a + 1, a, sharding=jax.P())  # a demand too
    assert "the target is replicated" in reasons_of(verdict)


def test_trees_of_outputs_are_judged_leaf_by_leaf(mesh):
    a = table("x")

    def answer(a):
        return {"left": a, "right": [a.T, a.sum()]}

    def reference(a):
        return {"left": a, "right": (a.T, a.sum())}

    places = {"left": jax.P("x"), "right": (jax.P(None, "x"), None)}
    judge.program(answer, reference, a, sharding=places, outputs=999).require()
    places = {"left": jax.P("x"), "right": (jax.P("x"), None)}
    verdict = judge.program(answer, reference, a, sharding=places)
    assert "this is the transposed sharding" in reasons_of(verdict)
    assert verdict.pictures[0][1] == "0,1,2,3 / 4,5,6,7"  # of the output that is wrong
    verdict = judge.program(answer, lambda a: {"left": a, "right": (a, 0.0)}, a)
    assert "the value at ['right'][0] is transposed" in verdict.reasons


ERRORS = [
    (np.sin, "raised TracerArrayConversionError: The "),
    (lambda: 3, "raised TypeError: <lambda>() takes 0 positional"),
    (lambda a: 1 / 0, "raised ZeroDivisionError: division by zero"),
    (
        lambda a: jnp.matmul(a.T, a, out_sharding=jax.P(unreduced={"x"})),
        "its sums are pending (unreduced) over x",
    ),
]


@pytest.mark.parametrize(("answer", "words"), ERRORS)
def test_an_error_and_a_pending_sum_are_no_result(mesh, answer, words):
    reasons = reasons_of(judge.program(answer, gram, table("x"), counts={}))
    assert words in reasons
    assert "\n" not in reasons


def test_the_reference_gets_numpy_and_arguments_survive_a_donation(mesh):
    kinds = []

    def reference(tree, n, key):
        kinds.extend(map(type, (tree["a"], n)))
        return n * tree["a"] + np.asarray(jax.random.uniform(key))

    @partial(jax.jit, donate_argnums=0)
    def answer(tree, n, key):
        return n * tree["a"] + jax.random.uniform(key)

    tree = {"a": table("x")}
    judge.program(answer, reference, tree, 3, jax.random.key(0), counts={}).require()
    assert kinds == [np.ndarray, int]
    np.testing.assert_array_equal(tree["a"], np.arange(64).reshape(8, 8))


def test_coarse_arguments_allow_a_coarse_result_and_fine_ones_none(mesh):
    a = table().astype(jnp.bfloat16) / 64

    def reference(a):
        return a.astype(float) @ a.T.astype(float)

    judge.program(lambda a: a @ a.T, reference, a).require()
    far = judge.program(lambda a: (a @ a.T).at[:, 0].add(9), reference, a)
    assert "at [0, 0] is" in reasons_of(far)
    rough = judge.program(lambda a: a.astype(jnp.bfloat16), np.asarray, table() / 63)
    assert "elements are wrong" in reasons_of(rough)


ONE = np.ones(3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Judge().program(gram, gram, ONE, sent=0), r"Judge\(draw, measure\)"),
        (lambda: Judge().sharding(jax.P("x"), EIGHT, SHAPE), r"measure, differences\)"),
        (lambda: judge.program(gram, gram, ONE, send=0), "no budget is called send"),
        (lambda: judge.program(gram, None, ONE), "the reference is None: pass a funct"),
        (lambda: judge.program(jnp.sin, np.sin, ONE, sharding=[1]), "pytree structure"),
    ],
)
def test_what_a_judge_was_not_given_is_a_value_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ------------------------------------------------------------------ the verdict


def test_without_draw_there_are_words_and_no_pictures():
    verdict = Judge(differences=differences).sharding(..., EIGHT, SHAPE)
    assert "a sharding is wanted" in reasons_of(verdict)
    assert verdict.pictures == ()
    verdict = judge.sharding(..., EIGHT, SHAPE)  # the target is drawn alone
    assert verdict.pictures == (("The target", EIGHT),)
    for shape in 8, [8], (8,):
        assert judge.sharding(on(mesh_of(8), "x"), EIGHT, shape).passed


def test_require_returns_the_verdict_or_raises_its_text():
    good, bad = Verdict(), Verdict(("it is wrong",))
    assert good.require() is good
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


def test_a_verdict_in_html_has_all_words_and_the_pictures():
    drawing = Judge(draw, differences=differences)
    verdict = drawing.sharding(on(mesh_of(8), "x"), EIGHT, SHAPE)
    page = ElementTree.fromstring(verdict._repr_html_())
    assert page.get("aria-label") == "Verdict: Not yet"
    text = "".join(page.itertext())
    reasons = [line[1:] for line in verdict.reasons]
    for words in "Not yet.", "The target", "Your answer", *reasons:
        assert words in text
    assert any("svg" in part.tag for part in page.iter())


def test_html_is_escaped():
    odd = Verdict(("<script>",), pictures=(("<b>", "<i>"),))._repr_html_()
    assert "&lt;script&gt;" in odd
    assert not any(tag in odd for tag in ("<script>", "<b>", "<i>"))
