import functools
import math
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from cases import each_week
from jax.sharding import AxisType
from on_devices import assert_agreed, devices, noise

from examples.cholesky import (
    Factor,
    cho_factor,
    cho_solve,
    cost,
    order,
    place,
    plan_elimination,
    positions,
)
from examples.communication import measure
from examples.refinement import refine

BLOCKS = jax.P("x", "y")
KINDS = [AxisType.Explicit, AxisType.Auto]


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def definite(n, dtype=np.float64, condition=100.0):
    """Return a positive definite matrix, eigenvalues from 1 down to 1 / condition."""
    q, _ = np.linalg.qr(noise(n, n, dtype=dtype))
    values = np.geomspace(1, 1 / condition, n)
    a = (q * values) @ q.conj().T
    return ((a + a.conj().T) / 2).astype(dtype)


def distribute(a):
    """Lay a matrix out in blocks, if the mesh divides it."""
    sizes = jax.sharding.get_abstract_mesh().shape
    divides = len(a) % math.lcm(sizes["x"], sizes["y"]) == 0
    return jax.device_put(a, BLOCKS if divides else jax.P())


def in_order(factor):
    """Return the order of elimination, as one list, and L in this order."""
    n, sizes = len(factor.a), jax.sharding.get_abstract_mesh().shape
    steps, places = len(order(n)), np.arange(len(factor.c))
    row, column = (
        places.reshape(sizes[axis], steps, -1).swapaxes(0, 1).ravel() for axis in "xy"
    )
    return np.asarray(order(n)).ravel(), np.asarray(factor.c)[row][:, column]


def permuted(a, indices):
    """Return `a` in this order, and ones on the diagonal where there is no index."""
    n = len(a)
    whole = scipy.linalg.block_diag(a, np.ones((1, 1)))[indices][:, indices]
    padding = indices == n
    whole[padding] = whole[:, padding] = 0
    whole[padding, padding] = 1
    return whole


def scaled_residual(a, x, b):
    """Return the residual as HPL, the benchmark, states it; below 16 is a pass."""
    both = np.result_type(a, b, np.float64)
    a, x, b = (np.asarray(array, both) for array in (a, x, b))
    residual, *sizes = (np.linalg.norm(v, np.inf) for v in (a @ x - b, a, x, b))
    return residual / (len(a) * (sizes[0] * sizes[1] + sizes[2]))


def solve(a, b):
    return cho_solve(cho_factor(a), b)


# ------------------------------------------------------------------- right answers


@pytest.mark.parametrize(
    ("mesh", "kind", "n", "dtype"),
    [
        ((2, 4), KINDS[0], 61, np.complex128),  # which no axis divides
        ((3, 2), KINDS[1], 48, np.float32),  # on a subset of the devices
    ],
    ids=str,
)
def test_factor_and_solution_are_right_in_blocks_and_bits(mesh, kind, n, dtype):
    """Devices with the same numbers have the same bits, which no type of JAX's says."""
    a, b = definite(n, dtype), noise(n, 3, dtype=np.result_type(dtype, np.complex64))
    eps = np.finfo(dtype).eps
    with devices(mesh, kind):
        factor = cho_factor(distribute(a))
        x = cho_solve(factor, b)
        assert_agreed(factor.c, factor.info, x)
        assert x.sharding.is_fully_replicated
        blocks = jax.NamedSharding(jax.sharding.get_mesh(), BLOCKS)
        assert factor.c.sharding.is_equivalent_to(blocks, 2)
        indices, lower = in_order(factor)
    assert sorted(indices)[:n] == list(range(n))
    assert (np.triu(lower, 1) == 0).all()
    expected = np.linalg.cholesky(permuted(a, indices))
    np.testing.assert_allclose(lower, expected, atol=500 * eps)
    assert (factor.c.dtype, x.dtype) == (dtype, b.dtype)
    assert scaled_residual(a, x, b) < eps


