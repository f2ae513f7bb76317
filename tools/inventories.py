"""Write docs/_inventories: where JAX, NumPy and Python document each of their names.

With a network, the places come from the published inventories; names that are public
but not documented lead to the page of their module. Without a network, every place is
made from the installed packages and the addresses that the three documentations use.
Only the namespaces that the book uses are kept.
"""

import importlib
import inspect
import re
import sys
import urllib.error
import urllib.request
import zlib
from pathlib import Path

import jax
import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "docs/_inventories"
HEADER = "# Sphinx inventory version 2\n# Project: {}\n# Version: {}\n"
HEADER += "# The remainder of this file is compressed using zlib.\n"
LINE = re.compile(r"(?P<name>\S+) (?P<role>py:\w+) -?\d+ (?P<place>\S+) .*")

JAX = """jax jax.debug jax.distributed jax.errors jax.export jax.lax jax.nn jax.numpy
jax.numpy.fft jax.numpy.linalg jax.profiler jax.random jax.scipy.linalg jax.sharding
jax.stages jax.tree jax.tree_util jax.typing jax.experimental.layout
jax.experimental.multihost_utils jax.experimental.topologies"""
NUMPY = ["numpy", "numpy.fft", "numpy.linalg", "numpy.testing", "numpy.typing"]
PYTHON = """argparse ast base64 builtins collections collections.abc contextlib
dataclasses enum functools html io itertools json math multiprocessing.connection
operator os pathlib re shutil socket statistics string subprocess sys tempfile textwrap
threading time traceback types typing warnings"""

# Modules whose names stand on one page, with an anchor each.
JAX_PAGES = {
    "jax.errors": "errors.html",
    "jax.sharding": "jax.sharding.html",
    "jax.stages": "jax.stages.html",
}
# Modules whose page has another name than the module.
JAX_MODULES = {
    "jax.errors": "errors.html",
    "jax.experimental.layout": "jax.experimental.html",
    "jax.experimental.topologies": "jax.experimental.html",
    "jax.numpy.fft": "jax.numpy.html",
    "jax.numpy.linalg": "jax.numpy.html",
    "jax.scipy.linalg": "jax.scipy.html",
}
# Public, but without an entry of their own: they lead to the page of their module.
JAX_UNDOCUMENTED = """
jax.Ref jax.Shard jax.ad jax.allow_f16_reductions jax.auto_pcast jax.checkpoint_policies
jax.debug_key_reuse jax.effects_barrier jax.empty_ref jax.explain_cache_misses
jax.float0 jax.free_ref jax.freeze jax.get_abstract_mesh jax.get_mesh
jax.host_count jax.host_id jax.host_ids
jax.jax2tf_associative_scan_reductions jax.legacy_prng_key
jax.make_user_context jax.memory jax.new_ref jax.no_execution jax.numpy_dtype_promotion
jax.remat jax.remove_size_one_mesh_axis_from_type jax.reshard jax.softmax_custom_jvp
jax.thread_guard jax.threefry_partitionable jax.transfer_guard_device_to_device
jax.transfer_guard_device_to_host jax.transfer_guard_host_to_device
jax.use_abstract_mesh
jax.Array.addressable_data jax.debug.DebugEffect jax.debug.OrderedDebugEffect
jax.debug.log jax.distributed.is_initialized jax.export.symbolic_dim_bounds
jax.experimental.multihost_utils.ProcessFailureError
jax.experimental.multihost_utils.live_devices
jax.experimental.multihost_utils.reached_preemption_sync_point
jax.lax.conv_general_permutations jax.lax.conv_general_shape_tuple
jax.lax.conv_shape_tuple jax.lax.conv_transpose_shape_tuple jax.lax.create_token
jax.lax.dce_sink jax.lax.dtype jax.lax.log2 jax.lax.one_minus_square
jax.lax.padtype_to_pads jax.lax.pcast jax.lax.polynomial jax.lax.psum_scatter_start
jax.lax.reduce_window_shape_tuple jax.lax.shape_as_value jax.numpy.bfloat16
jax.numpy.bool jax.numpy.minmax jax.profiler.ProfileData jax.profiler.ProfileEvent
jax.profiler.ProfileLine jax.profiler.ProfileOptions jax.profiler.ProfilePlane
jax.profiler.ProfileSession jax.profiler.export_profile_data jax.profiler.stop_server
jax.random.Key jax.random.key_impl jax.sharding.AbstractDevice
jax.sharding.AbstractMesh jax.sharding.AxisType jax.sharding.ManualAxisType
jax.sharding.UnreducedKind jax.sharding.auto_axes jax.sharding.explicit_axes
jax.sharding.get_abstract_mesh jax.sharding.get_mesh
jax.sharding.make_single_device_sharding jax.sharding.no_collectives
jax.sharding.reshard jax.sharding.set_mesh jax.sharding.use_abstract_mesh
jax.stages.ArgInfo jax.stages.CompilerOptions jax.tree_util.DictKey
jax.tree_util.FlattenedIndexKey jax.tree_util.GetAttrKey jax.tree_util.PyTreeDef
jax.tree_util.SequenceKey jax.tree_util.default_registry
"""
JAX_SMALL_TYPES = re.compile(r"float[468]_\w+|u?int[124]")
# Another name for something documented.
JAX_SAME = {
    "jax.NamedSharding": "jax.sharding.NamedSharding",
    "jax.P": "jax.sharding.PartitionSpec",
}
PYTHON_TYPES = "bytearray bytes dict frozenset list memoryview range set str tuple"
PYTHON_CONSTANTS = "False True None NotImplemented Ellipsis"


