# SPDX-License-Identifier: MIT-0
"""Training that can be killed at any moment, and ends with the same numbers.

Every so many steps all processes save the state together. Started again, from nothing,
the same program finds the newest whole checkpoint and goes on from there. A step draws
its random numbers from `fold_in(key, number)`, so that a step done twice does the same.

    state    a tree of arrays with their shardings: parameters, moments, what changes
    number   how many steps are done: names a checkpoint, and is the place in the data
    step     (state, number) -> state, the same function in all processes

    state = train(step, state, steps=1000, folder="checkpoints", every=100)

A kill loses what came after the last save, and so does Ctrl-C. SIGTERM to a process
that has called `jax.distributed.initialize` loses nothing, if a step and a save fit
into the time that is left: all save after the same step and exit with 75, which tells
the launcher to start again. The new start may have other processes and another mesh:
the state given says where the arrays are to lie, and each process reads its own parts.

Process 0 locks the folder, so that a second job gets an error at once and neither loses
a step. The lock is the kernel's: it ends with the process, also after `kill -9`.

Cost: a save blocks until the state is copied, then goes on behind the training; each
part is written once, by one of the processes that hold it. Beside it stay the last two.

    python restart.py                                         alone, to try it
    python local.py -n 2 --devices 2 --max-restarts 3 restart.py checkpoints

Copy this file alone: it needs JAX and Orbax (orbax-checkpoint).
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax import Array
from jax.experimental import multihost_utils

AGAIN = 75  # the exit code EX_TEMPFAIL: nothing is wrong, start me again
LEASE = 120.0  # seconds in which a file server forgets the locks of a dead machine
NO_LOCKS = errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP
DAMAGE = r"(NOT_FOUND|DATA_LOSS|OUT_OF_RANGE|FAILED_PRECONDITION|INVALID_ARGUMENT): "
BROKEN = (
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    json.JSONDecodeError,
    UnicodeDecodeError,
)


class Preempted(SystemExit):
    """Raised after a SIGTERM, once all processes have saved; exits with code 75."""


def train(step: Callable, state: Any, steps: int, folder: str | Path, every=100) -> Any:
    """Return the state after `steps` steps, of which the folder may hold the first.

    Call it in all processes, with the same arguments. Each step gets the state and the
    number of steps before it. The state is saved after each `every` steps, and at the
    end; the folder is one that all processes see.

    Args:
        step: (state, number) -> state, with the same types and shardings.
        state: the tree to start from; it says where restored arrays are to lie.
        steps: how many steps there are in all, also those before a restart.
        folder: where the checkpoints are; it is made if it is not there.
        every: how many steps lie between two saves.

    Raises:
        Preempted: when SIGTERM came to a process, after all have saved.
        ValueError: for a part of the state that is no array or is empty, and a folder
            in use, of another model, with more steps, damaged, or with [ in its path.
    """
    check_counts(steps, every)
    check_step(step, folder)
    arrays_of(state)
    lock, stop = Path(folder).resolve() / "lock", False
    held = acquire_lock(lock)
    checkpoints = open_folder(folder)
    first, state = resume(checkpoints, state)
    if first > steps:
        raise ValueError(f"{folder} holds {first} steps: pass as many, not {steps}")
    for number in range(first + 1, steps + 1):
        state = step(state, number - 1)
        stop = preempted(number) and number < steps
        if stop or number % every == 0 or number == steps:
            start_saving(checkpoints, number, state)
        if stop:
            break
    checkpoints.close()  # waits until the last save is complete
    release(lock, held)
    if stop:
        raise Preempted(AGAIN)
    return state


def check_counts(steps: int, every: int):
    """Raise ValueError unless these can be counts of steps."""
    for name, count, least in ("steps", steps, 0), ("every", every, 1):
        if not isinstance(count, int | np.integer) or count < least:
            raise ValueError(f"{name}={count!r}: pass an integer of at least {least}")


def check_step(step: Callable, folder: str | Path):
    """Raise ValueError unless these are a function and a path."""
    if not callable(step) or not isinstance(folder, str | os.PathLike):
        words = f"step={step!r}, folder={folder!r}"
        raise ValueError(f"{words}: pass a function and a path")
    if odd := {*Path(folder).resolve().as_posix()} & {*"[\\"}:  # patterns of Orbax
        raise ValueError(f"{folder} has a {min(odd)} in its path: pass one without")


def acquire_lock(lock: Path) -> int | None:
    """Lock a file until `release` or the end of process 0, or raise ValueError.

    Call it in all processes; process 0 gets the descriptor of the file.
    """
    held, problem = None, ""
    if jax.process_index() == 0:
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            held, problem = claim_lock(lock)
        except OSError as error:
            problem = f"cannot write to {lock.parent}: {error}"
    words = np.zeros(1000, np.uint8)
    text = np.frombuffer(problem.encode()[:1000], np.uint8)
    words[: text.size] = text
    words = np.asarray(multihost_utils.broadcast_one_to_all(words), np.uint8)
    if words[0]:
        raise ValueError(words.tobytes().rstrip(b"\0").decode(errors="replace"))
    return held


def claim_lock(lock: Path) -> tuple[int | None, str]:
    """Lock a file and write this process into it; or say which other one has it."""
    me = {"host": socket.gethostname(), "pid": os.getpid()}
    me |= {"job": os.environ.get("SLURM_JOB_ID", "none")}
    me |= {"since": time.strftime("%Y-%m-%d %H:%M:%S")}
    end = time.monotonic() + LEASE
    while (held := open_locked(lock)) is None:
        other = holder_of(lock)
        again = other["job"] == me["job"] != "none" and other["host"] != me["host"]
        if not again or time.monotonic() > end:  # else this job's former, dead machine
            who = "process {pid} on {host}, job {job}, since {since}".format(**other)
            problem = f"{lock.parent} is in use by {who}"
            return None, f"{problem}: end that one, or pass another folder"
        time.sleep(1)
    os.ftruncate(held, 0)
    os.pwrite(held, json.dumps(me).encode(), 0)
    return held, ""


def holder_of(lock: Path) -> dict:
    """Return what a lock says of its holder, which may not have written it yet."""
    unknown = dict.fromkeys(("host", "pid", "job", "since"), "?")
    with contextlib.suppress(ValueError, TypeError, FileNotFoundError):
        return unknown | json.loads(lock.read_bytes())
    return unknown


def open_locked(lock: Path) -> int | None:
    """Return a file that is locked from now on, or None if another process has it."""
    held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # over NFS, too
        same = lock.exists() and os.path.samestat(os.fstat(held), lock.stat())
    except (BlockingIOError, PermissionError):
        os.close(held)
        return None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        words = f"the file system of {lock.parent} has no locks ({error})"
        warnings.warn(f"{words}: let no other job use the folder", stacklevel=2)
        return held
    if not same:  # its former holder has removed it
        os.close(held)
        return open_locked(lock)
    return held


def release(lock: Path, held: int | None):
    """Unlock a folder; once this returns in any process, the folder is free."""
    if held is not None:
        lock.unlink(missing_ok=True)
        os.close(held)
    multihost_utils.sync_global_devices("the folder is free")


def open_folder(folder: str | Path) -> ocp.CheckpointManager:
    """Return a folder's manager, which keeps two checkpoints; drop unfinished ones."""
    options = ocp.CheckpointManagerOptions(
        preservation_policy=ocp.checkpoint_managers.LatestN(2),
        cleanup_tmp_directories=True,
    )
    handler = ocp.StandardCheckpointHandler()
    return ocp.CheckpointManager(
        Path(folder).resolve(), item_handlers=handler, options=options
    )


def start_saving(checkpoints: ocp.CheckpointManager, number: int, state: Any):
    """Copy the state, and begin to write it as checkpoint `number`.

    It counts when all parts are written: `checkpoints.wait_until_finished()`.
    """
    checkpoints.save(number, args=ocp.args.StandardSave(arrays_of(state)), force=True)


def resume(checkpoints: ocp.CheckpointManager, state: Any) -> tuple[int, Any]:
    """Return the newest checkpoint's number, and its state, sharded as `state`.

    Without a checkpoint return 0 and `state`. Raises ValueError for the checkpoint of
    another model, or one that is damaged.
    """
    number = latest(checkpoints)
    if number == 0:
        return 0, state
    wanted = arrays_of(state)
    where = f"checkpoint {number} of {checkpoints.directory}"
    with reading(checkpoints, number):
        metadata = checkpoints.item_metadata(number)
        if metadata is None:
            raise FileNotFoundError("the names of its arrays are missing")
    found = {name: describe(leaf) for name, leaf in metadata.tree.items()}
    check_model(found, {name: describe(leaf) for name, leaf in wanted.items()}, where)
    shardings = {
        name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
        for name, leaf in wanted.items()
    }
    with reading(checkpoints, number):
        arrays = checkpoints.restore(number, args=ocp.args.StandardRestore(shardings))
    kinds = [{n: str(tree[n].dtype) for n in wanted} for tree in (arrays, wanted)]
    check_model(*kinds, where)  # whose keys may be saved alike
    leaves = [arrays[name] for name in wanted]
    return number, jax.tree.unflatten(jax.tree.structure(state), leaves)


def latest(checkpoints: ocp.CheckpointManager) -> int:
    """Return the number of the newest checkpoint that process 0 sees, or 0."""
    number = checkpoints.latest_step() or 0  # another process may see an older one
    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))


