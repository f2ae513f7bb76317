import math
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import on_devices
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType

from examples.communication import measure
from examples.train import (
    SPECS,
    create,
    init,
    loss,
    sharded_loss,
    state_specs,
    train_step,
)

KINDS = [AxisType.Explicit, AxisType.Auto]
L, N, F, B = 2, 24, 48, 24
RATE, STEPS = 1e-2, 20
WAYS = {  # mesh (data, model), row of SPECS, loss
    "one device": ((1, 1), "tensor", loss),
    "data": ((8, 1), "data", loss),
    "tensor": ((1, 8), "tensor", loss),
    "mix": ((4, 2), "tensor", loss),
    "other mix": ((2, 4), "tensor", loss),
    "subset": ((3, 2), "tensor", loss),
    "sharded": ((8, 1), "sharded", sharded_loss),
    "sharded twice": ((4, 2), "sharded", sharded_loss),
    "sharded subset": ((3, 1), "sharded", sharded_loss),
    "sharded alone": ((1, 1), "sharded", sharded_loss),
}

CASES = [(AxisType.Explicit, way) for way in WAYS]
CASES += [
    (AxisType.Auto, way) for way in ("one device", "data", "tensor", "mix", "sharded")
]
each_case = pytest.mark.parametrize(
    ("kind", "way"), CASES, ids=[f"{kind.name}, {way}" for kind, way in CASES]
)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=["explicit", "auto"])


devices = partial(on_devices.devices, names=("data", "model"))


def make(key):
    return init(key, L, N, F)


def pair():
    """Return a batch in NumPy: x and y."""
    return np.random.default_rng(0).standard_normal((2, B, N)).astype(np.float32)


@cache
def start():
    """Return the parameters that every way starts from, in NumPy."""
    with devices((1, 1)):
        return {k: np.float64(v) for k, v in make(jax.random.key(0)).items()}


def descend(params, batch):
    """Return loss and gradient in NumPy, by the chain rule, a block at a time."""
    x, y = np.float64(batch)
    saved = []
    for w1, b1, w2, b2 in zip(*params.values(), strict=True):
        h = np.tanh(x @ w1 + b1)
        saved.append((x, h, w1, w2))
        x = x + h @ w2 + b2
    g = 2 * (x - y) / x.size
    gradient = []
    for x_in, h, w1, w2 in reversed(saved):
        s = g @ w2.T * (1 - h**2)
        gradient.append((x_in.T @ s, s.sum(0), h.T @ g, g.sum(0)))
        g = g + s @ w1.T
    parts = map(np.stack, zip(*reversed(gradient), strict=True))
    return np.mean((x - y) ** 2), dict(zip(params, parts, strict=True))


@cache
def oracle():
    """Return the losses and the last parameters of Adam, written out in NumPy."""
    params, batch = start(), pair()
    first = second = dict.fromkeys(params, 0)
    losses = []
    for step in range(1, STEPS + 1):
        value, g = descend(params, batch)
        losses.append(value)
        first = {k: 0.9 * first[k] + 0.1 * g[k] for k in g}
        second = {k: 0.999 * second[k] + 0.001 * g[k] ** 2 for k in g}
        size = {k: np.sqrt(second[k] / (1 - 0.999**step)) + 1e-8 for k in g}
        params = {k: params[k] - RATE * first[k] / (1 - 0.9**step) / size[k] for k in g}
    return losses, params


@cache
def trained(way, kind):
    """Train in one way; return losses, gradient, state, and the program of a step.

    After one step Adam's first moment is a tenth of the gradient.
    """
    mesh, row, cost = WAYS[way]
    optimizer = optax.adam(RATE)
    with devices(mesh, kind):
        state = create(make, optimizer, SPECS[row])(jax.random.key(0))
        batch = jax.device_put(tuple(pair()), jax.P("data"))
        step = train_step(cost, optimizer, state)
        program = measure(step, state, batch)
        state, value = step(state, batch)
        gradient = {k: 10 * np.asarray(v) for k, v in state[1][0].mu.items()}
        losses = [float(value)]
        for _ in range(STEPS - 1):
            state, value = step(state, batch)
            losses.append(float(value))
    return losses, gradient, state, program


@each_case
def test_the_losses_of_all_ways_are_those_of_numpy(kind, way):
    losses, _, (params, _), _ = trained(way, kind)
    expected, last = oracle()
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    assert losses[-1] < 0.5 * losses[0]
    for name, value in last.items():
        np.testing.assert_allclose(params[name], value, atol=1e-4)


@each_case
def test_the_state_keeps_the_layout_of_the_table(kind, way):
    sizes, row, _ = WAYS[way]
    _, _, (params, (adam, _)), _ = trained(way, kind)
    with devices(sizes, kind):
        mesh = jax.sharding.get_mesh()
        for name, spec in SPECS[row].items():
            for tree in params, adam.mu, adam.nu:
                wanted = jax.NamedSharding(mesh, spec)
                leaf = tree[name]
                assert leaf.sharding.is_equivalent_to(wanted, leaf.ndim)
        assert adam.count.sharding.is_fully_replicated


