# SPDX-License-Identifier: MIT-0
"""Machines: compile for TPUs and GPUs that are described, and not there.

A compiler needs to know a chip, not to have one: XLA's two others come in packages of
their own, and describe machines of any size. `described` returns their devices, for
meshes, shardings and `jax.ShapeDtypeStruct`; what is compiled for them can be read, and
not run.

    devices  [8]         of one machine, in its own order; `process_index` is the host
    mesh     {"x": 8}    a jax.sharding.Mesh of all of them
    x        [N@x, M@y]  a jax.ShapeDtypeStruct, with a sharding over such a mesh

Cost: nothing is allocated or sent. A small program compiles in 0.1 to 10 seconds for
GPUs, in up to half a minute for TPUs, an eigenproblem there in two minutes.

    JAX_PLATFORMS=cpu JAX_NUM_CPU_DEVICES=8 python machines.py

Say JAX_PLATFORMS=cpu: without it JAX looks for real chips when it first compiles, and
leaves out the compiler for GPUs where NVIDIA's libraries are missing.
The numbers that describe a GPU are those of XLA's own target descriptions, in
github.com/openxla/xla, folder xla/backends/gpu/target_config/specs.

Copy this file alone: it needs JAX and NumPy, and for other machines than CPUs the
compilers, which `described` names (Linux on x86-64, no driver).
"""

import contextlib
import importlib.util
import itertools
import math
import os
import platform
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import requires
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies  # has no public name yet
from jax.sharding import AxisType, Mesh

TPUS = ("v5e:4x4", "v5p:2x2x2", "v6e:2x4")  # and others, of any size: v5p:16x16x16
GPUS = {  # what differs from one to the next, in the order of TARGET
    "a100": """8 108 64 167936 166912 2039040000000 85100068864 41943040 1.41
        NVIDIA A100-SXM4-80GB""",
    "h100": """9 132 128 233472 232448 3352320000000 84942979072 52428800 1.98
        NVIDIA H100 80GB HBM3""",
    "h200": """9 132 128 233472 232448 4800000000000 151397597184 52428800 1.98
        NVIDIA H200 141GB HBM3e""",
    "b200": """10 148 128 233472 232448 7672320000000 191514411008 132644864 1.965
        NVIDIA B200""",
}
TARGET = """gpu_device_info {
    cuda_compute_capability { major: %s } core_count: %s fpus_per_core: %s
    shared_memory_per_core: %s shared_memory_per_block_optin: %s
    memory_bandwidth: %s device_memory_size: %s l2_cache_size: %s clock_rate_ghz: %s
    name: "%s" device_vendor: "NVIDIA Corporation" device_address_bits: 64
    threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048
    thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
    block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
    registers_per_core_limit: 65536 registers_per_block_limit: 65536
    shared_memory_per_block: 49152 driver_version: "13.0.0" runtime_version: "13.0.0"
    compile_time_toolkit_version: "13.0.0" dnn_version: "9.10.0" }
  platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 }"""
ALONE = {  # what the compilers want to hear where there is no chip
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # while another process compiles
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # NVIDIA's libraries are not needed
    "TPU_ACCELERATOR_TYPE": "v5p-8",  # any: without one, libtpu looks and complains
    "TPU_SKIP_MDS_QUERY": "1",  # no server is asked where this is
    "TPU_WORKER_HOSTNAMES": "localhost",
}
KINDS = "all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute"


# -------------------------------------------------------------------- the machines


def described(name: str, hosts: int = 1, per_host: int = 8) -> list[jax.Device]:
    """Return the devices of a machine that is not there, to compile for.

    `name` is a topology of TPUs as libtpu writes it, such as "v5p:2x2x2", which says
    the hosts too; a GPU of `GPUS`, of which `hosts` have `per_host` each; or the text
    of a GPU's own description, a GpuTargetConfigProto. Asked twice, it returns the same
    devices. Raises ValueError for a machine that does not exist, ModuleNotFoundError if
    its compiler is not installed; each says what to do.
    """
    target, hosts, per_host = _target(name), _count(hosts), _count(per_host)
    if "{" in target:
        return [*_gpus(target, f"1x{hosts}x{per_host}")]
    if not re.fullmatch(r"\w+:\d+(x\d+)+", target):
        raise ValueError(
            f"{name!r} is no machine: pass one of {[*GPUS]}, a topology of TPUs such "
            f"as {', '.join(TPUS)}, or the text of a GpuTargetConfigProto"
        )
    if (hosts, per_host) != (1, 8):
        raise ValueError(f"{name} says its hosts itself: leave hosts and per_host out")
    return [*_tpus(target)]