@pytest.mark.parametrize(
    ("mesh", "kind", "few"),
    [
        ((2, 4), KINDS[0], "bfloat16"),
        each_week((3, 2), KINDS[1], jnp.float16),
    ],
)
def test_products_of_fewer_bits_cost_digits_that_refinement_brings_back(
    mesh, kind, few
):
    """And they are no others than those of operands that are rounded in NumPy."""
    a, b = definite(48, np.float32, 10), noise(48, 2, dtype=np.float32)
    truth = np.linalg.solve(a.astype(float), b)

    def factor(a):
        return functools.partial(cho_solve, cho_factor(a, product_dtype=few))

    @jax.jit
    def run(a, b):
        first = cho_factor(a, product_dtype=few)
        return cho_solve(first, b), refine(a, b, factor), first.c

    with devices(mesh, kind):
        rough, refined, c = run(distribute(a), b)
        assert c.dtype == rough.dtype == refined.x.dtype == np.float32
    error = [np.abs(x - truth).max() / np.abs(truth).max() for x in (rough, refined.x)]
    eps = float(jnp.finfo(few).eps)
    assert eps / 100 < error[0] < 10 * eps
    assert error[1] < 1e-5
    assert refined.converged.all()
    assert 1 < refined.steps < 8


def test_fewer_bits_are_sent_as_they_are_where_a_machine_has_them():
    """XLA:CPU widens their sums, so its bytes are those of float32."""
    with devices((2, 4)):
        a = large(768)
        costs = [cost(cho_factor, a, product_dtype=t) for t in (None, "bfloat16")]
        few = functools.partial(cho_factor, product_dtype="bfloat16")
        lowered = jax.jit(few).lower(a)
        programs = measured(768), measure(lowered.compile())
    columns = [each.parts["rows of columns"] for each in costs]
    assert columns[0] == 2 * columns[1]
    assert costs[0].sent - costs[1].sent == columns[1]
    assert programs[0].sent == programs[1].sent == costs[0].sent
    assert programs[1].temporaries < programs[0].temporaries
    assert re.search(
        r"all_reduce.*?\(tensor<\d+x\d+xbf16>\)", lowered.as_text(), re.DOTALL
    )


@pytest.mark.parametrize(
    ("dtype", "few"), [("c8", "bfloat16"), ("f4", "float64"), ("f8", "int8")]
)
def test_products_of_no_fewer_bits_are_refused(dtype, few):
    complaint = f"{few} and .*: round real a to bfloat16"
    with devices((2, 4)), pytest.raises(ValueError, match=complaint):
        cho_factor(np.eye(8, dtype=dtype), product_dtype=few)


scales = np.logspace(-9, 9, 48)
HARD = {
    "Hilbert": np.kron(np.eye(6), scipy.linalg.hilbert(8)),
    "dense Hilbert": scipy.linalg.hilbert(48) + 1e-15 * np.eye(48) * 48,
    "Hilbert, turned": permuted(
        np.kron(scipy.linalg.hilbert(8), np.eye(6)), np.roll(np.arange(48), 7)
    ),
    "graded": scales[:, None] * definite(48) * scales,
    "graded the other way": scales[::-1, None] * definite(48) * scales[::-1],
    "condition 1e14": definite(48, condition=1e14),
    "Pascal": np.kron(np.eye(4), scipy.linalg.pascal(12).astype(float)),
    "second differences": scipy.linalg.toeplitz([2, -1] + [0] * 46).astype(float),
    "smallest index": np.minimum.outer(np.arange(1.0, 49), np.arange(1.0, 49)),
    "diagonal": np.diag(scales),
}


@pytest.mark.parametrize("mesh", [(2, 4), (3, 2)])
def test_hard_matrices_are_factored_to_rounding(mesh):
    """The residual of every element of a: Higham's bound for Cholesky."""
    b, eps = noise(48), np.finfo(float).eps
    for name, a in HARD.items():
        with devices(mesh):
            factor = cho_factor(distribute(a))
            x = cho_solve(factor, b)
            indices, lower = in_order(factor)
        assert scaled_residual(a, x, b) < 16 * eps, name
        whole = permuted(a, indices)
        error = np.abs(lower @ lower.T - whole)
        bound = 50 * eps * np.abs(lower) @ np.abs(lower.T)
        assert (error <= bound).all(), name


def test_one_element_of_each_pair_is_read():
    """Which one: that below the diagonal in the order of elimination."""
    a, b = definite(48), noise(48)
    with devices((2, 4)):
        turn = np.argsort(np.asarray(order(48)).ravel())
        unread = turn[:, None] < turn
        factor = cho_factor(distribute(np.where(unread, np.nan, a)))
        x = cho_solve(replace(factor, a=distribute(a)), b)
    np.testing.assert_allclose(x, np.linalg.solve(a, b), atol=1e-12)


def indefinite(change):
    a = definite(48)
    change(a)
    return a


def put(i, value):
    return lambda a: a.__setitem__((i, i), value)


