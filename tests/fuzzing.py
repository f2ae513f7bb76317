"""Call modules with arbitrary arguments, for the files tests/NAME/fuzz_NAME.py.

A case is a dictionary of plain values, a line of tests/NAME/cases.jsonl:

    {"target": "lu.solve", "mesh": [["x", 2, "Auto"], ["y", 3, "Auto"]],
     "given": "numpy", "under": "grad", "strict": true, "x64": true, "seed": 7,
     "parameters": {"n": 5, "dtype": "float32"}}

Its outcome is `right`, as the reference says; `refused`, by a ValueError that the
module itself raises; or an AssertionError, with what is wrong. Hypothesis draws cases.
"""

import ast
import faulthandler
import inspect
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from jax.sharding import AxisType

import examples

ROOT = Path(__file__).resolve().parents[1]
MODULES = Path(examples.__file__).parent
LATEST = ROOT / "docs/_build/fuzz"  # the case of each target that was drawn last
LIMIT = 240  # seconds for a case, on a busy machine
DEVICES = 12
GIVEN = "numpy", "jax", "sharded", "replicated", "list"
KINDS = "Auto", "Explicit", "mixed"
UNDER = "nothing", "jit", "grad", "vmap", "scan"
FLOATS = "float32", "float64"
NUMBERS = *FLOATS, "complex64", "complex128"
DTYPES = *NUMBERS, "float16", "bfloat16", "int32", "int8", "uint8", "bool"

sizes = st.integers(1, 13)  # of an array's axis: odd, prime and even
dtypes = st.sampled_from(DTYPES)


@dataclass(frozen=True)
class Target:
    """A public function, with all that is needed to call it with drawn arguments.

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
    refusals: tuple[str, ...] = ()  # messages for what the reference answers
    compiler_fault: str | None = None  # of XLA:CPU, that no module can go round


# ------------------------------------------------------------------------ the tests


def make_tests(module, targets, inner, refusals=(), program=()):
    """Return three tests: of each kept case, of these lists after it, and of draws.

    inner: names of functions that are only reached through others;
    refusals: messages, as in the source, for what the module could answer and does not;
    program: names of functions that only the module's `main` calls.
    """
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.config.update("jax_traceback_filtering", "off")
    targets = {target.name: replace(target, refusals=refusals) for target in targets}
    cases = read_cases(module)
    ids = [f"{case['target']}-{line}" for line, case in enumerate(cases, 1)]
    outcomes = []

    @pytest.mark.timeout(LIMIT)
    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("case", cases, ids=ids)
    def test_case(case):
        outcomes.append((case["target"], run(targets[case["target"]], case)))

    def test_lists():
        check_names(module, targets, inner, program)
        if len(outcomes) < len(cases):
            pytest.skip("not all cases passed in this process")
        assert expected_outcomes(targets.values()) <= {*outcomes}

    return test_case, test_lists, make_draws(targets)


def make_draws(targets):
    """Return the test that draws cases, as many as the profile of Hypothesis says."""

    @pytest.mark.weekly
    @pytest.mark.timeout(0)  # each case has its own
    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("name", targets)
    def test_draws(name):
        outcomes = set()

        @hypothesis.given(cases(targets[name]))
        def check(case):
            hypothesis.note(json.dumps(case))
            LATEST.mkdir(parents=True, exist_ok=True)
            (LATEST / f"{name}.json").write_text(json.dumps(case))
            faulthandler.dump_traceback_later(LIMIT, exit=True)  # pytest cancels it
            outcomes.add(run(targets[name], case))
            jax.clear_caches()  # without room for a program, XLA:CPU crashes

        check()
        assert "right" in outcomes

    return test_draws


def read_cases(module) -> list[dict]:
    """Return the kept cases of a module."""
    name = module.__name__.rpartition(".")[2]
    lines = (ROOT / f"tests/{name}/cases.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def expected_outcomes(targets) -> set[tuple[str, str]]:
    """Return pairs of a target's name and an outcome that some kept case must have."""
    faults = [target.name for target in targets if target.compiler_fault]
    right = {(target.name, "right") for target in targets}
    return right | {(name, "refused by the compiler") for name in faults}


def check_names(module, targets, inner, program):
    """Fail unless each function of arrays has a target, or is reached through one."""
    names = {name.partition(".")[2] for name in targets}
    assert not names & {*inner}
    assert array_functions(module) <= names.union(inner, program)


def array_functions(module) -> set[str]:
    """Return the functions of a module that take or return arrays, by annotation."""
    return {
        node.name
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.FunctionDef) and node.name != "main"
        if not node.name.startswith("_")
        if any(n and "Array" in ast.unparse(n) for n in (node.args, node.returns))
    }


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


