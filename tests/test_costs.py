"""What `cost` predicts is what the compiled program sends, for every module with one.

Programs are compiled and not run, so sizes are as large as every branch needs.
"""

import ast
import importlib
from pathlib import Path

import jax
import pytest
from on_devices import devices
from test_modules import MODULES

from examples import (
    block_qr,
    cholesky,
    collective_matmul,
    definite,
    fft,
    four_steps,
    lu,
    matmul,
)
from examples.communication import measure

BLOCKS, WHOLE = jax.P("x", "y"), jax.P()
LINE, COLUMNS = jax.P("x"), jax.P(None, "x")
EACH = "float32", "float64", "complex64", "complex128"

# function, mesh, dtype, and for each argument its shape and where it lies
FACTORS = [
    (lu.lu_factor, mesh, dtype, ((n, n), BLOCKS))
    for mesh, dtype, n in [
        ((2, 4), "float64", 2048),  # with all windows
        ((4, 2), "complex128", 32),
        ((1, 8), "float32", 64),
        ((8, 1), "complex64", 64),
        ((2, 2), "float64", 30),  # which fills no panels
        ((3, 1), "float32", 24),
        ((1, 1), "float32", 8),
    ]
] + [
    (cholesky.cho_factor, mesh, dtype, ((n, n), BLOCKS))
    for mesh, dtype, n in [
        ((2, 4), "float32", 256),
        ((2, 4), "float64", 2048),  # with panels as wide as they become
        ((4, 2), "complex128", 64),
        ((1, 8), "float32", 128),
        ((8, 1), "complex64", 128),
        ((2, 2), "float64", 46),
        ((3, 1), "float32", 66),
        ((1, 1), "float32", 8),
    ]
]
TRIANGLES = [
    (block_qr.qr_blocks, mesh, dtype, (shape, BLOCKS))
    for mesh, dtype, shape in [
        ((2, 4), "float64", (256, 128)),  # with all windows
        ((4, 2), "complex128", (64, 32)),
        ((3, 2), "float32", (24, 48)),  # wide, its last panel narrower
        ((8, 1), "complex64", (64, 64)),
        ((1, 8), "float32", (64, 24)),
        ((1, 1), "float32", (8, 8)),
    ]
]
SOLUTIONS = [
    (lu.solve, mesh, dtype, ((n, n), BLOCKS), (sides, WHOLE))
    for mesh, dtype, n, sides in [
        ((2, 4), "float32", 64, (64,)),
        ((3, 2), "complex128", 42, (42, 5)),  # whose sides the mesh does not divide
        ((1, 8), "float64", 64, (64, 8)),
    ]
]
FIELD, REAL, PLANE, VECTOR = (24, 48, 16), (24, 48, 15), (24, 48), (576,)
FIELDS = [
    (function, mesh, dtype, (shape, spec))
    for mesh in [(8, 1), (1, 8), (2, 4), (4, 2), (2, 2), (3, 1), (8,), (1, 1)]
    for dtype, cut in [("complex64", jax.P(*"xy"[: len(mesh)]))]
    for function, shape, spec in [
        (fft.fftn, FIELD, cut),
        (fft.ifftn, FIELD, jax.P(None, *cut)),
        (fft.fftn_transposed, FIELD, cut),
        (fft.ifftn_transposed, (48, 16, 24), cut),
    ]
]
REALS = [
    (fft.rfftn, mesh, dtype, (REAL, jax.P(*"xy"[: len(mesh)])))
    for mesh in [(2, 4), (1, 8), (8,), (3, 2)]
    for dtype in ("float32", "float64", "int8")
]
OTHERS = [
    (function, mesh, dtype, (shape, spec))
    for mesh, dtype in [
        ((8,), "complex64"),
        ((2, 4), "complex128"),
        ((3,), "complex64"),
    ]
    for cut in [("x", "y")[: len(mesh)]]
    for function, shape, spec in [
        (fft.fft2, PLANE, jax.P(cut)),
        (fft.ifft2, PLANE, jax.P(None, cut)),
        (four_steps.fft, VECTOR, jax.P(cut)),
        (four_steps.ifft, VECTOR, jax.P(cut)),
        (four_steps.fft_transposed, VECTOR, jax.P(cut)),
        (four_steps.ifft_transposed, (24, 24), jax.P(cut)),
    ]
]
UNEVEN = [  # zeros fill what devices do not divide
    (function, mesh, dtype, (shape, jax.P()))
    for function, mesh, dtype, shape in [
        (fft.rfftn_transposed, (3, 2), "float32", (7, 9, 11)),
        (fft.ifft2, (2, 4), "complex64", (9, 7)),
        (four_steps.fft, (2, 4), "float32", (1000,)),
        (four_steps.ifft, (2, 4), "complex64", (1009,)),
    ]
]
LAYERS = ((48, 96), jax.P("x", ("z", "y"))), ((96, 24), jax.P(("z", "x"), "y"))
PRODUCTS = [
    (matmul.summa, mesh, dtype, ((48, 96), BLOCKS), ((96, 24), BLOCKS))
    for mesh, dtype in zip([(2, 4), (4, 2), (1, 8), (3, 2)], EACH, strict=True)
] + [
    (matmul.cannon, (2, 2), "float32", ((48, 96), BLOCKS), ((96, 24), BLOCKS)),
    (matmul.cannon, (1, 1), "float32", ((48, 96), BLOCKS), ((96, 24), BLOCKS)),
    (matmul.summa_25d, (2, 2, 2), "float32", *LAYERS),
    (matmul.summa_25d, (1, 2, 3), "float64", *LAYERS),
]
RINGS = [
    (function, mesh, dtype, ((48, 96), spec), ((96, 24), other))
    for mesh, dtype in [((8,), "float32"), ((3,), "float64"), ((1,), "complex64")]
    for function, spec, other in [
        (collective_matmul.ring_matmul, LINE, LINE),
        (collective_matmul.ag_matmul, LINE, COLUMNS),
        (collective_matmul.matmul_rs, COLUMNS, LINE),
    ]
]
USES = [  # of a factor of the matrix, which comes first
    (
        definite.cho_solve_blocks,
        (2, 4),
        "float32",
        ((96, 96), BLOCKS),
        ((96, 24), BLOCKS),
    ),
    (
        definite.cho_solve_blocks,
        (3, 2),
        "float64",
        ((384, 384), BLOCKS),
        ((384, 96), BLOCKS),
    ),
    (definite.cho_inv, (2, 4), "float64", ((384, 384), BLOCKS)),
    (definite.cho_inv, (3, 2), "complex64", ((96, 96), BLOCKS)),
    (definite.cho_logdet, (2, 4), "complex128", ((96, 96), BLOCKS)),
    (definite.cho_logdet, (3, 2), "float32", ((96, 96), BLOCKS)),
]
# What they predict from is a number, or two arrays: their own tests compare.
ELSEWHERE = {
    f"examples.{name}": Path(__file__).with_name(name) / f"test_{name}.py"
    for name in ("real_vector", "secular")
}
CASES = (
    USES
    + FACTORS
    + TRIANGLES
    + SOLUTIONS
    + FIELDS
    + REALS
    + OTHERS
    + UNEVEN
    + PRODUCTS
    + RINGS
)


