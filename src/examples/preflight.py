# SPDX-License-Identifier: MIT-0
"""Preflight: find in seconds what makes `jax.distributed.initialize` abort in minutes.

Before JAX starts, the processes meet at the coordinator's own address and port, on a
plain socket. Process 0 collects what each of them believes and sends all the verdict.

    report      id, count, host, versions, checksum of the script, complaints
    verdict     a list of sentences, the same in every process; empty if all is well

Each process sends one line and waits at most `timeout` seconds, 300 by default, as JAX
does: on a busy file system the last of many may start minutes after the first. After
ten seconds those that wait print what is missing, and for ten seconds beyond `timeout`
they wait for the answer of a process 0 that started later. The meeting itself takes
half a second more than the slowest process: so long process 0 waits for a second
process with the same id.

    python preflight.py                            a meeting of one
    srun -n 4 python preflight.py                  a meeting of four

and in a program, instead of a bare call:

    jax.distributed.initialize(**preflight.checked_arguments())

Copy this file alone: it needs JAX only.
"""

import contextlib
import errno
import ipaddress
import json
import os
import platform
import re
import selectors
import socket
import sys
import time
import zlib
from importlib.metadata import version
from pathlib import Path

import jax

SETTLE_SECONDS = 0.5  # in which no other process may come once all are there
REMINDER_SECONDS = 10.0  # after which a process says what it waits for
REPORT_BYTES = 1 << 16  # at most


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
    for name in ("num_processes", "process_id"):
        if not isinstance(found[name], int):
            raise ValueError(f"{name} is {found[name]!r}: pass a whole number")
    if not 0 <= found["process_id"] < found["num_processes"]:
        raise ValueError(
            f"process_id is {found['process_id']}, but num_processes is "
            f"{found['num_processes']}: ids go from 0 to num_processes - 1"
        )
    check_address(found["coordinator_address"])
    return {name: found[name] for name in given}


def check_address(address: str):
    """Raise ValueError unless this is a host and a port."""
    parts = re.fullmatch(r".+:(\d{1,5})", address) if isinstance(address, str) else None
    if not parts or not 0 < int(parts[1]) < 1 << 16:
        raise ValueError(f"coordinator_address is {address!r}: pass host:port")


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
            "checked_arguments() and initialize() before anything else uses JAX"
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
    """Return which processes disagree with process 0 about their number."""
    count = reports[0]["count"]
    return [
        f"process {other['id']} on {other['host']} was told of {other['count']} "
        f"processes, process 0 of {count}: give all the same num_processes"
        for other in reports[1:]
        if other["count"] != count
    ]


def judge_ids(reports: list[dict]) -> list[str]:
    """Return which ids came twice, and which did not come."""
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
    """Return which processes run another version or another script than process 0."""
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


def is_report(message) -> bool:
    """Return whether this is a report: it has the fields, of their types."""
    types = {"id": int, "count": int, "host": str, "loopback": bool, "Python": str}
    types |= {"JAX": str, "jaxlib": str, "script": int | None, "complaints": list}
    return (
        isinstance(message, dict)
        and message.keys() == types.keys()
        and all(isinstance(message[name], kind) for name, kind in types.items())
        and all(isinstance(words, str) for words in message["complaints"])
        and 0 <= message["id"] < message["count"] < 1 << 24
    )


def parse_verdict(message) -> list[str]:
    """Return a verdict in printable text, or raise ValueError if this is none."""
    if isinstance(message, list) and all(isinstance(words, str) for words in message):
        return sanitize(message)
    raise ValueError("no verdict")


def sanitize(message):
    """Return what was said without characters that would steer a terminal."""
    if isinstance(message, str):
        return "".join(c if c.isprintable() else "?" for c in message[:500])
    if isinstance(message, list):
        return [sanitize(one) for one in message[:20]]
    return message


def parse_report(line: bytes) -> dict | None:
    """Return the report that a line holds, or None if it holds none."""
    with contextlib.suppress(ValueError, RecursionError):
        message = json.loads(line)
        if is_report(message):
            return {name: sanitize(value) for name, value in message.items()}
    return None


def read_more(client: socket.socket, words: bytearray) -> bool:
    """Add what has arrived from a visitor to `words`; return whether that is all."""
    try:
        more = client.recv(REPORT_BYTES)
    except OSError:
        more = b""
    words += more
    return not more or b"\n" in more or len(words) > REPORT_BYTES


def missing_ids(reports: list[dict]) -> list[str]:
    """Return the ids that have not come."""
    there = {one["id"] for one in reports}
    count = max(one["count"] for one in reports)
    return [str(number) for number in range(count) if number not in there]


class Reminder:
    """Print once on stderr, after `REMINDER_SECONDS`, what this process waits for."""

    def __init__(self):
        """Start the clock."""
        self.end = time.monotonic() + REMINDER_SECONDS

    def left(self) -> float:
        """Return the seconds until it is time; infinitely many once it was printed."""
        return max(self.end - time.monotonic(), 0)

    def say(self, words: str):
        """Print it if it is time."""
        if not self.left():
            self.end = float("inf")
            after = f"preflight, after {REMINDER_SECONDS:g} s"
            print(f"{after}: {words}; waiting on", file=sys.stderr, flush=True)


