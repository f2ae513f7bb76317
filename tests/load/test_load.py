"""Each process reads its slices and no more, and a shard out of place is found."""

import csv
import inspect
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from on_devices import AUTO, EXPLICIT, devices, mesh_of, on
from on_processes import SLOW, refused, share_processes

from examples.load import check_pieces, read_block, read_slices, scatter

pytestmark = pytest.mark.processes
P = jax.P
ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "docs/processes/data/load.csv"
SOURCES_PATH = {"PYTHONPATH": str(ROOT / "src")}
READS = read_slices, read_block, scatter
LAYOUTS = P("x", "y"), P(None, ("y", "x")), P()
TABLE = np.arange(128, dtype=np.float32).reshape(16, 8)


class Recorder:
    """A source that records what is read of it, in this process and in the others."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.reads = []

    def __getitem__(self, index):
        block = self.array[index]
        self.reads.append((block.nbytes, tuple((i.start, i.stop) for i in index)))
        return block


NAMES = f"""{inspect.getsource(Recorder)}
import jax, numpy as np
from jax.sharding import NamedSharding
from examples.load import *
P = jax.P
me = jax.process_index()
mesh = jax.make_mesh((4, 2), ("x", "y"))
table = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)

def laid(*spec, mesh=mesh):
    return NamedSharding(mesh, P(*spec))

def right(x, wanted=table):
    assert x.shape == wanted.shape and x.dtype == wanted.dtype
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), wanted[shard.index])
    return True
"""
four = share_processes(4, 2, NAMES, env=SOURCES_PATH)


# ------------------------------------------------------------------------- one process


@pytest.mark.parametrize(
    ("shape", "kind"), [((2, 4), AUTO), ((2, 2), EXPLICIT)], ids=str
)
def test_it_is_what_the_source_has_laid_out_as_asked(shape, kind):
    """Each slice is read once, and by `scatter` in pieces that are not too large."""
    with devices(shape, kind):
        mesh = jax.sharding.get_mesh()
    for read, spec in itertools.product(READS, LAYOUTS):
        source, sharding = Recorder(TABLE), on(mesh, *spec)
        x = read(source, sharding)
        if read != scatter:
            assert sum(size for size, _ in source.reads) == TABLE.nbytes
            assert len(source.reads) == len(set(source.reads))
        np.testing.assert_array_equal(x, TABLE)
        assert (x.sharding, x.dtype) == (sharding, np.float32)
        check_pieces(x, TABLE)
    source = Recorder(TABLE)
    read_block(source, on(mesh, "x", "y"))
    assert source.reads == [(TABLE.nbytes, ((0, 16), (0, 8)))]
    source = Recorder(TABLE)
    scatter(source, on(mesh, "x", "y"), limit=40)
    assert max(size for size, _ in source.reads) <= 40


SOURCES = {  # what NumPy makes of the table, on a mesh that need not cut it
    "bytes the other way round": (TABLE.astype(">f4"), P("x")),
    "wider than JAX has": (TABLE.astype(float) + 1e-9, P("x")),
    "scalar": (TABLE[:1, 0].reshape(()), P()),
}


@pytest.mark.parametrize(("source", "spec"), SOURCES.values(), ids=SOURCES)
def test_what_numpy_has_arrives_as_jax_has_it(source, spec):
    """The bytes of a source may lie the other way round, as in a file."""
    for read in READS:
        x = read(source, on(mesh_of(8), *spec))
        np.testing.assert_array_equal(x, source.astype(np.float32), strict=True)
        check_pieces(x, source)


ODD = Recorder(np.zeros((10, 3), np.float32))
LETTERS, ROWS = np.array(["a"] * 8), P("x")


@pytest.mark.parametrize(
    ("source", "spec", "words"),
    [
        (ODD, ROWS, r"shape \(10, 3\) cannot be cut.*pad the"),
        (ODD, P(None, None, "x"), "cannot be cut into equal shards"),
        (ODD, None, "no sharding: pass a NamedSharding"),
        ([1, 2], ROWS, r"pass (it )?what has a shape, a\s+dtype"),
        (LETTERS, ROWS, r"holds no numbers|has no source"),
    ],
)
def test_what_cannot_be_cut_is_refused_before_any_reading(source, spec, words):
    sharding = on(mesh_of(8), *spec) if spec else ROWS
    for read in READS:
        with pytest.raises(ValueError, match=words):
            read(source, sharding)
    assert ODD.reads == []


@pytest.mark.parametrize("options", [{"root": 1}, {"root": -1}, {"limit": 0}], ids=str)
def test_a_root_or_a_limit_that_is_none_is_refused(options):
    with pytest.raises(ValueError, match="pass a process that is there"):
        scatter(TABLE, on(mesh_of(8), "x"), **options)


def test_a_shard_in_the_wrong_place_or_with_other_bits_is_found():
    """NaN is itself, and minus zero is not zero."""
    nan, zero = np.full((8, 8), np.nan, np.float32), np.zeros(8, np.float32)
    with devices((2, 4)):
        check_pieces(jax.device_put(nan, P("x")), nan)
        for wrong, source, words in (
            (TABLE[::-1].copy(), TABLE, "shards of process 0 are not what"),
            (TABLE + (TABLE == 77), TABLE, r"has 78.0 at \[9, 5\].*source has 77.0"),
            (-zero, zero, r"has -0\.0 at"),
            (np.ones(8, "i4"), np.full(8, 2**32 + 1), "has 1 at .* has 4294967297"),
        ):
            x = jax.device_put(wrong, P("x"))
            for options in {}, {"limit": 8}:
                with pytest.raises(AssertionError, match=words):
                    check_pieces(x, source, **options)
        with pytest.raises(ValueError, match="cannot be the same"):
            check_pieces(x, TABLE)


# -------------------------------------------------------------------- several processes


def test_the_root_alone_reads_and_all_get_their_slices(four):
    """Also inside a mesh, on some devices, and all bits of wide numbers."""
    four.run("""
