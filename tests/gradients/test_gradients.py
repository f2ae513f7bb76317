import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import on_devices
import pytest
from cases import each_week
from jax.sharding import AxisType
from on_devices import as_double, noise

from examples.communication import measure
from examples.gradients import accumulate, value_and_grad

EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto
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
    x, y = noise(*shape, 6, seed=7), noise(*shape, 4, seed=8)
    return np.float32(x), np.float32(y)


def chance(*shape):
    """Return random weights, a few of them zero."""
    weights = np.random.default_rng(9).uniform(-0.2, 1, shape)
    return np.maximum(weights, 0).astype(np.float32)


def squares(params, block):
    x, y = block
    out = jnp.tanh(x @ params["w"] + params["b"][None]) @ params["v"]
    return jnp.square(jnp.abs(out - y)).sum(-1)


def truth(params, batch, weights=None):
    """Return the mean loss and its gradient in NumPy, in double precision."""
    w, b, v = (as_double(params[name]) for name in "wbv")
    x, y = (as_double(array).reshape(-1, array.shape[-1]) for array in batch)
    scale = np.ones(len(x)) if weights is None else as_double(weights).reshape(-1)
    scale = scale / scale.sum()
    h = np.tanh(x @ w + b)
    error = h @ v - y
    back = 2 * scale[:, None] * error.conj()  # JAX's gradient is the conjugate
    deeper = back @ v.T * (1 - h**2)
    gradient = {"w": x.T @ deeper, "b": deeper.sum(0), "v": h.T @ back}
    return scale @ np.square(np.abs(error)).sum(-1), gradient


def assert_close(answer, expected, eps=1e-6):
    jax.tree.map(partial(on_devices.assert_close, eps=eps), answer, expected)


def place(tree, *spec):
    return jax.device_put(tree, jax.P(*spec))


def step(params, batches, weights=None, axis="batch"):
    return accumulate(squares, params, batches, weights, axis)


def sent(size, words):
    """Return the bytes that one device sends to sum `words` float32 over `size`."""
    return 2 * (size - 1) * 4 * words // size


@pytest.mark.parametrize(
    ("mesh", "kind"),
    [
        ((2, 4), AUTO),
        ((3, 2), EXPLICIT),
        each_week((1, 1), EXPLICIT),
        each_week((1, 8), EXPLICIT),
    ],
)
def test_a_gradient_of_weighted_examples_is_one_all_reduce(mesh, kind):
    """However many microbatches; the copies are equal on every device."""
    batches, weights = examples(5, 24), chance(5, 24)
    with devices(mesh, kind):
        given = place(network()), *place((batches, weights), None, "batch")
        run = jax.jit(step).lower(*given).compile()
        value, gradient = run(*given)
        assert_close((value, gradient), truth(given[0], batches, weights))
        on_devices.assert_agreed(*gradient.values())
        assert all(leaf.sharding.is_fully_replicated for leaf in gradient.values())
    program = measure(run)
    assert program.counts == ({"all-reduce": 1} if mesh[0] > 1 else {})
    assert program.sent == sent(mesh[0], N + 2)


@pytest.mark.parametrize("axis", [("model", "batch"), "model"])
def test_any_axes_may_split_the_batch(axis):
    batches = examples(2, 24)
    with devices((2, 4)):
        given = place(network()), place(batches, None, axis)
        run = jax.jit(partial(step, axis=axis)).lower(*given).compile()
        assert_close(run(*given), truth(given[0], batches))
    program = measure(run)
    assert program.counts == {"all-reduce": 1}
    assert program.sent == sent(4 if axis == "model" else 8, N + 2)


def test_one_batch_is_one_microbatch():
    batch, weights = examples(24), chance(24)
    with devices((8, 1)):
        params = place(network())
        placed = place((batch, weights), "batch")
        run = jax.jit(partial(value_and_grad, squares)).lower(params, *placed).compile()
        assert_close(run(params, *placed), truth(params, batch, weights))
        assert_close(value_and_grad(squares, params, placed[0]), truth(params, batch))
    program = measure(run)
    assert program.counts == {"all-reduce": 1}
    assert program.sent == sent(8, N + 2)


