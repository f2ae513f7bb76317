from functools import partial
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from on_devices import AUTO, EXPLICIT, as_double, devices, mesh_of, on, table

from examples.communication import measure
from examples.judge import Judge, Verdict
from examples.pictures import draw
from examples.shardings import differences, notation

SHAPE = 8, 8
EIGHT = "0 1 2 3 4 5 6 7"
WORDING = Path(__file__).parents[1] / "wording/judge.txt"
judge = Judge(lambda boxes, shape: notation(boxes), measure, differences)
kinds = pytest.mark.parametrize("kind", [AUTO, EXPLICIT])


def reasons_of(verdict):
    assert not verdict.passed
    return " ".join(verdict.reasons)


KEY, SPEC = jax.random.key(0), jax.P("x", None)
BIG, FLAGS = np.full(3, 2**30), np.array([True, False])
RIGHT = [  # answer, expected
    (jnp.asarray(448), 448),
    (1 / 3, 0.3333333),
    (1e-8 / 3, 1e-8 / 3 * (1 + 1e-6)),
    (float("nan"), float("nan")),
    (np.bool_(True), True),
    (True, np.bool_(True)),
    ("All-gather ", "all-gather"),
    (np.array([2, 4]), (2, 4)),
    (jnp.asarray(BIG), BIG),
    *((value, value) for value in (1 + 2j, {2, 1}, None, SPEC, KEY)),
    ([(1, "a"), {"b": 2.0}], ((1, "A"), {"b": 2})),
]
WRONG = [(BIG + np.arange(3), BIG), (~FLAGS, FLAGS), (jax.random.key(1), KEY)]
for dtype in "bfloat16", "complex64":
    wanted, eps = jnp.linspace(1, 2, 8).astype(dtype), float(jnp.finfo(dtype).eps)
    near = as_double(wanted) * (1 + eps)
    far = near + 20 * eps ** (2 / 3) * (np.arange(8) == 5)
    RIGHT.append((jnp.asarray(near, dtype), wanted))
    WRONG.append((jnp.asarray(far, dtype), wanted))


def test_values_are_compared_in_the_tolerance_of_their_dtype():
    """Integers, booleans and keys exactly."""
    for pair in RIGHT:
        judge.value(*pair).require()
    for pair in WRONG:
        assert not judge.value(*pair).passed


SQUARE = np.array([[1.0, 2.0], [3.0, 4.0]])
VALUES = [  # answer, expected: the file says what is wrong
    *((number, 448) for number in (3584, 56)),
    (-8, -1),
    *((number, 448) for number in (449, 0, -896)),
    (5, 0),
    (2 + 1j, 1 + 2j),
    (1e-8, 2e-8),
    (float("nan"), 2.0),
    (2**70 + 1, 2**70),
    (False, True),
    (True, 3),
    *((word, 7) for word in ("7", ...)),
    *((word, "columns") for word in ("rows", ...)),
    *((sizes, (2, 4)) for sizes in (3, (2, 4, 1), (4, 4))),
    ({"all-gather": 1}, {"all-reduce": 1}),
    ((1, 449, "rows"), (1, 448, "columns")),
    (np.arange(3), np.arange(4)),
    ([1, 2, 3], np.arange(3)),
    (SQUARE.T, SQUARE),
    *((factor * SQUARE, SQUARE) for factor in (8, 0)),
    (np.where(SQUARE == 4, np.nan, SQUARE), SQUARE),
    (np.where(SQUARE == 2, np.inf, SQUARE), SQUARE),
]
NO_FUNCTIONS = None, ...
RESULTS = None, 3.0, (jnp.ones(3), None), np.ones(3)  # which are no arrays of JAX


def test_the_words_are_those_of_the_file():
    """The only place that fixes them: read what changed, then change the file."""
    verdicts = [judge.value(*pair) for pair in VALUES]
    programs = *NO_FUNCTIONS, *(lambda a, result=result: result for result in RESULTS)
    verdicts += [judge.program(answer, np.asarray, 1.0) for answer in programs]
    lines = [line for verdict in verdicts for line in verdict.reasons]
    assert lines == WORDING.read_text().splitlines()


def gram(a):
    return a.T @ a


@kinds
def test_a_right_value_over_budget_is_not_accepted(kind):
    lay = jax.reshard if kind == EXPLICIT else jax.lax.with_sharding_constraint
    budget = {"counts": {"all-reduce": 1}, "sent": 127, "outputs": 255}
    with devices(kind=kind):
        args = lambda a: lay(a, jax.P()), np.asarray, table("x")
        verdict = judge.program(*args, **budget, temporaries=-1)
    *reasons, last = verdict.reasons
    assert reasons == [
        "the value is right, but on CPU 1 all-gather sends 128 bytes a device; "
        "the budget is exactly 1 all-reduce",
        "on CPU a device sends 128 bytes, the budget allows 127",
        "on CPU outputs take 256 bytes, the budget allows 255",
    ]
    assert last.startswith("on CPU temporaries take ")


TWO, UNKNOWN = ({"all-reduce": 2}, 10), ({"all-reduce": None}, np.nan)


@pytest.mark.parametrize(
    ("used", "allowed", "words"),
    [
        (({}, 0), {"all-gather": 1}, "there is no collective; the budget is exactly 1"),
        (({"all-gather": 1, "all-reduce": 2}, 9), {}, "1 all-gather and 2 all-reduces"),
        (TWO, {"all-reduce": 1}, "2 all-reduces send 10 bytes a device"),
        (UNKNOWN, {}, "unknown all-reduces send nan bytes a device"),
        (UNKNOWN, {}, "a device sends nan bytes, the budget allows 1000"),
    ],
)
def test_collectives_and_bytes_must_be_known_and_allowed(used, allowed, words):
    counting = Judge(
        measure=lambda f, *args: SimpleNamespace(counts=used[0], sent=used[1])
    )
    one, budget = np.ones(8, np.float32), {"counts": allowed, "sent": 1000}
    assert words in reasons_of(counting.program(jnp.sin, np.sin, one, **budget))


