import functools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import assert_agreed, devices, noise

from examples import eigh as reduction
from examples.communication import measure
from examples.eigh import ON_EACH, eigh, eigvalsh
from examples.secular import IN_PAIRS, cost

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
BLOCKS = jax.P("x", "y")
N = 64
EPS = np.finfo(np.float64).eps
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
    wide = np.result_type(a.dtype, np.float64)
    a, w, v = np.asarray(a, wide), np.asarray(w, np.float64), np.asarray(v, wide)
    norm = np.abs(np.linalg.eigvalsh(a)).max() or 1
    assert (np.diff(w) >= 0).all()
    residual = np.abs(a / norm @ v - v * (w / norm)).max()
    return residual / unit, np.abs(v.conj().T @ v - np.eye(n)).max() / unit


def zoo():
    """Return symmetric matrices with clustered, repeated and graded eigenvalues."""
    i = np.arange(N)
    block = symmetric(N)
    block[8:, 8:] *= 1e-19
    block[:8, 8:] = block[8:, :8] = 0
    wilkinson = np.diag(np.abs(i - N / 2)) + np.eye(N, k=1) + np.eye(N, k=-1)
    scale = np.logspace(0, -9, N)
    rank = noise(N, 3)
    return {
        "random": symmetric(N),
        "clustered": with_values(1 + 1e-9 * i),
        "graded eigenvalues": with_values(np.logspace(-12, 0, N)),
        "graded rows": symmetric(N) * scale * scale[:, None],
        "eight values": with_values(i % 8.0),
        "half 1, half -1": with_values(np.sign(i - N / 2 + 0.5)),
        "identity": np.eye(N),
        "zero": np.zeros((N, N)),
        "rank 3": rank @ rank.T,
        "Wilkinson": wilkinson,
        "large": symmetric(N) * 1e30,
        "small": symmetric(N) * 1e-30,
        "a block alone": block,
    }


ZOO = zoo()


@functools.cache
def compiled(f, n, dtype=np.float32, option=IN_PAIRS):
    """Compile a function of a matrix in blocks, on the mesh in context."""
    mesh = jax.sharding.get_abstract_mesh()
    a = jax.ShapeDtypeStruct((n, n), dtype, sharding=jax.NamedSharding(mesh, BLOCKS))
    return f.lower(a, option).compile()


# ------------------------------------------------------------------- right answers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors_are_at_most_three_times_those_of_lapack(dtype):
    """Of the same dtype: NumPy's of float32 are those of float64. Or 6 eps in all."""
    with devices((2, 4)):
        run = compiled(eigh, N, dtype)
        for name, hard in ZOO.items():
            a = hard.astype(dtype)
            lapack = errors(a, *jnp.linalg.eigh(jnp.asarray(a)))
            w, v = run(jax.device_put(a, BLOCKS))
            assert (errors(a, w, v) <= 3 * np.maximum(lapack, 2 / N)).all(), name


def test_wider_panels_are_turned_back_across_the_windows_of_the_reduction():
    """Their reflectors are zero above the window in which they were made."""
    a = symmetric(256, np.float32)
    with devices((2, 4)):
        w, v = compiled(eigh, 256)(jax.device_put(a, BLOCKS))
    assert max(errors(a, w, v)) < 0.1


def test_any_mesh_any_size_and_any_type():
    """100 rows are filled up, and lie in blocks, on 4 x 2 devices."""
    a = symmetric(100, np.float32)
    with devices((4, 2)), jax.numpy_dtype_promotion("strict"):
        placed = jax.device_put(a, BLOCKS)
        w, v = solve(placed)
        assert_agreed(w, v)
        assert w.sharding.is_fully_replicated
        assert v.sharding.is_equivalent_to(placed.sharding, 2)
        assert v.dtype == w.dtype == np.float32
        assert max(errors(a, w, v)) < 0.4
    size = np.abs(w).max() * np.finfo(np.float32).eps
    np.testing.assert_allclose(w, np.linalg.eigvalsh(a), atol=size * 30)


