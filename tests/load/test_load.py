"""Each process reads its slices and no more, and a shard out of place is found."""

import ast
import csv
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import jax
import numpy as np
import pytest
import zarr
from jax.sharding import AxisType, NamedSharding
from on_processes import SLOW, Group, refused

from examples.load import check_pieces, pieces, read_block, read_slices, scatter

P = jax.P
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "JAX_NUM_CPU_DEVICES": "2",
    "JAX_PLATFORMS": "cpu",
    "PYTHONPATH": str(ROOT / "src"),
}
LAYOUTS = P("x", "y"), P(None, ("y", "x")), P()


class Noted:
    """A source that notes what is read of it, in this process and in the others."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.reads = []

    def __getitem__(self, index):
        block = self.array[index]
        self.reads.append((block.nbytes, tuple((i.start, i.stop) for i in index)))
        return block


NAMES = f"""{inspect.getsource(Noted)}
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


@pytest.fixture(
    params=[((2, 4), AxisType.Auto), ((2, 2), AxisType.Explicit)], ids=["all", "some"]
)
def mesh(request):
    shape, kind = request.param
    devices = jax.devices()[: shape[0] * shape[1]]
    return jax.make_mesh(shape, ("x", "y"), (kind,) * 2, devices=devices)


@pytest.fixture
def table():
    return np.arange(128, dtype=np.float32).reshape(16, 8)


@pytest.fixture(scope="module")
def group():
    group = Group(4, 2, NAMES, env={"PYTHONPATH": ENVIRONMENT["PYTHONPATH"]})
    yield group
    group.close()


@pytest.fixture
def four(group):
    return group.alive()


# ------------------------------------------------------------------------- one process


@pytest.mark.parametrize("read", [read_slices, read_block, scatter])
@pytest.mark.parametrize("spec", LAYOUTS, ids=str)
def test_it_is_what_the_source_has_laid_out_as_asked(read, spec, mesh, table):
    sharding = NamedSharding(mesh, spec)
    x = read(table, sharding)
    np.testing.assert_array_equal(x, table)
    assert x.sharding == sharding
    assert x.dtype == np.float32
    check_pieces(x, table)


def test_each_slice_is_read_once(mesh, table):
    for spec in LAYOUTS:
        source = Noted(table)
        read_slices(source, NamedSharding(mesh, spec))
        assert sum(size for size, _ in source.reads) == table.nbytes
        assert len(source.reads) == len(set(source.reads))
    source = Noted(table)
    read_block(source, NamedSharding(mesh, P("x", "y")))
    assert source.reads == [(table.nbytes, ((0, 16), (0, 8)))]


SOURCES = {  # what NumPy makes of the table, on a mesh that need not cut it
    "bytes the other way round": (lambda table: table.astype(">f4"), P("x")),
    "wider than JAX has": (lambda table: table.astype(float) + 1e-9, P("x")),
    "scalar": (lambda table: table[:1, 0].reshape(()), P()),
    "empty": (lambda table: table[:0], P()),
}


@pytest.mark.parametrize(("make", "spec"), SOURCES.values(), ids=SOURCES)
def test_what_numpy_has_arrives_as_jax_has_it(make, spec, table):
    """The bytes of a source may lie the other way round, as in a file."""
    source, mesh = make(table), jax.make_mesh((8,), ("x",))
    for read in read_slices, read_block, scatter:
        x = read(source, NamedSharding(mesh, spec))
        assert (x.shape, x.dtype) == (source.shape, np.float32)
        np.testing.assert_array_equal(np.asarray(x), source.astype(np.float32))
        check_pieces(x, source)


def test_pieces_cover_a_block_and_none_is_larger_than_allowed():
    for limit in 1, 4, 30, 100, 10**6:
        counts = np.zeros((7, 1, 5), int)
        for piece in pieces(((0, 7), (0, 1), (0, 5)), 4, limit):
            part = counts[tuple(slice(*pair) for pair in piece)]
            part += 1
            assert part.size * 4 <= max(limit, 4)
        assert (counts == 1).all()
    assert list(pieces((), 4, 1)) == [()]


