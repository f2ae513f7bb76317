# SPDX-License-Identifier: MIT-0
"""Load one file in four processes of two devices, in every way: time, and memory.

For each way four processes start anew, with the file in the page cache. The time is
that of the slowest. The memory is what is anonymous (RssAnon and RssShmem of
/proc/PID/status, so without the pages of mapped files), polled from outside, at its
peak, above what the process had before. Afterwards the shards are compared with the
file.

    nox -s remeasure -- load                                 the table of the page
    nox -s remeasure -- load -- scatter "MPI Scatterv"       two ways; the rest stays
    python benchmarks/bench_load.py FOLDER [MiB] [WAY ...]   FOLDER/load.csv instead

Predicted peaks, in shares of the array: `read_slices` 1 and a slice, one half; rows of
a map 0, as they stay in the file; process-local data and a callback 2; with pickles the
root 3 x 4. Without a number it is 2048 MiB. That needs 12 GiB of memory and 7 of disk.
Without mpirun, the rows with MPI stay as they were.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import jax
import numpy as np
import tensorstore
import zarr
from jax.experimental import multihost_utils
from timing import write_rows

from examples import load

ROOT = Path(__file__).parents[1]
PROCESSES, DEVICES, COLUMNS = 4, 2, 16384
GRID, ROWS = jax.P("x", "y"), jax.P(("x", "y"))
PACKAGES = "jax", "numpy", "h5py", "zarr", "tensorstore", "mpi4py"
SMALL = 8  # device_put takes a file that is this many times smaller


# ----------------------------------------------------------------- the ways of loading


def open_map(folder):
    """Map the file."""
    return np.load(folder / "x.npy", mmap_mode="r")


def read_whole(folder, sharding):
    """Read all of it in each process, and keep what is needed."""
    a = np.load(folder / "x.npy")
    return jax.make_array_from_callback(a.shape, sharding, lambda i: a[i])


def copy_slices(folder, sharding):
    """Do as the page says in three lines."""
    a = open_map(folder)
    return jax.make_array_from_callback(a.shape, sharding, lambda i: np.array(a[i]))


def alias_rows(folder, sharding):
    """Leave whole rows where they are."""
    a = open_map(folder)
    return jax.make_array_from_callback(a.shape, sharding, lambda i: a[i])


def pass_rows(folder, sharding):
    """Hand over the rows of this process."""
    a = open_map(folder)
    rows = len(a) // jax.process_count()
    mine = a[rows * jax.process_index() :][:rows]
    return jax.make_array_from_process_local_data(sharding, mine, a.shape)


def from_hdf5(folder, sharding):
    """Read slices of a dataset with chunks of 1024 x 4096."""
    with h5py.File(folder / "x.h5") as file:
        return load.read_slices(file["x"], sharding)


def from_zarr(folder, sharding):
    """Read slices of an array in chunks of 1024 x 4096."""
    return load.read_slices(zarr.open_array(folder / "x.zarr", mode="r"), sharding)


def from_tensorstore(folder, sharding):
    """Read slices of the same chunks."""
    store = {"driver": "zarr3", "kvstore": f"file://{folder / 'x.zarr'}"}
    return load.read_slices(tensorstore.open(store).result(), sharding)


def scatter(folder, sharding):
    """Read in process 0 only, and send pieces of 16 MiB."""
    source = open_map(folder) if jax.process_index() == 0 else None
    return load.scatter(source, sharding)


def scatter_by_mpi(folder, sharding):
    """Read in process 0 only, and send blocks out of the map."""
    load_mpi = importlib.import_module("load_mpi")  # which needs MPI
    a = open_map(folder)
    source = a if jax.process_index() == 0 else None
    return load_mpi.scatterv(source, a.shape, a.dtype, sharding)


def scatter_pickles(folder, sharding):
    """Read in process 0 only, and send pickles."""
    load_mpi = importlib.import_module("load_mpi")  # which needs MPI
    a = np.load(folder / "x.npy") if jax.process_index() == 0 else None
    return load_mpi.scatter_pickles(a, open_map(folder).shape, sharding)


def put(folder, sharding):
    """Read all of it in each process, and call `jax.device_put`."""
    return jax.device_put(np.load(folder / "small.npy"), sharding)


WAYS = {
    "np.load": (read_whole, GRID),
    "memmap, callback": (copy_slices, GRID),
    "memmap, read_slices": (lambda f, s: load.read_slices(open_map(f), s), GRID),
    "memmap, read_block": (lambda f, s: load.read_block(open_map(f), s), GRID),
    "memmap, rows": (alias_rows, ROWS),
    "memmap, process-local data": (pass_rows, ROWS),
    "HDF5, read_slices": (from_hdf5, GRID),
    "Zarr, read_slices": (from_zarr, GRID),
    "TensorStore, read_slices": (from_tensorstore, GRID),
    "scatter": (scatter, GRID),
    "MPI Scatterv": (scatter_by_mpi, GRID),
    "MPI scatter": (scatter_pickles, GRID),
    "device_put, 1/8": (put, GRID),
}


# ------------------------------------------------------------------- inside a process


def anonymous(pid="self"):
    """Return how many bytes of a process are in no file."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return sum(1024 * int(fields[n].split()[0]) for n in ("RssAnon", "RssShmem"))


