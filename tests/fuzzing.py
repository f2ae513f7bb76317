"""Call modules with arbitrary arguments, for the files tests/NAME/fuzz_NAME.py.

A case is a dictionary of plain values, a line of tests/NAME/cases.jsonl:

    {"target": "NAME.function", "mesh": [["x", 2, "Auto"], ["y", 3, "Auto"]],
     "given": "numpy", "under": "grad", "strict": true, "x64": true, "seed": 7,
     "parameters": {"n": 5, "dtype": "float32"}}

Its outcome is `right`, as the reference says; `refused`, by a ValueError that the
module itself raises; or an AssertionError, with what is wrong. Hypothesis draws cases.
"""

import faulthandler
import json
import math
import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product, zip_longest
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
LATEST = ROOT / "docs/_build/fuzz"  # each target's last case: the smallest that fails
LIMIT = 240  # seconds for a case, on a busy machine
DEVICES = 12
KINDS = "Auto", "Explicit", "mixed"
FLOATS = "float32", "float64"
NUMBERS = *FLOATS, "complex64", "complex128"
DTYPES = *NUMBERS, "float16", "bfloat16", "int32", "int8", "uint8", "bool"
REFUSED = (  # by every module, in these words
    "axes {} of two types: make all Auto or all Explicit",
    "{} is {}: pass an array of numbers",
)
GIVEN = "numpy", "jax", "sharded", "replicated", "list"
CONVERSIONS = {"numpy": np.asarray, "jax": jnp.asarray, "list": np.ndarray.tolist}
TRANSFORMS = {
    "nothing": lambda f: f,
    "jit": jax.jit,
    "grad": lambda f: f,  # of what has no derivative
    "vmap": jax.vmap,
    "scan": lambda f: lambda *arrays: jax.lax.map(lambda each: f(*each), arrays),
}

sizes = st.integers(1, 13)  # of an array's axis: odd, prime and even
dtypes = st.sampled_from(DTYPES)


@dataclass(frozen=True)
class Target:
    """A public function, with all that is needed to call it with drawn arguments.

    The functions take p, a case's parameters with the sizes of the mesh as its "mesh".
    The reference raises ValueError for what nobody could answer.
    """

    name: str
    parameters: st.SearchStrategy  # of dictionaries of plain values, with a "dtype"
    arrays: Callable  # (p, random) -> arrays in NumPy, floating point
    call: Callable  # (p) -> what takes these arrays, with options bound in it
    reference: Callable  # (p, *arrays) -> answer in double precision, or ValueError
    specs: Callable = lambda p: ()  # how arrays lie naturally; missing: replicated
    plain: Callable = lambda p: True  # must NumPy's call without options be answered?
    check: Callable | None = None  # (p, arrays, result, expected); or they are near
    axes: tuple[str, ...] = ("x", "y")
    kinds: tuple[str, ...] = KINDS
    given: tuple[str, ...] = GIVEN
    under: tuple[str, ...] = tuple(TRANSFORMS)
    differentiate: tuple[int, ...] = (0,)
    rounding: float = 100  # times eps of the result's dtype, beside the largest number
    refusals: tuple[str, ...] = ()  # messages for what the reference answers


# ------------------------------------------------------------------------ the tests


def make_tests(targets, refusals=()):
    """Return two tests of each target: of stored cases, and of cases that are drawn.

    refusals: messages, as in the source, for what could be answered and is not.
    """
    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.config.update("jax_traceback_filtering", "off")  # or JAX's errors look own
    refusals = *refusals, *REFUSED
    targets = {target.name: replace(target, refusals=refusals) for target in targets}

    @pytest.mark.timeout(LIMIT)
    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("name", targets)
    def test_cases(name):
        stored = (ROOT / f"tests/{name.partition('.')[0]}/cases.jsonl").read_text()
        outcomes = set()
        for case in map(json.loads, stored.splitlines()):
            if case["target"] == name:
                print(json.dumps(case))  # pytest shows it beside a failure
                outcomes.add(run(targets[name], case))
        assert "right" in outcomes

    @pytest.mark.weekly
    @pytest.mark.timeout(0)  # each case has its own
    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("name", targets)
    @hypothesis.given(data=st.data())
    def test_draws(name, data):
        run_drawn(targets[name], data.draw(cases(targets[name])))

    return test_cases, test_draws


def run_drawn(target, case):
    """Run a case; it is stored first, since this process may end with it."""
    LATEST.mkdir(parents=True, exist_ok=True)
    (LATEST / f"{target.name}.json").write_text(json.dumps(case))
    faulthandler.dump_traceback_later(LIMIT, exit=True)  # pytest cancels it
    run(target, case)
    jax.clear_caches()  # without room for a program, XLA:CPU crashes