for spec in ("x", "y"), (None, "y"), (), ("y",):
    for root, limit in (0, 2**24), (2, 40):
        source = Recorder(table)
        x = scatter(source if me == root else None, laid(*spec), root, limit)
        assert right(x) and x.sharding == laid(*spec)
        assert max([n for n, _ in source.reads], default=0) <= limit
        assert bool(source.reads) == (me == root)
some = jax.sharding.Mesh(np.array(jax.devices())[2:6], ("d",),
                         axis_types=mesh.axis_types[:1])
with jax.set_mesh(mesh):
    x = scatter(table if me == 0 else None, laid("d", mesh=some))
    y = read_slices(table, laid("d", mesh=some))
assert len(x.addressable_shards) == (2 if me in (1, 2) else 0)
assert right(x) and right(y)
check_pieces(x, table)
wide = np.array([1 + 2**-40, np.nan, -0.0, np.inf] * 2)
with jax.enable_x64(True):
    x = scatter(wide if me == 3 else None, laid("x"), root=3)
    check_pieces(x, wide)
assert x.dtype == np.float64
""")


def test_a_scatter_from_nothing_is_refused_everywhere(four):
    for source in "None", "table if me else [1]":
        four.run(f"scatter({source}, laid())", raises="ValueError: process 0 has no")
    odd = "ValueError: (9, 2) cannot be cut into equal shards"
    four.run("scatter(np.zeros((9, 2)) if me == 1 else None, laid('x'), 1)", raises=odd)


def test_all_learn_whose_shards_are_wrong(four):
    four.run("x = read_slices(table + (me == 2) * (np.arange(8) == 5), laid('x', 'y'))")
    output = refused(four, "check_pieces(x, table)")
    words = "AssertionError: shards of process 2 are not what the source has"
    assert all(words in error for error in output)
    assert all("all are right" in output[p] for p in (0, 1, 3))
    assert "at [8, 5], where the source has" in output[2]


def test_a_source_that_one_process_cannot_read_leaves_no_other_waiting(four):
    four.run("x = read_slices(table, laid('x'))")
    errors = refused(four, "check_pieces(x, table[: 8 if me == 1 else 16])")
    assert "ValueError: an array of shape (16, 8) and a source of" in errors[1]
    assert all("shards of process 1 are" in errors[p] for p in (0, 2, 3))


# --------------------------------------------------------------------------------- MPI


def run_with_two_devices(*line, **variables):
    two = {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    options = {"capture_output": True, "text": True, "timeout": SLOW, "cwd": ROOT}
    env = os.environ | SOURCES_PATH | two | variables
    return subprocess.run(line, check=False, env=env, **options)


def test_mpi_sends_the_same_pieces():
    if not shutil.which("mpirun"):  # a failure where continuous integration lacks it
        (pytest.fail if os.environ.get("CI") else pytest.skip)("install openmpi-bin")
    root = ["--allow-run-as-root"] * (os.getuid() == 0)
    line = ["mpirun", *root, "--oversubscribe", "-n", "4", sys.executable]
    done = run_with_two_devices(*line, "benchmarks/load_mpi.py")
    assert "4 processes, all pieces in place, sum 73536" in done.stdout, done.stderr


# ------------------------------------------------------------------ what the page keeps


def test_no_process_held_more_than_its_share_and_another():
    rows = csv.DictReader(MEASURED.read_text().splitlines())
    ways = "memmap", "HDF5", "Zarr", "TensorStore", "scatter"
    for row in filter(lambda row: row["way"].startswith(ways), rows):
        assert (row["device"], row["mib"]) == ("4 x 2 x cpu", "2048")
        assert max(int(row["root_mib"]), int(row["others_mib"])) < 1.1 * 512 + 512


@pytest.mark.weekly
def test_a_way_is_measured_again_and_the_other_rows_stay(tmp_path):
    rows = MEASURED.read_text().splitlines()
    header, mpi = rows[0], [row for row in rows if row.startswith("MPI")]
    (tmp_path / "load.csv").write_text("\n".join([header, *mpi, ""]))
    ways = "memmap, rows", "MPI Scatterv", "MPI scatter"
    line = sys.executable, "benchmarks/bench_load.py", tmp_path, "16", *ways
    done = run_with_two_devices(*line, PATH="")
    assert done.returncode == 0, done.stderr
    words = "skipped, for want of mpirun: apt-get install openmpi"
    assert done.stdout.count(words) == 2
    again, *others = (tmp_path / "load.csv").read_text().splitlines()[1:]
    assert again.startswith('"memmap, rows",rows,16,4.0,')
    assert others == mpi
