from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import on_devices
import optax
import pytest
from cases import each_refusal, each_week
from fft.test_fft import lies
from numpy.testing import assert_allclose
from on_devices import AUTO, EXPLICIT

from examples import train
from examples.communication import measure
from examples.train import NAMES, SPECS, create, init, loss, sharded_loss, train_step

L, N, F, B = 2, 24, 48, 24  # layers, their widths, a batch
SIZES = L, N, F
RATE, STEPS = 1e-2, 5
WAYS = {  # mesh (data, model), row of SPECS, loss
    "data": ((8, 1), "data", loss),
    "mix": ((4, 2), "tensor", loss),
    "subset": ((3, 2), "tensor", loss),
    "sharded": ((8, 1), "sharded", sharded_loss),
    "sharded subset": ((3, 1), "sharded", sharded_loss),
}
MATRICES = {  # Muon has to be told which axes are those of a matrix
    name: optax.contrib.MuonDimensionNumbers((1,), (2,)) if name[0] == "w" else None
    for name in NAMES
}
OPTIMIZERS = {
    "adam": optax.adam(RATE),
    "muon": optax.contrib.muon(
        RATE, ns_steps=1, muon_weight_dimension_numbers=MATRICES
    ),
    "lbfgs": optax.lbfgs(
        memory_size=2, linesearch=optax.scale_by_backtracking_linesearch(8)
    ),
}
CASES = [  # each row of SPECS, both types of axes, odd meshes, a line search
    (EXPLICIT, "data", "adam"),
    (EXPLICIT, "subset", "adam"),
    (EXPLICIT, "sharded subset", "adam"),
    (AUTO, "mix", "adam"),
    (AUTO, "sharded", "adam"),
    (EXPLICIT, "mix", "muon"),
    (AUTO, "sharded", "lbfgs"),
]
devices = partial(on_devices.devices, names=("data", "model"))


def start():
    """Return the parameters that every way starts from."""
    return init(jax.random.key(0), *SIZES)


def pair(width=N, rows=B):
    """Return a batch in NumPy: x and y."""
    return tuple(np.random.default_rng(0).standard_normal((2, rows, width), "f4"))


def begin(way, name="adam", sizes=SIZES):
    """Return the step of a way, and its first state, on the mesh in context."""
    _, row, cost = WAYS[way]
    made = create(lambda key: init(key, *sizes), OPTIMIZERS[name], SPECS[row])
    state = made(jax.random.key(0))
    return train_step(cost, OPTIMIZERS[name], state), state


def descend(step, state, batch):
    """Return the losses of some steps, the first moments, and the last state."""
    losses, moments = [], []
    for _ in range(STEPS):
        state, value = step(state, batch)
        losses.append(float(value))
        moments.append(jax.tree.map(np.array, state[1]))  # the next step reuses it
    return losses, moments[0], state


def whole_loss(params, batch):
    """Return the loss of arrays on one device."""
    x, y = batch
    for w1, b1, w2, b2 in zip(*(params[name] for name in NAMES), strict=True):
        x = x + jnp.tanh(x @ w1 + b1[None]) @ w2 + b2[None]
    return ((x - y) ** 2).mean()


@cache
def oracle(name="adam"):
    """Return what `descend` does, by plain JAX on one device."""
    optimizer = optax.with_extra_args_support(OPTIMIZERS[name])
    value_fn = partial(whole_loss, batch=pair())

    @jax.jit
    def step(state, _):
        params, moments = state
        value, g = jax.value_and_grad(value_fn)(params)
        more = {"value": value, "grad": g, "value_fn": value_fn}
        updates, moments = optimizer.update(g, moments, params, **more)
        return (optax.apply_updates(params, updates), moments), value

    return descend(step, (start(), optimizer.init(start())), ())


def assert_state_laid(state, specs):
    """Fail unless parameters, and moments of their shape, lie so; all else is whole."""
    params, alike = state[0], []
    for path, leaf in jax.tree.leaves_with_path(state):
        name = getattr(path[-1], "key", None)
        more = leaf.ndim - params[name].ndim if name in params else 0
        same = name in params and leaf.shape[more:] == params[name].shape
        there = jax.P(*[None] * more, *specs[name]) if same else jax.P()
        assert lies(leaf, there)
        alike += [name] * same
    assert len(alike) > len(params)


@pytest.mark.parametrize(("kind", "way", "name"), CASES)
def test_every_way_trains_as_one_device_does(kind, way, name):
    """Compare the first moments, too: they hold the gradient, which Adam rescales."""
    sizes, row, _ = WAYS[way]
    with devices(sizes, kind):
        step, state = begin(way, name)
        batch = jax.device_put(pair(), jax.P("data"))
        losses, first, state = descend(step, state, batch)
        assert_state_laid(state, SPECS[row])
    expected, moments, (params, _) = oracle(name)
    assert_allclose(losses, expected, rtol=2e-5)
    assert losses[-1] < losses[0]
    jax.tree.map(partial(assert_allclose, atol=1e-7, rtol=1e-4), first, moments)
    jax.tree.map(partial(assert_allclose, atol=1e-4), state[0], params)


