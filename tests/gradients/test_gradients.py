import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import on_devices
import pytest
from cases import each_refusal
from on_devices import AUTO, EXPLICIT, noise

from examples.communication import measure
from examples.gradients import accumulate, value_and_grad

SIZES = {"w": (6, 8), "b": (8,), "v": (8, 4)}
SPLIT = {"w": jax.P(None, "model"), "b": jax.P("model"), "v": jax.P("model", None)}
N = sum(math.prod(shape) for shape in SIZES.values())
devices = partial(on_devices.devices, names=("batch", "model"))


def network(dtype=jnp.float32):
    return {
        name: noise(*shape, dtype=dtype, seed=i) * np.asarray(0.3, dtype)
        for i, (name, shape) in enumerate(SIZES.items())
    }


def examples(*shape):
    """Return inputs and targets, [.., 6] and [.., 4]."""
    return tuple(noise(*shape, n, dtype=np.float32, seed=n) for n in (6, 4))


def squares(params, block):
    x, y = block
    out = jnp.tanh(x @ params["w"] + params["b"][None]) @ params["v"]
    return jnp.square(jnp.abs(out - y)).sum(-1)


def truth(params, batch, weights=None):
    """Return the mean loss and its gradient on one device, in single precision."""
    params = jax.tree.map(lambda leaf: leaf * np.float32(1), jax.device_get(params))
    batch = [part.reshape(-1, part.shape[-1]) for part in batch]
    weights = None if weights is None else weights.ravel()
    mean = jax.value_and_grad(lambda p: jnp.average(squares(p, batch), weights=weights))
    return mean(params)


def assert_close(answer, expected, eps=1e-6):
    jax.tree.map(partial(on_devices.assert_close, eps=eps), answer, expected)


def place(tree, *spec):
    return jax.device_put(tree, jax.P(*spec))


def step(*given, axis="batch"):
    return accumulate(squares, *given, axis=axis)


def compiled(f, *given):
    """Return what a function makes of its arguments, and the compiled program."""
    run = jax.jit(f).lower(*given).compile()
    return run(*given), measure(run)


@pytest.mark.parametrize(
    ("mesh", "kind", "axis", "size"),
    [
        ((2, 4), AUTO, "batch", 2),
        ((3, 2), EXPLICIT, ("model", "batch"), 6),
        ((1, 8), EXPLICIT, "batch", 1),  # nothing is sent
    ],
)
def test_a_gradient_of_weighted_examples_is_one_all_reduce(mesh, kind, axis, size):
    """However many microbatches, with 64 bits, too; equal on every device."""
    batches = examples(5, 24)
    weights = np.maximum(noise(5, 24, dtype=np.float32) + 1, 0)
    with jax.enable_x64(True), devices(mesh, kind):
        given = place(network()), *place((batches, weights), None, axis)
        answer, program = compiled(partial(step, axis=axis), *given)
        assert_close(answer, truth(given[0], batches, weights))
        leaves = answer[1].values()
        on_devices.assert_agreed(*leaves)
        assert all(leaf.sharding.is_fully_replicated for leaf in leaves)
    assert program.counts == ({"all-reduce": 1} if size > 1 else {})
    assert program.sent == 2 * (size - 1) * 4 * (N + 2) // size


@pytest.mark.parametrize(
    ("dtype", "operands"),
    [(jnp.bfloat16, [4 * (N + 2)]), (jnp.complex64, [8, 8 * N])],
)
def test_a_gradient_has_the_type_of_its_parameters(dtype, operands):
    """Narrow ones cost what float32 costs; complex ones travel beside the real sums."""
    batches = examples(3, 24)
    with devices((8, 1)):
        given = place(network(dtype)), place(batches, None, "batch")
        (value, gradient), program = compiled(step, *given)
        assert value.dtype == jnp.float32
        assert {leaf.dtype for leaf in gradient.values()} == {jnp.dtype(dtype)}
        eps = max(jnp.finfo(dtype).eps, 1e-5)
        assert_close((value, gradient), truth(given[0], batches), eps)
    assert {each.kind for each in program.collectives} == {"all-reduce"}
    assert sorted(each.bytes for each in program.collectives) == operands


