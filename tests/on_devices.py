"""What tests of modules share: a mesh in context, numbers, and how near they are."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit


def devices(shape=(2, 4), kind=EXPLICIT, names=("x", "y", "z")):
    """Put a mesh of this shape in context, on as many devices as it takes."""
    some = jax.devices()[: math.prod(shape)]
    return jax.set_mesh(mesh_of(*shape, devices=some, kind=kind, names=names))


def mesh_of(*sizes, devices=None, kind=EXPLICIT, names=("x", "y", "z")):
    """Return a mesh of one to three axes, on all devices or on these."""
    count = len(sizes)
    return jax.make_mesh(sizes, names[:count], (kind,) * count, devices=devices)


def on(mesh, *spec):
    """Return the sharding of this spec on a mesh."""
    return jax.NamedSharding(mesh, jax.P(*spec))


def even(*sizes):
    """Return a mesh of the devices with even numbers."""
    return mesh_of(*sizes, devices=jax.devices()[::2])


def table(*spec):
    """Return the numbers to 63 in eight rows, laid out by this spec."""
    return jax.device_put(np.arange(64, dtype=np.float32).reshape(8, 8), jax.P(*spec))


def noise(*shape, dtype=np.float64, seed=0):
    """Return random numbers in NumPy, real or complex, around 0."""
    numbers = np.random.default_rng(seed).standard_normal((2, *shape))
    complex_one = np.issubdtype(dtype, np.complexfloating)
    return (numbers[0] + 1j * numbers[1] if complex_one else numbers[0]).astype(dtype)


def factors(specs, sizes, dtype):
    """Return random a [M, K] and b [K, N], laid out like this."""
    (m, k, n), random = sizes, np.random.default_rng(0)
    arrays = random.normal(size=(m, k)), random.normal(size=(k, n))
    if jnp.issubdtype(dtype, jnp.complexfloating):
        arrays = [array * (1 + 2j) + 3j * array**2 for array in arrays]
    return jax.device_put([jnp.asarray(array, dtype) for array in arrays], [*specs])


def distribute(a):
    """Lay a matrix out in blocks, if the mesh divides it."""
    sizes = jax.sharding.get_abstract_mesh().shape
    divides = len(a) % math.lcm(sizes["x"], sizes["y"]) == 0
    return jax.device_put(a, jax.P("x", "y") if divides else jax.P())


def as_double(array):
    """Return an array in NumPy, in double precision."""
    wide = np.complex128 if jnp.iscomplexobj(array) else np.float64
    return np.asarray(array).astype(wide)


def assert_close(answer, expected, eps=1e-6):
    """Fail unless the errors are small against the largest number."""
    scale = np.abs(expected).max()
    np.testing.assert_allclose(
        as_double(answer) / scale, expected / scale, atol=10 * eps
    )


def assert_agreed(*arrays):
    """Fail unless devices that hold the same part of an array hold the same bits."""
    for array in arrays:
        parts = {}
        for shard in array.addressable_shards:
            part = parts.setdefault(str(shard.index), shard.data)
            np.testing.assert_array_equal(shard.data, part)


def scaled_residual(a, x, b):
    """Return the residual as HPL, the benchmark, states it; below 16 is a pass."""
    both = np.result_type(a, b, np.float64)
    a, x, b = (np.asarray(array, both) for array in (a, x, b))
    residual, *sizes = (np.linalg.norm(v, np.inf) for v in (a @ x - b, a, x, b))
    return residual / (len(a) * (sizes[0] * sizes[1] + sizes[2]))