BROKEN = {
    "negative first": indefinite(put(0, -1.0)),
    "negative last": indefinite(put(47, -1e-3)),
    "negative between": indefinite(put(23, -1.0)),
    "zero": np.zeros((48, 48)),
    "NaN": indefinite(put(5, np.nan)),
    "one eigenvalue below zero": definite(48) - 0.0101 * np.eye(48),
}


def test_what_is_not_positive_definite_gives_nan_as_in_jax():
    for name, a in BROKEN.items():
        assert np.isnan(jnp.linalg.cholesky(a)).any()
        for mesh in (2, 4), (3, 2):
            with devices(mesh):
                factor = cho_factor(distribute(a))
                assert np.isnan(factor.c).all(), name
                assert np.isnan(cho_solve(factor, noise(48))).all(), name
                indices = np.asarray(order(48)).ravel()
            minor = permuted(a, indices[indices < 48])[: factor.info][:, : factor.info]
            minor = np.nan_to_num(minor, nan=-1e9)  # which LAPACK may take for a number
            failed = scipy.linalg.lapack.dpotrf(minor, lower=1)[1]
            assert failed == factor.info > 0, name


# --------------------------------------------------------- other axes and other names


@pytest.mark.parametrize(
    ("kinds", "axes"),
    [
        ("Auto Auto Auto", ("x", "y")),
        each_week("Explicit Explicit Explicit", ("z", "y")),
    ],
)
def test_a_batch_lies_on_an_axis_of_its_own(kinds, axes):
    """With gradients; the axes of a have other names than x and y, and are turned."""
    kinds = tuple(AxisType[kind] for kind in kinds.split())
    [batch] = {"x", "y", "z"} - {*axes}
    a = np.stack([definite(13) + i * np.eye(13) for i in range(2)])
    b = noise(2, 13)

    def squares(solve, a, b):
        return (solve(a, b) ** 2).sum()

    def ours(a, b):
        return cho_solve(cho_factor(a, axes=axes), b)

    expected = jax.vmap(jax.grad(squares, 1), (None, 0, 0))(jnp.linalg.solve, a, b)
    with jax.set_mesh(jax.make_mesh((2, 2, 2), ("x", "y", "z"), kinds)):
        a, b = (jax.device_put(each, jax.P(batch)) for each in (a, b))
        every = jax.vmap(
            lambda a, b: jax.grad(squares, 1)(ours, a, b), spmd_axis_name=batch
        )
        found = jax.jit(every)(a, b)
        assert {shard.data.shape[0] for shard in found.addressable_shards} == {1}
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_a_matrix_of_nothing_has_a_factor():
    with devices((2, 4)):
        factor = cho_factor(np.zeros((0, 0)))
        assert factor.info == 0
        assert cho_solve(factor, np.zeros((0, 3))).shape == (0, 3)
        assert cho_solve(cho_factor(np.eye(3)), np.zeros((3, 0))).shape == (3, 0)


def test_no_two_free_axes_are_refused():
    a = np.eye(8)
    with pytest.raises(ValueError, match=r"no mesh axis \['x', 'y'\] in context"):
        cho_factor(a)
    with devices((8,)), pytest.raises(ValueError, match=r"axis \['y'\] in context"):
        cho_factor(a)
    with devices((2, 4)):
        for axes in "xy", ("x",), ("x", "x"):
            with pytest.raises(ValueError, match="pass the names of two axes"):
                cho_factor(a, axes=axes)
        for names in {"x"}, {"x", "y"}:
            inside = jax.shard_map(
                lambda a: cho_factor(a).c,
                in_specs=jax.P(),
                out_specs=jax.P(),
                axis_names=names,
            )
            with pytest.raises(ValueError, match=r"inside .* take it out"):
                jax.jit(inside)(a)


# ----------------------------------------------------------------------- gradients