def test_narrow_types_are_added_up_in_float32():
    with devices((8, 1)):
        ones = place(np.ones((1024, 8), jnp.bfloat16), None, "batch")
        slope = accumulate(lambda p, x: p * x, place(jnp.ones((), jnp.bfloat16)), ones)
        assert slope[1] == 1  # a bfloat16 gets stuck at 256


@pytest.mark.parametrize("kind", [EXPLICIT, AUTO])
def test_gradients_lie_where_the_parameters_do(kind):
    """A loss need not say how its products lie: all axes are Auto within it."""
    batches = examples(2, 24)
    with devices((4, 2), kind), jax.numpy_dtype_promotion("strict"):
        params = jax.device_put(network(), SPLIT)
        given = params, place(batches, None, "batch")
        (value, gradient), program = compiled(step, *given)
        assert_close((value, gradient), truth(params, batches))
        for name, leaf in params.items():
            assert gradient[name].sharding.is_equivalent_to(leaf.sharding, leaf.ndim)
        assert value.sharding.is_fully_replicated
    [reduction] = [one for one in program.collectives if one.axes == ("batch",)]
    assert reduction.bytes == 4 * ((8 * 6 + 8 + 8 * 4) // 2 + 2)
    assert reduction.times == 1


@pytest.mark.parametrize(
    ("dtype", "mesh", "kind"),
    [(jnp.float32, (8, 1), EXPLICIT), (jnp.bfloat16, (4, 2), AUTO)],
)
def test_the_gradient_can_be_differentiated_again(dtype, mesh, kind):
    """XLA:CPU aborts over an all-reduce of bfloat16 beside an Auto axis."""
    batch, params = examples(24), network(dtype)
    wide = jax.tree.map(np.float32, params)

    def ours(params):
        return value_and_grad(squares, params, place(batch, "batch"))[1]

    def plain(params):
        return jax.grad(lambda params: squares(params, batch).mean())(params)

    def both_modes(slope, params):
        ahead = jax.jvp(slope, (params,), (params,))[1]
        return ahead, jax.vjp(slope, params)[1](params)[0]

    with devices(mesh, kind):
        found = jax.jit(partial(both_modes, ours))(place(params))
        expected = jax.jit(partial(both_modes, plain))(wide)
        assert_close(found, expected, float(jnp.finfo(dtype).eps))


def mean_of(x=24, y=24, loss=squares, **params):
    """Call the module with so many inputs and targets, and some other parameters."""
    batch = np.ones((x, 6), np.float32), np.ones((y, 4), np.float32)
    return value_and_grad(loss, place(network()) | params, batch)


CUT, GIVEN = np.ones((8, 3), np.float32), (squares, network(), examples(24))
EACH = "the loss of 3 examples has shape {}: return one number for each"


@each_refusal(
    (lambda: mean_of(30, 30), "of 30 cannot be cut into 8 parts: pad it to 32"),
    (lambda: mean_of(24, 16), r"begin with \[\(1, 16\), \(1, 24\)\] are no bat"),
    (lambda: mean_of(0, 0), r"begin with \[\(1, 0\)\] are no batches"),
    (lambda: value_and_grad(*GIVEN, np.ones(8)), "must have the same number of micro"),
    (lambda: mean_of(w=place(CUT, "batch")), r"'w'\] is float32\[8@batch,3\]"),
    (lambda: mean_of(w=CUT.astype(int)), r"is int32\[8,3\]: pass floating-point"),
    (lambda: mean_of(loss=lambda *a: squares(*a).mean()), EACH.format(r"\(\)")),
    (lambda: mean_of(loss=lambda *a: (squares(*a), 1)), EACH.format("tuple")),
    (lambda: value_and_grad(*GIVEN, axis="rows"), r"no mesh axis \['rows'\] in con"),
)
def test_what_has_no_mean_gradient_is_refused(call, words):
    with devices((8, 1)), pytest.raises(ValueError, match=words):
        call()
