# SPDX-License-Identifier: MIT-0
"""Loading: each process reads its own slices of a file, and no process the whole.

A *source* is what has a shape, a dtype and slicing: a memory map, a dataset of HDF5, an
array of Zarr or TensorStore. Every process asks it for the slices that its devices
need, and can compare what was loaded with its source.

    source: [N, M] in a file    x: [N@x, M@y]    block: [n, m] of one device, in NumPy

    read_slices          reads each slice once, if several devices hold it, too
    read_block           reads once: all that the devices of this process need
    scatter              only one process can read: it sends others the pieces they need
    check_pieces         compares the shard of each device with its slice of the source

Cost: a process holds its own share, and of what it reads one slice (`read_slices`) or
one more share (`read_block`). `scatter` sends each slice once to each process that
needs it; there it is one slice again, and some pieces. `check_pieces` sends some bytes.

    python load.py

Copy this file alone: it needs JAX only.
"""

import contextlib
import json
import math
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

PIECE = 2**24  # bytes that travel, or are compared, at a time
HEADER = 1024  # bytes that tell the shape and the dtype of a source


# ------------------------------------------------------------------------ which slices


def slices_by_device(shape, sharding: Sharding) -> dict[tuple, list]:
    """Return each slice once, as `((start, stop), ...)`, with the devices that hold it.

    Raises ValueError when `sharding` is none, or does not divide `shape` evenly.
    """
    if not isinstance(sharding, Sharding):
        raise ValueError(f"{sharding!r} is no sharding: pass a NamedSharding")
    shape = tuple(shape)
    try:
        with contextlib.redirect_stdout(None):  # JAX prints a path on some errors
            sharding.shard_shape(shape)
    except (IndexError, ValueError) as error:  # the spec is longer, or uneven
        raise ValueError(
            f"shape {shape} cannot be cut into equal shards by {sharding}: pad the "
            "source, or leave that axis whole"
        ) from error
    found: dict[tuple, list] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        found.setdefault(bounds_of(index, shape), []).append(device)
    return found


def bounds_of(index, shape) -> tuple[tuple[int, int], ...]:
    """Return an index of JAX as `((start, stop), ...)`, without None."""
    return tuple(i.indices(n)[:2] for i, n in zip(index, shape, strict=True))


def within(piece: tuple, bounds: tuple) -> tuple[slice, ...]:
    """Return where a piece lies in the block that begins where `bounds` do."""
    starts = [start for start, _ in bounds]
    return tuple(slice(a - s, b - s) for (a, b), s in zip(piece, starts, strict=True))


def pieces(bounds: tuple, itemsize: int, limit: int):
    """Yield `bounds` in pieces of at most `limit` bytes, or of one element each."""
    sizes = [stop - start for start, stop in bounds]
    longest = max(sizes, default=1)
    if longest <= 1 or math.prod(sizes) * itemsize <= limit:
        yield bounds
        return
    axis = sizes.index(longest)
    start, stop = bounds[axis]
    middle = start + (longest + 1) // 2
    for half in (start, middle), (middle, stop):
        yield from pieces((*bounds[:axis], half, *bounds[axis + 1 :]), itemsize, limit)


def fetch(source, bounds: tuple, dtype) -> np.ndarray:
    """Read one slice of `source`, as a NumPy array in C order."""
    return np.asarray(source[tuple(slice(*pair) for pair in bounds)], dtype, order="C")


def dtype_of(source) -> np.dtype:
    """Return the dtype of a source as this machine writes it; ValueError if none."""
    if not hasattr(source, "shape") or not hasattr(source, "dtype"):
        raise ValueError(
            f"a {type(source).__name__} is no source: pass what has a shape, a dtype "
            'and slicing, such as np.load(path, mmap_mode="r")'
        )
    dtype = np.dtype(getattr(source.dtype, "numpy_dtype", source.dtype))
    if not (jnp.issubdtype(dtype, np.bool_) or jnp.issubdtype(dtype, np.number)):
        raise ValueError(f"a source of {dtype} holds no numbers: pass one that does")
    return dtype.newbyteorder("=")


def local_devices(devices) -> list:
    """Return the devices of this process."""
    return [d for d in devices if d.process_index == jax.process_index()]


# ----------------------------------------------------------------------------- reading