def run(target, case) -> str:
    """Make the call of a case: return its outcome, or raise AssertionError."""
    names, counts, kinds = zip(*case["mesh"], strict=True)
    kinds = tuple(AxisType[kind] for kind in kinds)
    devices = jax.devices()[: math.prod(counts)]
    mesh = jax.make_mesh(counts, names, kinds, devices=devices)
    p = case["parameters"] | {"mesh": dict(zip(names, counts, strict=True))}
    if not case["x64"]:
        narrow = {"float64": "float32", "complex128": "complex64"}
        p["dtype"] = narrow.get(p["dtype"], p["dtype"])
    # not `with jax.enable_x64`: the threads of callbacks would not know of it
    jax.config.update("jax_enable_x64", case["x64"])
    strict = "strict" if case["strict"] else "standard"
    with jax.numpy_dtype_promotion(strict), jax.set_mesh(mesh):
        copies = 2 if case["under"] in ("vmap", "scan") else 1
        seeds = [case["seed"] + 1000 * copy for copy in range(copies)]
        return judge(case, target, p, [make_arrays(target, p, s) for s in seeds])


def judge(case, target, p, drawn) -> str:
    """Compare what the module returns with the reference."""
    try:
        expected = [target.reference(p, *map(double, arrays)) for arrays in drawn]
    except (ValueError, TypeError, np.linalg.LinAlgError) as error:
        expected = error
    try:
        results = call_target(case, target, p, drawn)
    except Exception as error:
        return judge_error(case, target, p, expected, error)
    if isinstance(expected, Exception):
        raise AssertionError(f"no error for what has no answer: {expected}")
    if differentiable(case, target, drawn[0]):
        check_gradient(target, p, drawn[0], results)
        return "right"
    check = target.check or check_leaves(target.rounding)
    for arrays, result, wanted in zip(drawn, results, expected, strict=True):
        check(p, arrays, result, wanted)
    return "right"


def differentiable(case, target, arrays) -> list[int]:
    """Return in which arguments a case takes a gradient: not in integers."""
    positions = target.differentiate if case["under"] == "grad" else ()
    return [i for i in positions if is_inexact(arrays[i])]


def is_inexact(array) -> bool:
    """Return whether an array, or a traced one, can have a derivative."""
    return jnp.issubdtype(array.dtype, jnp.inexact)


def make_arrays(target, p, seed) -> tuple:
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
    if not jnp.issubdtype(array.dtype, jnp.inexact):
        return array
    real = jnp.issubdtype(array.dtype, jnp.floating)
    return array.astype(np.float64 if real else np.complex128)


def place(case, target, p, arrays, batch=0) -> tuple:
    """Return arrays as NumPy has them, as JAX has them, or laid out on the mesh."""
    kind = case["given"]
    alone = {"numpy": np.asarray, "list": np.ndarray.tolist, "jax": jnp.asarray}
    if kind in alone:
        return tuple(map(alone[kind], arrays))
    natural = target.specs(p) if kind == "sharded" else ()
    specs = [*natural, *[jax.P()] * (len(arrays) - len(natural))]
    mesh = jax.sharding.get_mesh()
    return tuple(
        jax.device_put(array, sharding if fits(array, sharding) else jax.P())
        for array, spec in zip(arrays, specs, strict=True)
        for sharding in [jax.NamedSharding(mesh, jax.P(*[None] * batch, *spec))]
    )


def fits(array, sharding) -> bool:
    """Return whether an array can be laid out so: JAX wants sizes that divide."""
    try:
        sharding.shard_shape(array.shape)
    except ValueError:
        return False
    return True


def call_target(case, target, p, drawn) -> list:
    """Call the function as the case says; return its results, or its gradient."""
    f, under = target.call(p), case["under"]
    if under in ("vmap", "scan"):
        stacked = [np.stack(arrays) for arrays in zip(*drawn, strict=True)]
        arrays = place(case, target, p, stacked, batch=1)
        if under == "vmap":
            results = jax.vmap(f)(*arrays)
        else:
            results = jax.lax.scan(lambda c, each: (c, f(*each)), 0, arrays)[1]
        leaves, tree = jax.tree.flatten(jax.device_get(results))
        return [tree.unflatten([leaf[i] for leaf in leaves]) for i in range(2)]
    arrays = place(case, target, p, drawn[0])
    if positions := differentiable(case, target, drawn[0]):
        return gradient(f, positions, arrays)
    return [jax.device_get((jax.jit(f) if under == "jit" else f)(*arrays))]