@each_case
def test_the_gradient_is_that_of_numpy(kind, way):
    """Adam forgives a factor of eight in its losses; so look at the gradient itself."""
    gradient = trained(way, kind)[1]
    for name, value in descend(start(), pair())[1].items():
        np.testing.assert_allclose(gradient[name], value, atol=1e-6, rtol=1e-4)


@each_kind
def test_a_gradient_lies_as_its_parameter_does(kind):
    for way in "mix", "sharded":
        mesh, row, cost = WAYS[way]
        with devices(mesh, kind):
            params = jax.device_put(
                {k: np.float32(v) for k, v in start().items()}, SPECS[row]
            )
            batch = jax.device_put(tuple(pair()), jax.P("data"))
            gradient = jax.jit(jax.grad(cost))(params, batch)
        for name, leaf in gradient.items():
            assert leaf.sharding.is_equivalent_to(params[name].sharding, leaf.ndim)


def size(blocks=L, n=N, f=F):
    return blocks * (2 * n * f + f + n)


def sent(way, blocks=L, n=N, f=F, b=B):
    """Return the bytes that a device sends in a step, by the formulas of the module."""
    (d, m), row, _ = WAYS[way]
    number = 2 * 4 * (d - 1) / d
    if row == "sharded":
        words = 3 * size(blocks, n, f) - blocks * n
        return 4 * words * (d - 1) / d + number
    sums = 2 * 4 * (2 * blocks - 1) * b * n / d * (m - 1) / m
    split = (size(blocks, n, f) - blocks * n) / m + blocks * n
    return sums + number * (split if row == "tensor" else size(blocks, n, f)) + number


@each_case
def test_a_step_sends_what_the_formula_says(kind, way):
    program = trained(way, kind)[3]
    assert abs(program.sent - sent(way)) <= len(program.collectives)


@each_kind
def test_a_step_of_data_parallel_training_is_one_all_reduce(kind):
    assert trained("data", kind)[3].counts == {"all-reduce": 1}
    assert trained("one device", kind)[3].counts == {}


@each_kind
def test_tensor_parallel_layers_meet_once_a_block_and_way(kind):
    """Forward and back, but nobody asks for the gradient of the first block's x."""
    assert trained("tensor", kind)[3].counts == {"all-reduce": 2 * L - 1}
    both = trained("mix", kind)[3].collectives
    assert [c.axes for c in both] == [("model",)] * (2 * L - 1) + [("data",)]


@each_kind
def test_sharded_gradients_are_scattered(kind):
    counts = trained("sharded", kind)[3].counts
    assert counts["reduce-scatter"] == 4 * L
    assert counts["all-reduce"] == 1  # of the loss


@settings(deadline=None, derandomize=True, max_examples=5)
@given(
    st.sampled_from(["data", "tensor", "mix", "sharded"]),
    *[st.integers(2, 4)] * 4,
)
def test_models_of_any_size_send_what_the_formula_says(way, blocks, n, f, b):
    n, f, b = 8 * n, 8 * f, 8 * b
    program = compiled(way, (blocks, n, f, b), optax.sgd(RATE))
    slack = len(program.collectives)
    assert abs(program.sent - sent(way, blocks, n, f, b)) <= slack


def here(spec):
    return jax.NamedSharding(jax.sharding.get_mesh(), spec)


def placed(shapes, specs):
    """Return shapes with the shardings that the specs mean on the mesh in context."""

    def place(leaf, spec):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here(spec))

    return jax.tree.map(place, shapes, specs)


@each_kind
@pytest.mark.parametrize("way", ["tensor", "mix", "sharded"])
def test_the_state_is_made_in_place(kind, way):
    mesh, row, _ = WAYS[way]
    share = math.prod(mesh) if way != "mix" else 2
    whole = 3 * 4 * size(4, 64, 256)
    with devices(mesh, kind):
        start = create(lambda k: init(k, 4, 64, 256), optax.adam(RATE), SPECS[row])
        program = measure(start, jax.random.key(0))
    assert program.counts == {}
    assert program.outputs < 1.05 * whole / share
    assert program.outputs + program.temporaries < 2 * whole / share


@each_kind
def test_the_stages_of_a_pipeline_are_made_in_place(kind):
    share = 3 * 4 * size(4, 64, 256) / 4
    with on_devices.devices((4, 2), kind, names=("stage", "data")):
        start = create(lambda k: init(k, 4, 64, 256), optax.adam(RATE), SPECS["stages"])
        program = measure(start, jax.random.key(0))
    assert program.counts == {}
    assert program.outputs < 1.05 * share
    assert program.outputs + program.temporaries < 2 * share


def compiled(way, shape, optimizer):
    """Return the program of a step of any size, compiled and never run."""
    blocks, n, f, b = shape
    mesh, row, cost = WAYS[way]
    with devices(mesh):
        shapes = jax.eval_shape(lambda k: init(k, blocks, n, f), jax.random.key(0))
        state = shapes, jax.eval_shape(optimizer.init, shapes)
        state = placed(state, state_specs(shapes, optimizer, SPECS[row]))
        half = jax.ShapeDtypeStruct((b, n), jnp.float32, sharding=here(jax.P("data")))
        return measure(train_step(cost, optimizer, state), state, (half, half))


