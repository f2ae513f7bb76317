import html.parser
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import even, mesh_of, on, table

from examples.communication import measure
from examples.judge import Judge, Verdict, compare
from examples.pictures import draw
from examples.shardings import differences, notation

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
SHAPE = 8, 8
EIGHT_COLUMNS = "0 1 2 3 4 5 6 7"
WORDING = Path(__file__).parents[1] / "wording/judge.txt"


def as_text(boxes, shape):
    return notation(boxes)


judge = Judge(as_text, measure, differences)


@pytest.fixture(params=[AUTO, EXPLICIT], ids=["auto", "explicit"])
def each_mesh(request):
    """The mesh 2 x 4 in context, of axes of either type."""
    mesh = mesh_of(2, 4, kind=request.param)
    with jax.set_mesh(mesh):
        yield mesh


@pytest.fixture
def mesh():
    """The mesh 2 x 4 in context."""
    mesh = mesh_of(2, 4)
    with jax.set_mesh(mesh):
        yield mesh


def reasons_of(verdict):
    assert not verdict.passed
    return " ".join(verdict.reasons)


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


VALUES = [  # answer, expected, kind of mistake
    (3584, 448, "8 times too large"),
    (56, 448, "8 times too small"),
    (-8, -1, "8 times too small"),
    (449, 448, "which is too large"),
    (447.5, 448, "which is too small"),
    (-448, 448, "which is too small"),
    (0, 448, "which is too small"),
    (-896, 448, "which is too small"),
    (5, 0, "which is too large"),
    (0.33, 1 / 3, "which is too small"),
    (2 + 1j, 1 + 2j, "not right"),
    (1e-8, 2e-8, "2 times too small"),
    (False, True, "not right"),
    (True, 3, "a number is wanted"),
    ("7", 7, "a number is wanted"),
    (None, 7, "a number is wanted"),
    (..., 7, "a number is wanted"),
    (jax.P("x"), 7, "a number is wanted"),
    ("rows", "columns", "not right"),
    (..., "columns", "not right"),
    (np.arange(2), "columns", "not right"),
    (3, (2, 4), "number of values"),
    ((2, 4, 1), (2, 4), "number of values"),
    ((4, 4), (2, 4), "2 times too large"),
    ({"all-gather": 1}, {"all-reduce": 1}, "that is not wanted"),
    ({"b": 1, 2: 3}, 3, "a number is wanted"),
    (np.arange(3), 3, "the shape"),
    (np.arange(3), np.arange(4), "the shape"),
    ([1, 2, 3], np.arange(3), "number of values"),
]


@pytest.mark.parametrize(("answer", "expected", "kind"), VALUES)
def test_it_finds_what_is_wrong_with_a_value(answer, expected, kind):
    assert kind in reasons_of(judge.value(answer, expected))


def test_every_wrong_entry_of_an_answer_is_named():
    verdict = judge.value((1, 5, "b"), (1, 4, "a"))
    assert len(verdict.reasons) == 2
    assert "[1]" in verdict.reasons[0]
    assert "[2]" in verdict.reasons[1]


def test_a_number_that_is_wanted_is_not_given_away():
    words = str(judge.value((449, "rows"), (448, "columns")))
    assert "448" not in words
    assert "columns" not in words


# --------------------------------------------------------------------- an array


def test_an_array_is_a_value_wherever_it_lies(mesh):
    x = table("x", "y")
    expected = np.arange(64.0).reshape(8, 8)
    assert judge.value(x, expected).passed
    assert "the answer is transposed" in reasons_of(judge.value(x, expected.T))
    twice = judge.value(2 * x, expected)
    assert twice.reasons == ("the answer is 2 times the right one",)
    assert "has the shape ()" in reasons_of(judge.value(3.0, expected))
    assert "a number is wanted" in reasons_of(judge.value(None, expected))


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64"])
def test_values_are_compared_in_the_tolerance_of_their_dtype(dtype):
    wanted = jnp.asarray(np.linspace(1, 2, 8), dtype)
    step = float(jnp.finfo(dtype).eps)
    near = (np.asarray(wanted, complex if "complex" in dtype else float)) * (1 + step)
    far = near.copy()
    far[5] += 20 * step ** (2 / 3)
    assert judge.value(jnp.asarray(near, dtype), wanted).passed
    assert "the answer at [5] is" in reasons_of(
        judge.value(jnp.asarray(far, dtype), wanted)
    )
    assert "1 of 8 elements are wrong" in reasons_of(
        judge.value(jnp.asarray(far), wanted)
    )


