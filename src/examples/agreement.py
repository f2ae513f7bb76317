# SPDX-License-Identifier: MIT-0
"""Agreement: do all processes run the same program, and hold the same data?

JAX compares neither. Each process makes a checksum of what it is about to run, or of
what it holds; all get the checksums of all, and all raise an error if some differ.

    assert_same_program  compares what the processes are about to run
    assert_replicated    compares what should be equal everywhere, bit by bit

    f, args    a function, jitted or not, and what it is about to be called with
    tree       arrays [N@x, M] on one mesh, NumPy arrays and numbers, in any nesting

Cost: an all-gather of four bytes for each process; in `assert_replicated` another one,
of twelve bytes for each device and array. Nothing else is sent, and no program runs.

    python agreement.py

Copy this file alone: it needs JAX and NumPy.
"""

import hashlib
import zlib
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from jax.sharding import Mesh


def gather_codes(find: Callable[[], str]) -> tuple[str, np.ndarray]:
    """Return the text that `find` returns here, and the code of each process's text.

    An error of `find` is raised here once all have the codes; in the others it counts
    as another text.
    """
    text, problem = "", None
    try:
        text = find()
    except Exception as error:
        problem = error
    code = zlib.crc32(text.encode() if problem is None else repr(problem).encode())
    codes = multihost_utils.process_allgather(np.uint32(code)).ravel()
    if problem is not None:
        raise problem
    return text, codes


def group_equal(codes: np.ndarray) -> str:
    """Return which processes have equal codes: "processes 0, 2 | process 1"."""
    found: dict = {}
    for process, code in enumerate(codes.tolist()):
        found.setdefault(code, []).append(process)
    return " | ".join(map(processes, found.values()))


def processes(numbers) -> str:
    """Name processes in words: "process 1", "processes 0, 2"."""
    numbers = list(map(str, numbers))
    return f"{'process' if len(numbers) == 1 else 'processes'} {', '.join(numbers)}"


# ------------------------------------------------------------------------ the program


def assert_same_program(f: Callable, *args):
    """Raise AssertionError in every process unless all would run the same program.

    Call it in all processes, with what `f` is about to be called with. `f`, jitted or
    not, is lowered, not run; compared are the text of the program and the order of the
    devices that its global arguments and the mesh in context name. It does not compare
    values: for those see `assert_replicated`. An error of lowering is raised where it
    occurs; in the other processes it counts as another program.
    """

    def program() -> str:
        if not callable(f):
            raise ValueError(f"{f!r} is no function: pass one, jitted or not")
        lowered = (f if hasattr(f, "lower") else jax.jit(f)).lower(*args)
        return f"{device_orders(args)}{lowered.as_text()}"

    _, codes = gather_codes(program)
    if len({*codes.tolist()}) > 1:
        types = ", ".join(str(jax.typeof(leaf)) for leaf in jax.tree.leaves(args))
        raise AssertionError(
            f"the processes would run different programs: {group_equal(codes)}; here, "
            f"in process {jax.process_index()}, {getattr(f, '__name__', f)}({types})"
        )


def device_orders(args) -> list[list[tuple[int, int]]]:
    """Return the order of the devices of each mesh that spans processes."""
    shardings = [getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(args)]
    meshes = [getattr(sharding, "mesh", None) for sharding in shardings]
    return [
        [(device.process_index, device.id) for device in mesh.devices.flat]
        for mesh in [*meshes, jax.sharding.get_mesh()]
        if isinstance(mesh, Mesh) and not (mesh.empty or mesh.is_multi_process is False)
    ]


# ----------------------------------------------------------------------------- copies


def bits(value) -> np.ndarray:
    """Return the bytes of an array, as a flat array."""
    return np.asarray(value, order="C").reshape(-1).view(np.uint8)


def bounds_of(index, shape) -> tuple[tuple[int, int], ...]:
    """Return an index of JAX as `((start, stop), ...)`, without None."""
    return tuple(i.indices(n)[:2] for i, n in zip(index, shape, strict=True))


