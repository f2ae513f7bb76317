# SPDX-License-Identifier: MIT-0
"""Train on through the death of a process, and take it back when it returns.

    python elastic.py               three processes; one is killed, and started again

All steps stand inside `live_devices`: it gives every process the same list of devices
that are alive, and raises in all of them if one died within. The survivors repeat the
step on the devices that are left. A process that returns is on the list again, and all
take the state of process 0.

Its limits, as of JAX 0.12:
- process 0 may not die, because it coordinates: the whole job ends with it;
- each process holds the whole state, because what only the dead one held is lost;
- a death is noticed when a collective gives up, which takes CPUs the seconds of
  `--xla_cpu_collective_timeout_seconds`, and when heartbeats stay away; the variables
  COLLECTIVE_SECONDS and HEARTBEAT_SECONDS set both, 5 and 8 if they do not;
- the gradient is a mean over fewer rows while a process is missing, so that the numbers
  are not those of an undisturbed run;
- `live_devices` is in `jax.experimental`, and may change.

Copy this file alone: it needs JAX 0.12 and NumPy, on Linux or macOS.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import live_devices

COUNT, DEVICES, STEPS, ROWS = 3, 2, 30, 8
KILLED, LAST = 2, 10  # the process that is killed, and after how many steps
# after which a collective without all devices gives up, and a process counts as dead
COLLECTIVE_SECONDS = int(os.environ.get("COLLECTIVE_SECONDS", "5"))
HEARTBEAT_SECONDS = int(os.environ.get("HEARTBEAT_SECONDS", "8"))


@jax.jit
def gradient(w, x):
    """Return the gradient of the mean square of x w - x (1, -2, 3)."""
    wanted = jnp.array([1.0, -2.0, 3.0])
    return jax.grad(lambda w: jnp.mean((x @ (w - wanted)) ** 2))(w)


def sum_over_processes(mesh, of_mine):
    """Return the sum of what the processes give, an array for each device."""
    shape = mesh.size, *of_mine(jax.local_devices()[0]).shape
    blocks = [of_mine(device)[None] for device in jax.local_devices()]
    shards = map(jax.device_put, blocks, jax.local_devices())
    sharding = jax.NamedSharding(mesh, jax.P("data"))
    stack = jax.make_array_from_single_device_arrays(shape, sharding, [*shards])
    return np.asarray(jnp.sum(stack, 0))


def step_on(devices, number, w, agreed):
    """Return the number and the weights after a step on these devices."""
    mesh = jax.make_mesh((len(devices),), ("data",), devices=devices)
    root = next(device for device in jax.devices() if device.process_index == 0)
    if not agreed:
        mine = np.array([number, *w], np.float32)
        state = sum_over_processes(mesh, lambda device: mine * (device == root))
        number, w = int(state[0]), state[1:]
    key = jax.random.fold_in(jax.random.key(0), number)

    def part(device):
        place = devices.index(device)
        x = jax.random.normal(jax.random.fold_in(key, place), (ROWS, 3))
        return np.asarray(gradient(w, x))

    return number + 1, w - 0.1 * sum_over_processes(mesh, part) / len(devices)


def train(births: Path):
    """Make steps on the devices that are alive, until all is done and none missing."""
    number, w, before, failures = 0, np.zeros(3, np.float32), [], 0
    while number < STEPS or len(before) < COUNT * DEVICES:
        try:
            with live_devices(jax.devices()) as alive:
                same = {*alive} == {*before}
                devices = before if same else reorder_devices(alive, births)
                kill(births, number)
                new = step_on(devices, number, w, devices == before)
        except Exception as error:
            print_once("step", number, "failed:", type(error).__name__)
            before, failures = [], failures + 1
            if failures == 9:
                raise
            continue
        if len(before) != len(devices):
            print_once("on", len(devices), "devices")
        (number, w), before, failures = new, devices, 0
    print("weights", *np.round(w, 2))


def reorder_devices(alive: list, births: Path) -> list:
    """Return the devices in another order for each process that came back.

    JAX finds a communicator by the order of its devices. One in which a process died
    must not be found again. All read the same number: processes write before they join.
    """
    turn = (len(births.read_bytes()) - COUNT) % len(alive)
    return alive[turn:] + alive[:turn]


def print_once(*words):
    """Print in process 0."""
    if jax.process_index() == 0:
        print(*words)


def kill(births: Path, number: int):
    """Kill this process, if it is the one to be killed: as when a machine fails."""
    mine = jax.process_index() == KILLED
    if mine and number == LAST and len(births.read_bytes()) == COUNT:
        os.kill(os.getpid(), signal.SIGKILL)


def join_job(address: str, number: int, births: Path):
    """Join the job, for the first time or again, and train."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: end with `main`
    if os.getppid() != int(os.environ["STARTED_BY"]):
        os._exit(1)  # it ended while this process imported JAX
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # where Gloo prints its connections
    jax.config.update("jax_enable_recoverability", True)
    with births.open("ab") as file:
        file.write(b".")
    jax.distributed.initialize(
        address,
        COUNT,
        number,
        coordinator_bind_address=address,
        heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
    )
    train(births)
    sys.stdin.read()  # process 0 stays until the others have ended
    sys.stdout.flush()
    os._exit(0)  # the usual end would wait for all that were ever there


def start(number: int, address: str, births: str) -> subprocess.Popen:
    """Start process `number`; `main` reads what process 0 prints."""
    flags = os.environ.get("XLA_FLAGS", "")
    flags += f" --xla_cpu_collective_timeout_seconds={COLLECTIVE_SECONDS}"
    cpus = {"JAX_NUM_CPU_DEVICES": str(DEVICES), "JAX_PLATFORMS": "cpu"}
    cpus |= {"STARTED_BY": str(os.getpid()), "TF_CPP_MIN_LOG_LEVEL": "2"}
    return subprocess.Popen(
        [sys.executable, __file__, address, str(number), births],
        env=os.environ | cpus | {"XLA_FLAGS": flags},
        stdin=subprocess.DEVNULL if number else subprocess.PIPE,
        stdout=None if number else subprocess.PIPE,
        text=True,
    )


def main():
    """Start all processes, and the killed one again once the others go on."""
    with socket.socket() as held, tempfile.TemporaryDirectory() as folder:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))  # no other program gets the port meanwhile
        address = f"127.0.0.1:{held.getsockname()[1]}"
        births = f"{folder}/births"
        children = [start(number, address, births) for number in range(COUNT)]
        try:
            for line in children[0].stdout:
                print(line, end="", flush=True)
                if line == f"on {DEVICES * (COUNT - 1)} devices\n":
                    children[KILLED].wait()
                    children[KILLED] = start(KILLED, address, births)
                if line.startswith("weights"):
                    break
            codes = [child.wait() for child in children[1:]]
            children[0].communicate()
            sys.exit(any(codes) or children[0].returncode)
        finally:
            for child in children:
                child.kill()


if __name__ == "__main__":
    if sys.argv[1:]:
        join_job(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