def test_integers_and_booleans_are_compared_exactly():
    big = np.full(3, 2**30)
    assert judge.value(jnp.asarray(big), big).passed
    assert not judge.value(jnp.asarray(big + np.eye(3)[0].astype(int)), big).passed
    flags = np.array([True, False])
    assert judge.value(jnp.asarray(flags), flags).passed
    words = reasons_of(judge.value(jnp.asarray(~flags), flags))
    assert "at [0] is False, wanted is True; 2 of 2 elements are wrong" in words


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


def test_a_right_program_is_accepted_however_it_is_written(each_mesh):
    a = table("x")

    @jax.jit
    def jitted(a):
        return jnp.einsum("ki,kj->ij", a, a, out_sharding=jax.P())

    def by_hand(a):
        @jax.shard_map(in_specs=jax.P("x"), out_specs=jax.P())
        def run(block):
            return jax.lax.psum(block.T @ block, "x")

        return run(a)

    for answer in (jitted, by_hand):
        budget = {"counts": {"all-reduce": 1}, "sent": 256, "outputs": 256}
        verdict = judge.program(answer, gram, a, sharding=jax.P(), **budget)
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


def test_a_right_value_over_budget_is_not_accepted(each_mesh):
    a = table("x")

    def gather(a):
        return jax.lax.with_sharding_constraint(a, jax.P())

    if each_mesh.axis_types[0] == EXPLICIT:

        def gather(a):
            return jax.reshard(a, jax.P())

    found = measure(gather, a)
    measured = Judge(measure=lambda f, a: found)  # which is compiled once
    gathers = "1 all-gather sends 128 bytes a device; the budget is"
    for budget, *reasons in [
        ({"counts": {}}, f"{gathers} 0"),
        (
            {"counts": {"all-reduce": 1}, "sent": 127, "outputs": 255},
            f"{gathers} exactly 1 all-reduce",
            "a device sends 128 bytes, the budget allows 127",
            "outputs take 256 bytes, the budget allows 255",
        ),
        ({"counts": {"all-gather": 2}}, f"{gathers} exactly 2 all-gathers"),
    ]:
        verdict = measured.program(gather, np.asarray, a, **budget)
        first, *others = (f"on CPU {reason}" for reason in reasons)
        assert verdict.reasons == (f"the value is right, but {first}", *others)
    right = {"counts": {"all-gather": 1}, "sent": 128}
    judge.program(gather, np.asarray, a, **right).require()


def test_a_missing_collective_is_missed(mesh):
    a = table("x")
    verdict = judge.program(
        lambda a: a + 1, lambda a: a + 1, a, counts={"all-gather": 1}
    )
    assert "there is no collective; the budget is exactly 1 all-gather" in reasons_of(
        verdict
    )


def test_several_collectives_are_counted_together_and_named_apart(mesh):
    def answer(a):
        return a + 1

    cost = SimpleNamespace(counts={"all-gather": 1, "all-reduce": 2}, sent=10)
    two_kinds = Judge(measure=lambda f, *args: cost)
    reasons = reasons_of(two_kinds.program(answer, answer, table("x"), counts={}))
    assert "1 all-gather and 2 all-reduces send 10 bytes a device" in reasons
    same = cost.counts.copy()
    two_kinds.program(answer, answer, table("x"), counts=same).require()