def test_the_hermitian_part_of_any_matrix_counts_as_in_jax():
    a = noise(N, N)
    with devices((2, 4)):
        w, v = compiled(eigh, N, np.float64)(jax.device_put(a, BLOCKS))
        assert_agreed(w, v)
    np.testing.assert_allclose(w, jnp.linalg.eigh(jnp.asarray(a))[0], atol=1e-12)
    assert max(errors((a + a.T) / 2, w, v)) < 0.4


def test_values_alone_are_those_of_the_vectors():
    with devices((2, 4)):
        run = compiled(eigvalsh, N, np.float64)
        for a in ZOO.values():
            w, expected = run(jax.device_put(a, BLOCKS)), np.linalg.eigvalsh(a)
            size = np.abs(w).max() or 1
            assert w.sharding.is_fully_replicated
            np.testing.assert_allclose(w / size, expected / size, atol=30 * EPS)


def test_nan_anywhere_makes_all_nan():
    with devices((2, 4)):
        vectors, alone = (compiled(f, N, np.float64) for f in (eigh, eigvalsh))
        for wrong in np.nan, np.inf, -np.inf:
            a = symmetric(N)
            a[3, 50] = wrong
            a = jax.device_put(a, BLOCKS)
            for answer in (*vectors(a), alone(a)):
                assert np.isnan(answer).all()


def test_axes_of_any_name_and_order_and_a_third_axis_left_alone():
    kinds, axes = (EXPLICIT, AUTO, EXPLICIT), ("c", "a")
    a = symmetric(16)
    with jax.set_mesh(jax.make_mesh((2, 2, 2), ("a", "b", "c"), kinds)):
        w, v = solve(jax.device_put(a, jax.P("c", "b")), axes=axes)
        expected = jax.NamedSharding(v.sharding.mesh, jax.P(*axes))
        assert v.sharding.is_equivalent_to(expected, 2)
    assert max(errors(a, w, v)) < 0.4


# ----------------------------------------------------------------------- gradients


def test_derivatives_of_all_orders_are_those_of_jax():
    """Of a loss that depends on all, whatever the phases of vectors."""
    a = symmetric(16, np.complex128)
    change = noise(16, 16, dtype=np.complex128, seed=3)

    def three(solve):
        def loss(a):
            w, v = solve(a)
            weights = np.cos(np.arange(256)).reshape(16, 16)
            return (jnp.cos(w) * np.arange(16)).sum() + (abs(v) ** 2 * weights).sum()

        def run(a, change):
            (_, first), changes = jax.jvp(jax.value_and_grad(loss), (a,), (change,))
            return changes[0], first, changes[1]

        return jax.jit(run)

    expected = three(jnp.linalg.eigh)(a, change)
    with devices((2, 4)):
        placed = jax.device_put(a, BLOCKS), jax.device_put(change, BLOCKS)
        found = three(solve)(*placed)
    assert found[1].sharding.is_equivalent_to(placed[0].sharding, 2)
    for ours, theirs in zip(found, expected, strict=True):
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(ours / scale, theirs / scale, atol=1e-9)


def test_equal_eigenvalues_have_derivatives_that_are_not_finite_as_in_jax():
    """A diagonal matrix is reduced without rounding, so the values are equal."""
    a = np.diag(np.repeat([1.0, 2.0, 4.0, 8.0], 4))

    def two(solve):
        values = jax.grad(lambda a: (solve(a)[0] ** 2).sum())
        vectors = jax.grad(lambda a: (solve(a)[1] ** 3).sum())
        return jax.jit(lambda a: (values(a), vectors(a)))(a)

    with devices((2, 4)):
        ours = two(functools.partial(eigh, tridiagonal=ON_EACH))
    for found, expected in zip(ours, two(jnp.linalg.eigh), strict=True):
        assert np.isfinite(found).all() == np.isfinite(expected).all()
    np.testing.assert_allclose(ours[0], 2 * a, atol=1e-12)
    assert not np.isfinite(ours[1]).all()


# --------------------------------------------------------------------------- costs