def slots(leaf) -> tuple[list[str], list[tuple[int, np.ndarray]]]:
    """Name the slices of a leaf, and return those held here, each with its number.

    A NumPy array, a number, or a JAX array of one device is one slice.
    """
    if not isinstance(leaf, Array):
        return [""], [(0, np.asarray(leaf))]
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    places = leaf.sharding.devices_indices_map(leaf.shape).values()
    found = sorted({bounds_of(index, leaf.shape) for index in places})
    names = [", ".join(f"{start}:{stop}" for start, stop in part) for part in found]
    names = [f"[{name}]" for name in names] if len(names) > 1 else [""]
    return names, [
        (found.index(bounds_of(shard.index, leaf.shape)), shard.data)
        for shard in leaf.addressable_shards
    ]


def type_of(path: str, leaf) -> str:
    """Describe a leaf: where it stands in its tree, its type, and its spec."""
    leaf = leaf if isinstance(leaf, Array) else np.asarray(leaf)
    if leaf.dtype == object:
        raise ValueError(f"{path} has no bits to compare: pass arrays and numbers")
    spec = getattr(getattr(leaf, "sharding", None), "spec", "")
    return f"{path} {leaf.dtype}{list(leaf.shape)} {spec}"


def assert_replicated(tree):
    """Raise AssertionError in every process unless all copies have the same bits.

    tree: arrays on one mesh or NumPy arrays and numbers, in any nesting. Of an array
    that is split along some mesh axes, the replicas of each shard are compared: between
    processes and between the devices of one. Of what is no JAX array, or one of a
    single device, each process has a copy, and these are compared.

    All processes call it, and all learn what differs where. NaN equals NaN of the same
    bits; 0.0 and -0.0 differ. Raises ValueError for a leaf without bits, such as a
    Python object.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    leaves = [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]
    kinds, codes = gather_codes(lambda: "; ".join(type_of(*pair) for pair in leaves))
    if len({*codes.tolist()}) > 1:
        raise AssertionError(
            f"the processes hold different trees: {group_equal(codes)}; here, in "
            f"process {jax.process_index()}, {kinds}"
        )
    names, sums = [], np.zeros((len(leaves), jax.local_device_count(), 3), np.uint32)
    for row, (path, leaf) in zip(sums, leaves, strict=True):
        parts, held = slots(leaf)
        names.append([f"{path}{part}" for part in parts])
        for place, (slot, block) in enumerate(held):
            digest = hashlib.blake2b(bits(block), digest_size=8).digest()
            row[place] = slot + 1, *np.frombuffer(digest, np.uint32)
    found = disagreements(multihost_utils.process_allgather(sums))
    if found:
        words = "; ".join(f"{names[leaf][slot]}: {who}" for leaf, slot, who in found)
        raise AssertionError(f"not the same everywhere: {words}")


def disagreements(sums: np.ndarray) -> list[tuple[int, int, str]]:
    """Return the leaf, the slice and who holds what, where copies differ.

    sums: [process, leaf, device, 3]; the last are the slice's number from 1 on, and a
    digest.
    """
    found: dict = {}
    for process, leaf, device in np.ndindex(sums.shape[:3]):
        slot, *digest = sums[process, leaf, device].tolist()
        if slot:
            copies = found.setdefault((leaf, slot - 1), {})
            copies.setdefault(tuple(digest), {})[process] = None  # an ordered set
    return [
        (leaf, slot, " | ".join(map(processes, copies.values())))
        for (leaf, slot), copies in sorted(found.items())
        if len(copies) > 1
    ]


def main():
    """Compare a program and some copies, in as many processes as there are."""
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    x = jax.device_put(jnp.arange(840.0), jax.NamedSharding(mesh, jax.P()))
    assert_same_program(jnp.mean, x)
    assert_replicated({"x": x, "mean": jnp.mean(x), "step": 3})
    print(f"{jax.process_count()} process, one program; {jax.typeof(x)}: equal copies")


if __name__ == "__main__":
    main()