def read_slices(source, sharding: Sharding) -> Array:
    """Read what the devices of this process need, slice by slice, each slice once.

    source: [N, M] -> [N@x, M@y], as `sharding` says; in one process or in several.

    A slice is on its devices before the next one is read. On CPUs a slice that lies
    in the file as it lies in memory, such as whole rows of a memory map, is not even
    copied: then the array changes if the file does. 64-bit numbers become 32-bit ones
    unless `jax_enable_x64` is set. Raises ValueError for uneven shards.
    """
    dtype, arrays = jax.dtypes.canonicalize_dtype(dtype_of(source)), []
    for bounds, devices in slices_by_device(source.shape, sharding).items():
        if here := local_devices(devices):
            block = fetch(source, bounds, dtype)
            arrays += jax.block_until_ready([jax.device_put(block, d) for d in here])
    return jax.make_array_from_single_device_arrays(
        tuple(source.shape), sharding, arrays, dtype=dtype
    )


def read_block(source, sharding: Sharding) -> Array:
    """Read what the devices of this process need, all of it in one piece.

    source: [N, M] -> [N@x, M@y], as `sharding` says; in one process or in several.

    One large request instead of several small ones, for files far away, or whose chunks
    reach over several shards. Raises ValueError for uneven shards, and when what this
    process needs is not one block without gaps.
    """
    dtype, needed = dtype_of(source), slices_by_device(source.shape, sharding)
    needed = [bounds for bounds, devices in needed.items() if local_devices(devices)]
    block = tuple(
        (min(start for start, _ in pairs), max(stop for _, stop in pairs))
        for pairs in zip(*needed, strict=True)
    )
    cells = sum(math.prod(b - a for a, b in bounds) for bounds in needed)
    if not needed or cells != math.prod(b - a for a, b in block):
        raise ValueError(
            f"process {jax.process_index()} needs {len(needed)} slices that do not "
            "make up one block: order the devices of the mesh by process, or call "
            "read_slices"
        )
    return jax.make_array_from_process_local_data(
        sharding, fetch(source, block, dtype), tuple(source.shape)
    )


# -------------------------------------------------------------------------- scattering


def broadcast_header(source, root: int) -> tuple[tuple[int, ...], np.dtype]:
    """Return in every process the shape and dtype of the source in `root`."""
    header, at_root = b"", jax.process_index() == root
    if at_root:
        try:
            header = json.dumps([list(source.shape), dtype_of(source).name]).encode()
        except (AttributeError, ValueError):
            header = b"[]"
    padded = np.frombuffer(header.ljust(HEADER), np.uint8)
    received = multihost_utils.broadcast_one_to_all(padded, is_source=at_root)
    answer = json.loads(np.asarray(received, np.uint8).tobytes())
    if not answer:
        raise ValueError(
            f"process {root} has no source: pass it what has a shape, a dtype and "
            'slicing, such as np.load(path, mmap_mode="r")'
        )
    return tuple(answer[0]), np.dtype(answer[1])


@jax.jit
def forward(rows: Array) -> Array:
    """Send the first device's row to the second: `[2 n@pair] -> [2 n@pair]`."""
    pair = PartitionSpec("pair")

    @jax.shard_map(in_specs=pair, out_specs=pair)
    def send(row):
        return lax.ppermute(row, "pair", [(0, 1)])

    return send(rows)


