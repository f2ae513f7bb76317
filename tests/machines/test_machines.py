import importlib.util
import os
from importlib.metadata import version
from types import SimpleNamespace
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import each_week

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
def forgotten():
    """Forget the machines that were described, before a test and after it."""

    def clear():
        machines._tpus.cache_clear()
        machines._gpus.cache_clear()

    clear()
    yield
    clear()


@pytest.fixture
def elsewhere(monkeypatch, forgotten):
    """Pretend that a compiler is not installed, on this system."""

    def pretend(system, machine):
        monkeypatch.setattr(machines.importlib.util, "find_spec", lambda name: None)
        monkeypatch.setattr(machines.platform, "system", lambda: system)
        monkeypatch.setattr(machines.platform, "machine", lambda: machine)

    return pretend


@pytest.fixture
def asked(monkeypatch, forgotten):
    """Answer in place of the compilers; return what they are asked."""
    questions = []

    def answer(name="", platform=None, **options):
        questions.append((name, platform, options, dict(os.environ)))
        return SimpleNamespace(devices=[f"device {len(questions)}"])

    monkeypatch.setattr(machines.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(machines.topologies, "get_topology_desc", answer)
    return questions


def chips(*torus, cores=1):
    """Make believe there are TPUs, four to a host."""
    return [
        SimpleNamespace(platform="tpu", coords=at, core_on_chip=core, process_index=0)
        for at in np.ndindex(torus)
        for core in range(cores)
    ]


def on_hosts(*counts):
    """Make believe there are GPUs, so many on each host."""
    return [
        SimpleNamespace(platform="gpu", process_index=host)
        for host, count in enumerate(counts)
        for _ in range(count)
    ]


# ------------------------------------------------------------------- names and words


def test_what_names_no_machine_is_refused_in_words():
    for name in "H100", "v5p:2x2x", "", 8:
        with pytest.raises(ValueError, match=r"pass one of .*'h100'.*v5e:4x4"):
            described(name)
    for counts in {"hosts": 0}, {"hosts": "2"}, {"per_host": 1.0}:
        with pytest.raises(ValueError, match="is no number of devices or hosts"):
            described("h100", **counts)
    for counts in {"hosts": 2}, {"per_host": 4}:
        with pytest.raises(ValueError, match="v5p:2x2x2 says its hosts itself"):
            described("v5p:2x2x2", **counts)


def test_a_missing_compiler_is_an_error_with_the_line_to_type(elsewhere):
    elsewhere("Linux", "x86_64")
    with pytest.raises(ModuleNotFoundError) as error:
        described("v5p:2x2x2")
    assert str(error.value).endswith(": pip install 'libtpu==0.0.50.*'") or (
        version("jax") != "0.12.0.1"  # whose metadata name this version
    )
    jax_version = version("jax")
    with pytest.raises(ModuleNotFoundError) as error:
        described("h100")
    assert str(error.value).endswith(
        f": pip install jax-cuda13-plugin=={jax_version} jax-cuda13-pjrt=={jax_version}"
    )


@pytest.mark.parametrize(
    ("name", "system", "machine"),
    [("v6e:2x4", "Darwin", "arm64"), ("b200", "Linux", "aarch64")],
)
def test_elsewhere_than_on_linux_a_container_is_told(elsewhere, name, system, machine):
    elsewhere(system, machine)
    words = f"not {system} on {machine}; in a container, `docker run -it --platform"
    with pytest.raises(ModuleNotFoundError, match=words) as error:
        described(name)
    assert f" jax=={version('jax')} " in str(error.value)


def test_what_nobody_has_installed_has_no_spec():
    """Not even the package around it: `find_spec` then raises."""
    with pytest.raises(ModuleNotFoundError, match="pip install a==1"):
        machines._check_installed("no_such_package.inside", "a==1")
    machines._check_installed("jax.numpy", "nothing")


# ------------------------------------------------------------- what compilers are asked


def test_libtpu_is_asked_for_a_topology_and_xla_for_hosts_of_gpus(asked):
    described("v5p:4x4x4")
    described("h100", hosts=64)
    described("gpu_device_info { }", hosts=2, per_host=4)
    pod, h100s, own = asked
    assert pod[:3] == ("v5p:4x4x4", "tpu", {})
    assert h100s[1] == own[1] == "cuda"
    assert h100s[2]["topology"] == "1x64x8"
    assert "NVIDIA H100" in h100s[2]["target_config"]
    assert own[2] == {"topology": "1x2x4", "target_config": "gpu_device_info { }"}


def test_a_machine_described_twice_is_the_same(asked):
    first = described("h100")
    second = described("h100")
    assert first == second
    assert first is not second
    assert described("h100", hosts=2) != first
    assert described("h200") != first
    assert len(asked) == 3


def test_the_environment_is_set_while_it_is_asked_and_put_back(asked, monkeypatch):
    monkeypatch.setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "0")
    monkeypatch.delenv("TPU_SKIP_MDS_QUERY", raising=False)
    before = dict(os.environ)
    described("v5e:2x2")
    assert asked[0][3]["TPU_SKIP_MDS_QUERY"] == "1"
    assert asked[0][3]["ALLOW_MULTIPLE_LIBTPU_LOAD"] == "0"  # as the reader has it
    assert dict(os.environ) == before


