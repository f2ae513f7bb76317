from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import on_devices
import pytest
from cases import each_week
from jax.sharding import AxisType

from examples.communication import measure
from examples.pipeline import flow, pipelined, schedule
from examples.train import SPECS, init, mse, predict

EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto
L, N, B = 8, 6, 32
each_case = pytest.mark.parametrize(
    ("kind", "mesh", "microbatches"),  # mesh (stage, data)
    [
        (EXPLICIT, (2, 4), 4),
        (EXPLICIT, (2, 1), 32),
        (AUTO, (8, 1), 8),
        each_week(EXPLICIT, (1, 1), 4),
        each_week(EXPLICIT, (8, 1), 1),
        each_week(EXPLICIT, (1, 8), 2),
        each_week(AUTO, (2, 4), 4),
    ],
)
devices = partial(on_devices.devices, names=("stage", "data"))


def stage(params, piece):
    """Apply some layers: not linear, and no two commute."""
    for w, b in zip(params["w"], params["b"], strict=True):
        piece = piece + jnp.tanh(piece @ w + b[None])
    return piece


@cache
def problem():
    """Return parameters and a batch, in NumPy."""
    draw = np.random.default_rng(0).standard_normal
    params = {"w": draw((L, N, N)) / 4, "b": draw((L, N)) / 4}
    return jax.tree.map(np.float32, params), tuple(np.float32(draw((2, B, N))))


def descend(params, batch):
    """Return loss and gradient in NumPy, layer by layer, the whole batch at once."""
    x, y = np.float64(batch)
    saved = []
    for w, b in zip(params["w"], params["b"], strict=True):
        saved.append((x, np.tanh(x @ w + b), w))
        x = x + saved[-1][1]
    value, g = np.mean((x - y) ** 2), 2 * (x - y) / x.size
    gradient = []
    for x, h, w in reversed(saved):
        s = g * (1 - h**2)
        gradient.append((x.T @ s, s.sum(0)))
        g = g + s @ w.T
    w, b = map(np.stack, zip(*reversed(gradient), strict=True))
    return value, {"w": w, "b": b}


def place(dtype=np.float32):
    params, batch = jax.tree.map(lambda a: a.astype(dtype), problem())
    return jax.device_put(params, jax.P("stage")), jax.device_put(batch, jax.P("data"))


@cache
def stepped(kind, mesh, microbatches):
    """Return loss, gradient, the parameters' layout, and the program of a step."""
    with devices(mesh, kind):
        params, batch = place()
        step = jax.jit(jax.value_and_grad(pipelined(stage, mse, microbatches)))
        run = step.lower(params, batch).compile()
        return *run(params, batch), params["w"].sharding, measure(run)


@each_case
def test_loss_and_gradient_are_those_of_numpy(kind, mesh, microbatches):
    """The gradient of a stage stays there."""
    value, gradient, sharding, _ = stepped(kind, mesh, microbatches)
    expected, slope = descend(*problem())
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for name in slope:
        np.testing.assert_allclose(gradient[name], slope[name], atol=1e-6, rtol=1e-4)
    assert gradient["w"].sharding.is_equivalent_to(sharding, 3)


