# SPDX-License-Identifier: MIT-0
"""An atlas of operations: what each does to an array that is split along an axis.

Every operation is a line of JAX. It is compiled for arrays that are split over all
devices along their first axis: once under Auto axes, where the compiler communicates as
it must, and once under Explicit axes, where the type has a rule or an error is raised.

    x  float32[N@x, 16]        v  float32[N@x]      i  int32[N@x]
    a  float32[N@x, N]         t  float32[N@x, 4, 4]      a batch of small matrices
    c  complex64[N@x, 8, 8]    w  float32[16, 16]         on every device
    n  int32[]                 on every device; N is 64, or 8 for each device if more

Nothing runs and no array is made: only the compiled program is read.

    JAX_NUM_CPU_DEVICES=8 python atlas.py

Copy this file alone: it needs JAX only. How a program is read is told to `survey`,
which takes the function `read` of the book's `communication.py`; for other machines
than this one, it takes the devices that `described` of `machines.py` returns.
"""

import contextlib
import csv
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.compilation_cache import compilation_cache

TABLE = {
    "elementwise": """
        jnp.sin(x)
        x + 1
        x * x
        x + w[:1]
        x + a[:, :16]
        jnp.where(x > 0, x, 0)
        x.astype(jnp.int32)
        lax.select(x > 0, x, -x)
        jnp.clip(x, 0, 1)
        jax.nn.one_hot(i, 8)
    """,
    "reductions": """
        x.sum()
        x.sum(0)
        x.sum(1)
        x.max(0)
        x.prod(0)
        x.mean(0)
        x.std(0)
        x.any(0)
        x.argmax(0)
        x.argmax(1)
        jnp.linalg.norm(x)
        jnp.count_nonzero(v)
        jnp.median(v)
        jnp.quantile(v, 0.9)
        jax.nn.logsumexp(x, 0)
        jax.nn.softmax(x, 0)
        jax.nn.softmax(x, 1)
    """,
    "prefixes, orders, searches": """
        jnp.cumsum(v)
        jnp.cumsum(x, 1)
        jnp.cumprod(v)
        lax.cummax(v)
        lax.associative_scan(jnp.add, v)
        jnp.sort(v)
        jnp.sort(x, 1)
        jnp.argsort(v)
        lax.top_k(v, 4)
        jnp.unique(v, size=8)
        jnp.searchsorted(v, 0.5)
        jnp.searchsorted(v, v)
        jnp.interp(v, v, v)
        jnp.histogram(v, 8)
        jnp.bincount(i, length=8)
        jnp.nonzero(v, size=8)
        jax.ops.segment_sum(v, i, 8)
    """,
    "shapes": """
        x.T
        x[None]
        x.ravel()
        x.reshape(-1, 8, 16)
        x.reshape(8, -1, 16)
        x.reshape(-1, 4, 4)
        v.reshape(8, -1).T
        jnp.broadcast_to(v, (4, *v.shape))
        jnp.concatenate([x, x])
        jnp.concatenate([x, x], 1)
        jnp.stack([x, x])
        jnp.stack([x, x], 1)
        jnp.split(x, 2)
        jnp.split(x, 2, 1)
        jnp.tile(v, 2)
        jnp.repeat(v, 2)
        jnp.pad(v, 8)
        jnp.pad(x, ((0, 0), (1, 1)))
        jnp.flip(v)
        jnp.flip(x, 1)
        jnp.roll(v, 1)
        jnp.roll(x, 1, 1)
        jnp.diff(v)
        jnp.tril(a)
        jnp.diag(a)
        jnp.diag(v)
        jnp.trace(a)
        jnp.kron(v, w[0])
    """,
    "indexing": """
        x[0]
        x[n]
        x[:8]
        x[::2]
        x[:, 0]
        x[:, :4]
        v[i]
        x[i]
        w[i % 16]
        jnp.take_along_axis(x, i[:, None] % 16, 1)
        lax.dynamic_slice(v, (n,), (8,))
        lax.dynamic_index_in_dim(x, n)
        v.at[3].set(0)
        v.at[n].set(0)
        v.at[:8].set(0)
        x.at[:, 0].set(0)
        v.at[i].set(0)
        v.at[i].add(v)
        lax.dynamic_update_slice(v, w[0], (n,))
    """,
    "products": """
        x @ w
        x.T @ x
        x @ x.T
        a @ a
        a @ v
        v @ a
        v @ v
        jnp.outer(v, v)
        jnp.einsum("nij,njk->nik", t, t)
        jnp.tensordot(t, t, 3)
        jnp.convolve(v, w[0, :3], "same")
        jax.scipy.signal.fftconvolve(v, w[0, :3], "same")
    """,
    "linear algebra": """
        jnp.linalg.solve(a, v)
        jnp.linalg.inv(a)
        jnp.linalg.det(a)
        jnp.linalg.cholesky(a)
        jnp.linalg.qr(x)
        jnp.linalg.svd(x, full_matrices=False)
        jnp.linalg.eigh(a)
        jnp.linalg.lstsq(x, v)
        lax.linalg.lu(a)
        lax.linalg.triangular_solve(a, v[:, None], left_side=True)
        jnp.linalg.matrix_power(a, 2)
        jnp.linalg.solve(t, t)
        jnp.linalg.cholesky(t)
        jnp.linalg.eigh(t)
    """,
    "Fourier transforms": """
        jnp.fft.fft(v)
        jnp.fft.ifft(v)
        jnp.fft.rfft(v)
        jnp.fft.fft(x)
        jnp.fft.fft(x, axis=0)
        jnp.fft.fft2(c)
        jnp.fft.fft2(a)
        jnp.fft.fftn(c)
        jnp.fft.ifftn(c)
        jnp.fft.fftshift(v)
    """,
    "loops and maps": """
        jax.vmap(jnp.sum)(x)
        jax.vmap(jnp.sort)(x)
        lax.map(jnp.sum, x)
        lax.map(jnp.sum, x, batch_size=N // 8)
        lax.scan(lambda s, row: (s + row, None), w[0], x)
        lax.scan(lambda s, row: (s + row, s), w[0], x)
        lax.fori_loop(0, N, lambda k, s: s + x[k], w[0])
        lax.while_loop(lambda v: v.max() > 1, lambda v: v / 2, v)
        jax.grad(lambda x: (x @ w).sum())(x)
        jax.grad(lambda w: (x @ w).sum())(w)
    """,
}