@st.composite
def meshes(draw, target):
    """Draw a mesh of 1 to 12 devices, of a target's axes and perhaps one more."""
    names = [*target.axes]
    if draw(st.integers(0, 3)) == 3:
        names.insert(draw(st.integers(0, len(names))), "other")
    shapes = product(range(1, DEVICES + 1), repeat=len(names))
    shape = draw(st.sampled_from([s for s in shapes if math.prod(s) <= DEVICES]))
    kind = draw(st.sampled_from(target.kinds))
    own = st.sampled_from(KINDS[:2]) if kind == "mixed" else st.just(kind)
    return [[name, size, draw(own)] for name, size in zip(names, shape, strict=True)]


def cases(target) -> st.SearchStrategy:
    """Return what draws a target's cases. `jit` would take a list apart."""
    drawn = {
        "target": st.just(target.name),
        "mesh": meshes(target),
        "given": st.sampled_from(target.given),
        "under": st.sampled_from(target.under),
        "strict": st.booleans(),
        "x64": st.booleans(),
        "seed": st.integers(0, 99),
        "parameters": target.parameters,
    }
    return st.fixed_dictionaries(drawn).filter(
        lambda case: case["given"] != "list" or case["under"] == "nothing"
    )


# ----------------------------------------------------------------------- one case


def run(target, case) -> str:
    """Make the call of a case: return its outcome, or raise AssertionError."""
    names, counts, kinds = zip(*case["mesh"], strict=True)
    kinds = tuple(AxisType[kind] for kind in kinds)
    devices = jax.devices()[: math.prod(counts)]
    mesh = jax.make_mesh(counts, names, kinds, devices=devices)
    p = case["parameters"] | {"mesh": dict(zip(names, counts, strict=True))}
    # not `with jax.enable_x64`: the threads of callbacks would not know of it
    jax.config.update("jax_enable_x64", case["x64"])
    p["dtype"] = jax.dtypes.canonicalize_dtype(p["dtype"]).name
    strict = "strict" if case["strict"] else "standard"
    with jax.numpy_dtype_promotion(strict), jax.set_mesh(mesh):
        return judge(case, target, p)


def judge(case, target, p) -> str:
    """Compare what the module returns with the reference."""
    copies = 2 if case["under"] in ("vmap", "scan") else 1
    seeds = [case["seed"] + 1000 * copy for copy in range(copies)]
    drawn = [target.arrays(p, np.random.default_rng(seed)) for seed in seeds]
    drawn = [[cast(np.asarray(a), p["dtype"]) for a in arrays] for arrays in drawn]
    positions = target.differentiate if case["under"] == "grad" else ()
    positions = [i for i in positions if is_inexact(drawn[0][i])]
    try:
        expected = [target.reference(p, *map(double, arrays)) for arrays in drawn]
    except (ValueError, TypeError, np.linalg.LinAlgError) as error:
        expected = error
    try:
        results = call_target(case, target, p, drawn, positions)
    except Exception as error:
        check_refusal(case, target, p, expected, error)
        return "refused"
    assert not isinstance(expected, Exception), f"no error for: {expected}"
    if positions:
        for i, slope in zip(positions, results, strict=True):
            check_slope(target, p, drawn[0], i, slope)
        return "right"
    check = target.check or partial(check_leaves, target.rounding)
    for arrays, result, wanted in zip(drawn, results, expected, strict=True):
        check(p, arrays, result, wanted)
    return "right"


def cast(array, dtype) -> np.ndarray:
    """Return floating-point numbers as this dtype; leave integers and others alone."""
    if array.dtype not in (np.float64, np.complex128):
        return array
    if dtype == "bool":
        return array.real > 0
    if dtype in ("int8", "int32", "uint8"):
        return np.abs(10 * array.real).astype(dtype)
    is_complex = jnp.issubdtype(dtype, jnp.complexfloating)
    return (array if is_complex else array.real).astype(jnp.dtype(dtype))


def is_inexact(array) -> bool:
    """Return whether an array, or a traced one, can have a derivative."""
    return jnp.issubdtype(array.dtype, jnp.inexact)


def double(array) -> np.ndarray:
    """Return an array in double precision; leave integers and booleans alone."""
    wide = np.complex128 if np.iscomplexobj(array) else np.float64
    return array.astype(wide) if is_inexact(array) else array


def place(case, target, p, arrays) -> tuple:
    """Return arrays as NumPy has them, as JAX has them, or laid out on the mesh."""
    if convert := CONVERSIONS.get(case["given"]):
        return tuple(map(convert, arrays))
    natural = target.specs(p) if case["given"] == "sharded" else ()
    batch = [None] if case["under"] in ("vmap", "scan") else []
    return tuple(
        lay_out(array, jax.P(*batch, *spec))
        for array, spec in zip_longest(arrays, natural, fillvalue=jax.P())
    )


