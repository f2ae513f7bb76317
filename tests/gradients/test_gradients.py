import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import on_devices
import pytest
from cases import each_week
from jax.sharding import AxisType

from examples.communication import measure
from examples.gradients import accumulate, value_and_grad

MESHES = [(1, 1), (8, 1), (1, 8), (2, 4), (4, 2), (3, 2)]  # the last: a subset
KINDS = [AxisType.Explicit, AxisType.Auto]
ALL = ("batch", "model")
SIZES = {"w": (6, 8), "b": (8,), "v": (8, 4)}
N = sum(math.prod(shape) for shape in SIZES.values())

each_kind = pytest.mark.parametrize("kind", KINDS, ids=["explicit", "auto"])


devices = partial(on_devices.devices, names=ALL)


def random(shape, dtype=jnp.float32, seed=0):
    array = np.random.default_rng(seed).standard_normal(shape)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        array = array + 1j * np.random.default_rng(seed + 1).standard_normal(shape)
    return np.asarray(array).astype(dtype)


def network(dtype=jnp.float32):
    return {
        name: random(shape, dtype, i) * np.asarray(0.3, dtype)
        for i, (name, shape) in enumerate(SIZES.items())
    }


def examples(*shape):
    """Return inputs and targets, [.., 6] and [.., 4]."""
    return random((*shape, 6), seed=7), random((*shape, 4), seed=8)


def chance(*shape):
    """Return random weights, a few of them zero."""
    weights = np.random.default_rng(9).uniform(-0.2, 1, shape)
    return np.maximum(weights, 0).astype(np.float32)


def squares(params, block):
    x, y = block
    out = jnp.tanh(x @ params["w"] + params["b"][None]) @ params["v"]
    return jnp.square(jnp.abs(out - y)).sum(-1)


def squares_over_model(params, block):
    """Return what `squares` does, for a hidden layer that is split over `model`."""
    x, y = block
    hidden = jnp.tanh(x @ params["w"] + params["b"][None])
    out = jnp.einsum("bh,ho->bo", hidden, params["v"], out_sharding=jax.P())
    return jnp.square(out - y).sum(-1)


def double(array):
    wide = np.complex128 if jnp.iscomplexobj(array) else np.float64
    return np.asarray(array).astype(wide)


def truth(params, batch, weights=None):
    """Return the mean loss and its gradient in NumPy, in double precision."""
    w, b, v = (double(params[name]) for name in "wbv")
    x, y = (double(array).reshape(-1, array.shape[-1]) for array in batch)
    scale = np.ones(len(x)) if weights is None else double(weights).reshape(-1)
    scale = scale / scale.sum()
    h = np.tanh(x @ w + b)
    error = h @ v - y
    back = 2 * scale[:, None] * error.conj()  # JAX's gradient is the conjugate
    deeper = back @ v.T * (1 - h**2)
    gradient = {"w": x.T @ deeper, "b": deeper.sum(0), "v": h.T @ back}
    return scale @ np.square(np.abs(error)).sum(-1), gradient


def assert_close(answer, expected, eps=1e-6):
    for mine, wanted in zip(
        jax.tree.leaves(answer), jax.tree.leaves(expected), strict=True
    ):
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(double(mine) / scale, wanted / scale, atol=10 * eps)


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
        ((2, 4), KINDS[1]),
        ((3, 2), KINDS[0]),
        *(each_week(mesh, KINDS[0]) for mesh in MESHES),
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


@pytest.mark.parametrize("axis", [each_week(ALL), ALL[::-1], "model"])
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
    [
        (jnp.bfloat16, [4 * (N + 2)]),
        each_week(jnp.float16, [4 * (N + 2)]),
        (jnp.complex64, [8, 8 * N]),
    ],
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


@each_kind
def test_gradients_lie_where_the_parameters_do(kind):
    batches = examples(2, 24)
    specs = {"w": jax.P(None, "model"), "b": jax.P("model"), "v": jax.P("model", None)}
    with devices((4, 2), kind):
        params = jax.device_put(network(), specs)
        given = params, place(batches, None, "batch")
        run = jax.jit(partial(accumulate, squares_over_model)).lower(*given).compile()
        value, gradient = run(*given)
        assert_close((value, gradient), truth(params, batches))
        for name, leaf in params.items():
            assert gradient[name].sharding.is_equivalent_to(leaf.sharding, leaf.ndim)
        assert value.sharding.is_fully_replicated
    program = measure(run)
    [reduction] = [one for one in program.collectives if one.axes == ("batch",)]
    assert reduction.bytes == 4 * ((8 * 6 + 8 + 8 * 4) // 2 + 2)
    assert reduction.times == 1


def test_a_loss_need_not_say_how_its_products_lie():
    """On Explicit axes, too: they are Auto within the loss."""
    batches = examples(2, 24)
    specs = {"w": jax.P(None, "model"), "b": jax.P("model"), "v": jax.P("model", None)}
    with devices((4, 2)), jax.numpy_dtype_promotion("strict"):
        params = jax.device_put(network(), specs)
        value, gradient = accumulate(squares, params, batches)
        assert_close((value, gradient), truth(params, batches))
        for name, leaf in params.items():
            assert gradient[name].sharding.is_equivalent_to(leaf.sharding, leaf.ndim)


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

        def square(slope):
            return lambda p: sum((g**2).sum() for g in jax.tree.leaves(slope(p)))

        def curve(slope):
            return lambda p, v: jax.jvp(slope, (p,), (v,))[1]

        def both(slope):
            second = jax.jit(
                lambda p, v: (curve(slope)(p, v), jax.grad(square(slope))(p))
            )
            return second(params, vector)

        assert_close(both(slope), both(plain))
        forward = measure(curve(slope), params, vector)
    assert forward.counts == {"all-reduce": 1}


def test_second_derivatives_of_halves_beside_an_auto_axis():
    """XLA:CPU aborts over an all-reduce of bfloat16 there."""
    batch, found = examples(24), []
    for sizes, dtype in ((4, 2), jnp.bfloat16), ((1, 1), jnp.float32):
        with devices(sizes, AxisType.Auto):
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
    x, y, *weights = map(random, shapes)
    with devices((8, 1)), pytest.raises(ValueError, match=complaint):
        value_and_grad(squares, network(), (x, y), *weights)


@pytest.mark.parametrize(
    ("leaf", "complaint"),
    [
        (np.ones((8, 3), np.float32), r"params\['w'\] is float32\[8@batch,3\]: pass"),
        (np.ones((8, 3), np.int32), r"params\['w'\] is int32\[8@batch,3\]: pass float"),
    ],
)
def test_parameters_that_no_gradient_fits_are_refused(leaf, complaint):
    with devices((8, 1)):
        params = {**place(network()), "w": place(leaf, "batch")}
        with pytest.raises(ValueError, match=complaint):
            value_and_grad(squares, params, place(examples(24), "batch"))
        whole = {**params, "w": place(leaf.astype(int))}
        with pytest.raises(ValueError, match="floating-point or complex numbers"):
            value_and_grad(squares, whole, place(examples(24), "batch"))


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