def test_what_a_compiler_refuses_is_an_error_in_words(asked, monkeypatch):
    unknown = jax.errors.JaxRuntimeError("INVALID_ARGUMENT: no TPU v9")
    left_out = NotImplementedError("topology not implemented for cuda")
    before = dict(os.environ)
    for error, name, complaint in [
        (unknown, "v9:2x2", "v9:2x2 is no machine: INVALID_ARGUMENT"),
        (unknown, "gpu {", "the text is no machine: INVALID"),
        (left_out, "a100", "set JAX_PLATFORMS=cpu before JAX looks"),
    ]:
        refuse = Mock(side_effect=error)
        monkeypatch.setattr(machines.topologies, "get_topology_desc", refuse)
        with pytest.raises(ValueError, match=complaint):
            described(name)
        assert dict(os.environ) == before


def test_the_gpus_are_told_apart_by_their_numbers():
    targets = [machines._target(name) for name in machines.GPUS]
    assert len({*targets}) == len(targets)
    for text in targets:
        assert text.count("{") == text.count("}") == 3
        assert "%" not in text
    assert "major: 10 }" in machines._target("b200")
    assert "device_memory_size: 151397597184 " in machines._target("h200")
    assert machines._target("h200").endswith('_str: "NVIDIA H200 141GB HBM3e"')


# ------------------------------------------------------------------------- their meshes


@pytest.fixture
def carry(monkeypatch):
    """Return sizes in place of a mesh of make-believe devices, None for a refusal."""

    def sizes_of(devices, *sizes):
        try:
            return fitting_mesh(devices, sizes, "abcd"[: len(sizes)])
        except ValueError:
            return None

    monkeypatch.setattr(machines.jax, "make_mesh", lambda sizes, *_, **__: sizes)
    return sizes_of


@pytest.mark.parametrize(
    ("torus", "fits", "splits"),
    [
        ((4, 4, 4), [(64,), (16, 4), (4, 16), (1, 64), (4, 4, 4)], [(2, 32), (8, 8)]),
        ((2, 2, 2), [(8,), (2, 4), (2, 2, 2), (1, 2, 4)], [(4, 4), (3, 2), (2, 2)]),
        ((2, 3, 4), [(6, 4), (8, 3), (12, 2), (24, 1)], [(4, 4), (2, 12, 2)]),
        ((4, 4, 1), [(16,), (4, 4), (4, 1, 4)], [(2, 8), (2, 2, 4)]),
        ((1, 1, 1), [(1,), (1, 1)], [(2,)]),
    ],
)
def test_a_torus_carries_meshes_whose_axes_are_whole(carry, torus, fits, splits):
    assert [carry(chips(*torus), *sizes) for sizes in fits] == fits
    assert [carry(chips(*torus), *sizes) for sizes in splits] == [None] * len(splits)


def test_two_cores_of_a_chip_are_an_axis_more(carry):
    assert carry(chips(2, 2, 1, cores=2), 4, 2) == (4, 2)
    assert carry(chips(2, 2, 1, cores=2), 2, 2, 2) == (2, 2, 2)


@pytest.mark.parametrize(
    ("hosts", "fits", "uneven"),
    [
        ((8, 8), [(16,), (2, 8), (8, 2), (4, 4), (2, 2, 4), (16, 1)], [(3, 5), (2, 4)]),
        ((8, 8, 8), [(24,), (3, 8), (6, 4), (12, 2)], [(8, 3), (4, 6), (2, 12)]),
        ((4, 4, 4), [(3, 4), (6, 2), (1, 12)], [(4, 3), (2, 6), (2, 2, 3)]),
        ((6,), [(6,), (2, 3), (3, 2)], [(4, 2)]),
        ((8, 4), [], [(12,), (3, 4)]),
    ],
)
def test_hosts_carry_meshes_that_lie_evenly_on_them(carry, hosts, fits, uneven):
    assert [carry(on_hosts(*hosts), *sizes) for sizes in fits] == fits
    assert [carry(on_hosts(*hosts), *sizes) for sizes in uneven] == [None] * len(uneven)