def arrays_of(state: Any) -> dict[str, Array]:
    """Return the arrays of a tree by name, or raise ValueError for other leaves."""
    leaves, _ = jax.tree.flatten_with_path(state)
    if not leaves:
        raise ValueError("the state has no arrays: there is nothing to save")
    arrays = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
    for name, leaf in arrays.items():
        if not isinstance(leaf, Array):
            raise ValueError(
                f"state{name} is of type {type(leaf).__name__}: make it an array with "
                "a sharding over the devices of all processes"
            )
        if not leaf.size:  # Orbax saves none
            raise ValueError(f"state{name} is empty: leave it out")
    return arrays


def describe(leaf: Any) -> str:
    """Return the type and shape of an array, or of what is known of a saved one."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.eval_shape(jax.random.key_data, leaf)  # the form that is saved
    return f"{leaf.dtype}{[*leaf.shape]}"


def check_model(found: dict[str, str], wanted: dict[str, str], where: str):
    """Raise ValueError, which names what differs, unless the two are equal."""
    if found == wanted:
        return
    names = sorted(found.keys() | wanted.keys())
    lines = [
        f"  state{name} is {found.get(name, 'missing')} there and "
        f"{wanted.get(name, 'missing')} here"
        for name in names
        if found.get(name) != wanted.get(name)
    ]
    text = "\n".join(lines)
    raise ValueError(f"{where} is of another model; pass another folder:\n{text}")


@contextlib.contextmanager
def reading(checkpoints: ocp.CheckpointManager, number: int) -> Iterator[None]:
    """Guard the reading of a checkpoint: damage raises ValueError, with what to do.

    Whatever else reading raises is raised as it is, with a note: a checkpoint that
    cannot be read now, for want of rights, memory or a network, is not damaged.
    """
    where = f"checkpoint {number} of {checkpoints.directory}"
    try:
        yield
    except (OSError, ValueError, RuntimeError, MemoryError) as error:
        if not is_damage(error):
            note = "nothing says that it is damaged: remove nothing, mend the cause"
            error.add_note(f"{where} could not be read; {note}, and start again")
            raise
        before = max((n for n in checkpoints.all_steps() if n < number), default=None)
        rest = f"to go on from checkpoint {before}, which is there"
        if before is None:
            rest = "to begin anew, for there is no other"
        raise ValueError(f"{where} is damaged: remove it, {rest}") from error


def is_damage(error: Exception) -> bool:
    """Return whether an error of reading can only come from what the files hold."""
    status = isinstance(error, ValueError) and re.match(DAMAGE, str(error))
    return isinstance(error, BROKEN) or bool(status)


def preempted(number: int) -> bool:
    """Return whether all are to save after this step, because one got a SIGTERM.

    Call it in all processes after every step: they agree on a step that none has done.
    """
    listens = jax.config.jax_enable_preemption_service
    return listens and multihost_utils.reached_preemption_sync_point(number)


# --------------------------------------------------- an example: put your own here


@jax.jit
def begin() -> tuple:
    """Return random parameters and no momentum, in the mesh in context.

    w1: [N, F@model]; w2: [F@model, N]
    """
    first, second = jax.random.split(jax.random.key(0))
    columns, rows = jax.P(None, "model"), jax.P("model", None)
    params = {
        "w1": jax.random.normal(first, (12, 24), out_sharding=columns) / 4,
        "w2": jax.random.normal(second, (24, 12), out_sharding=rows) / 4,
    }
    return params, jax.tree.map(jnp.zeros_like, params)


def misfit(params: dict[str, Array], number: int) -> Array:
    """Return how far the model is from sin, on the batch of step `number`."""
    key = jax.random.fold_in(jax.random.key(1), number)  # a repeated step repeats it
    x = jax.random.normal(key, (24, 12), out_sharding=jax.P("data"))
    hidden = jnp.tanh(x @ params["w1"])
    y = jnp.matmul(hidden, params["w2"], out_sharding=jax.P("data"))
    return jnp.mean((y - jnp.sin(x)) ** 2)


@jax.jit
def learn(state: tuple, number: int) -> tuple:
    """Return the state one step later."""
    params, moments = state
    gradient = jax.grad(misfit)(params, number)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradient)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, moments), moments


def run(folder: str, steps: int):
    """Train on all devices until `steps` are done, and tell the loss."""
    sizes = jax.process_count(), jax.local_device_count()
    with jax.set_mesh(jax.make_mesh(sizes, ("data", "model"))):
        params, _ = train(learn, begin(), steps, folder, every=20)
        value = float(jax.jit(misfit)(params, steps))
    if jax.process_index() == 0:
        print(f"loss after {steps} steps: {value:.4f}")


def main():
    """Train in the folder that the command names, or alone, interrupted once."""
    if len(sys.argv) > 1:
        jax.distributed.initialize()
        run(sys.argv[1], 100)
    else:
        with tempfile.TemporaryDirectory() as folder:
            run(folder, 50)
            run(folder, 100)


if __name__ == "__main__":
    main()