def weighted_sum(results):
    """Return the sum of all results that have a derivative, with random weights."""
    random = np.random.default_rng(1)
    leaves = [leaf for leaf in jax.tree.leaves(results) if is_inexact(leaf)]
    terms = [
        leaf * np.asarray(random.normal(size=leaf.shape), leaf.dtype) for leaf in leaves
    ]
    return sum(term.sum().real.astype(float) for term in terms)


def gradient(f, positions, arrays) -> list:
    """Return pairs of an argument's position and the gradient in this argument."""

    def total(chosen):
        changed = dict(enumerate(arrays)) | dict(zip(positions, chosen, strict=True))
        return weighted_sum(f(*changed.values()))

    slopes = jax.grad(total)([arrays[i] for i in positions])
    return list(zip(positions, jax.device_get(slopes), strict=True))


def check_gradient(target, p, arrays, slopes):
    """Compare a gradient with differences of the reference, in a random direction."""
    random = np.random.default_rng(2)
    wide = [double(array) for array in arrays]
    for i, slope in slopes:
        way = cast(random.normal(size=(*arrays[i].shape, 2)) @ [1, 1j], wide[i].dtype)
        h = 1e-6 * max(1.0, np.abs(wide[i]).max(initial=0))
        ends = [
            target.reference(p, *wide[:i], end, *wide[i + 1 :])
            for end in (wide[i] + h * way, wide[i] - h * way)
        ]
        above, below = (weighted_sum(jax.tree.map(np.asarray, end)) for end in ends)
        wanted = (above - below) / (2 * h)
        products = double(slope) * way
        found = products.sum().real
        size = np.abs(products).sum() + abs(wanted) + 1e-6
        eps = float(jnp.finfo(slope.dtype).eps)
        tolerance = max(10 * target.rounding * eps, 4 * eps, 1e-4) * size
        assert abs(found - wanted) <= tolerance, (
            f"the gradient in argument {i} is {found}, differences give {wanted}"
        )


def numbers_only(function) -> Callable:
    """Return the reference of a function of NumPy that refuses other types."""

    def reference(p, *arrays):
        if p["dtype"] not in NUMBERS:
            raise ValueError("no numbers for it")
        return function(*arrays)

    return reference


def check_leaves(rounding) -> Callable:
    """Return the check that numbers are near, leaf by leaf."""

    def check(p, arrays, result, expected):
        found, wanted = jax.tree.leaves(result), jax.tree.leaves(expected)
        assert len(found) == len(wanted), f"{len(found)} arrays, not {len(wanted)}"
        for mine, theirs in zip(found, wanted, strict=True):
            assert_near(np.asarray(mine), np.asarray(theirs), rounding)

    return check


def assert_near(mine, theirs, rounding):
    """Fail unless the numbers agree up to some roundings of the largest of them."""
    assert mine.shape == theirs.shape, f"shape {mine.shape}, not {theirs.shape}"
    eps = float(jnp.finfo(mine.dtype).eps) if is_inexact(mine) else 0
    mine, theirs = double(mine), double(theirs)
    scale = max(1.0, np.abs(theirs[np.isfinite(theirs)]).max(initial=0))
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=rounding * eps * scale)


# ---------------------------------------------------------------------- refusals


def judge_error(case, target, p, expected, error) -> str:
    """Accept an error if it is the module's own, and admitted, or the compiler's."""
    if target.compiler_fault and target.compiler_fault in str(error):
        return "refused by the compiler"
    if not is_own(error):
        text = str(error).partition("\n")[0]
        raise AssertionError(f"{type(error).__name__}: {text[:300]}") from error
    if isinstance(expected, Exception):
        return "refused"
    if is_plain(case, target, p):
        raise AssertionError(f"NumPy's plain call is refused: {error}") from error
    if not any(is_made_from(message, str(error)) for message in target.refusals):
        raise AssertionError(f"a refusal that is not admitted: {error}") from error
    return "refused"


def is_plain(case, target, p) -> bool:
    """Return whether this is a call that NumPy's users make, on an ordinary mesh."""
    kinds = {kind for _, _, kind in case["mesh"]}
    ordinary = len(kinds) == 1 and len(case["mesh"]) == len(target.axes)
    simple = (case["given"], case["under"]) == ("numpy", "nothing")
    return ordinary and simple and p["dtype"] in FLOATS and target.plain(p)


def is_own(error) -> bool:
    """Return whether a module itself raised this error, as a ValueError."""
    last = error.__traceback__
    while last.tb_next:
        last = last.tb_next
    file = Path(last.tb_frame.f_code.co_filename)
    return type(error) is ValueError and file.parent == MODULES


def is_made_from(message, text) -> bool:
    """Return whether a text is this message, with something in the place of each {}."""
    parts = map(re.escape, message.split("{}"))
    return re.fullmatch(".*".join(parts), text, re.DOTALL) is not None