def half_logdet(factor):
    """Add up the logarithms of the diagonal of L where they lie."""
    steps, width = order(len(factor.a)).shape

    @jax.shard_map(in_specs=BLOCKS, out_specs=jax.P())
    def run(c):
        first = positions("x", steps * width // jax.lax.axis_size("x"), width)
        second = positions("y", steps * width // jax.lax.axis_size("y"), width)
        here = first[:, None] == second[None]
        logs = jnp.where(here, jnp.log(jnp.where(here, c, 1)).real, 0)
        return jax.lax.psum(logs.sum(), ("x", "y"))

    return run(factor.c)


def loss(a, b, solve, half_logdet):
    """Return what takes derivatives of a solution and of a determinant."""
    x = solve(a, b)
    return (jnp.abs(x) ** 2).sum() + x.real[0, 0] ** 3 + half_logdet(a) ** 2


@jax.jit
def dense_both_modes(primals, tangents):
    """Return the gradients and the tangent that JAX has on one device."""

    def dense_half(a):
        return jnp.log(jnp.diagonal(jnp.linalg.cholesky(a)).real).sum()

    def dense(a, b):
        return loss(a, b, jnp.linalg.solve, dense_half)

    gradients = jax.grad(dense, (0, 1))(*primals)
    return *gradients, jax.jvp(dense, primals, tangents)[1]


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [each_week(KINDS[0], np.float64), (KINDS[1], np.complex128)],
    ids=["explicit", "auto, complex"],
)
def test_gradients_and_tangents_are_those_of_a_dense_solve(kind, dtype):
    """The determinant comes from c alone, and the solution from a and c."""
    primals = definite(16, dtype), noise(16, 2, dtype=dtype)
    tangents = primals[0] @ primals[0], noise(16, 2, dtype=dtype, seed=3)
    expected = dense_both_modes(primals, tangents)

    def ours(a, b):
        factor = cho_factor(a)
        half = half_logdet(factor)
        return loss(a, b, lambda a, b: cho_solve(factor, b), lambda a: half)

    @jax.jit
    def both_modes(primals, tangents):
        _, push = jax.linearize(ours, *primals)
        return *jax.grad(push, (0, 1))(*tangents), push(*tangents)

    with devices((2, 4), kind):
        given = [(distribute(a), jnp.asarray(b)) for a, b in (primals, tangents)]
        found = both_modes(*given)
        assert found[0].sharding.is_equivalent_to(given[0][0].sharding, 2)
    for answer, truth in zip(found, expected, strict=True):
        np.testing.assert_allclose(answer, truth, atol=1e-9 * np.abs(truth).max())


@pytest.mark.parametrize(
    ("mesh", "kind", "dtype", "n"),
    [((2, 4), KINDS[1], np.complex128, 21), ((2, 1), KINDS[0], np.float64, 36)],
    ids=str,
)
def test_every_number_of_the_factor_has_its_derivatives(mesh, kind, dtype, n):
    a, step = definite(n, dtype), noise(n, n, dtype=dtype, seed=3)
    with devices(mesh, kind):
        indices = np.asarray(order(n)).ravel()

        def ours(a):
            steps, width = order(n).shape
            c = place(cho_factor(a).c, jax.P())
            row, column = (
                np.arange(steps * width).reshape(size, steps, -1).swapaxes(0, 1).ravel()
                for size in mesh
            )
            return c[row][:, column][indices < n][:, indices < n]

        weights = noise(n, n, dtype=dtype, seed=4)

        @jax.jit
        def both_modes(a, step):
            _, push = jax.linearize(ours, a)

            def weighted(step):
                change = push(step)
                return (change * weights).real.sum(), change

            (_, pushed), pulled = jax.value_and_grad(weighted, has_aux=True)(step)
            return pushed, pulled

        pushed, pulled = both_modes(a, step)
    inside = indices[indices < n]

    def dense(a):
        return jnp.linalg.cholesky(a[inside][:, inside])

    expected = jax.jvp(dense, (a,), (step,))[1]
    np.testing.assert_allclose(pushed, expected, atol=1e-11 * np.abs(expected).max())
    expected = jax.grad(lambda a: (dense(a) * weights).real.sum())(a)
    np.testing.assert_allclose(pulled, expected, atol=1e-11 * np.abs(expected).max())


def test_a_derivative_by_c_alone_is_refused():
    """It would be 0, as cho_solve differentiates by a."""
    with devices((2, 4)):
        factor, b = cho_factor(distribute(definite(8))), noise(8)

        def f(c):
            return cho_solve(replace(factor, c=c), b).sum()

        for way in jax.grad(f), lambda c: jax.jvp(f, (c,), (c,)):
            with pytest.raises(ValueError, match="no derivative by c alone: diff"):
                way(factor.c)


def test_a_gradient_through_the_factor_holds_a_few_blocks():
    with devices((2, 4)):
        n = 768
        forward, a = measured(n), large(n)
        slope = jax.jit(jax.grad(lambda a: cho_factor(a).c.sum())).lower(a).compile()
        assert slope.output_shardings.is_equivalent_to(a.sharding, 2)
        both = measure(slope)
    assert both.sent < 4 * forward.sent
    assert both.temporaries < 6 * 4 * n * n // 8


def test_a_gradient_factors_once_and_sweeps_twice():
    with devices((2, 4)):
        a, b = distribute(definite(64)), jax.device_put(noise(64), jax.P())
        factor = cho_factor(a)
        parts = measure(cho_factor, a), measure(cho_solve, factor, b)
        both = measure(jax.grad(lambda a: (solve(a, b) ** 2).sum()), a)
    sums = [program.counts["all-reduce"] for program in (*parts, both)]
    assert sums[0] + 2 * sums[1] <= sums[2] <= sums[0] + 2 * sums[1] + 2
    assert both.sent < parts[0].sent + 2.2 * parts[1].sent


# --------------------------------------------------------------------------- costs


def large(n, dtype=np.float32):
    sharding = jax.NamedSharding(jax.sharding.get_mesh(), BLOCKS)
    return jax.ShapeDtypeStruct((n, n), dtype, sharding=sharding)


@functools.cache
def measured(n):
    """Measure a factor of float32 on 2 x 4, once for all tests."""
    return measure(cho_factor, large(n))


@pytest.mark.parametrize("mesh", [(2, 4), each_week((3, 2))])
def test_a_factor_sends_no_matrix_and_holds_little(mesh):
    """The bytes to the last one are in test_costs.py."""
    with devices(mesh):
        n = 96 * 12
        program = measure(cho_factor, large(n))
        assert None not in [step.times for step in program.collectives]
        assert program.temporaries < 2 * 4 * n * n / math.prod(mesh)
        blocks = 4 * n * n / math.prod(mesh)
        biggest = max((step.bytes for step in program.collectives), default=0)
        assert biggest <= blocks
        leading = (1 - 1 / mesh[1]) / (2 * mesh[0]) + (1 - 1 / mesh[0]) / mesh[1]
        assert program.sent / 4 <= 1.45 * leading * n**2


def test_the_program_does_not_grow_with_n():
    with devices((2, 4)):
        lines = [
            [jax.jit(f).lower(*args).as_text().count("\n") for f, *args in programs(n)]
            for n in (512, 8192)
        ]
    assert lines[0] == lines[1]


def programs(n):
    side = jax.ShapeDtypeStruct((n,), np.float32)
    yield cho_factor, large(n)
    info = jax.ShapeDtypeStruct((), np.int32)
    yield cho_solve, Factor(large(n), large(n), info, plan_elimination(n)), side


def test_every_device_has_a_share_in_every_step():
    for mesh in (2, 4), (4, 2), (3, 2):
        with devices(mesh):
            n = 48 * math.lcm(*mesh)
            turns = np.asarray(order(n))
        for parts in mesh:
            owners = np.sort(turns // (n // parts), axis=1)
            share = turns.shape[1] // parts
            assert (owners == np.repeat(np.arange(parts), share)).all()


# -------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("a", "complaint"),
    [
        (np.ones((8, 16)), r"a \(8, 16\) is no square matrix: pass \[N, N\]"),
        (np.ones(8), r"a \(8,\) is no square matrix"),
        ([[1.0]], "a is a list: pass an array of numbers"),
        (np.full((8, 8), None), "a is of object: pass an array of numbers"),
        (np.ones((8, 8), int), "int64 has no factor here: pass one of"),
        (np.ones((8, 8), jnp.bfloat16), "bfloat16 has no factor here"),
    ],
)
def test_what_is_no_square_matrix_of_numbers_is_refused(a, complaint):
    with devices((2, 4)), pytest.raises(ValueError, match=complaint):
        cho_factor(a)


def test_a_factor_of_another_mesh_or_none_is_refused():
    with devices((2, 4)):
        factor = cho_factor(distribute(definite(8)))
        for b in np.ones(7), np.ones((7, 8)), np.ones((8, 1, 1)):
            with pytest.raises(ValueError, match=r"fit a \(8, 8\): pass \[8\]"):
                cho_solve(factor, b)
        with pytest.raises(ValueError, match="tuple'>: pass what cho_fac"):
            cho_solve((factor.a, factor.c), np.ones(8))
        for b, kind in ([1.0] * 8, "is a list"), (np.full(8, None), "is of object"):
            with pytest.raises(ValueError, match=f"b {kind}: pass an array of"):
                cho_solve(factor, b)
    with (
        devices((4, 2)),
        pytest.raises(
            ValueError, match=r"a mesh of \(2, 4\), not of \(4, 2\): use that"
        ),
    ):
        cho_solve(factor, np.ones(8))