def send_bytes(data: np.ndarray | None, size: int, pair: list) -> np.ndarray | None:
    """Send `size` bytes from the first to the second device; return them there."""
    row = np.zeros(size, np.uint8) if data is None else data.reshape(-1).view(np.uint8)
    mesh = Mesh(np.array(pair), ("pair",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):  # which replaces the caller's, for this message
        rows = jax.make_array_from_single_device_arrays(
            (2 * size,),
            NamedSharding(mesh, PartitionSpec("pair")),
            [jax.device_put(row, device) for device in local_devices(pair)],
        )
        (shard,) = jax.block_until_ready(forward(rows)).addressable_shards
    return None if shard.device == pair[0] else np.asarray(shard.data)


def relay(source, dtype, bounds: tuple, pair: list, limit: int) -> np.ndarray | None:
    """Return a slice of the source of `pair[0]`'s process in that of `pair[1]`."""
    block = np.empty([stop - start for start, stop in bounds], dtype)
    crosses = len({device.process_index for device in pair}) == 2
    for piece in pieces(bounds, dtype.itemsize, limit):
        here = within(piece, bounds)
        data = fetch(source, piece, dtype) if local_devices(pair[:1]) else None
        if crosses:
            data = send_bytes(data, block[here].nbytes, pair)
        if data is not None:
            block[here] = data.view(dtype).reshape(block[here].shape)
    return block if local_devices(pair[1:]) else None


def scatter(source, sharding: Sharding, root: int = 0, limit: int = PIECE) -> Array:
    """Read in process `root` only, and send every other process what it needs.

    source: [N, M] in `root`, ignored in the others -> [N@x, M@y], as `sharding` says.

    All processes call it. Pieces of at most `limit` bytes go from one device of `root`
    to one device of the process that needs them; no other takes part. Raises ValueError
    in all processes alike for a source that is none and for uneven shards.
    """
    if not 0 <= root < jax.process_count() or limit < 1:
        raise ValueError(
            f"root {root} of {jax.process_count()} processes, {limit} bytes at a time: "
            "pass a process that is there, and 1 byte or more"
        )
    shape, dtype = broadcast_header(source, root)
    first, arrays = next(d for d in jax.devices() if d.process_index == root), []
    for bounds, devices in slices_by_device(shape, sharding).items():
        for process in sorted({device.process_index for device in devices}):
            there = [d for d in devices if d.process_index == process]
            if jax.process_index() in (root, process):
                block = relay(source, dtype, bounds, [first, there[0]], limit)
                here = local_devices(there)
                arrays += jax.device_put([block] * len(here), here)
    return jax.make_array_from_single_device_arrays(
        shape, sharding, arrays, dtype=jax.dtypes.canonicalize_dtype(dtype)
    )


# ---------------------------------------------------------------------------- checking


def processes(numbers) -> str:
    """Name processes in words: "process 1", "processes 0, 2"."""
    numbers = list(map(str, numbers))
    return f"{'process' if len(numbers) == 1 else 'processes'} {', '.join(numbers)}"


def bits(value) -> np.ndarray:
    """Return the bytes of an array, as a flat array."""
    return np.asarray(value, order="C").reshape(-1).view(np.uint8)


def first_difference(x: Array, source, limit: int) -> str:
    """Return where a shard differs from its slice of the source; nothing if nowhere."""
    kind = dtype_of(source)
    if tuple(x.shape) != tuple(source.shape):
        raise ValueError(
            f"an array of shape {x.shape} and a source of shape {tuple(source.shape)} "
            "cannot be the same: pass what the array was read from"
        )
    kind = kind if kind.kind in "iu" else x.dtype  # an integer may lose no digit
    for shard in x.addressable_shards:
        bounds, block = bounds_of(shard.index, x.shape), np.asarray(shard.data)
        for piece in pieces(bounds, kind.itemsize, limit):
            found, wanted = block[within(piece, bounds)], fetch(source, piece, kind)
            if (differs := bits(found.astype(kind)) != bits(wanted)).any():
                at = np.unravel_index(differs.argmax() // kind.itemsize, found.shape)
                here = [int(i) + start for i, (start, _) in zip(at, piece, strict=True)]
                has = f"{found[at]} at {here}, where the source has {wanted[at]}"
                return f"device {shard.device.id} has {has}"
    return ""


def check_pieces(x: Array, source, limit: int = PIECE):
    """Raise AssertionError in every process unless each shard is its slice of `source`.

    x: [N@x, M@y], source: [N, M]; any sharding, whoever put the array together. All
    processes call it. Each reads again what its devices hold, at most `limit` bytes at
    a time, and compares bit by bit; all learn whose shards differ. A process whose
    source has another shape raises ValueError, and one that cannot read the error of
    reading; for the others its shards are wrong.
    """
    wrong, problem = "", None
    try:
        wrong = first_difference(x, source, limit)
    except Exception as error:
        problem = error
    code = np.uint32(bool(wrong or problem))
    codes = multihost_utils.process_allgather(code).ravel()
    if problem:
        raise problem
    if codes.any():
        raise AssertionError(
            f"shards of {processes(np.flatnonzero(codes))} are not what the source "
            f"has; here, in process {jax.process_index()}, {wrong or 'all are right'}"
        )


def main():
    """Read a file in three ways, and check each of them."""
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "numbers.npy")
        np.save(path, np.arange(1680, dtype=np.float32).reshape(840, 2))
        source = np.load(path, mmap_mode="r")
        for read in read_slices, read_block, scatter:
            x = read(source, sharding)
            check_pieces(x, source)
            print(f"{read.__name__}: {jax.typeof(x)}, mean {float(x.mean()):.1f}")


if __name__ == "__main__":
    main()
