# SPDX-License-Identifier: MIT-0
"""Preflight: find in seconds what makes `jax.distributed.initialize` abort in minutes.

Before JAX starts, the processes meet at the coordinator's own address and port, on a
plain socket. Process 0 collects what each of them believes and sends all the verdict.

    report      id, count, host, versions, checksum of the script, complaints
    verdict     a list of sentences, the same in every process; empty if all is well

Each process sends one line and waits at most `timeout` seconds, 10 by default. The
meeting itself takes half a second more than the slowest process: that is how long
process 0 looks out for a second process with the same id.

    python preflight.py                            a meeting of one
    srun -n 4 python preflight.py                  a meeting of four

and in a program, instead of a bare call:

    jax.distributed.initialize(**preflight.cleared())

Copy this file alone: it needs JAX only.
"""

import contextlib
import errno
import ipaddress
import json
import os
import platform
import re
import socket
import sys
import time
import zlib
from importlib.metadata import version
from pathlib import Path

import jax

SETTLE = 0.5  # seconds in which nobody else may come once all are there


def from_slurm(env: dict) -> dict:
    """Return address, count and id as JAX reads them from a Slurm step, or nothing."""
    names = "JOB_ID", "STEP_NODELIST", "NTASKS", "PROCID", "LOCALID"
    if not all(f"SLURM_{name}" in env for name in names):
        return {}
    first = re.match(r"([^,\[]+)(?:\[([^,\]-]+))?", env["SLURM_STEP_NODELIST"])
    port = env.get("JAX_COORDINATOR_PORT") or 61440 + int(env["SLURM_JOB_ID"]) % 4096
    return {
        "coordinator_address": f"{first[1]}{first[2] or ''}:{port}",
        "num_processes": int(env["SLURM_NTASKS"]),
        "process_id": int(env["SLURM_PROCID"]),
    }


def from_open_mpi(env: dict) -> dict:
    """Return address, count and id as JAX reads them from Open MPI 4, or nothing."""
    uri = env.get("OMPI_MCA_orte_hnp_uri")
    if uri is None:
        return {}
    job = int(uri.split(".")[0]) // 4096
    port = env.get("JAX_COORDINATOR_PORT") or 61440 + job % 4096
    launcher = re.search(r"tcp://(.+?)[,:]|tcp6://\[(.+?)[,\]]", uri)
    return {
        "coordinator_address": f"{launcher[1] or launcher[2]}:{port}",
        "num_processes": int(env["OMPI_COMM_WORLD_SIZE"]),
        "process_id": int(env["OMPI_COMM_WORLD_RANK"]),
    }


def complete(given: dict, env: dict) -> dict:
    """Complete the arguments `given` as a bare `initialize` would, or raise ValueError.

    An argument wins over a variable, and Open MPI's variables over Slurm's.
    """
    found = from_open_mpi(env) or from_slurm(env)
    if env.get("JAX_COORDINATOR_ADDRESS"):
        found["coordinator_address"] = env["JAX_COORDINATOR_ADDRESS"]
    found |= {name: value for name, value in given.items() if value is not None}
    missing = [name for name in given if name not in found]
    if missing:
        raise ValueError(
            f"nothing tells {', '.join(missing)}: start the script with srun, mpirun "
            f"or launch/local.py, or pass {missing[0]}=..."
        )
    if not 0 <= found["process_id"] < found["num_processes"]:
        raise ValueError(
            f"process_id is {found['process_id']}, but num_processes is "
            f"{found['num_processes']}: ids go from 0 to num_processes - 1"
        )
    if not re.fullmatch(r".+:\d+", found["coordinator_address"]):
        raise ValueError(
            f"coordinator_address is {found['coordinator_address']!r}: pass host:port"
        )
    return {name: found[name] for name in given}


def backend_started() -> bool:
    """Return whether something has made JAX look for its devices already."""
    before = jax.config.jax_num_cpu_devices
    try:
        jax.config.update("jax_num_cpu_devices", max(before, 0) + 1)
    except RuntimeError:  # refused from then on
        return True
    jax.config.update("jax_num_cpu_devices", before)
    return False


