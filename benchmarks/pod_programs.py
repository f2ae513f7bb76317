"""The programs that pods.py compiles, and the bytes that a chip should send in each."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pkgutil import resolve_name

import jax
import optax

from examples.cg import Solution, cg
from examples.halo import surround
from examples.train import SPECS, init, state_specs, train_step

CHIPS = (8, 512, 4096)
MESHES = {  # by the axes of a mesh: its shape for each number of chips
    ("x",): ((8,), (512,), (4096,)),
    ("x", "y"): ((2, 4), (16, 32), (64, 64)),
    ("x", "y", "z"): ((2, 2, 2), (8, 8, 8), (16, 16, 16)),
    ("data",): ((8,), (512,), (4096,)),
    ("data", "model"): ((2, 4), (64, 8), (512, 8)),
}
BLOCKS = jax.P("x", "y")
ROWS, COLUMNS = jax.P("x", None), jax.P(None, "x")
WIDE = (16384, 131072, 524288)
ROUND = (16384, 65536, 262144)
CUBES = (512, 2048, 4096)
TALL = (2**21, 2**27, 2**30)
BATCH = (2**13, 2**19, 2**22)
LAYERS, WIDTH, HIDDEN = 4, 8192, 32768  # a network of two billion numbers
K = 128  # columns of a tall matrix
KAPPA = 50.0  # of a long step of the heat equation


# --------------------------------------------------------------- what is to compile


def arrays(program: "Program", n: int, mesh) -> tuple[Callable, list]:
    """Return the function, and its arrays without making them."""
    shapes = [program.shape(n) if spec else (n,) for spec in program.specs]
    given = [
        jax.ShapeDtypeStruct(shape, program.dtype, sharding=jax.NamedSharding(mesh, s))
        for shape, s in zip(shapes, program.specs, strict=True)
    ]
    return resolve_name(program.call), given


def product(program: "Program", n: int, mesh) -> tuple[Callable, list]:
    """Return a function of JAX whose result is to lie in blocks, and its arrays."""
    function, given = arrays(program, n, mesh)
    return jax.jit(function, out_shardings=jax.NamedSharding(mesh, BLOCKS)), given


def training(program: "Program", n: int, mesh) -> tuple[Callable, list]:
    """Return the step of Adam for a network, with its state and a batch of n rows."""
    row = "tensor" if "model" in program.axes else "sharded"
    params = jax.eval_shape(lambda: init(jax.random.key(0), LAYERS, WIDTH, HIDDEN))
    optimizer = optax.adam(1e-3)
    specs = state_specs(params, optimizer, SPECS[row])

    def shaped(leaf, spec):
        where = jax.NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)

    state = params, jax.eval_shape(optimizer.init, params)
    state = jax.tree.map(shaped, state, specs)
    rows = shaped(jax.ShapeDtypeStruct(program.shape(n), "float32"), jax.P("data"))
    return train_step(resolve_name(program.call), optimizer, state), [
        state,
        (rows, rows),
    ]


def heat(grid):
    """Take a long step of the heat equation, which `cg` solves: [N@x, N@y]."""

    def product(block):
        padded = surround(block)
        around = padded[:-2, 1:-1] + padded[2:, 1:-1]
        around += padded[1:-1, :-2] + padded[1:-1, 2:]
        return (1 + 4 * KAPPA) * block - KAPPA * around

    @jax.shard_map(in_specs=BLOCKS, out_specs=Solution(BLOCKS, jax.P(), jax.P()))
    def solve(block):
        return cg(product, block, ("x", "y"))

    return solve(grid)


# -------------------------------------------------------------- what it should send


def by_module(program: "Program", n: int, mesh) -> int:
    """Return the bytes that the `cost` of the program's module predicts."""
    wire = replace(program, dtype=program.wire or program.dtype)
    function, given = arrays(wire, n, mesh)
    module, _, _ = program.call.partition(":")
    cost = resolve_name(f"{module}:cost")(function, *given)
    return getattr(cost, "sent", cost)


