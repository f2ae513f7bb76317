from functools import partial

import jax
import numpy as np
import pytest
from fft.test_fft import lies
from on_devices import AUTO, EXPLICIT, devices

from examples.communication import measure
from examples.top_k import merge, top_k

P = jax.P
SPECS = P(), P("x"), P("x", "y"), P(None, "y"), P(None, ("x", "y"))

each_kind = pytest.mark.parametrize("kind", [EXPLICIT, AUTO])
three = jax.jit(partial(top_k, k=3))


def scores(*shape, dtype=np.float32, seed=0):
    """Return numbers of which many are equal."""
    return np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)


def largest(a, k):
    """The oracle: a stable sort of what is to be as small as possible."""
    places = np.argsort(-a.astype(np.float64), axis=-1, kind="stable")[..., :k]
    return np.take_along_axis(a, places, -1), places


def assert_the_largest(pair, a, k):
    for mine, wanted in zip(pair, largest(a, k), strict=True):
        np.testing.assert_array_equal(mine, wanted)


def halves(pair):
    """Return the pairs of the two blocks of columns."""
    return zip(*(np.split(np.asarray(each), 2, axis=1) for each in pair), strict=True)


@pytest.mark.parametrize(
    ("shape", "kind", "dtype"),
    [((2, 4), EXPLICIT, np.float32), ((4, 2), AUTO, np.int32)],
)
def test_it_finds_what_a_sort_finds_and_keeps_the_rows_split(shape, kind, dtype):
    """Rows that are cut send candidates alone, others nothing."""
    a = scores(24, 16, dtype=dtype)
    with devices(shape, kind):
        for spec in SPECS:
            cut = jax.device_put(a, spec)
            run = three.lower(cut).compile()
            pair, program = run(cut), measure(run)
            assert_the_largest(pair, a, 3)
            assert [result.dtype for result in pair] == [dtype, np.int32]
            assert all(lies(result, P(*spec[:1], None)) for result in pair)
            if spec == P("x"):
                assert program.counts == {}
            if spec == P("x", "y"):
                assert program.counts == {"all-gather": 2}
                assert program.sent == (shape[1] - 1) * 2 * 4 * 3 * 24 // shape[0]
                assert {step.axes for step in program.collectives} == {("y",)}


def test_a_mesh_axis_that_the_rows_want_does_not_cut_them():
    a = scores(8, 16)
    with devices((4, 2), kind=AUTO):
        wanted = jax.NamedSharding(jax.sharding.get_mesh(), P("x"))
        moved = jax.jit(partial(top_k, k=3), out_shardings=wanted)
        for spec in P(None, "x"), P("y", "x"), P(None, ("x", "y")):
            pair = moved(jax.device_put(a, spec))
            assert_the_largest(pair, a, 3)
            assert lies(pair[0], P("x"))


@each_kind
def test_the_gradient_goes_back_to_where_the_numbers_stood(kind):
    """And sends no more than places and candidates; mapped, and strict, too."""
    a = np.random.default_rng(0).permutation(8 * 16).reshape(8, 16).astype("f4")
    weights = np.arange(1, 25, dtype="f4").reshape(8, 3)
    wanted = np.zeros_like(a)
    np.put_along_axis(wanted, largest(a, 3)[1], weights, -1)
    strict = jax.numpy_dtype_promotion("strict")
    with devices((4, 2), kind=kind), strict, jax.enable_x64(True):
        for spec in P("x", "y"), P(None, ("x", "y")):
            cut = jax.device_put(a, spec)
            w = jax.device_put(weights, P(*spec[:1]))
            gradient = jax.grad(lambda a, w: (top_k(a, 3)[0] * w).sum())
            place = {"out_shardings": cut.sharding} if kind == AUTO else {}
            run = jax.jit(gradient, **place).lower(cut, w).compile()
            for slope in run(cut, w), jax.jit(jax.vmap(gradient))(cut, w):
                np.testing.assert_array_equal(slope, wanted)
            if not place:
                assert jax.typeof(run(cut, w)) == jax.typeof(cut)
            if spec == P("x", "y"):
                program = measure(run)
                assert set(program.counts) == {"all-gather"}
                assert program.sent <= 3 * 4 * 3 * 2


@pytest.mark.parametrize(
    ("kind", "spec"), [(EXPLICIT, P("x")), (AUTO, P(None, "x", "y"))]
)
def test_it_can_be_mapped(kind, spec):
    a = scores(4, 8, 16)
    with devices((4, 2), kind=kind):
        cut = jax.device_put(a, spec)
        run = jax.jit(jax.vmap(three)).lower(cut).compile()
        assert_the_largest(run(cut), a, 3)
        assert measure(run).counts == ({} if spec == P("x") else {"all-gather": 2})


@each_kind
def test_in_shard_map_it_is_that_of_the_block_and_merge_that_of_the_row(kind):
    a, spec = scores(8, 16), P("x", "y")
    over_both = partial(jax.shard_map, in_specs=spec, out_specs=spec)
    with devices((4, 2), kind=kind):
        cut = jax.device_put(a, spec)
        run = jax.jit(over_both(partial(top_k, k=2))).lower(cut).compile()
        own = run(cut)
        whole = jax.jit(over_both(partial(merge, k=3, axes=("y",))))(cut)
    assert measure(run).counts == {}
    for pair, half in zip(halves(own), np.split(a, 2, axis=1), strict=True):
        assert_the_largest(pair, half, 2)
    for pair in halves(whole):
        assert_the_largest(pair, a, 3)


def test_it_works_without_a_mesh():
    a = scores(4, 8)
    for f in partial(top_k, k=3), jax.vmap(three):
        assert_the_largest(f(a), a, 3)


@pytest.mark.parametrize(("kind", "shape"), [(EXPLICIT, (3, 8)), (AUTO, (13,))])
def test_of_numpy_it_takes_the_largest_inside_jit(kind, shape):
    a = scores(*shape)
    with devices((5, 1), kind):
        assert_the_largest(jax.jit(partial(top_k, k=3))(a), a, 3)


@each_kind
def test_under_a_shard_map_over_some_axes_rows_may_still_be_cut(kind):
    a = scores(8, 16)
    with devices((4, 2), kind=kind):
        part = {"in_specs": P("x"), "out_specs": P("x"), "axis_names": {"x"}}
        by_rows = jax.jit(jax.shard_map(partial(top_k, k=3), **part))
        assert_the_largest(by_rows(jax.device_put(a, P("x", "y"))), a, 3)


@pytest.mark.parametrize(
    ("a", "k", "words"),
    [
        (scores(4, 8), 0, "k = 0 of 8 .* pass 1 <= k <= 8"),
        (scores(4, 8), 9, "k = 9 of 8 .* pass 1 <= k <= 8"),
        (scores(4, 8), 2.5, "k = 2.5 of 8 numbers a row"),
        (np.float32(1), 1, "k = 1 of 0"),
        (scores(4, 8, dtype=np.complex64), 2, "complex numbers have no order"),
    ],
)
def test_an_impossible_k_and_types_without_an_order_are_refused(a, k, words):
    with pytest.raises(ValueError, match=words):
        top_k(a, k)