@pytest.mark.parametrize("hosts", [(8,), (4, 4), (8, 8), (4, 4, 4), (6, 6)])
def test_even_is_what_a_count_of_members_on_hosts_says(carry, hosts):
    """A line of devices along an axis has as many members on each host it meets."""
    devices = on_hosts(*hosts)
    places = np.array([device.process_index for device in devices])
    for sizes in machines._on_hosts((len(hosts), hosts[0]), 3):
        for axis in range(3):
            lines = np.moveaxis(places.reshape(sizes), axis, -1).reshape(
                -1, sizes[axis]
            )
            for line in lines:
                assert len({*np.unique(line, return_counts=True)[1].tolist()}) == 1


def test_a_refusal_says_which_meshes_fit():
    with pytest.raises(
        ValueError, match=r"3 x 2, 6 devices, does not fit a torus of 2 "
    ):
        fitting_mesh(chips(2, 2, 2), (3, 2), "ab")
    with pytest.raises(ValueError, match=r"of 4 x 4 x 4: pass 1 x 64 or 4 x 16 or 16"):
        fitting_mesh(chips(4, 4, 4), (2, 32), "ab")
    with pytest.raises(ValueError, match=r"of each, 3 x 8: pass 6 x 4 or 12 x 2 or 3"):
        fitting_mesh(on_hosts(8, 8, 8), (8, 3), "ab")
    with pytest.raises(ValueError, match=r"hosts have \[8, 4\] of the devices"):
        fitting_mesh(on_hosts(8, 4), (12,), "a")
    with pytest.raises(ValueError, match="6 chips do not fill a torus of 2 x 2 x 2"):
        fitting_mesh(chips(2, 2, 2)[:6], (6,), "a")
    with pytest.raises(ValueError, match="0 is no number"):
        fitting_mesh(on_hosts(8), (0, 8), "ab")


def test_a_mesh_of_cpu_devices_is_that_of_make_mesh():
    auto, explicit = [*jax.sharding.AxisType][:2]
    for given, types in ((), explicit), ((auto,), auto):
        mesh = fitting_mesh(jax.devices(), (2, 4), ("a", "b"), *given)
        assert mesh == jax.make_mesh((2, 4), ("a", "b"), axis_types=(types,) * 2)


# --------------------------------------------------------------------- one program


def rows_of(mesh, *shapes):
    sharding = jax.NamedSharding(mesh, jax.P("x"))
    return [jax.ShapeDtypeStruct(s, "float32", sharding=sharding) for s in shapes]