def describe(case):
    """Describe the arguments of a case, on the mesh in context."""
    _, _, dtype, *arrays = case
    each = [jax.ShapeDtypeStruct(shape, dtype, sharding=spec) for shape, spec in arrays]
    return [describe_factor(each[0]), *each[1:]] if case in USES else each


def describe_factor(a):
    """Describe the factor of a described matrix, in blocks as that is."""
    factor = jax.eval_shape(cholesky.cho_factor, a)
    spec = {0: WHOLE, 2: BLOCKS}
    return jax.tree.map(
        lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=spec[v.ndim]), factor
    )


def name(case):
    function, mesh, dtype, ((n, *_), _), *_ = case
    return f"{function.__name__}-{'x'.join(map(str, mesh))}-{dtype}-{n}"


def predict(function, *arguments):
    module = importlib.import_module(function.__module__)
    return module.cost(function, *arguments)


# One of each function, two of each module, on several devices; meshes, sizes and types
# differ. With all windows each that is made in windows.
GATE = """
    lu_factor-2x4-float64-2048 lu_factor-3x1-float32-24 solve-3x2-complex128-42
    cho_factor-2x4-float64-2048 cho_factor-3x1-float32-66
    qr_blocks-4x2-complex128-64 qr_blocks-3x2-float32-24
    cho_solve_blocks-3x2-float64-384 cho_inv-3x2-complex64-96
    cho_logdet-2x4-complex128-96
    fftn-3x1-complex64-24 ifftn-8-complex64-24 fftn_transposed-4x2-complex64-24
    ifftn_transposed-2x4-complex64-48 rfftn-2x4-float32-24
    rfftn_transposed-3x2-float32-7 fft2-2x4-complex128-24 ifft2-2x4-complex64-9
    fft-2x4-float32-1000 ifft-2x4-complex128-576 fft_transposed-8-complex64-576
    ifft_transposed-3-complex64-24
    summa-3x2-complex128-48 cannon-2x2-float32-48 summa_25d-1x2x3-float64-48
    ring_matmul-8-float32-48 ag_matmul-3-float64-48 matmul_rs-3-float64-48
"""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, marks=() if name(case) in GATE.split() else pytest.mark.weekly
        )
        for case in CASES
    ],
    ids=[name(case) for case in CASES],
)
def test_what_is_sent_is_what_cost_says(case):
    function, mesh, *_ = case
    with jax.enable_x64(True), devices(mesh):
        arguments = describe(case)
        program, cost = measure(function, *arguments), predict(function, *arguments)
    assert program.sent == getattr(cost, "sent", cost)
    if hasattr(cost, "counts"):
        assert program.counts == cost.counts
    if hasattr(cost, "parts"):
        assert sum(cost.parts.values()) == cost.sent