@each_case
def test_an_iteration_is_a_message_and_gradients_are_added_once(
    kind, mesh, microbatches
):
    """A message of one piece each way."""
    stages, parts = mesh
    program = stepped(kind, mesh, microbatches)[3]
    iterations = len(schedule(stages, microbatches))
    assert program.counts.get("collective-permute", 0) == (stages > 1) * 2 * iterations
    pieces = [c for c in program.collectives if c.kind == "collective-permute"]
    assert {c.bytes for c in pieces} <= {4 * B * N // (parts * microbatches)}
    assert {c.axes for c in pieces} <= {("stage",)}
    sums = [c for c in program.collectives if c.kind == "all-reduce"]
    assert all(c.times == 1 for c in sums)
    weights = 4 * L * (N * N + N) // stages
    large = [c for c in sums if c.axes == ("data",) and c.bytes >= weights]
    assert len(large) == (parts > 1)
    number = 4 * (parts * stages > 1)
    assert sum(c.bytes for c in sums) == (parts > 1) * weights + number


def test_the_pieces_come_out_in_order():
    """The last stage gets what all layers make of each row, and nothing else."""
    with devices((4, 1)):
        params, (x, _) = place()

        @jax.jit
        @jax.shard_map(
            in_specs=(jax.P("stage"), jax.P("data")), out_specs=jax.P("stage")
        )
        def run(params, x):
            params = jax.lax.pcast(params, "data", to="varying")
            pieces = jax.lax.pcast(x.reshape(8, -1, N), "stage", to="varying")
            return jax.lax.psum(flow(stage, params, pieces), "data")

        answer = np.asarray(run(params, x))[-8:].reshape(B, N)
    np.testing.assert_allclose(answer, stage(problem()[0], problem()[1][0]), atol=1e-5)


@pytest.mark.parametrize("kind", [EXPLICIT, each_week(AUTO)])
def test_other_mesh_axes_are_left_alone(kind):
    """Stages of tensor parallel layers: partial sums travel, weights do not."""
    names = "stage", "data", "model"
    params = jax.tree.map(np.asarray, init(jax.random.key(0), 4, 8, 16))
    batch = tuple(np.random.default_rng(0).standard_normal((2, 16, 8)).astype("f4"))
    specs = {k: jax.P("stage", *spec[1:]) for k, spec in SPECS["tensor"].items()}
    step = jax.jit(jax.value_and_grad(pipelined(predict, mse, 4)))
    with on_devices.devices((1, 1, 1), kind, names):
        expected, slope = jax.tree.map(np.asarray, step(params, batch))
    with on_devices.devices((2, 2, 2), kind, names):
        placed = jax.device_put(params, specs)
        given = placed, jax.device_put(batch, jax.P("data"))
        run = step.lower(*given).compile()
        value, gradient = run(*given)
        program = measure(run)
        for name, leaf in placed.items():
            assert gradient[name].sharding.is_equivalent_to(leaf.sharding, leaf.ndim)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    for name, wanted in slope.items():
        np.testing.assert_allclose(gradient[name], wanted, atol=1e-6, rtol=1e-4)
    assert {*program.counts} == {"all-reduce", "collective-permute"}


def test_a_stage_that_lays_its_piece_out_otherwise_is_refused():
    names = "stage", "data", "model"
    with on_devices.devices((2, 2, 2), EXPLICIT, names):
        params, batch = place()
        cut = jax.device_put(problem()[0]["w"], jax.P("stage", None, "model"))
        with pytest.raises(ValueError, match="return what it takes"):
            pipelined(stage, mse, 4)({"w": cut, "b": params["b"]}, batch)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"stage": lambda p, x: x[:, :2]}, r"makes float32\[2, 2\] of float32\[2, 6\]"),
        ({"cost": lambda answer, y: answer}, r"has shape \(8, 6\): return one number"),
        ({"params": np.ones((7, N))}, r"parameters \(7, 6\) cannot be cut into 2 st"),
        ({"params": np.ones(())}, r"parameters \(\) cannot be cut into 2 stages"),
        ({"batch": np.ones((B, N))}, r"pass \(x, y\), all with the same"),
        ({"batch": (np.ones((B, N)), np.ones((8, N)))}, "all with the same rows"),
        ({"batch": (np.ones((0, N)), np.ones((0, N)))}, "a batch of 0 rows has no"),
        ({"microbatches": 2.0}, "2.0 microbatches: take a whole number"),
        ({"microbatches": 0}, "2 stages, 0 microbatches: take 1 each"),
        ({"microbatches": 3}, r"\(32, 6\) cannot be cut into 4 parts of 3 microbatch"),
    ],
)
def test_what_is_no_pipeline_is_refused(change, complaint):
    params, batch = problem()
    given = {"stage": stage, "cost": mse, "microbatches": 4} | change
    params, batch = given.pop("params", params), given.pop("batch", batch)
    with devices((2, 4)), pytest.raises(ValueError, match=complaint):
        pipelined(**given)(params, batch)


def test_idle_stages_divide_by_nothing():
    """A stage that may not see zeros never sees them, so no gradient is NaN."""

    def normalise(params, piece):
        size = jnp.linalg.norm(piece, axis=1, keepdims=True)
        return stage(params, piece / size)

    with devices((8, 1)):
        params, batch = place()
        gradient = jax.jit(jax.grad(pipelined(normalise, mse, 2)))(params, batch)
    assert np.isfinite(gradient["w"]).all()
    assert np.abs(np.asarray(gradient["w"])).max() > 0


def test_narrow_types_stay_narrow():
    with devices((2, 4)):
        params, batch = place(jnp.bfloat16)
        step = jax.jit(jax.value_and_grad(pipelined(stage, mse, 4)))
        value, gradient = step(params, batch)
    assert value.dtype == gradient["w"].dtype == jnp.bfloat16
    np.testing.assert_allclose(float(value), descend(*problem())[0], rtol=0.05)


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 7), (2, 1), (5, 4)])
def test_every_stage_works_on_every_piece_after_the_stage_before(stages, microbatches):
    table = schedule(stages, microbatches)
    assert table.shape == (microbatches + stages - 1, stages)
    when = np.array(
        [[np.flatnonzero(c == m).item() for m in range(microbatches)] for c in table.T]
    )
    assert (np.diff(when, axis=0) == 1).all()
    assert (np.diff(when, axis=1) == 1).all()
    assert np.isclose(np.mean(table < 0), (stages - 1) / (microbatches + stages - 1))


def test_no_stage_is_refused():
    with pytest.raises(ValueError, match="0 stages, 4 microbatches: take 1 each"):
        schedule(0, 4)


def test_a_mesh_without_the_axes_is_refused():
    with pytest.raises(ValueError, match=r"no mesh axis \['stage', 'data'\] in"):
        pipelined(stage, mse, 4)(*problem())