def test_a_row_has_bytes_sent_bytes_held_and_the_time():
    meshes = {
        name: fitting_mesh(jax.devices()[:count], [count], ["x"])
        for name, count in {"eight": 8, "two": 2}.items()
    }
    same = []

    def arguments(mesh):  # it is in context where they are made
        same.append(jax.sharding.get_mesh() == mesh)
        return rows_of(mesh, (64, 4))

    compared = compile_on(jax.jit(jnp.sum), arguments, meshes, measure)
    assert same == [True, True]
    assert [row.machine for row in compared] == ["eight", "two"]
    for row, size in zip(compared, (8, 2), strict=True):
        assert row.collectives == {"all-reduce": 1}
        assert row.sent == -(-2 * 4 * (size - 1) // size)
        assert row.seconds > 0
        program = measure(jnp.sum, *rows_of(meshes[row.machine], (64, 4)))
        assert row.temporaries == program.temporaries


def test_without_a_measure_no_bytes_are_told():
    mesh = fitting_mesh(jax.devices(), [8], ["x"])
    (row,) = compile_on(
        lambda a: 2 * a, lambda mesh: rows_of(mesh, (8,)), {"cpu": mesh}
    )
    assert (row.sent, row.collectives) == (None, {})


def test_a_collective_stands_once_however_it_is_written():
    text = """HloModule jit_f
%all-reduce-scatter (input: f32[8]) -> f32[1] {
  %all-reduce.2 = f32[8]{0} all-reduce(%input), channel_id=4, to_apply=%add
}
%fused (p: f32[8]) -> f32[8] {
  %all-gather.1 = bf16[8]{0} all-gather(%p), channel_id=7, dimensions={0}
}
%fused.again (p: f32[8]) -> f32[8] {
  %all-gather.2 = bf16[8]{0} all-gather(%p), channel_id=7, dimensions={0}
}
ENTRY %main (a: f32[8]) -> f32[8] {
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
def test_a_machine_has_its_devices_on_its_hosts(name, count, hosts):
    devices = described(name)
    assert len({*devices}) == count
    assert len({device.process_index for device in devices}) == hosts
    assert devices == described(name)
    assert {d.platform for d in devices} == {"tpu" if ":" in name else "gpu"}


@each_machine
def test_programs_compile_on_each_machine(name, count, hosts):
    auto, explicit = [*jax.sharding.AxisType][:2]
    kind = explicit if hosts == 1 else auto
    mesh = fitting_mesh(described(name), [count], ["x"], kind)

    @jax.jit
    def mean(a):
        summed = jax.shard_map(
            lambda block: jax.lax.psum(block.sum(0), "x"),
            in_specs=jax.P("x"),
            out_specs=jax.P(),
        )
        return summed(a) / a.shape[0]

    (row,) = compile_on(
        mean, lambda mesh: rows_of(mesh, (64, 8)), {name: mesh}, measure
    )
    assert row.collectives == {"all-reduce": 1}
    assert row.sent == 2 * 32 * (count - 1) // count
    assert jax.devices("cpu")[0].platform == "cpu"


@tpu
@gpu
def test_machines_stand_side_by_side_and_see_one_program_differently():
    devices = {name: described(name) for name in ("v5p:2x2x2", "h100", "a100")}
    devices["cpu"] = jax.devices("cpu")
    auto = jax.sharding.AxisType.Auto
    meshes = {name: fitting_mesh(d, [8], ["x"], auto) for name, d in devices.items()}
    compared = compile_on(
        lambda a: a.at[2:6].set(0.0), lambda mesh: rows_of(mesh, (8192, 64)), meshes
    )
    assert [row.collectives for row in compared] == [{}, {}, {}, {"all-gather": 1}]


@gpu
def test_hosts_of_gpus_are_counted_up():
    devices = described("h100", hosts=64)
    assert len(devices) == 512
    assert [d.process_index for d in devices] == [n // 8 for n in range(512)]
    mesh = fitting_mesh(devices, (64, 8), ("x", "y"))
    assert [d.process_index for d in mesh.devices[:, 0]] == [*range(64)]
    assert len(described("b200", hosts=3, per_host=4)) == 12
    with pytest.raises(ValueError, match="hosts times devices of each, 64 x 8: pass"):
        fitting_mesh(devices, (3, 171), ("x", "y"))


@gpu
def test_a_gpu_by_its_own_description():
    text = machines._target("h100").replace("H100", "H99")
    assert {d.device_kind for d in described(text, per_host=2)} == {
        "NVIDIA H99 80GB HBM3"
    }
    with pytest.raises(ValueError, match=r"the text is no machine: .*Failed to parse"):
        described("nothing { of: this }")


@tpu
@pytest.mark.parametrize("count", [1, 3, 8, *map(each_week, (2, 4, 5, 6, 7, 16))])
def test_there_are_as_many_chips_as_a_page_asks_for(count):
    name = {2: "2x1x1", 4: "2x2x1", 6: "2x1x3", 8: "2x2x2", 16: "2x2x4"}.get(
        count, f"1x1x{count}"
    )
    mesh = fitting_mesh(described(f"v5p:{name}"), [count], ["x"])
    (row,) = compile_on(jnp.sum, lambda mesh: rows_of(mesh, (5040,)), {name: mesh})
    assert row.collectives == ({"all-reduce": 1} if count > 1 else {})


@tpu
def test_libtpu_says_what_it_does_not_know():
    with pytest.raises(ValueError, match=r"v9:2x2 is no machine: .*Invalid TPU"):
        described("v9:2x2")
    with pytest.raises(ValueError, match=r"v5p:3x2x1 is no machine: .*not divisible"):
        described("v5p:3x2x1")


@tpu
@pytest.mark.parametrize("topology", ["v5e:4x4", "v5p:2x2x2"])
def test_jax_makes_every_mesh_that_fits(topology):
    devices = described(topology)
    for rank in 1, 2, 3:
        for sizes in machines._on_torus(machines._torus(devices), rank):
            mesh = fitting_mesh(devices, sizes, tuple("abc"[:rank]))
            assert (*mesh.shape.values(),) == sizes