@kinds
def test_the_output_sharding_is_compared_by_where_it_lays(kind):
    add = jax.jit(lambda a: a + 1)
    with devices(kind=kind):
        a = table("x")
        for target in jax.P("x"), "0,1,2,3 / 4,5,6,7", a:
            judge.program(add, lambda a: a + 1, a, sharding=target).require()
        columns, whole = (  # replication is a demand, too
            judge.program(add, lambda a: a + 1, a, sharding=spec)
            for spec in (jax.P("y"), jax.P())
        )
    assert reasons_of(columns).startswith("the value is right, but the array is cut")
    assert [title for title, _ in columns.pictures] == ["The target", "Your answer"]
    assert "the target is replicated" in reasons_of(whole)


def test_trees_of_outputs_are_judged_leaf_by_leaf():
    def tree(a):
        return {"left": a, "right": [a.T, a.sum()]}

    with devices():
        a, places = table("x"), {"left": jax.P("x"), "right": [jax.P(None, "x"), None]}
        judge.program(tree, tree, a, sharding=places, outputs=999).require()
        places["right"][0] = jax.P("x")
        verdict = judge.program(tree, tree, a, sharding=places)
        other = judge.program(tree, lambda a: {"left": a, "right": (a, 0.0)}, a)
    assert "this is the transposed sharding" in reasons_of(verdict)
    assert verdict.pictures[0][1] == "0,1,2,3 / 4,5,6,7"  # of the output that is wrong
    assert "the value at ['right'][0] is transposed" in other.reasons


def pend(a):
    return jnp.matmul(a.T, a, out_sharding=jax.P(unreduced={"x"}))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (np.sin, "raised TracerArrayConversionError: The "),
        (lambda: 3, "raised TypeError: <lambda>() takes 0 positional"),
        (lambda a: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (pend, "its sums are pending (unreduced) over x"),
    ],
)
def test_an_error_and_a_pending_sum_are_no_result(answer, words):
    with devices():
        reasons = reasons_of(judge.program(answer, gram, table("x"), counts={}))
    assert words in reasons
    assert "\n" not in reasons


def test_the_reference_gets_numpy_and_arguments_survive_a_donation():
    def reference(tree, n, key):
        assert (type(tree["a"]), type(n)) == (np.ndarray, int)
        return n * tree["a"] + np.asarray(jax.random.uniform(key))

    @partial(jax.jit, donate_argnums=0)
    def answer(tree, n, key):
        return n * tree["a"] + jax.random.uniform(key)

    with devices():
        tree = {"a": table("x")}
        judge.program(answer, reference, tree, 3, KEY, counts={}).require()
    np.testing.assert_array_equal(tree["a"], np.arange(64).reshape(8, 8))


def test_coarse_arguments_allow_a_coarse_result_and_fine_ones_none():
    a = jnp.arange(64.0).reshape(8, 8)
    coarse = (a / 64).astype(jnp.bfloat16)

    def reference(a):
        return a.astype(float) @ a.T.astype(float)

    judge.program(lambda a: a @ a.T, reference, coarse).require()
    far = judge.program(lambda a: (a @ a.T).at[:, 0].add(9), reference, coarse)
    assert "at [0, 0] is" in reasons_of(far)
    rough = judge.program(lambda a: a.astype(jnp.bfloat16), np.asarray, a / 63)
    assert "elements are wrong" in reasons_of(rough)


ONE = np.ones(3)


@each_refusal(
    (lambda: Judge().program(gram, gram, ONE, sent=0), r"Judge\(draw, measure\)"),
    (lambda: Judge().sharding(jax.P("x"), EIGHT, SHAPE), r"measure, differences\)"),
    (lambda: judge.program(gram, gram, ONE, send=0), "no budget is called send"),
    (lambda: judge.program(gram, None, ONE), "the reference is None: pass a funct"),
    (lambda: judge.program(jnp.sin, np.sin, ONE, sharding=[1]), "pytree structure"),
)
def test_what_a_judge_was_not_given_is_a_value_error(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_require_returns_the_verdict_or_raises_its_text():
    good = Verdict()
    bad = Verdict(("it is wrong",), pictures=(("The target", "0 1"),))
    assert good.require() is good
    assert repr(good) == "Accepted."
    with pytest.raises(AssertionError) as error:
        bad.require()
    assert str(error.value) == "Not yet.\n- It is wrong.\n\nThe target:\n  0 1"


def test_a_verdict_in_html_has_all_words_escaped_and_the_pictures():
    lines = on(mesh_of(8), "x")
    verdict = Judge(draw, differences=differences).sharding(lines, EIGHT, SHAPE)
    pictures = *verdict.pictures, ("<b>", "<i>")
    odd = Verdict(("<script>", *verdict.reasons), pictures=pictures)
    page = ElementTree.fromstring(odd._repr_html_())
    text = "".join(page.itertext())
    reasons = [line[1:] for line in odd.reasons]
    for words in "Not yet.", "The target", "Your answer", "<b>", "<i>", *reasons:
        assert words in text
    tags = {part.tag.rpartition("}")[2] for part in page.iter()}
    assert "svg" in tags
    assert not {"script", "b", "i"} & tags
