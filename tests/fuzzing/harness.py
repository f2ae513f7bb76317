"""What a call of a module is in a fuzzing session: drawn, made, and judged.

A case is a dictionary of plain values, so that it can be printed, kept and replayed:

    {"target": "lu.solve", "mesh": [["x", 2, "Auto"], ["y", 3, "Auto"]],
     "given": "numpy", "under": "grad", "strict": true, "x64": true, "seed": 7,
     "parameters": {"n": 5, "dtype": "float32"}}

Its outcome is one of three: `right`, as the reference says; `refused`, by a ValueError
that the module itself raises; or an `AssertionError`, with what is wrong.
"""

import ast
import functools
import importlib
import inspect
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st
from jax.sharding import AxisType

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / "src/examples"
CORPUS = Path(__file__).parent / "corpus"
REFUSALS = Path(__file__).parent / "refusals.txt"
DEVICES = 12
GIVEN = "numpy", "jax", "sharded", "replicated", "list"
KINDS = "Auto", "Explicit", "mixed"
UNDER = "nothing", "jit", "grad", "vmap", "scan"
FLOATS = "float32", "float64"
NUMBERS = *FLOATS, "complex64", "complex128"
DTYPES = *NUMBERS, "float16", "bfloat16", "int32", "int8", "uint8", "bool"

# Faults of XLA:CPU that no module can go round, by the target that met them. The corpus
# keeps a case of each, which must go on to fail so: a line goes when it does not.
COMPILER = {
    # an FFT of axes of one number, in a loop, given another order of its axes
    "fft.rfftn_transposed": "fft_thunk.cc:168) LayoutUtil::IsMonotonicWithDim0Major",
}

sizes = st.integers(1, 13)  # of an array's axis: odd, prime and even
dtypes = st.sampled_from(DTYPES)


@dataclass(frozen=True)
class Target:
    """A public function, and what has to be known to call it with anything.

    `parameters` draws a dictionary of plain values; it must have a "dtype". The
    functions take it, with the sizes of the mesh as its "mesh", as first argument:

    arrays(p, random) -> tuple      the arrays to pass, in NumPy, floating point
    call(p) -> function             what takes these arrays (options are bound in it)
    reference(p, *arrays)           the answer in NumPy, in double precision; raises
                                    ValueError for what nobody could answer
    specs(p) -> tuple               how the arrays lie naturally; missing: replicated
    plain(p) -> bool                may NumPy's call without options be refused?
    check(p, arrays, result, expected)   by default the numbers must be near
    """

    name: str
    parameters: st.SearchStrategy
    arrays: Callable
    call: Callable
    reference: Callable
    specs: Callable = lambda p: ()
    plain: Callable = lambda p: True
    check: Callable | None = None
    axes: tuple[str, ...] = ("x", "y")
    kinds: tuple[str, ...] = KINDS
    given: tuple[str, ...] = GIVEN
    under: tuple[str, ...] = UNDER
    differentiate: tuple[int, ...] = (0,)
    rounding: float = 100  # times eps of the result's dtype, beside the largest number


# ----------------------------------------------------------------- what is there


@functools.cache
def targets() -> dict[str, Target]:
    """Return all targets by their names."""
    found = [
        target
        for file in sorted((Path(__file__).parent / "targets").glob("*.py"))
        for target in importlib.import_module(f"fuzzing.targets.{file.stem}").TARGETS
    ]
    return {target.name: target for target in found}


def inner() -> dict[str, tuple[str, ...]]:
    """Return, for each module, the functions that are only reached through others."""
    return {
        file.stem: importlib.import_module(f"fuzzing.targets.{file.stem}").INNER
        for file in sorted((Path(__file__).parent / "targets").glob("*.py"))
    }


def program(module) -> set[str]:
    """Return the functions that only the program at the end of a module calls."""
    file = Path(__file__).parent / f"targets/{module}.py"
    if not file.exists():
        return set()
    return set(
        getattr(importlib.import_module(f"fuzzing.targets.{module}"), "PROGRAM", ())
    )