@pytest.mark.parametrize("read", [read_slices, read_block, scatter])
def test_shapes_that_do_not_divide_are_refused_before_any_reading(read):
    source = Noted(np.zeros((10, 3), np.float32))
    sharding = NamedSharding(jax.make_mesh((8,), ("x",)), P("x"))
    with pytest.raises(ValueError, match=r"shape \(10, 3\) cannot be cut.*pad the"):
        read(source, sharding)
    with pytest.raises(ValueError, match="cannot be cut into equal shards"):
        read(source, NamedSharding(sharding.mesh, P(None, None, "x")))
    with pytest.raises(ValueError, match="no sharding: pass a NamedSharding"):
        read(source, P("x"))
    with pytest.raises(ValueError, match=r"shape, a\s+dtype"):
        read([1, 2], sharding)
    with pytest.raises(ValueError, match=r"holds no numbers|has no source"):
        read(np.array(["a"] * 8), sharding)
    assert source.reads == []


def test_a_root_that_is_not_there_is_refused(table):
    sharding = NamedSharding(jax.make_mesh((8,), ("x",)), P("x"))
    for options in {"root": 1}, {"root": -1}, {"limit": 0}:
        with pytest.raises(ValueError, match="pass a process that is there"):
            scatter(table, sharding, **options)


def test_a_shard_in_the_wrong_place_is_found(mesh, table):
    for wrong in table[::-1].copy(), table + (table == 77):
        x = jax.device_put(wrong, NamedSharding(mesh, P("x", "y")))
        with pytest.raises(AssertionError, match="shards of process 0 are not what"):
            check_pieces(x, table)
    with pytest.raises(AssertionError, match=r"has 78.0 at \[9, 5\].*source has 77.0"):
        check_pieces(x, table, limit=8)
    with pytest.raises(ValueError, match="cannot be the same"):
        check_pieces(x, table[:8])


def test_nan_equals_itself_and_minus_zero_is_not_zero(mesh):
    source = np.full((8, 8), np.nan, np.float32)
    x = jax.device_put(source, NamedSharding(mesh, P("x")))
    check_pieces(x, source)
    with pytest.raises(AssertionError, match=r"has -0\.0 at"):
        check_pieces(jax.device_put(np.full(8, -0.0, np.float32)), np.zeros(8, "f"))


# -------------------------------------------------------------------- several processes


@pytest.mark.processes
def test_four_processes_hold_what_the_source_has_and_read_each_part_once(four):
    four.run("""
for spec in ("x", "y"), ("x",), (("x", "y"),), (None, "y"), (None, ("y", "x")), ():
    source, sharding = Noted(table), laid(*spec)
    x = read_slices(source, sharding)
    assert right(x) and x.sharding == sharding
    check_pieces(x, table)
    check_pieces(x, table, limit=20)
    parts = {shard.index: shard.data.nbytes for shard in x.addressable_shards}
    assert sorted(source.reads) == sorted(
        (n, tuple(i.indices(s)[:2] for i, s in zip(index, table.shape)))
        for index, n in parts.items()
    )
source = Noted(table)
right(read_block(source, laid("x", "y")))
assert source.reads == [(128, ((4 * me, 4 * me + 4), (0, 8)))]
""")


@pytest.mark.processes
def test_what_is_no_block_is_refused_by_the_process_that_needs_it(four):
    four.run("""
order = np.array(jax.devices())[[0, 2, 1, 3, 4, 5, 6, 7]]
mixed = jax.sharding.Mesh(order, ("d",), axis_types=mesh.axis_types[:1])
source = Noted(table)
right(read_slices(source, laid("d", mesh=mixed)))
source = Noted(table)
""")
    words = "ValueError: needs 2 slices that do not make up one block"
    four.run("read_block(source, laid('d', mesh=mixed))", raises=words, on=[0, 1])
    assert four.run("len(source.reads)").texts == ("0", "0", "1", "1")