def role(value) -> str:
    """Return what kind of thing a name stands for, as Sphinx calls it."""
    if inspect.isclass(value):
        return "py:exception" if issubclass(value, BaseException) else "py:class"
    return "py:function" if callable(value) else "py:data"


def public(module) -> dict:
    """Return the public names of a module, without the modules in it."""
    names = getattr(module, "__all__", None) or dir(module)
    found = {name: getattr(module, name) for name in names if name[0] != "_"}
    return {name: v for name, v in found.items() if not inspect.ismodule(v)}


def jax_module(name) -> str:
    """Return the page of one of JAX's modules."""
    return JAX_MODULES.get(name, f"{name}.html")


def jax_undocumented(module, name, value) -> bool:
    """Say whether a public name of JAX has no entry in JAX's documentation."""
    if module in ("jax.experimental.layout", "jax.experimental.topologies"):
        return True
    if module == "jax.numpy" and role(value) == "py:data":
        return True
    listed = f"{module}.{name}" in JAX_UNDOCUMENTED.split()
    return listed or JAX_SMALL_TYPES.fullmatch(name) is not None


def jax_place(module, name, value) -> str:
    """Return where JAX documents one of its names."""
    full = JAX_SAME.get(f"{module}.{name}", f"{module}.{name}")
    module = full.rpartition(".")[0]
    if jax_undocumented(module, name, value):
        return jax_module(module)
    if module in JAX_PAGES:
        return f"{JAX_PAGES[module]}#{full}"
    if module in ("jax.lax", "jax.export") and inspect.isclass(value):
        return f"{module}.html#{full}"
    return f"_autosummary/{full}.html#{full}"


def jax_public(module_name):
    """Yield the public names that are JAX's own, without its primitives."""
    for name, value in public(importlib.import_module(module_name)).items():
        home = getattr(value, "__module__", None) or "jax"
        own = home == module_name or "multihost_utils" not in module_name
        if (
            own
            and home.startswith("jax")
            and not name.endswith(("_p", "_impl", "_eval", "_batcher"))
        ):
            yield name, value


def jax_names():
    """Yield JAX's public names: name, role and place."""
    for module_name in JAX.split():
        yield module_name, "py:module", jax_module(module_name)
        for name, value in jax_public(module_name):
            place = jax_place(module_name, name, value)
            yield f"{module_name}.{name}", role(value), place
            yield from private_name(value, place)
    yield from members(jax.Array, "jax.Array", "_autosummary/{0}.html#{0}")
    for owner in (jax.sharding.Mesh, jax.sharding.NamedSharding, jax.sharding.Sharding):
        full = f"jax.sharding.{owner.__name__}"
        yield from members(owner, full, "jax.sharding.html#{0}")


def private_name(value, place):
    """Yield the name under which Sphinx finds a type that JAX defines elsewhere."""
    home = getattr(value, "__module__", "")
    if inspect.isclass(value) and home.startswith(("jax._", "jaxlib")):
        yield f"{home}.{value.__qualname__}", role(value), place


def members(owner, full, place):
    """Yield the documented methods and properties of a class."""
    for name, value in vars(owner).items():
        listed = f"{full}.{name}" in JAX_UNDOCUMENTED.split()
        if name[0] != "_" and not listed and getattr(value, "__doc__", None):
            kind = "py:method" if callable(value) else "py:property"
            yield f"{full}.{name}", kind, place.format(f"{full}.{name}")