OPERATIONS = {
    group: [line.strip() for line in text.strip().split("\n")]
    for group, text in TABLE.items()
}
WARNING = re.compile("Falling back to replicated|Involuntary full rematerialization")
SHARDING = re.compile(r"NamedSharding\(mesh=.*?, spec=(P\(.*?\))\)")


@dataclass(frozen=True)
class Row:
    """One operation: everything is text but `sent`, bytes that one device sends.

    `collectives` and `output` are what the compiler makes of it under Auto axes, and
    `warning` is what it says itself when it gives up splitting the work. `explicit` is
    the output's type under Explicit axes, or the name of the error whose first line is
    `error`; a sharding in it is written as its spec.
    """

    group: str
    operation: str
    collectives: str
    sent: float
    output: str
    warning: str
    explicit: str
    error: str


def arguments(mesh: jax.sharding.Mesh) -> dict[str, jax.ShapeDtypeStruct | int]:
    """Return what the operations' letters stand for, split over the mesh axis "x".

    mesh: one axis "x". Returns shapes with dtypes and shardings; no array is made.
    """
    size = max(64, 8 * mesh.size)
    shapes = {"x": (size, 16), "v": (size,), "a": (size, size), "t": (size, 4, 4)}
    shapes |= {"c": (size, 8, 8), "i": (size,), "w": (16, 16), "n": ()}
    dtypes = {"c": jnp.complex64, "i": jnp.int32, "n": jnp.int32}
    split, whole = (jax.NamedSharding(mesh, spec) for spec in (jax.P("x"), jax.P()))
    places = {"w": whole, "n": whole}
    return {
        name: jax.ShapeDtypeStruct(
            shape, dtypes.get(name, jnp.float32), sharding=places.get(name, split)
        )
        for name, shape in shapes.items()
    }


def function(operation: str, names: Iterable[str]) -> Callable:
    """Return the line of JAX `operation` as a function of the arrays `names`."""
    known = {"jax": jax, "jnp": jnp, "lax": lax}
    return eval(f"lambda {', '.join(names)}, N: {operation}", known)


def survey(
    read: Callable,
    groups: Iterable[str] = OPERATIONS,
    devices: Sequence[jax.Device] | None = None,
) -> list[Row]:
    """Compile every operation of these groups, both ways, for all devices.

    read: `read(text)`, of the text of a compiled program, returns something with
    `counts`, a mapping from a collective's name to how often it runs, and `sent`, the
    bytes that one device sends. devices: those of another machine, which need not be
    there, such as `described("h100")` of the book's `machines.py`. Raises ValueError
    for a group that is not there, for a `read` that cannot be called, and for devices
    that are none.
    """
    if not callable(read):
        raise ValueError(f"read is a {type(read).__name__}: pass a function of a text")
    if unknown := sorted(set(groups) - set(OPERATIONS)):
        raise ValueError(f"no group {unknown}: pass some of {list(OPERATIONS)}")
    devices = jax.devices() if devices is None else [*devices]
    if not devices or not all(hasattr(one, "device_kind") for one in devices):
        raise ValueError(f"{devices} are no devices: pass what jax.devices() returns")
    return [
        Row(group, line, *_auto(line, read, devices), *_explicit(line, devices))
        for group in groups
        for line in OPERATIONS[group]
    ]