def corpus(names) -> list[dict]:
    """Return the kept cases of these targets."""
    lines = [
        line
        for file in sorted(CORPUS.glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    cases = [json.loads(line) for line in lines]
    return [case for case in cases if case["target"] in names]


def refusals() -> set[str]:
    """Return the kinds of refusals that are admitted, until somebody builds them."""
    lines = REFUSALS.read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


# ---------------------------------------------------------------------- drawing


@st.composite
def meshes(draw, names, kinds=KINDS):
    """Draw a mesh of 1 to 12 devices with these axes, and perhaps one more."""
    names, left, axes = list(names), DEVICES, []
    if draw(st.integers(0, 3)) == 3:
        names.insert(draw(st.integers(0, len(names))), "other")
    kind = draw(st.sampled_from(kinds))
    for name in draw(st.permutations(names)):
        size = draw(st.integers(1, min(left, 3 if name == "other" else 12)))
        left //= size
        own = draw(st.sampled_from(["Auto", "Explicit"])) if kind == "mixed" else kind
        axes.append([name, size, own])
    return sorted(axes, key=lambda axis: names.index(axis[0]))


@st.composite
def cases(draw, target):
    """Draw a case of a target. Lists are passed alone: `jit` would take them apart."""
    given = draw(st.sampled_from(target.given))
    under = target.under if given != "list" else ("nothing",)
    return {
        "target": target.name,
        "mesh": draw(meshes(target.axes, target.kinds)),
        "given": given,
        "under": draw(st.sampled_from(under)),
        "strict": draw(st.booleans()),
        "x64": draw(st.booleans()),
        "seed": draw(st.integers(0, 99)),
        "parameters": draw(target.parameters),
    }


# ----------------------------------------------------------------------- running


def run(case) -> str:
    """Make the call of a case: "right" or "refused", or raise AssertionError."""
    target = targets()[case["target"]]
    strict = "strict" if case["strict"] else "standard"
    names, counts, kinds = zip(*case["mesh"], strict=True)
    kinds = tuple(AxisType[kind] for kind in kinds)
    some = jax.devices()[: math.prod(counts)]
    mesh = jax.make_mesh(counts, names, kinds, devices=some)
    p = case["parameters"] | {"mesh": dict(zip(names, counts, strict=True))}
    # not `with jax.enable_x64`: the threads of callbacks would not know of it
    jax.config.update("jax_enable_x64", case["x64"])
    with jax.numpy_dtype_promotion(strict), jax.set_mesh(mesh):
        if not case["x64"]:
            narrow = {"float64": "float32", "complex128": "complex64"}
            p["dtype"] = narrow.get(p["dtype"], p["dtype"])
        if case["under"] == "grad" and not differentiable(case, target, p):
            case = {**case, "under": "nothing"}  # integers have no derivative
        return judge(case, target, p)


def judge(case, target, p) -> str:
    """Compare what the module says with what the reference says."""
    copies = 2 if case["under"] in ("vmap", "scan") else 1
    drawn = [make(target, p, case["seed"] + 1000 * i) for i in range(copies)]
    try:
        expected = [target.reference(p, *map(double, arrays)) for arrays in drawn]
    except (ValueError, TypeError, np.linalg.LinAlgError) as error:
        expected = error
    try:
        results = answers(case, target, p, drawn)
    except Exception as error:
        return refused(case, target, p, expected, error)
    if isinstance(expected, Exception):
        raise AssertionError(f"no error for what has no answer: {expected}")
    if case["under"] == "grad":
        check_gradient(target, p, drawn[0], results)
    else:
        for arrays, result, wanted in zip(drawn, results, expected, strict=True):
            (target.check or near(target))(p, arrays, result, wanted)
    return "right"


def differentiable(case, target, p) -> list[int]:
    """Return which arguments of a case have a derivative."""
    numbers = make(target, p, case["seed"])
    return [i for i in target.differentiate if is_inexact(numbers[i])]


def make(target, p, seed) -> tuple:
    """Return the arrays of a case, of its dtype."""
    arrays = target.arrays(p, np.random.default_rng(seed))
    return tuple(cast(np.asarray(array), p["dtype"]) for array in arrays)


def cast(array, dtype) -> np.ndarray:
    """Return floating-point numbers as this dtype; leave integers and others alone."""
    if array.dtype not in (np.float64, np.complex128):
        return array
    if dtype == "bool":
        return array.real > 0
    if dtype in ("int8", "int32", "uint8"):
        return np.abs(10 * array.real).astype(dtype)
    real = not jnp.issubdtype(dtype, jnp.complexfloating)
    return (array.real if real else array).astype(jnp.dtype(dtype))


def double(array) -> np.ndarray:
    """Return an array in double precision; leave integers and booleans alone."""
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        return array.astype(np.complex128)
    inexact = jnp.issubdtype(array.dtype, jnp.floating)
    return array.astype(np.float64) if inexact else array


def given(case, target, p, arrays, batch=0) -> tuple:
    """Return arrays as NumPy has them, as JAX has them, or laid out on the mesh."""
    kind, mesh = case["given"], jax.sharding.get_mesh()
    if kind == "numpy":
        return tuple(arrays)
    if kind == "list":  # of Python numbers, as NumPy's functions take it
        return tuple(array.tolist() for array in arrays)
    if kind == "jax":
        return tuple(jnp.asarray(array) for array in arrays)
    natural = target.specs(p) if kind == "sharded" else ()
    specs = [*natural, *[jax.P()] * (len(arrays) - len(natural))]
    specs = [jax.P(*[None] * batch, *spec) for spec in specs]
    shardings = [jax.NamedSharding(mesh, spec) for spec in specs]
    return tuple(
        jax.device_put(array, sharding if fits(array, sharding) else jax.P())
        for array, sharding in zip(arrays, shardings, strict=True)
    )


def fits(array, sharding) -> bool:
    """Say whether an array can be laid out so: JAX wants sizes that divide."""
    if len(sharding.spec) > array.ndim:
        return False
    for size, names in zip(array.shape, sharding.spec, strict=False):
        several = (names,) if isinstance(names, str) else names or ()
        if size % math.prod(sharding.mesh.shape[name] for name in several):
            return False
    return True


def answers(case, target, p, drawn) -> list:
    """Call the function as the case says; return its results, or its gradient."""
    f, under = target.call(p), case["under"]
    if under == "grad":
        which = differentiable(case, target, p)
        return gradient(which, f, given(case, target, p, drawn[0]))
    if under in ("vmap", "scan"):
        stacked = [np.stack(arrays) for arrays in zip(*drawn, strict=True)]
        arrays = given(case, target, p, stacked, batch=1)
        if under == "vmap":
            results = on_host(jax.vmap(f)(*arrays))
        else:
            results = jax.lax.scan(lambda c, each: (c, f(*each)), 0, arrays)[1]
        leaves, tree = jax.tree.flatten(on_host(results))
        return [tree.unflatten([leaf[i] for leaf in leaves]) for i in range(2)]
    arrays = given(case, target, p, drawn[0])
    return [on_host((jax.jit(f) if under == "jit" else f)(*arrays))]


def on_host(results):
    """Return the results in NumPy, where slices of them need no sharding."""
    return jax.tree.map(
        lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, results
    )


def weights(leaves) -> list:
    """Return random weights for a sum over all results."""
    random = np.random.default_rng(1)
    return [random.normal(size=np.shape(leaf)) for leaf in leaves]


def is_inexact(leaf) -> bool:
    """Say whether a result has a derivative at all."""
    return jnp.issubdtype(np.asarray(leaf).dtype, jnp.inexact)


def gradient(which, f, arrays) -> list:
    """Return the gradient of a weighted sum of all results of f, in some arguments."""

    def total(*chosen):
        everything = list(arrays)
        for i, array in zip(which, chosen, strict=True):
            everything[i] = array
        leaves = [leaf for leaf in jax.tree.leaves(f(*everything)) if inexact(leaf)]
        sums = [
            (leaf * jnp.asarray(w, leaf.dtype)).sum().real
            for leaf, w in zip(leaves, weights(leaves), strict=True)
        ]
        return functools.reduce(lambda a, b: a + b.astype(a.dtype), sums)

    positions = tuple(range(len(which)))
    found = jax.grad(total, positions)(*[arrays[i] for i in which])
    return list(zip(which, on_host(found), strict=True))


def inexact(leaf) -> bool:
    """Say whether a traced result has a derivative."""
    return jnp.issubdtype(leaf.dtype, jnp.inexact)


def check_gradient(target, p, arrays, found):
    """Compare a gradient with differences of the reference, in a random direction."""
    random = np.random.default_rng(2)
    wide = [double(array) for array in arrays]

    def total(*arrays):
        leaves = jax.tree.leaves(target.reference(p, *arrays))
        leaves = [np.asarray(leaf) for leaf in leaves if is_inexact(leaf)]
        sums = [
            (leaf * w).sum().real
            for leaf, w in zip(leaves, weights(leaves), strict=True)
        ]
        return sum(sums)

    for i, slope in found:
        way = cast(random.normal(size=(*arrays[i].shape, 2)) @ [1, 1j], wide[i].dtype)
        h = 1e-6 * max(1.0, np.abs(wide[i]).max(initial=0))
        ends = [
            total(*wide[:i], wide[i] + s * h * way, *wide[i + 1 :]) for s in (1, -1)
        ]
        wanted = (ends[0] - ends[1]) / (2 * h)
        said = (double(slope) * way).sum().real
        size = np.abs(double(slope) * way).sum() + abs(wanted) + 1e-6
        eps = float(jnp.finfo(slope.dtype).eps)
        error = abs(said - wanted)
        assert error <= max(10 * target.rounding * eps, 4 * eps, 1e-4) * size, (
            f"the gradient in argument {i} says {said}, differences say {wanted}"
        )


def near(target) -> Callable:
    """Return the check that numbers are near, leaf by leaf."""

    def check(p, arrays, result, expected):
        found, wanted = jax.tree.leaves(result), jax.tree.leaves(expected)
        assert len(found) == len(wanted), f"{len(found)} arrays, not {len(wanted)}"
        for mine, theirs in zip(found, wanted, strict=True):
            assert_near(np.asarray(mine), np.asarray(theirs), target.rounding)

    return check


def assert_near(mine, theirs, rounding):
    """Fail unless the numbers agree up to some roundings of the largest of them."""
    assert mine.shape == theirs.shape, f"shape {mine.shape}, not {theirs.shape}"
    exact = not jnp.issubdtype(mine.dtype, jnp.inexact)
    eps = 0 if exact else float(jnp.finfo(mine.dtype).eps)
    mine, theirs = double(mine), double(theirs)
    finite = np.abs(theirs[np.isfinite(theirs)])
    scale = max(1.0, finite.max(initial=0))
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=rounding * eps * scale)


# ---------------------------------------------------------------------- refusals


def refused(case, target, p, expected, error) -> str:
    """Accept an error if it is the module's own, and admitted, or the compiler's."""
    if COMPILER.get(case["target"], "no fault is known") in str(error):
        return "refused by the compiler"
    kind = kind_of(error)
    if kind is None:
        text = str(error).partition("\n")[0]
        raise AssertionError(f"{type(error).__name__}: {text[:300]}") from error
    if isinstance(expected, Exception):
        return "refused"
    if is_plain(case, target, p):
        raise AssertionError(f"NumPy's plain call is refused: {error}") from error
    if kind not in refusals():
        raise AssertionError(f"a new kind of refusal: {kind}") from error
    return "refused"


def is_plain(case, target, p) -> bool:
    """Say whether this is a call that NumPy's users make, on an ordinary mesh."""
    kinds = {kind for _, _, kind in case["mesh"]}
    ordinary = len(kinds) == 1 and len(case["mesh"]) == len(target.axes)
    simple = (case["given"], case["under"]) == ("numpy", "nothing")
    return ordinary and simple and p["dtype"] in FLOATS and target.plain(p)


def kind_of(error) -> str | None:
    """Return which check of a module raised this ValueError; None if none did."""
    last = error.__traceback__
    while last.tb_next:
        last = last.tb_next
    file = Path(last.tb_frame.f_code.co_filename)
    if type(error) is not ValueError or file.parent != MODULES:
        return None
    nodes = list(ast.walk(ast.parse(file.read_text())))
    here = [n for n in nodes if hasattr(n, "lineno") and holds(n, last.tb_lineno)]
    if any(is_blanket(node) for node in here):
        return None
    (raised,) = (node for node in here if isinstance(node, ast.Raise))
    return f"{file.stem}: {template(raised.exc.args[0])}"


def holds(node, line) -> bool:
    """Say whether a statement stands on this line, among others."""
    return isinstance(node, ast.stmt | ast.ExceptHandler) and (
        node.lineno <= line <= node.end_lineno
    )


def is_blanket(node) -> bool:
    """Say whether an `except` catches whatever there is."""
    if not isinstance(node, ast.ExceptHandler):
        return False
    return node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")


def template(node) -> str:
    """Return a message as it stands in the source, with {} for what is put in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(template, values))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return template(left) + template(right)
    return "{}"


def kinds_in_sources() -> set[str]:
    """Return every kind of ValueError that the modules can raise."""
    return {
        f"{file.stem}: {template(node.exc.args[0])}"
        for file in MODULES.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and node.exc.args
    }


# -------------------------------------------------- what must have a target


def array_functions(module) -> set[str]:
    """Return the functions of a module that take or return arrays, by annotation."""
    names = set()
    for node in ast.parse((MODULES / f"{module}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            notes = [arg.annotation for arg in node.args.args + node.args.kwonlyargs]
            text = " ".join(
                ast.unparse(note) for note in [*notes, node.returns] if note
            )
            names |= {node.name} if "Array" in text else set()
    return names - {"main"}


def watch(names) -> set[str]:
    """Note from now on which of these functions (module.function) are entered."""
    seen, codes = set(), {}
    tool = sys.monitoring.PROFILER_ID
    sys.monitoring.use_tool_id(tool, "fuzz")
    for name in names:
        module, _, function = name.partition(".")
        found = getattr(importlib.import_module(f"examples.{module}"), function)
        code = inspect.unwrap(getattr(found, "fun", found)).__code__
        codes[id(code)] = name  # equal ones are the same function in two modules
        sys.monitoring.set_local_events(tool, code, sys.monitoring.events.PY_START)
    sys.monitoring.register_callback(
        tool, sys.monitoring.events.PY_START, lambda code, _: seen.add(codes[id(code)])
    )
    return seen