def numpy_place(module, name, value) -> str:
    """Return where NumPy documents one of its names."""
    full = f"{module}.{name}"
    if inspect.isclass(value) and issubclass(value, np.generic):
        return f"reference/arrays.scalars.html#{full}"
    if module == "numpy" and role(value) == "py:data":
        return f"reference/constants.html#{full}"
    if module == "numpy.typing":
        return f"reference/typing.html#{full}"
    return f"reference/generated/{full}.html#{full}"


def numpy_names():
    """Yield NumPy's public names: name, role and place."""
    for module_name in NUMPY:
        page = module_name.replace("numpy", "routines", 1)
        page = {"routines": "index", "routines.typing": "typing"}.get(page, page)
        yield module_name, "py:module", f"reference/{page}.html#module-{module_name}"
        for name, value in public(importlib.import_module(module_name)).items():
            kind = "py:class" if module_name == "numpy.typing" else role(value)
            yield f"{module_name}.{name}", kind, numpy_place(module_name, name, value)
    generator = "reference/random/generator.html#numpy.random."
    yield "numpy.random.Generator", "py:class", f"{generator}Generator"
    yield "numpy.random.default_rng", "py:function", f"{generator}default_rng"


def builtin_page(name, value) -> str:
    """Return the page on which Python documents a built-in name."""
    if name in PYTHON_CONSTANTS.split():
        return "constants"
    if name in PYTHON_TYPES.split():
        return "stdtypes"
    return "exceptions" if role(value) == "py:exception" else "functions"


def python_place(module, name, value) -> tuple[str, str]:
    """Return the full name and the place of a name of Python's library."""
    if module == "builtins":
        return name, f"library/{builtin_page(name, value)}.html#{name}"
    return f"{module}.{name}", f"library/{module}.html#{module}.{name}"


def python_names():
    """Yield the names of Python's library: name, role and place."""
    for module in PYTHON.split():
        yield module, "py:module", f"library/{module}.html#module-{module}"
        for name, value in public(importlib.import_module(module)).items():
            full, place = python_place(module, name, value)
            yield full, role(value), place


def named(names) -> dict[str, tuple[str, str]]:
    """Gather names; what comes first stays."""
    found = {}
    for name, kind, place in names:
        found.setdefault(name, (kind, place))
    return found


PROJECTS = {
    "jax": ("https://docs.jax.dev/en/latest", jax.__version__, jax_names),
    "numpy": ("https://numpy.org/doc/stable", np.__version__, numpy_names),
    "python": ("https://docs.python.org/3", sys.version.split()[0], python_names),
}


def read(data) -> dict[str, tuple[str, str]]:
    """Return the Python names of an inventory: name to role and place."""
    text = zlib.decompress(data.split(b"\n", 4)[4]).decode()
    found = (LINE.match(line) for line in text.splitlines())
    return {
        entry["name"]: (entry["role"], entry["place"].replace("$", entry["name"]))
        for entry in found
        if entry
    }


def write(project, version, names) -> bytes:
    """Return an inventory, the same bytes for the same names."""
    lines = [
        f"{name} {kind} 1 {place.removesuffix(name) + '$' * place.endswith(name)} -\n"
        for name, (kind, place) in sorted(names.items())
    ]
    return HEADER.format(project, version).encode() + zlib.compress(
        "".join(lines).encode(), 9
    )


def published(address):
    """Return the published inventory, or nothing where there is no network."""
    try:
        with urllib.request.urlopen(f"{address}/objects.inv", timeout=20) as answer:
            return read(answer.read())
    except (urllib.error.URLError, TimeoutError) as error:
        print(f"{address} does not answer ({error}): made from the installed package")
        return None


def merged(local, remote) -> dict[str, tuple[str, str]]:
    """Take the published place of each name, or the page of its module."""
    spaces = {name.rpartition(".")[0] for name in local}
    kept = {name: v for name, v in remote.items() if name.rpartition(".")[0] in spaces}
    pages = {
        name: place for name, (kind, place) in local.items() if kind == "py:module"
    }
    for name, (kind, _) in local.items():
        page = pages.get(name.rpartition(".")[0], "").partition("#")[0]
        if name not in kept and page:
            kept[name] = (kind, page)
    return kept


def main():
    """Write the three inventories."""
    FOLDER.mkdir(exist_ok=True)
    for project, (address, version, names) in PROJECTS.items():
        local = named(names())
        remote = published(address)
        data = write(project, version, merged(local, remote) if remote else local)
        (FOLDER / f"{project}.inv").write_bytes(data)
        print(f"{project}.inv: {len(read(data))} names, {len(data)} bytes")


if __name__ == "__main__":
    main()