def by_step(program: "Program", n: int, mesh) -> int:
    """Return the bytes of one step of `cg`: four edges, and a sum of three numbers."""
    rows, columns = (n // size for size in mesh.shape.values())
    chips = math.prod(mesh.shape.values())
    edges = 2 * columns + 2 * (rows + 2)  # the second two with corners
    return 4 * edges + summed(3 * 4, chips)


def by_triangles(program: "Program", n: int, mesh) -> int:
    """Return the bytes of a tall QR: a triangle in each round."""
    return (math.prod(mesh.shape.values()).bit_length() - 1) * K * K * 4


def by_strategy(program: "Program", n: int, mesh) -> int:
    """Return the bytes of a training step, as the docstring of train.py has them."""
    data, model = (*mesh.shape.values(), 1)[:2]
    whole = LAYERS * (2 * WIDTH * HIDDEN + HIDDEN + WIDTH)
    if "model" not in program.axes:
        numbers = 3 * whole - LAYERS * WIDTH
        return 4 * numbers * (data - 1) // data + summed(4, data)
    own = (whole - LAYERS * WIDTH) // model + LAYERS * WIDTH
    sums = (2 * LAYERS - 1) * summed(4 * n // data * WIDTH, model)
    return sums + summed(4 * (own + 1), data)


def summed(size: int, chips: int) -> int:
    """Return what a chip sends in an all-reduce of so many bytes."""
    return -(-2 * size * (chips - 1) // chips)


# --------------------------------------------------------------------- the programs


@dataclass(frozen=True)
class Program:
    """A function `call` of arrays with these `specs`.

    `axes` names those of the mesh, `sizes` gives n for each number of chips, None where
    the program is not compiled, and `shape` makes of n the shape of an array. `wire` is
    the type of what TPUs send, if other than in memory. `make` and `formula` take the
    program, n and a mesh; `formula` is None where the book has none.
    """

    call: str
    axes: tuple[str, ...]
    specs: tuple
    sizes: tuple
    dtype: str
    shape: Callable = lambda n: (n, n)
    wire: str | None = None
    make: Callable = arrays
    formula: Callable | None = by_module


def field(call: str, *axes: str, **more) -> Program:
    """Return a program that transforms a complex cube."""
    return Program(
        call, axes, (jax.P(*axes),), CUBES, "complex64", lambda n: (n, n, n), **more
    )


summa = partial(Program, "examples.matmul:summa", ("x", "y"), (BLOCKS, BLOCKS), WIDE)
line = partial(Program, axes=("x",), sizes=ROUND, dtype="bfloat16")
equations = partial(Program, axes=("x", "y"), sizes=WIDE, dtype="float32")
step = partial(Program, specs=(), sizes=BATCH, dtype="float32")
step = partial(step, shape=lambda n: (n, WIDTH), make=training, formula=by_strategy)
layers = (jax.P("x", ("z", "y")), jax.P(("z", "x"), "y"))
PROGRAMS = {
    "summa": summa("bfloat16"),
    "summa float32": summa("float32", wire="bfloat16"),
    "summa_25d": Program(
        "examples.matmul:summa_25d", ("x", "y", "z"), layers, WIDE, "bfloat16"
    ),
    "jnp.dot": replace(
        summa("bfloat16"), call="jax.numpy:dot", make=product, formula=None
    ),
    "ag_matmul": line("examples.collective_matmul:ag_matmul", specs=(ROWS, COLUMNS)),
    "matmul_rs": line("examples.collective_matmul:matmul_rs", specs=(COLUMNS, ROWS)),
    "fftn slabs": field("examples.fft:fftn", "x"),
    "fftn pencils": field("examples.fft:fftn", "x", "y"),
    "fftn_transposed pencils": field("examples.fft:fftn_transposed", "x", "y"),
    "jnp.fft.fftn pencils": field("jax.numpy.fft:fftn", "x", "y", formula=None),
    "lu_factor": equations("examples.lu:lu_factor", specs=(BLOCKS,)),
    "solve": equations("examples.lu:solve", specs=(BLOCKS, jax.P())),
    "cho_factor": equations("examples.cholesky:cho_factor", specs=(BLOCKS,)),
    "jnp.linalg.solve": equations(
        "jax.numpy.linalg:solve",
        specs=(BLOCKS, jax.P()),
        sizes=(1024, 131072, None),
        formula=None,
    ),
    "tsqr": Program(
        "examples.tsqr:qr",
        ("x",),
        (ROWS,),
        TALL,
        "float32",
        lambda n: (n, K),
        formula=by_triangles,
    ),
    "cg, one step": equations("pod_programs:heat", specs=(BLOCKS,), formula=by_step),
    "training, sharded": step("examples.train:sharded_loss", ("data",)),
    "training, data and tensor": step("examples.train:loss", ("data", "model")),
}
