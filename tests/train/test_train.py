from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import on_devices
import optax
import pytest
from cases import each_week
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

EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto
L, N, F, B = 2, 24, 48, 24
LARGE = 8, 64, 128, 8  # the same
RATE, STEPS = 1e-2, 20
WAYS = {  # mesh (data, model), row of SPECS, loss
    "one device": ((1, 1), "tensor", loss),
    "data": ((8, 1), "data", loss),
    "tensor": ((1, 8), "tensor", loss),
    "mix": ((4, 2), "tensor", loss),
    "subset": ((3, 2), "tensor", loss),
    "sharded": ((8, 1), "sharded", sharded_loss),
    "sharded subset": ((3, 1), "sharded", sharded_loss),
}

COUNTS = {  # nobody asks for the gradient of the first block's x
    "one device": {},
    "data": {"all-reduce": 1},
    "tensor": {"all-reduce": 2 * L - 1},
    "mix": {"all-reduce": 2 * L},
}
each_case = pytest.mark.parametrize(
    ("kind", "way"),
    [  # each row of SPECS, both types of axes, and odd meshes
        (EXPLICIT, "data"),
        (EXPLICIT, "subset"),
        (EXPLICIT, "sharded subset"),
        (AUTO, "mix"),
        (AUTO, "sharded"),
        *(each_week(EXPLICIT, way) for way in ("one device", "mix", "sharded")),
        *(each_week(AUTO, way) for way in ("data", "tensor")),
    ],
)
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


def narrow():
    return {name: np.float32(leaf) for name, leaf in start().items()}


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
def test_losses_and_gradients_of_all_ways_are_those_of_numpy(kind, way):
    """Adam forgives a factor of eight in its losses; so look at the gradient itself."""
    losses, gradient, (params, _), _ = trained(way, kind)
    expected, last = oracle()
    np.testing.assert_allclose(losses, expected, rtol=2e-5)
    assert losses[-1] < 0.5 * losses[0]
    for name, value in last.items():
        np.testing.assert_allclose(params[name], value, atol=1e-4)
    for name, value in descend(start(), pair())[1].items():
        np.testing.assert_allclose(gradient[name], value, atol=1e-6, rtol=1e-4)


def here(spec):
    return jax.NamedSharding(jax.sharding.get_mesh(), spec)


def assert_laid(params, specs):
    for name, spec in specs.items():
        assert params[name].sharding.is_equivalent_to(here(spec), params[name].ndim)


@each_case
def test_the_state_keeps_the_shardings_of_the_table(kind, way):
    sizes, row, _ = WAYS[way]
    _, _, (params, (adam, _)), _ = trained(way, kind)
    with devices(sizes, kind):
        for tree in params, adam.mu, adam.nu:
            assert_laid(tree, SPECS[row])
        assert adam.count.sharding.is_fully_replicated


