import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from cases import each_refusal, each_week
from on_devices import AUTO, EXPLICIT, assert_agreed, assert_close, devices, noise, on

from examples.communication import measure
from examples.eigh import eigh, eigvalsh
from examples.secular import IN_PAIRS, cost

BLOCKS = jax.P("x", "y")
N, MANY = 64, 256
solve = functools.partial(eigh, tridiagonal=IN_PAIRS)
values = functools.partial(eigvalsh, tridiagonal=IN_PAIRS)
pytestmark = pytest.mark.usefixtures("double")


def symmetric(n, dtype=np.float64):
    a = noise(n, n, dtype=dtype)
    return ((a + a.conj().T) / 2).astype(dtype)


def with_values(w):
    """Return a symmetric matrix with these eigenvalues."""
    q, _ = np.linalg.qr(noise(len(w), len(w)))
    return (q * w) @ q.T


def errors(a, w, v):
    """Return residual and angles, in units of n eps, as float64 sees them."""
    n, unit = len(a), np.finfo(a.dtype).eps * len(a)
    a, w, v = np.float64(a), np.asarray(w), np.float64(v)
    norm = np.abs(np.linalg.eigvalsh(a)).max() or 1
    assert (np.diff(w) >= 0).all()
    residual = np.abs(a / norm @ v - v * (w / norm)).max()
    return residual / unit, np.abs(v.T @ v - np.eye(n)).max() / unit


INDEX, SCALE, RANK = np.arange(N), np.logspace(0, -9, N), noise(N, 3)
ZOO = {
    "clustered": with_values(1 + 1e-9 * INDEX),
    "graded eigenvalues": with_values(np.logspace(-12, 0, N)),
    "graded rows": symmetric(N) * SCALE * SCALE[:, None],
    "two values": with_values(np.sign(INDEX - N / 2 + 0.5)),
    "identity": np.eye(N),
    "zero": np.zeros((N, N)),
    "rank 3": RANK @ RANK.T,
    "Wilkinson": np.diag(np.abs(INDEX - N / 2)) + np.eye(N, k=1) + np.eye(N, k=-1),
    "large": symmetric(N) * 1e30,
    "small": symmetric(N) * 1e-30,
    "a block alone": scipy.linalg.block_diag(symmetric(8), 1e-19 * symmetric(N - 8)),
}


@functools.cache
def compiled(f, n, dtype=np.float32):
    """Compile a function of a matrix in blocks, on the mesh in context."""
    sharding = on(jax.sharding.get_mesh(), *BLOCKS)
    given = jax.ShapeDtypeStruct((n, n), dtype, sharding=sharding)
    return f.lower(given, IN_PAIRS).compile()


# ------------------------------------------------------------------- right answers


@pytest.mark.parametrize("dtype", [np.float32, each_week(np.float64)])
def test_errors_are_at_most_three_times_those_of_lapack(dtype):
    """Of the same dtype: NumPy's of float32 are those of float64. Or 6 eps in all."""
    with devices((2, 4)):
        vectors, alone = (compiled(f, N, dtype) for f in (eigh, eigvalsh))
        for name, hard in ZOO.items():
            a = hard.astype(dtype)
            lapack = errors(a, *jnp.linalg.eigh(jnp.asarray(a)))
            given = jax.device_put(a, BLOCKS)
            w, v = vectors(given)
            assert (errors(a, w, v) <= 3 * np.maximum(lapack, 2 / N)).all(), name
            size = 60 * np.finfo(dtype).eps * np.abs(w).max()
            np.testing.assert_allclose(alone(given), w, rtol=0, atol=size, err_msg=name)


def test_wider_panels_are_turned_back_across_the_windows_of_the_reduction():
    """Reflectors are zero above their window. The Hermitian part counts, as in JAX."""
    a = noise(MANY, MANY, dtype=np.float32)
    with devices((2, 4)):
        w, v = compiled(eigh, MANY)(jax.device_put(a, BLOCKS))
    assert max(errors((a + a.T) / 2, w, v)) < 0.1