def test_sharded_training_never_holds_the_model():
    """What a step takes is a few blocks, however many there are."""
    program = compiled("sharded", (8, 64, 128, 8), optax.adam(RATE))
    whole = 4 * size(8, 64, 128)
    assert program.arguments < 1.05 * 3 * whole / 8
    assert program.temporaries < 0.4 * whole


def test_the_gradient_is_held_twice_at_most():
    """In parts and in one piece, but never once for each block."""
    program = compiled("data", (8, 64, 128, 8), optax.adam(RATE))
    assert program.temporaries < 2.2 * 4 * size(8, 64, 128)


def test_other_optimizers_see_the_whole_gradient():
    """A norm is taken over all parts of all parameters, wherever they lie."""
    clip, momentum = optax.clip_by_global_norm(0.1), optax.sgd(0.1, momentum=0.9)
    optimizer = optax.chain(clip, momentum)
    ends = []
    for way in "one device", "sharded":
        mesh, row, cost = WAYS[way]
        with devices(mesh):
            state = create(make, optimizer, SPECS[row])(jax.random.key(0))
            step = train_step(cost, optimizer, state)
            batch = jax.device_put(tuple(pair()), jax.P("data"))
            for _ in range(3):
                state, _ = step(state, batch)
        ends.append(jax.tree.map(np.asarray, state[0]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), *ends)


@each_kind
def test_a_step_keeps_the_layout_of_any_state(kind):
    """Parameters whole, momentum in parts: the compiler would choose for itself."""
    optimizer = optax.sgd(RATE, momentum=0.9)
    with devices((8, 1), kind):
        params = jax.tree.map(np.float32, start())
        [trace, rest] = optimizer.init(params)
        specs = state_specs(params, optimizer, SPECS["sharded"])[1]
        state = jax.tree.map(np.asarray, (params, (trace, rest)))
        state = jax.device_put(state, (SPECS["data"], specs))
        layout = jax.tree.map(lambda leaf: leaf.sharding, state)
        batch = jax.device_put(tuple(pair()), jax.P("data"))
        state, _ = train_step(loss, optimizer, state)(state, batch)
    for leaf, kept in zip(*map(jax.tree.leaves, (state, layout)), strict=True):
        assert leaf.sharding.is_equivalent_to(kept, leaf.ndim)


@each_kind
@pytest.mark.parametrize("way", ["mix", "sharded"])
def test_narrow_parameters_stay_narrow(way, kind):
    mesh, row, cost = WAYS[way]
    with devices(mesh, kind):
        half = {k: jnp.asarray(v, jnp.bfloat16) for k, v in start().items()}
        params = jax.device_put(jax.tree.map(np.asarray, half), SPECS[row])
        batch = jax.device_put(tuple(jnp.bfloat16(pair())), jax.P("data"))
        value, gradient = jax.jit(jax.value_and_grad(cost))(params, batch)
    assert value.dtype == gradient["w1"].dtype == jnp.bfloat16
    np.testing.assert_allclose(float(value), oracle()[0][0], rtol=0.05)


@pytest.mark.parametrize(
    ("shapes", "complaint"),
    [
        ([(30, N)] * 2, "a batch of 30 cannot be cut in 8: take a multiple of it"),
        ([(24, 7)] * 2, rf"x and y should both be \[B, {N}\]"),
        ([(24, N), (16, N)], rf"x and y should both be \[B, {N}\]"),
        ([(24, N)], rf"x and y should both be \[B, {N}\]"),
    ],
)
@pytest.mark.parametrize("cost", [loss, sharded_loss])
def test_batches_that_do_not_fit_are_refused(cost, shapes, complaint):
    with devices((8, 1)), pytest.raises(ValueError, match=complaint):
        cost(make(jax.random.key(0)), tuple(map(jnp.ones, shapes)))


def test_parameters_that_the_mesh_cannot_cut_are_refused():
    optimizer = optax.adam(RATE)
    specs = SPECS["sharded"]
    with devices((8, 1)):
        complaint = r"w1 has shape \(2, 20, 48\): .* cuts 20 in 8; take a multiple of 8"
        with pytest.raises(ValueError, match=complaint):
            create(lambda k: init(k, 2, 20, 48), optimizer, specs)
        with pytest.raises(ValueError, match="cuts 20 in 8"):
            sharded_loss(init(jax.random.key(0), 2, 20, 48), (jnp.ones((8, 20)),) * 2)
        with pytest.raises(ValueError, match="need one spec each, not"):
            create(make, optimizer, {"w1": jax.P()})
        with pytest.raises(ValueError, match=r"no mesh axis \['stage'\] in context"):
            create(make, optimizer, SPECS["stages"])
    with pytest.raises(ValueError, match=r"no mesh axis \['data'\] in context"):
        loss(make(jax.random.key(0)), (jnp.ones((8, N)),) * 2)