def collect(selector: selectors.BaseSelector, server: socket.socket, seconds: float):
    """Accept and read connections; yield those that are read, with their reports."""
    for key, _ in selector.select(seconds):
        if key.fileobj is not server:
            if read_more(key.fileobj, key.data):
                selector.unregister(key.fileobj)
                yield key.fileobj, parse_report(bytes(key.data))
            continue
        with contextlib.suppress(OSError):
            client, _ = server.accept()
            client.setblocking(False)  # a silent one holds up no other
            selector.register(client, selectors.EVENT_READ, bytearray())


def gather_reports(server: socket.socket, mine: dict, deadline: float) -> tuple:
    """Receive reports until all came, or `deadline`; return them and connections."""
    reports, clients, reminder = [mine], [], Reminder()
    with selectors.DefaultSelector() as selector:
        server.setblocking(False)
        selector.register(server, selectors.EVENT_READ)
        more = 256  # looks after the end, at what came while this process stood still
        while (left := max(deadline - time.monotonic(), 0)) or more:
            more -= not left
            for client, report in collect(selector, server, min(left, reminder.left())):
                clients.append(client)
                reports += [report] if report else []
            if absent := missing_ids(reports):
                reminder.say(f"processes {', '.join(absent[:20])} have not come yet")
            else:
                deadline = min(deadline, time.monotonic() + SETTLE_SECONDS)
        strangers = {key.fileobj for key in selector.get_map().values()} - {server}
    others = sorted(reports[1:], key=lambda one: (one["id"], one["host"]))
    return [mine, *others], [*clients, *strangers]


def serve_reports(port: int, mine: dict, deadline: float) -> list[str]:
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
        reports, clients = gather_reports(server, mine, deadline)
        verdict, end = judge(reports), time.monotonic() + 2 * SETTLE_SECONDS
        for client in clients:
            stack.enter_context(client)
            with contextlib.suppress(OSError):
                client.settimeout(max(end - time.monotonic(), 0.01))
                client.sendall(json.dumps(verdict).encode() + b"\n")
        for client in clients:
            with contextlib.suppress(OSError):
                client.settimeout(max(end - time.monotonic(), 0.01))
                client.recv(1)  # the side that closes first keeps the port busy
    return verdict


def send_report(host: str, port: int, mine: dict, deadline: float) -> list[str]:
    """In another process: hand in the report, and return the verdict."""
    where, problem, reminder = f"{host}:{port}", "nothing listens at {}", Reminder()
    while time.monotonic() < deadline:
        left = max(deadline - time.monotonic(), 0.01)
        try:
            with socket.create_connection((host, port), left) as meeting:
                problem = "what listens at {} does not answer as process 0 does"
                meeting.settimeout(left + REMINDER_SECONDS)  # process 0 may start later
                meeting.sendall(json.dumps(mine).encode() + b"\n")
                with meeting.makefile("rb") as words:
                    return parse_verdict(json.loads(words.readline(REPORT_BYTES)))
        except TimeoutError:
            problem = problem.replace("nothing listens", "nothing answers")
        except (OSError, ValueError):
            time.sleep(0.05)
        reminder.say(problem.format(where))
    advice = (
        "see whether process 0 was started there, and whether a firewall is between"
    )
    if is_loopback(host):
        advice = "this address stays on the machine: if process 0 is on another, pass "
        advice += "one that others can reach; else see whether it was started"
    return [f"{problem.format(where)}: {advice}", *mine["complaints"]]


def checked_arguments(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    timeout: float = 300.0,
) -> dict:
    """Return the arguments for `jax.distributed.initialize`, once all is well.

    Call it in every process, before anything else uses JAX. What is not given is read
    from the variables that JAX reads: its own, Slurm's, Open MPI 4's. All processes
    should call it within `timeout` seconds. Raises ValueError if its id is not
    known, RuntimeError with the whole verdict if something is wrong.
    """
    if not isinstance(timeout, int | float) or not 0 < timeout < float("inf"):
        raise ValueError(f"timeout is {timeout!r}: pass seconds, more than 0")
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
        meet = (serve_reports, int(port)) if at_home else (send_report, host, int(port))
        verdict = meet[0](*meet[1:], mine, deadline)
    if verdict:
        who = f"process {mine['id']} of {mine['count']} on {mine['host']}"
        raise RuntimeError("\n- ".join([f"preflight, {who}:", *verdict]))
    return arguments


def main():
    """Meet the other processes, or none, and print how many came."""
    env = dict(os.environ)
    if from_open_mpi(env) or from_slurm(env):
        arguments = checked_arguments(timeout=60)  # nothing slow comes before it here
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        arguments = checked_arguments(f"127.0.0.1:{port}", 1, 0)
    number, count = arguments["process_id"], arguments["num_processes"]
    print(f"process {number} of {count}: ready")


if __name__ == "__main__":
    main()