def proxy(host: str, env: dict) -> str | None:
    """Return the variable that would send gRPC's connection to `host` to a proxy."""
    names = ("grpc_proxy", "https_proxy", "http_proxy")
    exempt = env.get("no_grpc_proxy") or env.get("no_proxy") or ""
    spared = [entry.strip() for entry in exempt.split(",") if entry.strip()]
    if any(host.endswith(entry) for entry in spared):
        return None
    return next((name for name in names if env.get(name)), None)


def is_loopback(host: str) -> bool:
    """Return whether the first address of `host` is one that stays on this machine."""
    address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]
    return ipaddress.ip_address(address.split("%")[0]).is_loopback


def complaints(host: str, env: dict) -> list[str]:
    """Return what is wrong in this process alone, with what to do about it."""
    found = []
    if jax.distributed.is_initialized() or backend_started():
        found.append(
            "JAX has looked for its devices already, perhaps in an import: call "
            "cleared() and initialize() before anything else uses JAX"
        )
    variable = proxy(host, env)
    if variable:
        found.append(
            f"{variable} would send the connection to {host} to a proxy: "
            f"export no_grpc_proxy={host}, or unset {variable}"
        )
    return found


def report(arguments: dict, host: str) -> dict:
    """Return what this process believes, ready to be sent."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    try:
        loopback = is_loopback(socket.gethostname())
    except OSError:
        loopback = False
    return {
        "id": arguments["process_id"],
        "count": arguments["num_processes"],
        "host": socket.gethostname(),
        "loopback": loopback,
        "Python": platform.python_version(),
        "JAX": jax.__version__,
        "jaxlib": version("jaxlib"),
        "script": zlib.crc32(Path(script).read_bytes()) if script else None,
        "complaints": complaints(host, os.environ),
    }


def judge_counts(reports: list[dict]) -> list[str]:
    """Say which processes disagree with process 0 about their number."""
    count = reports[0]["count"]
    return [
        f"process {other['id']} on {other['host']} believes in {other['count']} "
        f"processes, process 0 in {count}: give all the same num_processes"
        for other in reports[1:]
        if other["count"] != count
    ]


def judge_ids(reports: list[dict]) -> list[str]:
    """Say which ids came twice, and which did not come."""
    hosts, count = {}, reports[0]["count"]
    for one in reports:
        hosts.setdefault(one["id"], []).append(one["host"])
    found = [
        f"process_id {number} came {len(hosts[number])} times, from "
        f"{', '.join(hosts[number])}: give each process an id of its own"
        for number in sorted(hosts)
        if len(hosts[number]) > 1
    ]
    missing = [str(number) for number in range(count) if number not in hosts]
    if missing:
        found.append(
            f"of {count} processes, {', '.join(missing)} did not come: see whether "
            "they were started, and what they say themselves"
        )
    return found


def judge_programs(reports: list[dict]) -> list[str]:
    """Say which processes run another version or another script than process 0."""
    found, first = [], reports[0]
    for other in reports[1:]:
        who = f"process {other['id']} on {other['host']}"
        for name in ("Python", "JAX", "jaxlib"):
            if other[name] != first[name]:
                found.append(
                    f"{who} runs {name} {other[name]}, process 0 {first[name]}: "
                    "use the same environment everywhere"
                )
        if other["script"] != first["script"]:
            found.append(
                f"{who} runs another script than process 0: a mismatch gives wrong "
                "numbers, not errors; copy the same file to all machines"
            )
    return found


def judge(reports: list[dict]) -> list[str]:
    """Return the verdict on all reports, that of process 0 first."""
    found = judge_counts(reports) + judge_ids(reports) + judge_programs(reports)
    trapped = sorted({one["host"] for one in reports if one["loopback"]})
    if len({one["host"] for one in reports}) > 1:
        found += [
            f"on {host} the name {host} stands for a loopback address, so others "
            "cannot reach what listens there: give its line in /etc/hosts (often "
            "127.0.1.1) the machine's real address"
            for host in trapped
        ]
    for one in reports:
        found += [
            f"process {one['id']} on {one['host']}: {c}" for c in one["complaints"]
        ]
    return found


def hear(visitor: socket.socket) -> dict | None:
    """Read the report of a visitor; None if it is none of ours."""
    visitor.settimeout(1.0)
    with contextlib.suppress(OSError, ValueError), visitor.makefile("rb") as words:
        said = json.loads(words.readline(1 << 16))
        return said if isinstance(said, dict) and "complaints" in said else None
    return None


def gather_reports(
    server: socket.socket, mine: dict, deadline: float
) -> tuple[list, list]:
    """Receive reports until all came, or `deadline`; return them and the visitors."""
    reports, visitors = [mine], []
    while time.monotonic() < deadline:
        expected = max(one["count"] for one in reports)
        all_came = len({one["id"] for one in reports}) == expected
        left = deadline - time.monotonic()
        server.settimeout(max(min(left, SETTLE if all_came else left), 0.01))
        try:
            visitor, _ = server.accept()
        except TimeoutError:
            break
        said = hear(visitor)
        visitors.append(visitor)
        reports += [said] if said else []
    others = sorted(reports[1:], key=lambda one: (one["id"], one["host"]))
    return [mine, *others], visitors


def receive(port: int, mine: dict, deadline: float) -> list[str]:
    """In process 0: hold the meeting, send all the verdict, and return it."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        server = socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return [
            f"port {port} of {mine['host']} is taken: end what listens there, or "
            "choose another port (JAX_COORDINATOR_PORT)"
        ]
    with server, contextlib.ExitStack() as stack:
        reports, visitors = gather_reports(server, mine, deadline)
        verdict = judge(reports)
        for visitor in visitors:
            stack.enter_context(visitor)
            with contextlib.suppress(OSError):
                visitor.sendall(json.dumps(verdict).encode() + b"\n")
                visitor.settimeout(1.0)
                visitor.recv(1)  # who closes first keeps the port busy: not us
    return verdict


