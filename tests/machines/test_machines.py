import importlib.util
import itertools
import os
from importlib.metadata import version
from types import SimpleNamespace
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_refusal
from on_devices import AUTO, EXPLICIT, on

from examples import machines
from examples.communication import measure
from examples.machines import collectives, compile_on, described, fitting_mesh


def needs(*packages):
    """Skip a test where a compiler is missing: the book is built without them."""
    missing = [p for p in packages if importlib.util.find_spec(p) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {missing}")


tpu, gpu = needs("libtpu"), needs("jax_plugins")
each_machine = pytest.mark.parametrize(
    ("name", "count", "hosts"),
    [
        pytest.param("v5e:4x4", 16, 4, marks=tpu),
        pytest.param("v5p:2x2x2", 8, 2, marks=tpu),
        pytest.param("v6e:2x4", 8, 2, marks=tpu),
        *(pytest.param(name, 8, 1, marks=gpu) for name in machines.GPUS),
    ],
)


@pytest.fixture
def questions(monkeypatch):
    """Answer in place of the compilers; return what they are asked.

    No variable may be left in the environment, whatever they answer.
    """
    found = []

    def answer(name="", platform=None, **options):
        found.append((name, platform, options, dict(os.environ)))
        return SimpleNamespace(devices=[f"device {len(found)}"])

    monkeypatch.setattr(machines.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(machines.topologies, "get_topology_desc", answer)
    monkeypatch.setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "0")
    monkeypatch.delenv("TPU_SKIP_MDS_QUERY", raising=False)
    machines._tpus.cache_clear()
    machines._gpus.cache_clear()
    before = {*os.environ}
    yield found
    assert {*os.environ} == before
    machines._tpus.cache_clear()
    machines._gpus.cache_clear()


VERSION = version("jax")
PIP = f"pip install jax-cuda13-plugin=={VERSION} jax-cuda13-pjrt=={VERSION}$"
DOCKER = "in a container, `docker run -it --platform linux/amd64 python:3.12 bash`, "


@pytest.mark.parametrize(
    ("name", "system", "machine", "words"),
    [
        ("v5p:2x2x2", "Linux", "x86_64", r": pip install 'libtpu==[\d.]+\*?'$"),
        ("h100", "Linux", "x86_64", f": {PIP}"),
        ("v6e:2x4", "Darwin", "arm64", f"not Darwin on arm64; {DOCKER}pip install jax"),
        ("b200", "Linux", "aarch64", f"not Linux on aarch64; {DOCKER}pip install jax"),
    ],
)
@pytest.mark.usefixtures("questions")
def test_a_missing_compiler_is_an_error_with_the_line_to_type(
    monkeypatch, name, system, machine, words
):
    """Elsewhere than on Linux with x86_64, in a container."""

    def find_spec(name):
        if "." in name:  # a package that is missing as a whole
            raise ModuleNotFoundError(name)

    monkeypatch.setattr(machines.importlib.util, "find_spec", find_spec)
    monkeypatch.setattr(machines.platform, "system", lambda: system)
    monkeypatch.setattr(machines.platform, "machine", lambda: machine)
    with pytest.raises(ModuleNotFoundError, match=words):
        described(name)


def test_a_compiler_is_asked_once_for_each_machine(questions):
    """libtpu for a topology, XLA for hosts of GPUs, whose numbers differ."""
    calls = ("v5p:4x4x4",), ("h100", 64), ("gpu_device_info { }", 2, 4), ("h200",)
    for _ in range(2):
        found = [described(*call) for call in calls]
        assert found == [[f"device {i}"] for i in (1, 2, 3, 4)]
    pod, h100s, own, h200 = questions
    assert pod[:3] == ("v5p:4x4x4", "tpu", {})
    assert pod[3]["TPU_SKIP_MDS_QUERY"] == "1"
    assert pod[3]["ALLOW_MULTIPLE_LIBTPU_LOAD"] == "0"  # as the reader has it
    assert h100s[1] == own[1] == "cuda"
    assert h100s[2]["topology"] == "1x64x8"
    assert own[2] == {"topology": "1x2x4", "target_config": "gpu_device_info { }"}
    assert "memory_size: 151397597184 " in h200[2]["target_config"]
    text = h100s[2]["target_config"]
    assert "NVIDIA H100" in text
    assert "%" not in text
    assert text.count("{") == text.count("}") == 3


UNKNOWN = jax.errors.JaxRuntimeError("INVALID_ARGUMENT: no TPU v9")


@pytest.mark.parametrize(
    ("error", "name", "words"),
    [
        (UNKNOWN, "v9:2x2", "v9:2x2 is no machine: INVALID_ARGUMENT"),
        (UNKNOWN, "gpu {", "the text is no machine: INVALID"),
        (NotImplementedError("for cuda"), "a100", "set JAX_PLATFORMS=cpu before JAX"),
    ],
)
@pytest.mark.usefixtures("questions")
def test_what_a_compiler_refuses_is_an_error_in_words(monkeypatch, error, name, words):
    refuse = Mock(side_effect=error)
    monkeypatch.setattr(machines.topologies, "get_topology_desc", refuse)
    with pytest.raises(ValueError, match=words):
        described(name)


# ------------------------------------------------------------------------- their meshes


def chips(*torus):
    """Make believe there are TPUs in a torus; its last axis is the cores of a chip."""
    return [
        SimpleNamespace(platform="tpu", coords=at, core_on_chip=core)
        for *at, core in np.ndindex(torus)
    ]


def on_hosts(*counts):
    """Make believe there are GPUs, so many on each host."""
    hosts = np.repeat(range(len(counts)), counts)
    return [SimpleNamespace(platform="gpu", process_index=host) for host in hosts]


def mesh_of(devices, *sizes):
    return fitting_mesh(devices, sizes, "abc"[: len(sizes)])


@pytest.mark.parametrize(
    ("devices", "fits", "others"),
    [
        (chips(4, 4, 4, 1), ["64", "16 4", "1 64", "4 4 4"], ["2 32", "8 8"]),
        (chips(2, 3, 4, 1), ["6 4", "8 3", "12 2", "24 1"], ["4 4", "2 12 2"]),
        (chips(4, 4, 1, 1), ["16", "4 4", "4 1 4"], ["2 8", "2 2 4"]),
        (chips(2, 2, 1, 2), ["4 2", "2 2 2"], ["3 2"]),  # two cores are an axis more
        (chips(1, 1, 1, 1), ["1", "1 1"], ["2"]),
        (on_hosts(8, 8), ["16", "2 8", "8 2", "4 4", "2 2 4", "16 1"], ["3 5", "2 4"]),
        (on_hosts(4, 4, 4), ["3 4", "6 2", "1 12"], ["4 3", "2 6", "2 2 3"]),
        (on_hosts(6), ["6", "2 3", "3 2"], ["4 2"]),
    ],
    ids=itertools.count(),
)
def test_a_mesh_fits_a_torus_or_all_hosts(devices, fits, others, monkeypatch):
    """Whole axes of a torus, or as many devices on each host."""
    monkeypatch.setattr(machines.jax, "make_mesh", lambda sizes, *_, **__: sizes)
    for line in fits:
        sizes = tuple(map(int, line.split()))
        assert mesh_of(devices, *sizes) == sizes
    for line in others:
        with pytest.raises(ValueError, match="does not fit"):
            mesh_of(devices, *map(int, line.split()))


COUNT = "no number of devices or hosts"
KNOWN = r"no machine: pass one of .*'h100'.*v5e:4x4"


@each_refusal(
    *((lambda n=n: described(n), KNOWN) for n in ("H100", "v5p:2x2x", 8)),
    *((lambda n=n: described("h100", n), COUNT) for n in (0, "2", 1.0)),
    (lambda: described("v5p:2x2x2", 2), "v5p:2x2x2 says its hosts itself"),
    (lambda: described("v5p:2x2x2", 1, 4), "v5p:2x2x2 says its hosts itself"),
    (lambda: mesh_of(chips(4, 4, 4, 1), 2, 32), "pass 1 x 64 or 4 x 16 or 16 x"),
    (lambda: mesh_of(chips(2, 2, 2, 1)[:6], 6), "6 chips do not fill a torus of 2"),
    (lambda: mesh_of(on_hosts(8, 8, 8), 8, 3), "3 x 8: pass 6 x 4 or 12 x 2 or 3"),
    (lambda: mesh_of(on_hosts(8, 4), 12), r"hosts have \[8, 4\] of the devices"),
    (lambda: mesh_of(on_hosts(8), 0, 8), f"0 is {COUNT}"),
)
def test_a_refusal_says_which_machines_and_meshes_there_are(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_mesh_of_cpu_devices_is_that_of_make_mesh():
    for given, types in ((), EXPLICIT), ((AUTO,), AUTO):
        mesh = fitting_mesh(jax.devices(), (2, 4), ("a", "b"), *given)
        assert mesh == jax.make_mesh((2, 4), ("a", "b"), axis_types=(types,) * 2)


# --------------------------------------------------------------------- one program


def rows_on(mesh):
    return [jax.ShapeDtypeStruct((64, 4), "float32", sharding=on(mesh, "x"))]


def test_a_row_has_bytes_held_and_the_time_and_bytes_sent_if_measured():
    meshes = {str(n): fitting_mesh(jax.devices()[:n], [n], ["x"]) for n in (8, 2)}

    def arguments(mesh):
        assert jax.sharding.get_mesh() == mesh
        return rows_on(mesh)

    for row in compile_on(jax.jit(jnp.sum), arguments, meshes, measure):
        size = int(row.machine)
        assert (row.collectives, row.seconds > 0) == ({"all-reduce": 1}, True)
        assert row.sent == -(-2 * 4 * (size - 1) // size)
        program = measure(jnp.sum, *rows_on(meshes[row.machine]))
        assert row.temporaries == program.temporaries
    rows = compile_on(lambda a: 2 * a, arguments, meshes)
    assert [row.machine for row in rows] == ["8", "2"]
    assert {(row.sent, *row.collectives) for row in rows} == {(None,)}


def test_a_collective_stands_once_however_it_is_written():
    text = """HloModule jit_f
%all-reduce-scatter (input: f32[8]) -> f32[1] {
  %all-reduce.2 = f32[8]{0} all-reduce(%input), channel_id=4, to_apply=%add
}
ENTRY %main (a: f32[8]) -> f32[8] {
  %all-gather.1 = bf16[8]{0} all-gather(%p), channel_id=7, dimensions={0}
  %all-gather.2 = bf16[8]{0} all-gather(%p), channel_id=7, dimensions={0}
  %s = (f32[8]{0}, f32[8]{0}) collective-permute-start(%a), channel_id=9
  %d = f32[8]{0} collective-permute-done(%s), metadata={op_name="all-gather(x)"}
  %x = f32[8]{0} all-to-all(%d), dimensions={0}
  %y = f32[8]{0} all-to-all(%x), dimensions={0}
}
"""
    expected = {"reduce-scatter": 1, "all-gather": 1, "collective-permute": 1}
    assert collectives(text) == expected | {"all-to-all": 2}


# ------------------------------------------------------- with the compilers installed


@each_machine
def test_programs_compile_on_each_machine(name, count, hosts):
    devices = described(name)
    assert len({*devices}) == count
    assert len({device.process_index for device in devices}) == hosts
    assert {d.platform for d in devices} == {"tpu" if ":" in name else "gpu"}
    mesh = fitting_mesh(devices, [count], ["x"], EXPLICIT if hosts == 1 else AUTO)

    def mean(a):
        specs = {"in_specs": jax.P("x"), "out_specs": jax.P()}
        total = jax.shard_map(lambda block: jax.lax.psum(block.sum(0), "x"), **specs)
        return total(a) / a.shape[0]

    (row,) = compile_on(mean, rows_on, {name: mesh}, measure)
    assert row.collectives == {"all-reduce": 1}
    assert row.sent == 2 * 16 * (count - 1) // count


@tpu
@pytest.mark.parametrize("topology", ["v5e:4x4", "v5p:2x2x2"])
def test_jax_makes_every_mesh_that_fits(topology):
    devices = described(topology)
    for rank in 1, 2, 3:
        for sizes in machines._on_torus(machines._torus(devices), rank):
            mesh = fitting_mesh(devices, sizes, tuple("abc"[:rank]))
            assert (*mesh.shape.values(),) == sizes
