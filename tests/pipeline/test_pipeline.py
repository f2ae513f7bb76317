from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import on_devices
import pytest
from cases import each_week
from on_devices import AUTO, EXPLICIT, assert_close, noise

from examples.communication import measure
from examples.pipeline import pipelined, schedule
from examples.train import SPECS, init, mse, predict

L, N, B = 8, 6, 32
devices = partial(on_devices.devices, names=("stage", "data"))


def stage(params, piece):
    """Apply some layers: not linear, and no two commute."""
    for w, b in zip(params["w"], params["b"], strict=True):
        piece = piece + jnp.tanh(piece @ w + b[None])
    return piece


def in_one_piece(params, batch):
    return mse(stage(params, batch[0]), batch[1])


def problem():
    """Return parameters and a batch, in NumPy."""
    params = {"w": noise(L, N, N) / 4, "b": noise(L, N, seed=1) / 4}
    return jax.tree.map(np.float32, (params, (*noise(2, B, N, seed=2),)))


def place():
    params, batch = problem()
    return jax.device_put(params, jax.P("stage")), jax.device_put(batch, jax.P("data"))


def bytes_sent(stages, parts, microbatches):
    """Return what a device sends: pieces, its gradients along data, and the loss."""
    piece = 4 * B * N // (parts * microbatches)
    pieces = (stages > 1) * 2 * (microbatches + stages - 1) * piece
    gradients = 2 * 4 * L * (N * N + N) // stages * (parts - 1) // parts
    count = stages * parts
    return pieces + gradients + 2 * 4 * (count - 1) // count


@pytest.mark.parametrize(
    ("kind", "mesh", "microbatches"),  # mesh (stage, data)
    [(EXPLICIT, (2, 4), 4), (AUTO, (4, 2), 8)],
)
def test_loss_and_gradient_are_those_of_one_device(kind, mesh, microbatches):
    """The gradient of a stage stays there, and is added up once."""
    expected = jax.jit(jax.value_and_grad(in_one_piece))(*problem())
    with devices(mesh, kind):
        params, batch = place()
        step = jax.jit(jax.value_and_grad(pipelined(stage, mse, microbatches)))
        run = step.lower(params, batch).compile()
        value, gradient = run(params, batch)
        assert gradient["w"].sharding.is_equivalent_to(params["w"].sharding, 3)
        assert abs(measure(run).sent - bytes_sent(*mesh, microbatches)) < 3
    jax.tree.map(assert_close, (value, gradient), expected)


@pytest.mark.parametrize("kind", [EXPLICIT, each_week(AUTO)])
def test_other_mesh_axes_are_left_alone(kind):
    """Stages of tensor parallel layers: partial sums travel, weights do not."""
    names = "stage", "data", "model"
    params = jax.tree.map(np.asarray, init(jax.random.key(0), 4, 8, 16))
    batch = (*noise(2, 16, 8, dtype=np.float32),)
    specs = {k: jax.P("stage", *spec[1:]) for k, spec in SPECS["tensor"].items()}
    step = jax.jit(jax.value_and_grad(pipelined(predict, mse, 4)))
    with on_devices.devices((1, 1, 1), kind, names):
        expected = jax.tree.map(np.asarray, step(params, batch))
    with on_devices.devices((2, 2, 2), kind, names):
        placed = jax.device_put(params, specs)
        given = placed, jax.device_put(batch, jax.P("data"))
        run = step.lower(*given).compile()
        value, gradient = run(*given)
        program = measure(run)
        for name, leaf in placed.items():
            assert gradient[name].sharding.is_equivalent_to(leaf.sharding, leaf.ndim)
    jax.tree.map(assert_close, (value, gradient), expected)
    assert {*program.counts} == {"all-reduce", "collective-permute"}


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


def test_a_stage_that_lays_its_piece_out_otherwise_is_refused():
    with on_devices.devices((2, 2, 2), EXPLICIT, ("stage", "data", "model")):
        params, batch = place()
        cut = jax.device_put(params["w"], jax.P("stage", None, "model"))
        with pytest.raises(ValueError, match="return what it takes"):
            pipelined(stage, mse, 4)(params | {"w": cut}, batch)


def test_a_mesh_without_the_axes_is_refused():
    with pytest.raises(ValueError, match=r"no mesh axis \['stage', 'data'\] in"):
        pipelined(stage, mse, 4)(*problem())


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


def test_a_piece_moves_on_by_a_stage_an_iteration():
    assert schedule(2, 3).tolist() == [[0, -1], [1, 0], [2, 1], [-1, 2]]