def visit(host: str, port: int, mine: dict, deadline: float) -> list[str]:
    """In another process: hand in the report, and return the verdict."""
    where, problem = f"{host}:{port}", "nothing listens at {}"
    while time.monotonic() < deadline:
        left = max(deadline - time.monotonic(), 0.01)
        try:
            with socket.create_connection((host, port), left) as meeting:
                problem = "what listens at {} does not answer as process 0 does"
                meeting.settimeout(left + 2 * SETTLE)  # process 0 may have come later
                meeting.sendall(json.dumps(mine).encode() + b"\n")
                with meeting.makefile("rb") as words:
                    return json.loads(words.readline())
        except TimeoutError:
            problem = problem.replace("nothing listens", "nothing answers")
        except (OSError, ValueError):
            time.sleep(0.05)
    advice = (
        "see whether process 0 was started there, and whether a firewall is between"
    )
    if is_loopback(host):
        advice = "this address stays on the machine: pass one that others can reach"
    return [f"{problem.format(where)}: {advice}", *mine["complaints"]]


def cleared(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    timeout: float = 10.0,
) -> dict:
    """Return the arguments for `jax.distributed.initialize`, once all is well.

    Call it in every process, before anything else uses JAX. What is not given is read
    from the variables that JAX reads: its own, Slurm's, Open MPI 4's. All processes
    should call it within `timeout` seconds. Raises ValueError if it cannot know who it
    is, RuntimeError with the whole verdict if something is wrong.
    """
    given = {
        "coordinator_address": coordinator_address,
        "num_processes": num_processes,
        "process_id": process_id,
    }
    arguments = complete(given, dict(os.environ))
    host, port = arguments["coordinator_address"].rsplit(":", 1)
    host, deadline = host.strip("[]"), time.monotonic() + timeout
    mine = report(arguments, host)
    try:
        socket.getaddrinfo(host, port)
    except OSError:
        verdict = [f"the name {host} has no address on {mine['host']}: correct it"]
    else:
        at_home = mine["id"] == 0
        meet = (receive, int(port)) if at_home else (visit, host, int(port))
        verdict = meet[0](*meet[1:], mine, deadline)
    if verdict:
        who = f"process {mine['id']} of {mine['count']} on {mine['host']}"
        raise RuntimeError("\n- ".join([f"preflight, {who}:", *verdict]))
    return arguments


def main():
    """Meet the other processes, or nobody, and say how many came."""
    env = dict(os.environ)
    if from_open_mpi(env) or from_slurm(env):
        arguments = cleared()
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        arguments = cleared(f"127.0.0.1:{port}", 1, 0)
    number, count = arguments["process_id"], arguments["num_processes"]
    print(f"process {number} of {count}: ready")


if __name__ == "__main__":
    main()