def lay_out(array, spec) -> jax.Array:
    """Return an array in these shards, or whole if its sizes do not divide."""
    with suppress(ValueError):
        return jax.device_put(array, spec)
    return jax.device_put(array, jax.P())


def call_target(case, target, p, drawn, positions) -> list:
    """Call the function as the case says; return its results, or its gradients."""
    f, is_batch = target.call(p), len(drawn) > 1
    stacked = [np.stack(arrays) for arrays in zip(*drawn, strict=True)]
    arrays = place(case, target, p, stacked if is_batch else drawn[0])
    if positions:
        slopes = jax.grad(lambda *arrays: weighted_sum(f(*arrays)), positions)(*arrays)
        return [*jax.device_get(slopes)]
    results = jax.device_get(TRANSFORMS[case["under"]](f)(*arrays))
    if not is_batch:
        return [results]
    return [
        jax.tree.map(lambda array, i=i: array[i], results) for i in range(len(drawn))
    ]


# ------------------------------------------------------------------------- checks


def weighted_sum(results):
    """Return the sum of all results that have a derivative, with random weights."""
    random = np.random.default_rng(1)
    total = 0
    for leaf in filter(is_inexact, jax.tree.leaves(results)):
        weights = np.asarray(random.normal(size=leaf.shape), leaf.dtype)
        total += (leaf * weights).sum().real.astype(float)
    return total


def check_slope(target, p, arrays, i, slope):
    """Compare the gradient in an argument with differences, in a random direction."""
    arrays, eps = [*map(double, arrays)], float(jnp.finfo(slope.dtype).eps)
    random = np.random.default_rng(2).normal(size=(*slope.shape, 2)) @ [1, 1j]
    way = cast(random, arrays[i].dtype)
    h = 1e-6 * max(1, np.abs(arrays[i]).max(initial=0))

    def rise(step):
        moved = [*arrays[:i], arrays[i] + step * way, *arrays[i + 1 :]]
        return weighted_sum(jax.tree.map(np.asarray, target.reference(p, *moved)))

    products, wanted = double(slope) * way, (rise(h) - rise(-h)) / (2 * h)
    size = np.abs(products).sum() + abs(wanted) + 1e-6
    tolerance = max(10 * target.rounding * eps, 4 * eps, 1e-4)
    error = abs(products.sum().real - wanted)
    assert error <= tolerance * size, f"the gradient in argument {i}: off by {error}"


def check_leaves(rounding, p, arrays, result, expected):
    """Fail unless two trees have the same numbers, leaf by leaf."""
    found, wanted = jax.tree.leaves(result), jax.tree.leaves(expected)
    for mine, theirs in zip(found, wanted, strict=True):
        assert_near(np.asarray(mine), np.asarray(theirs), rounding)


def assert_near(mine, theirs, rounding):
    """Fail unless the numbers agree up to some roundings of the largest of them."""
    assert mine.shape == theirs.shape
    eps = float(jnp.finfo(mine.dtype).eps) if is_inexact(mine) else 0
    mine, theirs = double(mine), double(theirs)
    scale = max(1.0, np.abs(theirs[np.isfinite(theirs)]).max(initial=0))
    np.testing.assert_allclose(mine, theirs, rtol=0, atol=rounding * eps * scale)


def numbers_only(function) -> Callable:
    """Return the reference of a function of NumPy that refuses other types."""

    def reference(p, *arrays):
        if p["dtype"] not in NUMBERS:
            raise ValueError("no numbers for it")
        return function(*arrays)

    return reference


def check_refusal(case, target, p, expected, error):
    """Fail unless there is no answer, or the message is admitted for such a call."""
    if isinstance(expected, Exception):  # then a module refuses in its own words
        last = traceback.extract_tb(error.__traceback__)[-1]
        fine = type(error) is ValueError and Path(last.filename).parent == MODULES
    else:
        patterns = (".*".join(map(re.escape, m.split("{}"))) for m in target.refusals)
        admitted = any(re.fullmatch(each, str(error), re.DOTALL) for each in patterns)
        fine = admitted and not is_plain(case, target, p)
    if not fine:
        raise AssertionError(f"{type(error).__name__}: {error}"[:300]) from error


def is_plain(case, target, p) -> bool:
    """Return whether this is a call that NumPy's users make, on an ordinary mesh."""
    kinds = {kind for _, _, kind in case["mesh"]}
    ordinary = len(kinds) == 1 and len(case["mesh"]) == len(target.axes)
    simple = (case["given"], case["under"]) == ("numpy", "nothing")
    return ordinary and simple and p["dtype"] in FLOATS and target.plain(p)