@pytest.mark.parametrize(
    ("way", "kinds"),
    [each_week("mix", (AUTO, EXPLICIT)), ("sharded", (EXPLICIT, AUTO))],
)
def test_an_axis_of_the_other_type_changes_nothing(way, kinds):
    (data, model), row, _ = WAYS[way]
    names, kinds = ("other", "data", "model"), (*kinds, kinds[1])
    with jax.set_mesh(jax.make_mesh((2, data // 2, model), names, kinds)):
        batch = jax.device_put(pair(), jax.P("data"))
        losses, _, state = descend(*begin(way), batch)
        assert_state_laid(state, SPECS[row])
    assert_allclose(losses, oracle()[0], rtol=2e-5)


def test_the_state_is_made_in_place_on_auto_axes():
    """The page measures it on Explicit ones."""
    with devices((8, 1), AUTO):
        start = create(
            lambda key: init(key, 4, 64, 256), optax.adam(RATE), SPECS["sharded"]
        )
        program = measure(start, jax.random.key(0))
    share = 3 * 4 * 4 * (2 * 64 * 256 + 256 + 64) / 8
    assert program.counts == {}
    assert program.outputs < 1.05 * share
    assert program.outputs + program.temporaries < 2 * share


def test_a_parameter_is_known_by_its_whole_path():
    """Not by its last name, nor by how the text of its path ends."""
    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    params = {"w": shape, "1": {"w": shape}, "11": {"w": shape}}
    specs = {"w": jax.P("data"), "1": {"w": jax.P(None, "data")}, "11": {"w": jax.P()}}
    [momentum, _] = train.state_specs(params, optax.sgd(RATE, momentum=0.9), specs)[1]
    assert momentum.trace == specs


def test_a_step_leaves_the_shardings_of_any_state():
    """Parameters whole, momentum in parts: the compiler would choose for itself."""
    optimizer = optax.sgd(RATE, momentum=0.9)
    with devices((8, 1), AUTO):
        moments = train.state_specs(start(), optimizer, SPECS["sharded"])[1]
        state = start(), optimizer.init(start())
        state = jax.device_put(state, (SPECS["data"], moments))
        layout = jax.tree.map(lambda leaf: leaf.sharding, state)
        batch = jax.device_put(pair(), jax.P("data"))
        state, _ = train_step(loss, optimizer, state)(state, batch)
    for leaf, sharding in zip(*map(jax.tree.leaves, (state, layout)), strict=True):
        assert leaf.sharding.is_equivalent_to(sharding, leaf.ndim)


X = np.ones((24, N))
FIT = rf"x and y should both be \[B, {N}\]"
CUT = r"w1 has shape \(2, 20, 48\): .* cuts 20 in 8; take a multiple of 8"


def start_with(specs, n=N):
    """Call what makes a state of this size and these shardings."""
    return create(lambda key: init(key, L, n, F), optax.adam(RATE), specs)


def lie_as(row):
    return jax.device_put(start(), SPECS[row])


def step_from(device):
    params = jax.device_put(start(), device)
    return train_step(loss, optax.sgd(RATE), (params, ()))


@each_refusal(
    (lambda: loss(start(), (X, X[:16])), FIT),
    (lambda: sharded_loss(start(), (X[:, :7], X[:, :7])), FIT + ", not"),
    (lambda: loss(start(), 2 * [np.ones((30, N))]), "30 cannot be cut in 8: take"),
    (lambda: loss(start() | {"w2": X[None]}, (X, X)), "of no model: pass w1"),
    (lambda: sharded_loss(start() | {"w1": [1.0]}, (X, X)), "are those of no mod"),
    (lambda: loss(start() | {"b1": np.ones((L, F), int)}, (X, X)), "floating-poin"),
    (lambda: loss(lie_as("sharded"), (X, X)), "lies by P.*: lay it out by P"),
    (lambda: sharded_loss(lie_as("tensor"), (X, X)), "lies by P.*: lay it out by"),
    (lambda: start_with(SPECS["sharded"], 20), CUT),
    (lambda: start_with({"w1": jax.P()}), "need one spec each, not"),
    (lambda: start_with(SPECS["stages"]), r"no mesh axis \['stage'\] in context"),
    (lambda: step_from(jax.devices()[0]), "the state is on no mesh"),
    (lambda: train_step(loss, optax.sgd(RATE), (X, ())), "is on no mesh"),
)
def test_what_does_not_fit_is_refused(call, words):
    with devices((8, 1)), pytest.raises(ValueError, match=words):
        call()