@pytest.mark.processes
def test_the_root_alone_reads_and_all_get_their_slices(four):
    four.run("""
for spec in ("x", "y"), (None, "y"), (), ("y",):
    for root, limit in (0, 2**24), (2, 40):
        source = Noted(table)
        x = scatter(source if me == root else None, laid(*spec), root, limit)
        assert right(x) and x.sharding == laid(*spec)
        assert max([n for n, _ in source.reads], default=0) <= limit
        assert bool(source.reads) == (me == root)
""")


@pytest.mark.processes
def test_a_scatter_keeps_all_bits_of_wide_numbers(four):
    output = four.run("""
wide = np.array([1 + 2**-40, np.nan, -0.0, np.inf] * 2)
with jax.enable_x64(True):
    x = scatter(wide if me == 3 else None, laid("x"), root=3)
    check_pieces(x, wide)
x.dtype""")
    assert output.texts == ("dtype('float64')",) * 4


@pytest.mark.processes
def test_a_scatter_from_nothing_is_refused_everywhere(four):
    for source in "None", "table if me else [1]":
        four.run(f"scatter({source}, laid())", raises="ValueError: process 0 has no")
    odd = "ValueError: (9, 2) cannot be cut into equal shards"
    four.run("scatter(np.zeros((9, 2)) if me == 1 else None, laid('x'), 1)", raises=odd)


@pytest.mark.processes
def test_a_scatter_works_inside_a_mesh_and_on_some_devices(four):
    four.run("""
some = jax.sharding.Mesh(np.array(jax.devices())[2:6], ("d",),
                         axis_types=mesh.axis_types[:1])
with jax.set_mesh(mesh):
    assert right(scatter(table if me == 0 else None, laid("x")))
    x = scatter(table if me == 0 else None, laid("d", mesh=some))
    y = read_slices(table, laid("d", mesh=some))
assert len(x.addressable_shards) == (2 if me in (1, 2) else 0)
assert right(x) and right(y)
check_pieces(x, table)
""")


@pytest.mark.processes
def test_all_learn_whose_shards_are_wrong(four):
    four.run("x = read_slices(table + (me == 2) * (np.arange(8) == 5), laid('x', 'y'))")
    output = refused(four, "check_pieces(x, table)")
    words = "AssertionError: shards of process 2 are not what the source has"
    assert all(words in error for error in output)
    assert all("all are right" in output[p] for p in (0, 1, 3))
    assert "at [8, 5], where the source has" in output[2]


@pytest.mark.processes
def test_a_source_that_one_process_cannot_read_leaves_no_other_waiting(four):
    four.run("x = read_slices(table, laid('x'))")
    errors = refused(four, "check_pieces(x, table[: 8 if me == 1 else 16])")
    assert "ValueError: an array of shape (16, 8) and a source of" in errors[1]
    assert all("shards of process 1 are" in errors[p] for p in (0, 2, 3))


# ------------------------------------------------------------- files, batches, and MPI


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write one table as four kinds of file."""
    folder = tmp_path_factory.mktemp("files")
    table = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    np.save(folder / "table.npy", table)
    with h5py.File(folder / "table.h5", "w") as file:
        file.create_dataset("x", data=table, chunks=(3, 5))
    store = zarr.open_array(
        folder / "table.zarr", mode="w", shape=table.shape, chunks=(4, 8), dtype="f4"
    )
    store[:] = table
    return folder


OPEN = {
    "npy": "np.load(folder / 'table.npy', mmap_mode='r')",
    "h5py": "__import__('h5py').File(folder / 'table.h5')['x']",
    "zarr": "__import__('zarr').open_array(folder / 'table.zarr', mode='r')",
    "tensorstore": "__import__('tensorstore').open({'driver': 'zarr3', 'kvstore': "
    "f\"file://{folder / 'table.zarr'}\"}).result()",
}


@pytest.mark.parametrize("kind", OPEN)
@pytest.mark.processes
def test_files_of_every_kind_are_sources(four, files, kind):
    four.run(f"""