@cache
def _tpus(name: str) -> list[jax.Device]:
    """Return the chips of a topology, or the cores of chips that have two."""
    pinned = [extra.split(";")[0] for extra in requires("jax") if "libtpu" in extra]
    _check_installed("libtpu", f"'{pinned[0].strip()}'")
    return _query_devices(name, "tpu")


@cache
def _gpus(target: str, topology: str) -> list[jax.Device]:
    """Return GPUs of this description: a topology is slices x hosts x devices."""
    version = jax.__version__
    packages = f"jax-cuda13-plugin=={version} jax-cuda13-pjrt=={version}"
    _check_installed("jax_plugins.xla_cuda13", packages)
    return _query_devices("", "cuda", target_config=target, topology=topology)


def _query_devices(name: str, kind: str, **options) -> list[jax.Device]:
    """Ask a compiler for devices, or say in words why there are none."""
    try:
        with _variables(ALONE):
            return topologies.get_topology_desc(name, platform=kind, **options).devices
    except NotImplementedError as error:
        raise ValueError(f"set JAX_PLATFORMS=cpu before JAX looks: {error}") from error
    except jax.errors.JaxRuntimeError as error:
        raise ValueError(f"{name or 'the text'} is no machine: {error}") from error


@contextlib.contextmanager
def _variables(words: Mapping[str, str]):
    """Set variables, unless they are set, and take them away again."""
    missing = {key: word for key, word in words.items() if key not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for key in missing:
            del os.environ[key]


def _target(name: str) -> str:
    """Return the description of a GPU of that name; other names as they are."""
    if name not in GPUS:
        return str(name)
    *numbers, full = GPUS[name].split(maxsplit=9)
    return f'{TARGET % (*numbers, full)} device_description_str: "{full}"'


def _count(number: int) -> int:
    """Return a number of things, or say that it is none."""
    if not isinstance(number, int | np.integer) or number < 1:
        raise ValueError(f"{number!r} is no number of devices or hosts: pass 1 or more")
    return int(number)


def _check_installed(module: str, packages: str):
    """Raise ModuleNotFoundError if a compiler is missing, with the line to type."""
    with contextlib.suppress(ModuleNotFoundError):  # there may be no jax_plugins
        if importlib.util.find_spec(module):
            return
    system, line = f"{platform.system()} on {platform.machine()}", "pip install"
    if system != "Linux on x86_64":
        line = (
            f"made for Linux on x86_64, not {system}; in a container, `docker run -it "
            f"--platform linux/amd64 python:3.12 bash`, {line} jax=={jax.__version__}"
        )
    raise ModuleNotFoundError(f"this compiler has to be installed: {line} {packages}")


# ---------------------------------------------------------------------- their meshes


def fitting_mesh(
    devices: Sequence, sizes: Sequence[int], names, axis_type=AxisType.Explicit
) -> Mesh:
    """Return the mesh that `jax.make_mesh` makes of all these devices, if they can.

    On a torus every mesh axis must be whole physical axes, multiplied; on hosts it must
    lie within one, or be as long in each that it spans. Raises ValueError for other
    sizes, and says which fit.
    """
    sizes, is_torus = tuple(map(_count, sizes)), devices[0].platform == "tpu"
    machine = _torus(devices) if is_torus else _hosts(devices)
    fits = (_on_torus if is_torus else _on_hosts)(machine, len(sizes))
    if sizes not in fits:

        def unlike(fit):
            return round(math.dist(np.log(fit), np.log(sizes)), 6), fit

        near = " or ".join(map(_times, sorted(fits, key=unlike)[:3]))
        kind = "a torus of" if is_torus else "hosts times devices of each,"
        raise ValueError(
            f"a mesh of {_times(sizes)}, {math.prod(sizes)} devices, does not fit "
            f"{kind} {_times(machine)}: pass {near}"
        )
    types = (axis_type,) * len(sizes)
    return jax.make_mesh(sizes, names, axis_types=types, devices=devices)


def _torus(devices: Sequence[jax.Device]) -> tuple[int, ...]:
    """Return how long the physical axes are; two cores of a chip are one more."""
    places = [(*device.coords, device.core_on_chip) for device in devices]
    torus = (np.ptp(places, axis=0) + 1).tolist()
    if math.prod(torus) != len(devices):
        few = f"{len(devices)} chips do not fill a torus of {_times(torus)}"
        raise ValueError(f"{few}: describe a smaller one, or pass all")
    return tuple(n for n in torus if n > 1) or (1,)


def _hosts(devices: Sequence[jax.Device]) -> tuple[int, int]:
    """Return how many hosts there are, and how many devices each has."""
    counts = [*Counter(device.process_index for device in devices).values()]
    if len({*counts}) > 1:
        raise ValueError(f"hosts have {counts} of the devices: take as many of each")
    return len(counts), counts[0]


def _on_torus(torus: tuple[int, ...], rank: int) -> set[tuple[int, ...]]:
    """Return the sizes of meshes whose axes are whole axes of the torus."""
    fits = {(1,) * rank}
    for n in torus:
        fits = {(*m[:i], m[i] * n, *m[i + 1 :]) for m in fits for i in range(rank)}
    return fits


def _on_hosts(hosts: tuple[int, int], rank: int) -> set[tuple[int, ...]]:
    """Return the sizes of meshes whose last axes fill hosts, or divide them."""
    count, each = math.prod(hosts), hosts[1]
    factors = [n for n in range(1, count + 1) if count % n == 0]

    def is_even(sizes):
        blocks = np.cumprod(sizes[::-1])
        uneven = np.fmax(blocks, each) % np.fmin(blocks, each)
        return blocks[-1] == count and not uneven.any()

    return {*filter(is_even, itertools.product(factors, repeat=rank))}


def _times(sizes: Sequence[int]) -> str:
    """Write sizes as 2 x 4."""
    return " x ".join(map(str, sizes))


# ------------------------------------------------------- one program, many compilers


class Row(NamedTuple):
    """What one compiler makes of a program, and how long it takes.

    `collectives` counts those that stand in the compiled program, loops not multiplied
    out; `temporaries` are bytes that one device holds beside arguments and results;
    `sent` is the number of bytes that it sends, None if nothing measured it.
    """

    machine: str
    collectives: dict[str, int]
    temporaries: int
    seconds: float
    sent: int | None = None


def compile_on(
    f: Callable, arguments: Callable, meshes: Mapping[str, Mesh], measure=None
) -> list[Row]:
    """Compile `f(*arguments(mesh))` for the mesh of each machine; return a row of each.

    arguments: a function that returns ShapeDtypeStructs with shardings over a mesh.
    meshes: by the name of the machine. measure: what counts the bytes of a compiled
    program as its attribute `sent`, such as `measure` of communication.py.
    """
    rows = []
    for machine, mesh in meshes.items():
        start = time.perf_counter()
        with jax.set_mesh(mesh):
            lowered = (f if hasattr(f, "lower") else jax.jit(f)).lower(*arguments(mesh))
            compiled = lowered.compile()
        seconds = time.perf_counter() - start
        held = compiled.memory_analysis().temp_size_in_bytes
        sent = measure(compiled).sent if measure else None
        rows.append(Row(machine, collectives(compiled.as_text()), held, seconds, sent))
    return rows


def collectives(text: str) -> dict[str, int]:
    """Count the collectives in the text of a compiled program, by their kind.

    Those of a channel are one, also where XLA:TPU spreads it over several fusions. A
    loop's count once, however often it runs.
    """
    found, fused = {}, False
    for line in text.splitlines():
        if line.endswith("{"):  # XLA:TPU's reduce-scatter has an all-reduce inside
            fused = "all-reduce-scatter" in line
        if kind := re.search(rf" ({KINDS})(?:-start)?\(", line):
            channel = re.search(r"channel_id=\d+", line) or [line]
            found[channel[0]] = "reduce-scatter" if fused else kind[1]
    return dict(Counter(found.values()))


def main():
    """Print what a training step sends on all machines whose compilers are here."""

    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)

    def arguments(mesh):
        rows = jax.NamedSharding(mesh, jax.P("x"))
        return [jax.ShapeDtypeStruct((1024, 1024), "float32", sharding=rows)] * 2

    for name in ("cpu", *TPUS, *GPUS):
        try:
            devices = jax.devices("cpu") if name == "cpu" else described(name)
        except ModuleNotFoundError as missing:
            print(f"{name:9} {missing}")
            continue
        mesh = fitting_mesh(devices, [len(devices)], ["x"], AxisType.Auto)
        (row,) = compile_on(step, arguments, {name: mesh})
        print(f"{name:9} {mesh.size:2} devices: {row.collectives}, {row.temporaries} B")


if __name__ == "__main__":
    main()