@pytest.mark.parametrize(("n", "spec"), [(18, "ca"), (17, (None, None))])
def test_axes_of_any_name_and_order_and_a_third_axis_left_alone(n, spec):
    """18 rows are filled up, and lie in blocks; what 17 rows give is whole."""
    a = symmetric(n, np.float32)
    mesh = jax.make_mesh((2, 2, 2), ("a", "b", "c"), (EXPLICIT, AUTO, EXPLICIT))
    with jax.set_mesh(mesh), jax.numpy_dtype_promotion("strict"):
        w, v = solve(a, axes=("c", "a"))
        alone = values(a, axes=("c", "a"))
    assert_agreed(w, v, alone)
    assert w.sharding.is_fully_replicated
    assert alone.sharding.is_fully_replicated
    assert v.sharding.is_equivalent_to(on(mesh, *spec), 2)
    assert v.dtype == w.dtype == np.float32
    assert max(errors(a, w, v)) < 0.6
    np.testing.assert_allclose([w, alone], 2 * [np.linalg.eigvalsh(a)], atol=1e-4)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_nan_anywhere_makes_all_nan(wrong):
    a = symmetric(N, np.float32)
    a[3, N - 5] = wrong
    with devices((2, 4)):
        a = jax.device_put(a, BLOCKS)
        answers = *compiled(eigh, N)(a), compiled(eigvalsh, N)(a)
    assert all(np.isnan(answer).all() for answer in answers)


# ----------------------------------------------------------------------- gradients


def test_derivatives_of_all_orders_are_those_of_jax():
    """Of a loss that depends on all, whatever the phases of vectors."""
    a = symmetric(16, np.complex128)
    change = noise(16, 16, dtype=np.complex128, seed=3)
    weights = np.cos(np.arange(256)).reshape(16, 16)

    def derivatives(solve, a, change):
        def loss(a):
            w, v = solve(a)
            return (jnp.cos(w) * np.arange(16)).sum() + (abs(v) ** 2 * weights).sum()

        return jax.jvp(jax.value_and_grad(loss), (a,), (change,))

    run = jax.jit(derivatives, static_argnums=0)
    with devices((4, 2), AUTO):
        placed = jax.device_put((a, change), BLOCKS)
        found = run(solve, *placed)
        assert found[0][1].sharding.is_equivalent_to(placed[0].sharding, 2)
    expected = run(jnp.linalg.eigh, a, change)
    jax.tree.map(functools.partial(assert_close, eps=1e-10), found, expected)


# --------------------------------------------------------------------------- costs


@pytest.mark.parametrize(("f", "n"), [(eigh, N), (eigh, MANY), (eigvalsh, N)])
def test_a_device_holds_four_blocks_and_a_hundred_rows_whatever_the_size(f, n):
    """And sends about 2 N^2 words in 2 N collectives, beside those of the joins."""
    with devices((2, 4)):
        one = measure(compiled(f, n))
        joins = cost(IN_PAIRS[f is eigvalsh], jax.ShapeDtypeStruct((n,), np.float32))
    block = 4 * n * n // 8
    assert one.temporaries < 4 * block + 100 * 4 * n
    assert max(step.bytes for step in one.collectives) <= block
    assert 1.6 < (one.sent - joins.sent) / (4 * n * n) < 2.8
    steps = sum(one.counts.values()) - sum(joins.counts.values())
    assert 2 * n < steps < 2.7 * n


def test_a_gradient_sends_blocks_and_holds_blocks():
    slope = jax.grad(lambda a, solvers: (eigvalsh(a, solvers) ** 2).sum())
    with devices((2, 4)):
        one = measure(compiled(jax.jit(slope, static_argnums=1), 64))
    block = 4 * 64 * 64 // 8
    assert one.temporaries < 6 * block + 100 * 4 * 64
    assert max(step.bytes for step in one.collectives) <= block


# -------------------------------------------------------------------------- errors

A = np.ones((8, 8))


@each_refusal(
    (lambda: solve(A[:4]), r"a \(4, 8\) is no square matrix: pass \[N, N\], or"),
    (lambda: values(A[None]), r"a \(1, 8, 8\) is no square matrix"),
    (lambda: solve(np.float16(A)), "a is of float16: pass an array of one of"),
    (lambda: values([[1.0]]), "a is of list"),
    (lambda: solve(A, axes=("x", "z")), r"no mesh axis \['z'\] in context"),
    (lambda: solve(A, axes=("x", "x")), "pass the names of two axes"),
    (jax.shard_map(lambda: values(A), out_specs=jax.P()), "call it outside"),
)
def test_what_is_no_such_matrix_is_refused(call, words):
    with devices((2, 4)), pytest.raises(ValueError, match=words):
        call()