def _lower(operation: str, axis_type: jax.sharding.AxisType, devices: list):
    """Trace and lower an operation for these devices, with axes of this type."""
    mesh = jax.make_mesh((len(devices),), ("x",), (axis_type,), devices=devices)
    table = arguments(mesh)
    f = jax.jit(function(operation, table), static_argnames="N")
    with jax.set_mesh(mesh), contextlib.redirect_stdout(None):
        return f.lower(**table, N=table["v"].size)


def _auto(operation: str, read: Callable, devices) -> tuple[str, float, str, str]:
    """Return collectives, bytes, output and warning under Auto axes."""
    lowered = _lower(operation, jax.sharding.AxisType.Auto, devices)
    compiled, stderr = _capture_stderr(lambda: _compile_fresh(lowered))
    program = read(compiled.as_text())
    counts = program.counts.items()
    collectives = ", ".join(
        f"{kind} in a loop" if n is None else f"{n} {kind}"
        for kind, n in sorted(counts)
    )
    warning = WARNING.search(stderr)
    shardings = jax.tree.leaves(compiled.output_shardings)
    outputs = jax.tree.leaves(lowered.out_info)
    output = ", ".join(map(_type, outputs, shardings))
    return collectives, float(program.sent), output, warning[0] if warning else ""


def _compile_fresh(lowered):
    """Compile, even where JAX keeps what it compiled: it does not keep the warnings."""
    used = jax.config.jax_enable_compilation_cache
    try:
        jax.config.update("jax_enable_compilation_cache", False)
        compilation_cache.reset_cache()
        return lowered.compile()
    finally:
        jax.config.update("jax_enable_compilation_cache", used)
        compilation_cache.reset_cache()


def _explicit(operation: str, devices: list) -> tuple[str, str]:
    """Return the output's type under Explicit axes, or the error's name and words."""
    try:
        lowered = _lower(operation, jax.sharding.AxisType.Explicit, devices)
    except Exception as error:  # the library's errors have no common, public class
        words = SHARDING.sub(r"\1", str(error).strip())
        return type(error).__name__, words.partition("\n")[0]
    outputs = jax.tree.leaves(lowered.out_info)
    return ", ".join(_type(one, one.sharding) for one in outputs), ""


def _capture_stderr(f: Callable):
    """Return `f()` and what the compiler's C++ code said on stderr meanwhile."""
    saved = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            result = f()
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        file.seek(0)
        return result, file.read().decode(errors="replace")


def _type(aval, sharding) -> str:
    """Write a type as [64@x, 16]."""
    spec = [*getattr(sharding, "spec", ()), *[None] * aval.ndim]
    axes = (f"{n}@{s}" if s else str(n) for n, s in zip(aval.shape, spec, strict=False))
    return f"[{', '.join(axes)}]"


def save(rows: Iterable[Row], path: Path | str):
    """Write rows as a table of comma-separated values."""
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Row))
        writer.writerows(astuple(row) for row in rows)


def load(path: Path | str, **where: str) -> list[Row]:
    """Read the rows that `save` wrote; other columns may stand beside.

    where: what such columns hold in the rows to return, as `machine="H100"`. Raises
    ValueError if no row has it.
    """
    with Path(path).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if where.items() <= row.items()]
    if where and not rows:
        raise ValueError(f"no row of {path} has {where}: pass what stands in a column")
    texts = ([row[field.name] for field in fields(Row)] for row in rows)
    return [replace(row, sent=float(row.sent)) for row in (Row(*t) for t in texts)]


def changes(old: Iterable[Row], new: Iterable[Row]) -> list[tuple[str, str, str, str]]:
    """List what differs between two surveys: operation, field, old value, new value.

    An operation that only one survey has differs in the field "operation".
    """
    old, new = ({row.operation: asdict(row) for row in rows} for rows in (old, new))
    found = []
    for name in [*new, *(name for name in old if name not in new)]:
        before, after = old.get(name), new.get(name)
        if before and after:
            pairs = [(key, str(before[key]), str(after[key])) for key in after]
        else:
            pairs = [("operation", name if before else "", name if after else "")]
        found += [(name, key, one, other) for key, one, other in pairs if one != other]
    return found


def main():
    """Print for how many operations a type under Explicit axes has a rule."""
    lines = [line for group in OPERATIONS.values() for line in group]
    refused = [line for line in lines if _explicit(line, jax.devices())[1]]
    print(f"{len(lines)} operations on {jax.device_count()} devices, types Explicit:")
    print(f"{len(lines) - len(refused)} have a rule, {len(refused)} raise an error")


if __name__ == "__main__":
    main()