def perform(way, folder):
    """Load in one way; write from when to when it took, once it is checked."""
    jax.distributed.initialize()
    read, spec = WAYS[way]
    me, shape = jax.process_index(), (PROCESSES, DEVICES)
    mesh = jax.make_mesh(shape, ("x", "y"), (jax.sharding.AxisType.Auto,) * 2)
    if way.startswith("MPI"):
        importlib.import_module("load_mpi")
    (folder / f"{me}.pid").write_text(str(os.getpid()))
    while not (folder / "go").exists():
        time.sleep(0.01)
    multihost_utils.sync_global_devices("loads")
    report = {"before": anonymous()}
    report["begin"] = time.monotonic()
    x = jax.block_until_ready(read(folder, jax.NamedSharding(mesh, spec)))
    report["end"], report["after"] = time.monotonic(), anonymous()
    report["bytes"] = sum(shard.data.nbytes for shard in x.addressable_shards)
    name = "small.npy" if read is put else "x.npy"
    load.check_pieces(x, np.load(folder / name, mmap_mode="r"))
    (folder / f"{me}.json").write_text(json.dumps(report))
    multihost_utils.sync_global_devices("all have written")


# -------------------------------------------------------------------- seen from outside


def write(folder, size):
    """Write `size` bytes of numbers as NumPy, HDF5 and Zarr have them."""
    shape, chunks = (size // 4 // COLUMNS, COLUMNS), (min(1024, size // 2**21), 4096)
    store = {"shape": shape, "dtype": "float32", "chunks": chunks}
    array = zarr.create_array(folder / "x.zarr", compressors=None, **store)
    npy = np.lib.format.open_memmap(folder / "x.npy", "w+", "float32", shape=shape)
    small = np.lib.format.open_memmap(
        folder / "small.npy", "w+", "float32", shape=(shape[0] // SMALL, COLUMNS)
    )
    with h5py.File(folder / "x.h5", "w") as file:
        data = file.create_dataset("x", **store)
        for start in range(0, shape[0], chunks[0]):
            rows = np.arange(start, start + chunks[0], dtype=np.float32)[:, None]
            part = rows + np.arange(COLUMNS, dtype=np.float32) / COLUMNS
            data[start : start + chunks[0]] = part
            array[start : start + chunks[0]] = part
            npy[start : start + chunks[0]] = part
    small[:] = npy[: len(small)]


def watch(job, folder):
    """Poll the processes until they end; return samples `[process][(time, bytes)]`."""
    samples = [[] for _ in range(PROCESSES)]
    files = [folder / f"{p}.pid" for p in range(PROCESSES)]
    while job.poll() is None:
        time.sleep(0.003)
        if all(file.exists() and file.read_text() for file in files):
            (folder / "go").touch()
            for file, taken in zip(files, samples, strict=True):
                try:
                    taken.append((time.monotonic(), anonymous(file.read_text())))
                except (KeyError, OSError):
                    return samples, job.wait()
    return samples, job.returncode


def race(way, folder):
    """Run one way in new processes; return its line of the table."""
    for file in [*folder.glob("*.pid"), *folder.glob("*.json"), *folder.glob("go")]:
        file.unlink()
    local = [sys.executable, ROOT / "launch/local.py", f"-n={PROCESSES}"]
    start = [*local, f"--devices={DEVICES}", "--timeout=600"]
    if way.startswith("MPI"):
        root = ["--allow-run-as-root"] * (os.getuid() == 0)
        start = [
            "mpirun",
            *root,
            "--oversubscribe",
            "-n",
            str(PROCESSES),
            sys.executable,
        ]
    env = os.environ | {"JAX_NUM_CPU_DEVICES": str(DEVICES), "JAX_PLATFORMS": "cpu"}
    with (folder / "log").open("w") as log:
        line = [*start, __file__, "--way", way, folder]
        job = subprocess.Popen(line, env=env, stdout=log, stderr=log)
        samples, code = watch(job, folder)
    if code:
        raise RuntimeError(f"{way}: {(folder / 'log').read_text()[-2000:]}")
    reports = [json.loads((folder / f"{p}.json").read_text()) for p in range(PROCESSES)]
    peaks = [
        max([r["after"], *(b for t, b in taken if r["begin"] <= t <= r["end"])])
        - r["before"]
        for taken, r in zip(samples, reports, strict=True)
    ]
    return {
        "way": way,
        "layout": "rows" if WAYS[way][1] == ROWS else "grid",
        "mib": PROCESSES * reports[0]["bytes"] // 2**20,
        "share_mib": reports[0]["bytes"] / 2**20,
        "seconds": round(max(r["end"] - r["begin"] for r in reports), 2),
        "root_mib": round(peaks[0] / 2**20),
        "others_mib": round(max(peaks[1:]) / 2**20),
        "load": round(os.getloadavg()[0], 1),
    }


def select_ways(names):
    """Return the ways of these names, or all; say which cannot be run here."""
    if unknown := [name for name in names if name not in WAYS]:
        raise ValueError(f"there is no way {unknown[0]!r}: pass some of {[*WAYS]}")
    ways = [way for way in WAYS if way in names or not names]
    for way in ways:
        if way.startswith("MPI") and not shutil.which("mpirun"):
            print(f"{way:27} skipped, for want of mpirun: apt-get install openmpi-bin")
        else:
            yield way


def main(folder, *words):
    """Run the named ways, or all; write FOLDER/load.csv, where other rows stay."""
    small = words[:1] and words[0].isdigit()
    mib, names = (int(words[0]), words[1:]) if small else (2048, words)
    target, ways = Path(folder) / "load.csv", [*select_ways(names)]
    device = f"{PROCESSES} x {DEVICES} x {jax.devices()[0].device_kind}"
    print(device, f"load before {os.getloadavg()[0]:.1f}", sep=", ")
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch), mib * 2**20)
        for way in ways:
            row = race(way, Path(scratch))
            print(
                "{way:27} {layout} {mib:5} MiB {seconds:6} s, root {root_mib:5} MiB, "
                "others {others_mib:5} (load {load})".format(**row),
                flush=True,
            )
            write_rows(target, [row], [(way,) for way in WAYS], PACKAGES, device=device)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--way"]:
        perform(sys.argv[2], Path(sys.argv[3]))
    else:
        main(*sys.argv[1:])