@pytest.mark.parametrize(
    ("dtype", "operands"),
    [(jnp.bfloat16, [4 * (N + 2)]), (jnp.complex64, [8, 8 * N])],
)
def test_a_gradient_has_the_type_of_its_parameters(dtype, operands):
    """Narrow ones cost what float32 costs; complex ones travel beside the real sums."""
    batches = examples(3, 24)
    with devices((8, 1)):
        given = place(network(dtype)), place(batches, None, "batch")
        run = jax.jit(step).lower(*given).compile()
        value, gradient = run(*given)
        assert value.dtype == jnp.float32
        assert {leaf.dtype for leaf in gradient.values()} == {jnp.dtype(dtype)}
        assert_close(
            (value, gradient), truth(given[0], batches), max(jnp.finfo(dtype).eps, 1e-5)
        )
    found = measure(run).collectives
    assert {each.kind for each in found} == {"all-reduce"}
    assert sorted(each.bytes for each in found) == operands


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
        run = jax.jit(step).lower(*given).compile()
        value, gradient = run(*given)
        assert_close((value, gradient), truth(params, batches))
        for name, leaf in params.items():
            assert gradient[name].sharding.is_equivalent_to(leaf.sharding, leaf.ndim)
        assert value.sharding.is_fully_replicated
    program = measure(run)
    [reduction] = [one for one in program.collectives if one.axes == ("batch",)]
    assert reduction.bytes == 4 * ((8 * 6 + 8 + 8 * 4) // 2 + 2)
    assert reduction.times == 1


def test_with_64_bits_it_is_still_one_all_reduce():
    with jax.enable_x64(True), devices((8, 1)):
        placed = place(examples(2, 24), None, "batch")
        program = measure(step, place(network()), placed)
    assert program.counts == {"all-reduce": 1}
    assert program.sent == sent(8, N + 2)


def test_the_gradient_can_be_differentiated_again():
    batch = examples(24)
    with devices((8, 1)):
        params, placed = place(network()), place(batch, "batch")
        vector = jax.tree.map(jnp.ones_like, params)

        def slope(params):
            return value_and_grad(squares, params, placed)[1]

        def plain(params):
            return jax.grad(lambda params: squares(params, placed).mean())(params)

        def curve(slope, p, v):
            return jax.jvp(slope, (p,), (v,))[1]

        @jax.jit(static_argnums=0)
        def both(slope, p, v):
            def square(p):
                return sum((g**2).sum() for g in jax.tree.leaves(slope(p)))

            return curve(slope, p, v), jax.grad(square)(p)

        assert_close(both(slope, params, vector), both(plain, params, vector))
        forward = measure(partial(curve, slope), params, vector)
    assert forward.counts == {"all-reduce": 1}


def test_second_derivatives_of_halves_beside_an_auto_axis():
    """XLA:CPU aborts over an all-reduce of bfloat16 there."""
    batch, found = examples(24), []
    for sizes, dtype in ((4, 2), jnp.bfloat16), ((1, 1), jnp.float32):
        with devices(sizes, AUTO):
            halves = network(jnp.bfloat16).items()
            params = {name: x.astype(dtype) for name, x in halves}

            def curve(params):
                slope = value_and_grad(squares, params, batch)[1]
                return sum((g.astype("f4") ** 2).sum() for g in jax.tree.leaves(slope))

            found.append(jax.tree.map(np.asarray, jax.jit(jax.grad(curve))(params)))
    assert_close(*found, eps=float(jnp.finfo(jnp.bfloat16).eps) / 2)


@pytest.mark.parametrize(
    ("shapes", "complaint"),
    [
        ([(30, 6), (30, 4)], "a batch of 30 cannot be cut into 8 parts: pad it to 32"),
        ([(24, 6), (16, 4)], r"begin with \[\(1, 16\), \(1, 24\)\] are no batches"),
        ([(24, 6), (24, 4), (8,)], "must have the same number of microbatches, and"),
        ([(), (24, 4)], r"begin with \[\(1,\), \(1, 24\)\] are no batches"),
        ([(0, 6), (0, 4)], r"begin with \[\(1, 0\)\] are no batches"),
    ],
)
def test_what_is_no_batch_is_refused(shapes, complaint):
    x, y, *weights = (np.ones(shape, np.float32) for shape in shapes)
    with devices((8, 1)), pytest.raises(ValueError, match=complaint):
        value_and_grad(squares, network(), (x, y), *weights)


@pytest.mark.parametrize(
    ("dtype", "spec", "complaint"),
    [
        (np.float32, ["batch"], r"params\['w'\] is float32\[8@batch,3\]: pass"),
        (np.int32, [], r"is int32\[8,3\]: pass floating-point or complex numbers"),
    ],
)
def test_parameters_that_no_gradient_fits_are_refused(dtype, spec, complaint):
    with devices((8, 1)):
        params = {**place(network()), "w": place(np.ones((8, 3), dtype), *spec)}
        with pytest.raises(ValueError, match=complaint):
            value_and_grad(squares, params, place(examples(24), "batch"))


@pytest.mark.parametrize(
    ("loss", "shape"),
    [
        (lambda *args: squares(*args).mean(), r"\(\)"),
        (lambda *args: (squares(*args), 1), "tuple"),
    ],
    ids=["mean already", "something beside it"],
)
def test_a_loss_that_is_no_number_for_each_is_refused(loss, shape):
    complaint = f"the loss of 3 examples has shape {shape}: return one number for each"
    with devices((8, 1)), pytest.raises(ValueError, match=complaint):
        value_and_grad(loss, place(network()), place(examples(24), "batch"))


def test_a_mesh_without_the_axis_is_refused():
    with pytest.raises(ValueError, match=r"no mesh axis \['batch'\] in context"):
        value_and_grad(squares, network(), examples(24))
    with devices((8, 1)), pytest.raises(ValueError, match=r"no mesh axis \['rows'\]"):
        value_and_grad(squares, network(), examples(24), axis="rows")