@pytest.mark.parametrize(
    ("way", "kinds"),
    [each_week("mix", (AUTO, EXPLICIT)), ("sharded", (EXPLICIT, AUTO))],
)
def test_an_axis_of_the_other_type_changes_nothing(way, kinds):
    (data, model), row, cost = WAYS[way]
    names, kinds = ("other", "data", "model"), (*kinds, kinds[1])
    optimizer, losses = optax.adam(RATE), []
    with jax.set_mesh(jax.make_mesh((2, data // 2, model), names, kinds)):
        state = create(make, optimizer, SPECS[row])(jax.random.key(0))
        step = train_step(cost, optimizer, state)
        for _ in range(3):
            state, value = step(state, jax.device_put(tuple(pair()), jax.P("data")))
            losses.append(float(value))
        assert_laid(state[0], SPECS[row])
    np.testing.assert_allclose(losses, oracle()[0][:3], rtol=2e-5)


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
    """Layers meet once a block and way; sharded gradients are scattered."""
    program = trained(way, kind)[3]
    assert abs(program.sent - sent(way)) <= len(program.collectives)
    assert program.counts == COUNTS.get(way, program.counts)
    if way == "mix":
        axes = [each.axes for each in program.collectives]
        assert axes == [("model",)] * (2 * L - 1) + [("data",)]
    if way == "sharded":
        assert program.counts["reduce-scatter"] == 4 * L
        assert program.counts["all-reduce"] == 1  # of the loss


@pytest.mark.parametrize(
    ("sizes", "names", "row", "kind", "parts"),
    [
        ((8, 1), ("data", "model"), "sharded", AUTO, 8),
        ((4, 2), ("stage", "data"), "stages", EXPLICIT, 4),
    ],
)
def test_the_state_is_made_in_place(sizes, names, row, kind, parts):
    share = 3 * 4 * size(4, 64, 256) / parts
    with on_devices.devices(sizes, kind, names=names):
        start = create(lambda k: init(k, 4, 64, 256), optax.adam(RATE), SPECS[row])
        program = measure(start, jax.random.key(0))
    assert program.counts == {}
    assert program.outputs < 1.05 * share
    assert program.outputs + program.temporaries < 2 * share


def compiled(way):
    """Return the program of a step of eight blocks, compiled and never run."""
    mesh, row, cost = WAYS[way]
    optimizer, (blocks, n, f, b) = optax.adam(RATE), LARGE

    def place(leaf, spec):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here(spec))

    with devices(mesh):
        shapes = jax.eval_shape(lambda k: init(k, blocks, n, f), jax.random.key(0))
        state = shapes, jax.eval_shape(optimizer.init, shapes)
        state = jax.tree.map(place, state, state_specs(shapes, optimizer, SPECS[row]))
        half = place(jnp.ones((b, n)), jax.P("data"))
        program = measure(train_step(cost, optimizer, state), state, (half, half))
    assert abs(program.sent - sent(way, *LARGE)) <= len(program.collectives)
    return program


def test_a_step_holds_a_few_blocks_however_many_there_are():
    """And its gradient twice at most: in parts and in one piece."""
    program, whole = compiled("sharded"), 4 * size(*LARGE[:3])
    assert program.arguments < 1.05 * 3 * whole / 8
    assert program.temporaries < 0.4 * whole
    assert compiled("data").temporaries < 2.2 * whole


MATRICES = {  # Muon has to be told which axes are those of a matrix
    name: optax.contrib.MuonDimensionNumbers((1,), (2,)) if name[0] == "w" else None
    for name in SPECS["data"]
}
OPTIMIZERS = {
    "muon": optax.contrib.muon(RATE, muon_weight_dimension_numbers=MATRICES),
    "lbfgs": optax.lbfgs(  # quick to compile
        memory_size=3, linesearch=optax.scale_by_backtracking_linesearch(8)
    ),
}


@cache
def optimized(name, way, kind):
    """Return the losses of three steps, and the state after them."""
    mesh, row, cost = WAYS[way]
    with devices(mesh, kind):
        small = create(lambda key: init(key, 2, 8, 16), OPTIMIZERS[name], SPECS[row])
        state = small(jax.random.key(0))
        step, losses = train_step(cost, OPTIMIZERS[name], state), []
        batch = jax.device_put(tuple(pair()[:, :, :8]), jax.P("data"))
        for _ in range(3):
            state, value = step(state, batch)
            losses.append(float(value))
    return losses, state


@pytest.mark.parametrize(
    ("name", "way", "kind"),
    [
        ("muon", "mix", EXPLICIT),
        ("lbfgs", "sharded", AUTO),
        each_week("lbfgs", "mix", EXPLICIT),
    ],
)
def test_optimizers_of_many_kinds_see_the_whole_gradient(name, way, kind):
    """Products of matrices, and a line search."""
    losses, (params, moments) = optimized(name, way, kind)
    truth, (whole, _) = optimized(name, "one device", AUTO)
    np.testing.assert_allclose(losses, truth, rtol=1e-5)
    for leaf, wanted in whole.items():
        np.testing.assert_allclose(params[leaf], wanted, atol=1e-5)
    assert losses[-1] < losses[0]
    assert_moments_lie_as(params, moments)
    if name == "lbfgs":
        check_memory(params, moments)


def assert_moments_lie_as(params, moments):
    """Fail if a moment lies elsewhere than its parameter, or if there is none."""
    pairs = [
        (leaf, params[path[-1].key])
        for path, leaf in jax.tree.leaves_with_path(moments)
        if getattr(path[-1], "key", None) in params
    ]
    alike = [(leaf, param) for leaf, param in pairs if leaf.shape == param.shape]
    for leaf, param in alike:
        assert leaf.sharding.is_equivalent_to(param.sharding, leaf.ndim)
    assert alike


def check_memory(params, moments):
    """Fail unless what holds three of a parameter is cut as one of them is."""
    shapes = {leaf.shape: leaf.sharding for leaf in params.values()}
    for leaf in jax.tree.leaves(moments):
        if leaf.ndim and leaf.shape[1:] in shapes:
            spec = shapes[leaf.shape[1:]].spec
            assert leaf.shape[0] == 3
            assert (*leaf.sharding.spec, None)[: len(spec) + 1] == (None, *spec)


def test_a_parameter_is_known_by_its_whole_path():
    """Not by its last name, nor by how the text of its path ends."""
    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    params = {"w": shape, "1": {"w": shape}, "11": {"w": shape}}
    specs = {"w": jax.P("data"), "1": {"w": jax.P(None, "data")}, "11": {"w": jax.P()}}
    [momentum, _] = state_specs(params, optax.sgd(RATE, momentum=0.9), specs)[1]
    assert momentum.trace == specs


def test_a_state_on_no_mesh_is_refused():
    params = narrow()
    for state in (params, ()), (jax.tree.map(jnp.asarray, params), ()):
        with devices((8, 1)), pytest.raises(ValueError, match="the state is on no"):
            train_step(loss, optax.sgd(RATE), state)


@pytest.mark.parametrize("kind", [each_week(EXPLICIT), AUTO])
def test_a_step_keeps_the_shardings_of_any_state(kind):
    """Parameters whole, momentum in parts: the compiler would choose for itself."""
    optimizer = optax.sgd(RATE, momentum=0.9)
    with devices((8, 1), kind):
        params = narrow()
        specs = SPECS["data"], state_specs(params, optimizer, SPECS["sharded"])[1]
        state = jax.tree.map(np.asarray, (params, optimizer.init(params)))
        state = jax.device_put(state, specs)
        layout = jax.tree.map(lambda leaf: leaf.sharding, state)
        batch = jax.device_put(tuple(pair()), jax.P("data"))
        state, _ = train_step(loss, optimizer, state)(state, batch)
    for leaf, sharding in zip(*map(jax.tree.leaves, (state, layout)), strict=True):
        assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim)


X = np.ones((24, N))
FIT = rf"x and y should both be \[B, {N}\]"


@pytest.mark.parametrize(
    ("change", "batch", "complaint"),
    [
        ({}, [np.ones((30, N))] * 2, "30 cannot be cut in 8: take a multiple of it"),
        ({}, [X[:, :7]] * 2, FIT),
        ({}, [X, X[:16]], FIT),
        ({}, [X], FIT),
        ({"w2": np.ones((2, 3, 3))}, [X, X], "are those of no model: pass w1"),
        ({"w1": [1.0]}, [X, X], "are those of no model"),
        ({"b1": np.ones((L, F), int)}, [X, X], "must be floating-point numbers"),
    ],
)
def test_a_batch_or_parameters_of_another_model_are_refused(change, batch, complaint):
    for cost in loss, sharded_loss:
        with devices((8, 1)), pytest.raises(ValueError, match=complaint):
            cost(start() | change, tuple(batch))


def start_with(specs, n=N):
    """Call what makes a state of this size and these shardings."""
    return create(lambda key: init(key, L, n, F), optax.adam(RATE), specs)


def lie_as(row):
    return jax.device_put(narrow(), SPECS[row])


CUT = r"w1 has shape \(2, 20, 48\): .* cuts 20 in 8; take a multiple of 8"


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: start_with(SPECS["sharded"], 20), CUT),
        (lambda: start_with({"w1": jax.P()}), "need one spec each, not"),
        (lambda: start_with(SPECS["stages"]), r"no mesh axis \['stage'\] in context"),
        (lambda: loss(lie_as("sharded"), (X, X)), "lies by P.*: lay it out by P"),
        (lambda: sharded_loss(lie_as("tensor"), (X, X)), "lies by P.*: lay it out by"),
    ],
)
def test_shardings_that_do_not_fit_are_refused(call, complaint):
    with devices((8, 1)), pytest.raises(ValueError, match=complaint):
        call()


def test_a_loss_without_a_mesh_is_refused():
    with pytest.raises(ValueError, match=r"no mesh axis \['data'\] in context"):
        loss(start(), (X, X))
