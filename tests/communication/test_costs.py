"""What `cost` predicts is what the compiled program sends, for every module with one.

Programs are compiled and not run, so sizes are as large as every branch needs.
"""

import importlib
from pathlib import Path

import jax
import pytest
from cases import each_week
from on_devices import devices
from test_modules import MODULES

from examples import block_qr, cholesky, definite, fft, four_steps, lu, matmul
from examples.communication import measure

BLOCKS, WHOLE = jax.P("x", "y"), jax.P()
LINE, COLUMNS, BOTH = jax.P("x"), jax.P(None, "x"), jax.P(("x", "y"))
FIELD, VECTOR = (24, 48, 16), (576,)
LEFT, RIGHT = (48, 96), (96, 24)
SQUARE, TALL = (384, 384), (384, 96)
LAYERS = (LEFT, jax.P("x", ("z", "y"))), (RIGHT, jax.P(("z", "x"), "y"))

# Function, mesh, dtype, and for each argument its shape and where it lies: each
# function once, each module on two meshes; the first two have all windows.
CASES = [
    (lu.lu_factor, (2, 4), "float64", ((2048, 2048), BLOCKS)),
    (cholesky.cho_factor, (2, 4), "float64", ((2048, 2048), BLOCKS)),
    (lu.solve, (3, 2), "complex128", ((42, 42), BLOCKS), ((42, 5), WHOLE)),
    (cholesky.cho_factor, (3, 1), "float32", ((66, 66), BLOCKS)),
    (block_qr.qr_blocks, (4, 2), "complex128", ((64, 32), BLOCKS)),
    (block_qr.qr_blocks, (3, 2), "float32", ((24, 48), BLOCKS)),  # the last is narrow
    (fft.fftn, (3, 1), "complex64", (FIELD, BLOCKS)),
    (fft.ifftn, (8,), "complex64", (FIELD, COLUMNS)),
    (fft.fftn_transposed, (4, 2), "complex64", (FIELD, BLOCKS)),
    (fft.ifftn_transposed, (2, 4), "complex64", ((48, 16, 24), BLOCKS)),
    (fft.rfftn, (2, 4), "float32", ((24, 48, 15), BLOCKS)),
    (fft.rfftn_transposed, (3, 2), "float32", ((7, 9, 11), WHOLE)),  # zeros fill it
    (fft.fft2, (2, 4), "complex128", ((24, 48), BOTH)),
    (fft.ifft2, (2, 4), "complex64", ((9, 7), WHOLE)),
    (four_steps.fft, (2, 4), "float32", ((1000,), WHOLE)),
    (four_steps.ifft, (2, 4), "complex128", (VECTOR, BOTH)),
    (four_steps.fft_transposed, (8,), "complex64", (VECTOR, LINE)),
    (four_steps.ifft_transposed, (3,), "complex64", ((24, 24), LINE)),
    (matmul.summa, (3, 2), "complex128", (LEFT, BLOCKS), (RIGHT, BLOCKS)),
    (matmul.cannon, (2, 2), "float32", (LEFT, BLOCKS), (RIGHT, BLOCKS)),
    (matmul.summa_25d, (1, 2, 3), "float64", *LAYERS),
    (definite.cho_solve_blocks, (3, 2), "float64", (SQUARE, BLOCKS), (TALL, BLOCKS)),
    (definite.cho_inv, (3, 2), "complex64", ((96, 96), BLOCKS)),
    (definite.cho_logdet, (2, 4), "complex128", ((96, 96), BLOCKS)),
]
WEEKLY = [  # meshes of one row, of one column, and of one device
    (lu.lu_factor, (1, 8), "complex64", ((64, 64), BLOCKS)),
    (lu.lu_factor, (2, 2), "float64", ((30, 30), BLOCKS)),  # which fills no panels
    (lu.solve, (1, 8), "float64", ((64, 64), BLOCKS), ((64, 8), WHOLE)),
    (cholesky.cho_factor, (1, 1), "float32", ((8, 8), BLOCKS)),
    (block_qr.qr_blocks, (1, 8), "float32", ((64, 24), BLOCKS)),
    (matmul.summa, (1, 8), "complex64", (LEFT, BLOCKS), (RIGHT, BLOCKS)),
]
# Their own tests compare: most predict from a number, or from two arrays.
ELSEWHERE = {"collective_matmul", "real_vector", "secular"}


def describe(function, dtype, arrays):
    """Describe the arguments of a case, on the mesh in context."""
    each = [jax.ShapeDtypeStruct(shape, dtype, sharding=spec) for shape, spec in arrays]
    if function.__module__ != definite.__name__:
        return each
    specs = {0: WHOLE, 2: BLOCKS}  # of a factor of the matrix
    factor = jax.tree.map(
        lambda v: jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=specs[v.ndim]),
        jax.eval_shape(cholesky.cho_factor, each[0]),
    )
    return [factor, *each[1:]]


@pytest.mark.parametrize("case", [*CASES, *map(each_week, WEEKLY)])
def test_what_is_sent_is_what_cost_says(case):
    function, mesh, dtype, *arrays = case
    module = importlib.import_module(function.__module__)
    with jax.enable_x64(True), devices(mesh):
        arguments = describe(function, dtype, arrays)
        program = measure(function, *arguments)
        cost = module.cost(function, *arguments)
    assert program.sent == getattr(cost, "sent", cost)
    if hasattr(cost, "counts"):
        assert program.counts == cost.counts
    if hasattr(cost, "parts"):
        assert sum(cost.parts.values()) == cost.sent


def test_every_module_with_a_cost_is_compared():
    having = {file.stem for file in MODULES if "\ndef cost(" in file.read_text()}
    here = {case[0].__module__.removeprefix("examples.") for case in CASES}
    assert here | ELSEWHERE == having
    for stem in ELSEWHERE:
        test = Path(__file__).parents[1] / stem / f"test_{stem}.py"
        assert " cost(" in test.read_text().replace(f"{stem}.", "")


@pytest.mark.parametrize(
    ("function", "mesh", "words"),
    [
        (cholesky.cho_solve, (2, 4), "pass cho_factor"),
        (block_qr.lstsq_blocks, (2, 4), "pass qr_blocks"),
        (block_qr.qr_blocks, (3, 2), "do not divide"),
        (lu.slogdet, (2, 4), "pass lu_factor or solve"),
    ],
)
def test_what_has_no_cost_is_refused(function, mesh, words):
    module = importlib.import_module(function.__module__)
    with devices(mesh), pytest.raises(ValueError, match=words):
        module.cost(function, jax.ShapeDtypeStruct((8, 8), "float32"))