def test_temporaries_have_a_budget(mesh):
    a = jnp.ones((64, 64))

    def wasteful(a):
        return jnp.sort(jnp.sort(a @ a) @ a)

    used = measure(wasteful, a).temporaries
    judge.program(wasteful, wasteful, a, temporaries=used).require()
    words = reasons_of(judge.program(wasteful, wasteful, a, temporaries=used - 1))
    assert f"temporaries take {used} bytes, the budget allows {used - 1}" in words


def test_a_loop_of_unknown_length_exceeds_every_budget(mesh):
    x = jax.device_put(np.ones(4, np.float32), jax.P("x"))

    def halve(x):
        def turn(x):
            return x * jax.lax.psum(x, "x") / 4

        body = jax.shard_map(turn, in_specs=jax.P("x"), out_specs=jax.P("x"))
        return jax.lax.while_loop(lambda x: x.max() > 0.1, body, x)

    verdict = judge.program(halve, lambda x: x / 128, x, counts={}, sent=10**9)
    words = reasons_of(verdict)
    assert "unknown all-reduces send nan bytes a device" in words
    assert "a device sends nan bytes, the budget allows" in words


def test_it_is_measured_where_its_arguments_lie(mesh):
    def total(a):
        return a.sum()

    judge.program(total, np.sum, table(), counts={}).require()
    assert "all-reduce" in reasons_of(
        judge.program(total, np.sum, table("x"), counts={})
    )


def test_the_output_sharding_is_compared_by_where_it_lays(each_mesh):
    a = table("x")

    @jax.jit
    def add(a):
        return a + 1

    for target in (jax.P("x"), jax.P("x", None), "0,1,2,3 / 4,5,6,7", a.sharding, a):
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
    with pytest.raises(ValueError, match="pytree structure error"):
        judge.program(answer, reference, a, sharding={"middle": jax.P()})
    words = reasons_of(judge.program(lambda a: (a, a), np.asarray, a))
    assert words == "the number of values is 2, wanted is 1"


PROGRAMS = [  # no function, or one that returns no array
    (None, "the function itself is wanted"),
    (..., "the function itself is wanted"),
    (jax.P("x"), "the function itself is wanted"),
    (lambda a: None, "return a jax.Array"),
    (lambda a: ..., "return a jax.Array"),
    (lambda a: "a", "return a jax.Array"),
    (lambda a: 3.0, "return a jax.Array"),
    (lambda a: (a, None), "return a jax.Array"),
    (lambda a: np.ones(3), "return a jax.Array"),
]
ERRORS = [
    (np.sin, "TracerArrayConversionError: The "),
    (lambda: 3, "TypeError: <lambda>() takes 0 positional"),
    (lambda a: a @ jnp.ones(5), "TypeError: dot_general"),
    (lambda a: 1 / 0, "ZeroDivisionError: division by zero"),
    (lambda a: a if a.sum() else 2 * a, "TracerBoolConversionError: Attempted"),
]


@pytest.mark.parametrize(
    ("answer", "kind"), PROGRAMS + ERRORS, ids=[str(n) for n in range(14)]
)
def test_a_program_that_cannot_be_judged_gets_a_reason(mesh, answer, kind):
    words = reasons_of(judge.program(answer, np.asarray, table("x"), counts={}))
    assert kind in words
    assert ((answer, kind) in ERRORS) == words.startswith("your function raised ")
    assert "\n" not in words


def test_the_words_are_those_of_the_file():
    """The only place that fixes them: read what changed, then change the file."""
    verdicts = [judge.value(answer, expected) for answer, expected, _ in VALUES]
    verdicts += [judge.program(answer, np.asarray, 1.0) for answer, _ in PROGRAMS]
    lines = [line for verdict in verdicts for line in verdict.reasons]
    assert lines == WORDING.read_text().splitlines()


def test_a_pending_sum_is_no_result(mesh):
    def answer(a):
        return jnp.matmul(a, a.T, out_sharding=jax.P(unreduced={"x"}))

    words = reasons_of(judge.program(answer, lambda a: a @ a.T, table(None, "x")))
    assert words == "its sums are pending (unreduced) over x"