from pathlib import Path
folder = Path({str(files)!r})
source = {OPEN[kind]}
for spec in ("x", "y"), (None, "y"):
    for read in read_slices, read_block, scatter:
        x = read(source, laid(*spec))
        assert right(x)
        check_pieces(x, source)
""")


@pytest.mark.processes
def test_batches_of_grain_go_on_where_they_stopped(four):
    output = four.run(
        """
import grain
data = grain.MapDataset.source(np.arange(64, dtype=np.float32)).shuffle(seed=7)
mine = data[me :: jax.process_count()].batch(4, drop_remainder=True)
batches, sharding = iter(mine.to_iter_dataset()), laid(("x", "y"))

def batch():
    x = jax.make_array_from_process_local_data(sharding, next(batches))
    return x, [float(n) for shard in x.addressable_shards for n in shard.data]

first, state = batch(), batches.get_state()
rest = [batch()[1] for _ in range(3)]
batches = iter(mine.to_iter_dataset())
batches.set_state(state)
assert rest == [batch()[1] for _ in range(3)]
assert first[0].shape == (16,)
[*first[1], *sum(rest, [])]""",
        timeout=SLOW,
    )
    numbers = [number for text in output.texts for number in ast.literal_eval(text)]
    assert sorted(numbers) == list(range(64))


@pytest.mark.processes
def test_mpi_sends_the_same_pieces():
    if not shutil.which("mpirun"):  # a failure where continuous integration lacks it
        (pytest.fail if os.environ.get("CI") else pytest.skip)("install openmpi-bin")
    root = ["--allow-run-as-root"] * (os.getuid() == 0)
    line = ["mpirun", *root, "--oversubscribe", "-n", "4", sys.executable]
    done = subprocess.run(
        [*line, ROOT / "benchmarks/load_mpi.py"],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=SLOW,
    )
    assert "4 processes, all pieces in place, sum 73536" in done.stdout, done.stderr


# ------------------------------------------------------------------ what the page keeps


def test_the_kept_table_keeps_the_promise():
    with (ROOT / "docs/processes/data/load.csv").open() as file:
        rows = {row["way"]: row for row in csv.DictReader(file)}
    for row in rows.values():
        assert row["device"] == "4 x 2 x cpu"
    promised = 1.1 * 512 + 512  # its own share, and one share of buffer
    for way, row in rows.items():
        if way.startswith(("memmap", "HDF5", "Zarr", "TensorStore", "scatter")):
            assert row["mib"] == "2048"
            assert max(int(row["root_mib"]), int(row["others_mib"])) < promised, way
    assert int(rows["np.load"]["others_mib"]) > 2048
    assert int(rows["MPI scatter"]["root_mib"]) > 3 * 2048 - 10


@pytest.mark.weekly
@pytest.mark.processes
def test_a_way_is_measured_again_and_the_other_rows_stay(tmp_path):
    rows = (ROOT / "docs/processes/data/load.csv").read_text().splitlines()
    header, mpi = rows[0], [row for row in rows if row.startswith("MPI")]
    (tmp_path / "load.csv").write_text("\n".join([header, *mpi, ""]))
    ways = "memmap, rows", "MPI Scatterv", "MPI scatter"
    done = subprocess.run(
        [sys.executable, "benchmarks/bench_load.py", tmp_path, "16", *ways],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT | {"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=SLOW,
    )
    assert done.returncode == 0, done.stderr
    words = "skipped, for want of mpirun: apt-get install openmpi"
    assert done.stdout.count(words) == 2
    again, *others = (tmp_path / "load.csv").read_text().splitlines()[1:]
    assert again.startswith('"memmap, rows",rows,16,4.0,')
    assert others == mpi