def test_the_gate_has_some_of_each_function():
    """So that no name there is one of no case."""
    cases = {name(case): case[0] for case in CASES}
    assert {cases[each] for each in GATE.split()} == {*cases.values()}


def test_every_module_with_a_cost_is_here_and_the_largest_case_has_all_windows():
    trees = {module.stem: ast.parse(module.read_text()).body for module in MODULES}
    having = {
        f"examples.{stem}"
        for stem, body in trees.items()
        for node in body
        if isinstance(node, ast.FunctionDef) and node.name == "cost"
    }
    assert {case[0].__module__ for case in CASES}.isdisjoint(ELSEWHERE)
    assert {case[0].__module__ for case in CASES} | {*ELSEWHERE} == having
    for module, test in ELSEWHERE.items():
        assert f"{module.removeprefix('examples.')}.cost(" in test.read_text()
    with devices((2, 4)):
        assert len(lu.windows(lu.plan(2048))) == lu.STAGES == 8
        plan = cholesky.plan_elimination(2048)
        assert len(cholesky.plan_windows(plan)) == cholesky.STAGES == 4


def test_other_functions_have_no_cost():
    a = jax.ShapeDtypeStruct((8, 8), "float32")
    with devices((2, 4)), pytest.raises(ValueError, match="pass cho_factor"):
        cholesky.cost(cholesky.cho_solve, a)
    with devices((2, 4)), pytest.raises(ValueError, match="pass qr_blocks"):
        block_qr.cost(block_qr.lstsq_blocks, a)
    with devices((3, 2)), pytest.raises(ValueError, match="do not divide"):
        block_qr.cost(block_qr.qr_blocks, a)
    with devices((2, 4)), pytest.raises(ValueError, match="pass lu_factor or solve"):
        lu.cost(lu.slogdet, a)
    with devices((2, 4)), pytest.raises(ValueError, match="solves or inverts"):
        definite.cost(cholesky.cho_solve, describe_factor(a))