def test_an_array_in_place_of_the_function_is_told_so(mesh):
    a = table("x")
    words = reasons_of(judge.program(a + 1, lambda a: a + 1, a))
    assert words.startswith("the answer is Array([[ 1., 2.,")
    assert words.endswith("; the function itself is wanted")


def test_the_reference_gets_numpy_so_that_any_one_liner_will_do(mesh):
    kinds = []

    def reference(tree, n, key):
        kinds.extend(map(type, (tree["a"], n)))
        return n * tree["a"] + np.asarray(jax.random.uniform(key))

    def answer(tree, n, key):
        return n * tree["a"] + jax.random.uniform(key)

    tree = {"a": table("x")}
    judge.program(answer, reference, tree, 3, jax.random.key(0)).require()
    assert kinds == [np.ndarray, int]


def test_arguments_survive_a_program_that_donates_them(mesh):
    a = table("x")
    answer = jax.jit(lambda a: a + 1, donate_argnums=0)
    judge.program(answer, lambda a: a + 1, a, counts={}).require()
    np.testing.assert_array_equal(a, np.arange(64).reshape(8, 8))


def test_coarse_arguments_allow_a_coarse_result_and_fine_ones_none(mesh):
    a = table().astype(jnp.bfloat16) / 64

    def reference(a):
        return a.astype(float) @ a.T.astype(float)

    judge.program(lambda a: a @ a.T, reference, a).require()
    far = judge.program(lambda a: (a @ a.T).at[:, 0].add(9), reference, a)
    assert "at [0, 0] is" in reasons_of(far)
    rough = judge.program(lambda a: a.astype(jnp.bfloat16), np.asarray, table() / 63)
    assert "elements are wrong" in reasons_of(rough)


def test_what_a_judge_was_not_given_is_a_value_error(mesh):
    with pytest.raises(ValueError, match=r"Judge\(draw, measure\)"):
        Judge().program(gram, gram, np.ones(SHAPE), counts={})
    with pytest.raises(ValueError, match=r"Judge\(draw, measure, differences\)"):
        Judge().sharding(jax.P("x"), EIGHT_COLUMNS, SHAPE)
    a = table("x")
    with pytest.raises(ValueError, match=r"Judge\(draw, measure, differences\)"):
        Judge().program(lambda a: a + 1, lambda a: a + 1, a, sharding=jax.P("x"))
    with pytest.raises(ValueError, match="no budget is called send"):
        judge.program(lambda a: a, lambda a: a, jnp.ones(SHAPE), send=0)
    with pytest.raises(ValueError, match="the reference is None: pass a function"):
        Judge().program(jnp.sin, None, np.ones(3))


def test_without_draw_there_are_words_and_no_pictures():
    verdict = Judge(differences=differences).sharding(..., EIGHT_COLUMNS, SHAPE)
    assert "a sharding is wanted" in reasons_of(verdict)
    assert verdict.pictures == ()
    verdict = judge.sharding(..., EIGHT_COLUMNS, SHAPE)  # the target is drawn alone
    assert verdict.pictures == (("The target", EIGHT_COLUMNS),)


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


@pytest.mark.parametrize("drawn", [as_text, draw])
def test_a_verdict_in_html_says_the_word_and_needs_no_colour(drawn):
    verdict = Judge(drawn, differences=differences).sharding(
        on(mesh_of(8), "x"), EIGHT_COLUMNS, SHAPE
    )
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

    verdict = Judge(drawing, differences=differences).sharding(
        on(even(2, 2), "x", "y"), "0 2 / 4 6", SHAPE
    )
    assert verdict._repr_html_().count("<em>drawn</em>") == 2
    assert shapes == [([0, 2, 4, 6], SHAPE)] * 2


def test_a_shape_may_be_a_number_or_a_list():
    for shape in 8, [8], (8,):
        assert judge.sharding(on(mesh_of(8), "x"), EIGHT_COLUMNS, shape).passed