def predicted(n, vectors):
    """Return the bytes and the collectives of the reduction of float32 on 2 x 4."""
    plan = reduction.plan_pieces(n, ("x", "y"))
    windows = reduction.panel_windows(n // plan.width)
    lengths = (
        4
        * plan.width
        * sum((last - first) * (n - first * plan.width) for first, last in windows)
    )
    block, panels = 4 * n * n // 8, n // plan.width
    # a column: a sum of half a vector along y, a gather of one along x; a panel: the
    # gathers of as much along both
    sent = lengths * (3 / 4 + 1 / 2) + lengths * (3 / 8 + 1 / 2)
    sent += block * (3 / 4 + 1 + 1 / 2) + 7 + 7 + 7 * n  # the adjoint, and numbers
    counts = {"all-reduce": n + 3, "all-gather": n + 2 * panels}
    counts |= {"all-to-all": 2, "collective-permute": 1}
    if vectors:  # as blocks; then a gather along y and a sum along x for each group
        wide = plan.width * max(1, min(128, n // 8) // plan.width)
        groups = reduction.panel_windows(n // wide)
        lengths = wide * sum((last - i) * (n - i * wide) for i, last in groups)
        sent += block * (3 / 4 + 1 / 2)
        sent += lengths * 4 * 3 / 8 + 4 * n * (wide + n // 4)
        counts["all-to-all"] += 2
        counts["all-gather"] += n // wide
        counts["all-reduce"] += n // wide
    return sent, counts


def test_a_device_holds_four_blocks_and_a_hundred_rows_whatever_the_size():
    """And sends what is predicted, with one window and with several."""
    with devices((2, 4)):
        cases = [(eigh, 64), (eigh, 256), (eigvalsh, 256)]
        programs = [measure(compiled(*case)) for case in cases]
        for (f, n), one in zip(cases, programs, strict=True):
            block, inner = 4 * n * n // 8, IN_PAIRS[f is eigvalsh]
            assert one.temporaries < 4 * block + 100 * 4 * n
            assert max(step.bytes for step in one.collectives) <= block
            sent, counts = predicted(n, f is eigh)
            joins = cost(inner, jax.ShapeDtypeStruct((n,), np.float32))
            assert one.sent == sent + joins.sent
            assert one.counts == dict(Counter(counts) + Counter(joins.counts))
    _, vectors, alone = programs
    assert alone.temporaries < 0.85 * vectors.temporaries
    assert alone.sent < 0.75 * vectors.sent


def test_a_gradient_sends_blocks_and_holds_blocks():
    n = 128
    with devices((2, 4)):
        slope = jax.jit(jax.grad(lambda a, _: (values(a) ** 2).sum()))
        one = measure(compiled(slope, n, option=0.0))
    block = 4 * n * n // 8
    assert one.temporaries < 6 * block + 100 * 4 * n
    assert max(step.bytes for step in one.collectives) <= block


# -------------------------------------------------------------------------- errors


def test_what_is_no_such_matrix_is_refused():
    cases = [
        (np.ones((4, 8)), r"a \(4, 8\) is no square matrix: pass \[N, N\], or"),
        (np.ones((2, 8, 8)), r"a \(2, 8, 8\) is no square matrix"),
        (np.ones((8, 8), np.float16), "a is of float16: pass an array of one of"),
        ([[1.0]], "a is of list"),
    ]
    with devices((2, 4)):
        for a, complaint in cases:
            for f in solve, values:
                with pytest.raises(ValueError, match=complaint):
                    f(a)


def test_another_mesh_is_refused():
    a = np.ones((8, 8))
    with pytest.raises(ValueError, match=r"no mesh axis \['x', 'y'\] in context"):
        solve(a)
    with devices((2, 4)):
        with pytest.raises(ValueError, match="pass the names of two axes"):
            solve(a, axes=("x", "x"))
        inside = jax.shard_map(values, in_specs=BLOCKS, out_specs=jax.P())
        with pytest.raises(ValueError, match="call it outside"):
            inside(jax.device_put(a, BLOCKS))
