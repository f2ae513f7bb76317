"""A Slurm of two nodes in a temporary folder, which nothing outlives.

    with Slurm() as slurm:
        slurm.run("srun", "-N2", "hostname").stdout
        job = slurm.sbatch("job.sbatch")
        slurm.wait(job)

It needs no root, no munge and no file outside its folder. Each node pretends to have 16
CPUs and four GPUs, which Slurm hands out as it does real ones, in CUDA_VISIBLE_DEVICES.
The nodes are called 127.0.0.1 and 127.0.0.2, names that mean this machine without an
entry in /etc/hosts.

    python -I throwaway.py FOLDER command ...

runs a command, and kills all that it started, daemons too, when it ends or its starter
is gone; FOLDER is removed, if there is one. `start_guarded` starts it so.
"""

import contextlib
import ctypes
import getpass
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GUARD = sys.executable, "-I", __file__
DEATH_SIGNAL, SUBREAPER = 1, 36  # of prctl: orphans become children of this process
PROGRAMS = {
    "slurmctld": "slurm-wlm",
    "slurmd": "slurm-wlm",
    "srun": "slurm-wlm",
    "sbatch": "slurm-wlm",
    "mpirun": "openmpi-bin",
    "ip": "iproute2",
}
NODES = "127.0.0.1", "127.0.0.2"
ENDED = {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY"}
CONFIGURATION = """\
ClusterName=throwaway
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
BatchStartTimeout=600
UnkillableStepTimeout=600
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
FirstJobId={first}
GresTypes=gpu
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=100000
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=3
MessageTimeout=60
MailProg=/bin/true
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs=16 "
    "Gres=gpu:4 State=UNKNOWN\n"
)


def missing_packages(*programs: str) -> str:
    """Return the command that installs missing programs, if any is missing."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    packages = {PROGRAMS[n] for n in programs if not shutil.which(n, path=path)}
    return f"apt-get install {' '.join(sorted(packages))}" if packages else ""


def free_ports(count: int) -> list[int]:
    """Return unused ports, below the range of ephemeral ports."""
    with contextlib.ExitStack() as stack:
        ports = set()
        while len(ports) < count:
            port = random.randrange(10_000, 32_000)
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("", port)))
                ports.add(port)
    return [*ports]


def start_guarded(*command: str | Path, folder="-", **options) -> subprocess.Popen:
    """Start a command that ends with us; its descendants end with it."""
    return subprocess.Popen([*GUARD, str(folder), *map(str, command)], **options)


def run(*command: str | Path, timeout=600, check=True, **options):
    """Run a command to its end, and its descendants; return it with its output."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start_guarded(*command, **pipes | options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.terminate()
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check and done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}:\n{out}\n{err}")
    return done


class Slurm:
    """The cluster; in a `with` it runs."""

    def __init__(self):
        """Write the configuration into a new folder."""
        self.folder = Path(tempfile.mkdtemp(prefix="throwaway-slurm-"))
        port, *ports = free_ports(1 + len(NODES))
        words = {
            "folder": self.folder,
            "host": socket.gethostname(),
            "user": getpass.getuser(),
            "first": random.randrange(1000, 60000),  # JAX's port depends on it
        }
        text = CONFIGURATION.format(port=port, **words)
        for name, node_port in zip(NODES, ports, strict=True):
            (self.folder / f"spool-{name}").mkdir()
            text += NODE.format(name=name, address=name, port=node_port, **words)
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text(text)
        for number in range(4):
            (self.folder / f"gpu{number}").symlink_to("/dev/null")
        (self.folder / "gres.conf").write_text(
            f"Name=gpu File={self.folder}/gpu[0-3]\n"
        )
        own = ("SLURM_", "SBATCH_", "SRUN_", "OMPI_", "PMIX_", "CUDA_VISIBLE_DEVICES")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(own)}
        self.env["PATH"] += ":/usr/sbin:/sbin"
        self.env["SLURM_CONF"] = str(self.folder / "slurm.conf")

    def __enter__(self):
        """Start the daemons, and wait until both nodes are idle."""
        daemons = ["slurmctld -D", *(f"slurmd -D -N {name}" for name in NODES)]
        script = " & ".join(daemons) + " & wait"
        with (self.folder / "daemons.log").open("w") as log:
            self.daemons = start_guarded(
                "sh",
                "-c",
                script,
                folder=self.folder,
                env=self.env,
                stdout=log,
                stderr=log,
            )
        limit = time.monotonic() + 200
        while self.state() != f"{len(NODES)} idle":
            if time.monotonic() > limit or self.daemons.poll() is not None:
                logs = [file.read_text()[-2000:] for file in self.folder.glob("*.log")]
                self.__exit__()
                raise RuntimeError("Slurm does not start:\n" + "\n".join(logs))
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        """End the daemons and all that they started, and remove the folder."""
        self.daemons.terminate()
        self.daemons.wait()

    def state(self) -> str:
        """Return number and state of the nodes."""
        return self.run("sinfo", "-h", "-o", "%D %t", check=False).stdout.strip()

    def run(self, *command, env=(), **options):
        """Run a command of Slurm, or another, to its end."""
        return run(*command, env=self.env | dict(env), **options)

    def sbatch(self, *words, env=(), **options) -> str:
        """Submit a job, and return its number."""
        return self.run(
            "sbatch", "--parsable", *words, env=env, **options
        ).stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        """Return the fields of a job in Slurm."""
        text = self.run("scontrol", "show", "job", number).stdout
        return dict(re.findall(r"(\w+)=(\S+)", text))

    def wait(self, number: str, timeout=600) -> str:
        """Wait until a job has ended, and return its state."""
        limit = time.monotonic() + timeout
        while (state := self.job(number)["JobState"]) not in ENDED:
            if time.monotonic() > limit:
                raise TimeoutError(f"job {number} is still {state}")
            time.sleep(0.3)
        return state


def kill_children(*_):
    """Kill all children; theirs become children of this process."""
    for child in Path("/proc/thread-self/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)


def guard(*command: str) -> int:
    """Run a command, reap what ends, and kill what is left; return its exit code."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1)
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, kill_children)
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGTERM)
    process, code = subprocess.Popen(command, stdin=subprocess.DEVNULL), None
    with contextlib.suppress(ChildProcessError):  # none is left
        while True:  # Slurm waits for an orphan that nobody reaps
            pid, status = os.waitpid(-1, 0)
            if pid == process.pid:
                code = os.waitstatus_to_exitcode(status)
            if code is not None:
                kill_children()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    try:
        sys.exit(guard(*sys.argv[2:]))
    finally:
        shutil.rmtree(sys.argv[1], ignore_errors=True)
