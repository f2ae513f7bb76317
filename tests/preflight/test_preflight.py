"""Every wrong start is named in seconds, by all processes, with what to do."""

import contextlib
import inspect
import io
import json
import re
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import zip_longest
from pathlib import Path

import jax
import pytest
from throwaway import free_ports

from examples import preflight
from examples.preflight import checked_arguments, complete, judge

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
SLURM = {
    "SLURM_JOB_ID": "4097",
    "SLURM_STEP_NODELIST": "node[1-2]",
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
}
OPEN_MPI = {
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
ARGUMENTS = "coordinator_address", "num_processes", "process_id"


@pytest.fixture(autouse=True)
def before_jax(monkeypatch):
    """Pretend that JAX has not started; the tests' own process has used it."""
    monkeypatch.setattr(preflight, "backend_started", lambda: False)
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def port():
    return free_ports(1)[0]


def meet(port, *processes, timeout=60):
    """Run the check for each (count, id) in a thread; return results or errors."""

    def one(process):
        try:
            return checked_arguments(f"127.0.0.1:{port}", *process, timeout=timeout)
        except RuntimeError as error:
            return str(error)

    with ThreadPoolExecutor(len(processes)) as pool:
        return list(pool.map(one, processes))


def a_report(number, **other):
    report = {"id": number, "count": 2, "host": "a", "loopback": False, "script": 1}
    versions = {"Python": "3.12.1", "JAX": "0.12.0", "jaxlib": "0.12.0"}
    return report | versions | {"complaints": []} | other


def test_jax_starts_with_what_comes_back(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    script = tmp_path / "script.py"
    script.write_text(
        "import jax\n"
        "from examples import preflight\n"
        "jax.distributed.initialize(**preflight.checked_arguments())\n"
        "print(jax.process_count(), jax.device_count())\n"
    )
    launch = ROOT / "launch/local.py", "-n", "2", "--devices", "2", "--timeout", "300"
    assert sorted(run(*launch, script).splitlines()) == ["[0] 2 4", "[1] 2 4"]


def test_an_id_that_comes_twice_is_an_error_of_all(port, monkeypatch):
    monkeypatch.setattr(preflight, "SETTLE_SECONDS", 5)  # the second may be late
    starts = (2, 0), (2, 1), (2, 1)
    for (count, number), verdict in zip(starts, meet(port, *starts), strict=True):
        assert verdict.startswith(f"preflight, process {number} of {count} on ")
        assert "process_id 1 came 2 times" in verdict


def test_a_port_in_use_is_an_error_on_both_sides():
    """What listens there answers, and knows nothing of us."""
    other = ThreadingHTTPServer(("", 0), BaseHTTPRequestHandler)
    with other, ThreadPoolExecutor(1) as pool:
        pool.submit(other.serve_forever)
        verdicts = meet(other.server_port, (2, 0), (2, 1), timeout=10)
        other.shutdown()
    assert re.search(f"port {other.server_port} of .* is taken", verdicts[0])
    assert "does not answer as process 0 does" in verdicts[1]


def foreign(**other):
    """Return the line of somebody who knows our format, or nearly."""
    return json.dumps(a_report(1, **other)).encode() + b"\n"


STRANGE = {
    "empty": b"{}\n",
    "one field": b'{"complaints": []}\n',
    "a list": b"[1, 2]\n",
    "deep": b"[" * 50_000 + b"\n",
    "types": foreign(id="1"),
    "no count": foreign(count=None),
    "complaints": foreign(complaints=[{}]),
    "negative": foreign(id=-1),
    "one more": foreign(colour="red"),
    "huge": b"x" * (1 << 17),
}


@pytest.mark.parametrize("line", STRANGE.values(), ids=STRANGE)
def test_a_line_that_is_no_report_is_passed_over(line):
    assert preflight.parse_report(line) is None


HTTP = b"PRI * HTTP/2.0\r\n\r\n"
KNOCKS = STRANGE["one field"], STRANGE["huge"], b"", b"half", HTTP


@pytest.mark.parametrize("words", KNOCKS)
def test_strangers_hold_nobody_up(port, words, monkeypatch):
    """Eight of them, who stay until the others have met; no read waits for one."""
    waits, read = set(), preflight.read_more

    def read_at_once(visitor, words):
        waits.add(visitor.getblocking())
        visitor.setblocking(False)
        return read(visitor, words)

    monkeypatch.setattr(preflight, "read_more", read_at_once)
    with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as strangers:
        first, count = pool.submit(meet, port, (2, 0)), 0
        while count < 8:  # process 1 comes when all strangers are there
            assert not first.done()
            with contextlib.suppress(ConnectionRefusedError):
                stranger = socket.create_connection(("127.0.0.1", port))
                strangers.enter_context(stranger)
                count += 1
                with contextlib.suppress(OSError):
                    stranger.sendall(words)
            time.sleep(0.01)
        results = meet(port, (2, 1)) + first.result()
    assert all(isinstance(result, dict) for result in results), results
    assert waits == {False}


def test_what_came_during_a_stall_counts(monkeypatch):
    """No time is left once all are there, as after a stall, and a second id 1 came."""
    monkeypatch.setattr(preflight, "SETTLE_SECONDS", 0)
    end = time.monotonic() + 60
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for _ in range(2):
            visitor = socket.create_connection(server.getsockname())
            stack.enter_context(visitor).sendall(foreign())
        reports, visitors = preflight.gather_reports(server, a_report(0), end)
        for visitor in visitors:
            stack.enter_context(visitor)
    assert [one["id"] for one in reports] == [0, 1, 1]


def test_what_others_send_cannot_steer_a_terminal():
    evil = "\x1b]0;mine\x07\x1b[2J\u202e"
    line = foreign(host=evil, complaints=[evil + "x" * 10_000] * 99)
    verdict = "\n".join(judge([a_report(0), preflight.parse_report(line)]))
    assert all(c.isprintable() or c == "\n" for c in verdict)
    assert len(verdict) < 20_000
    assert preflight.parse_verdict(["\x1b[2Ja"]) == ["?[2Ja"]
    for message in {}, "[]", [1], None:
        with pytest.raises(ValueError, match="no verdict"):
            preflight.parse_verdict(message)


def test_whoever_waits_says_for_whom_and_goes_on(port, monkeypatch):
    text = io.StringIO()
    monkeypatch.setattr(sys, "stderr", text)
    monkeypatch.setattr(preflight, "REMINDER_SECONDS", 1)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(meet, port, (3, 0))
        second = pool.submit(meet, port, (3, 2))
        while "have not come" not in text.getvalue():
            assert not first.done()
            time.sleep(0.01)
        assert "preflight, after 1 s: processes 1 have not come yet" in text.getvalue()
        late = meet(port, (3, 1))
        assert all(isinstance(one, dict) for one in late + first.result())
        assert isinstance(second.result()[0], dict)


def test_a_process_may_come_as_late_as_jax_allows():
    start = inspect.signature(jax.distributed.initialize).parameters
    patience = inspect.signature(checked_arguments).parameters["timeout"].default
    assert patience == start["initialization_timeout"].default == 300


def test_a_process_that_differs_or_complains_is_an_error():
    for name, version in ("jaxlib", "0.11.0"), ("Python", "3.13.0"):
        (verdict,) = judge([a_report(0), a_report(1, **{name: version})])
        assert f"process 1 on a runs {name} {version}" in verdict
    unwell = a_report(1, complaints=["is unwell"])
    assert judge([a_report(0), unwell]) == ["process 1 on a: is unwell"]
    for loopback in False, True:  # on one machine
        assert judge([a_report(number, loopback=loopback) for number in (0, 1)]) == []


PROXIES = {
    "https": ({"https_proxy": "p", "http_proxy": "p"}, "https_proxy"),
    "spared": ({"http_proxy": "p", "no_proxy": "x, node1"}, None),
    "domain": ({"http_proxy": "p", "no_grpc_proxy": "1"}, None),
    "first": ({"http_proxy": "p", "no_grpc_proxy": "x", "no_proxy": "1"}, "http_proxy"),
    "capitals": ({"HTTP_PROXY": "p"}, None),  # gRPC does not read them
}


@pytest.mark.parametrize(("env", "variable"), PROXIES.values(), ids=PROXIES)
def test_a_proxy_that_grpc_would_take_is_found(env, variable):
    assert preflight.proxy("node1", env) == variable


def test_the_proxy_of_one_is_an_error_of_all(port, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    for verdict in meet(port, (2, 0), (2, 1)):
        assert "export no_grpc_proxy=127.0.0.1, or unset http_proxy" in verdict


PORT = SLURM | {"JAX_COORDINATOR_PORT": "99"}
ADDRESS = PORT | {"JAX_COORDINATOR_ADDRESS": "c:1"}
NODES = {
    "n1": "n1",
    "n1,n2": "n1",
    "127.0.0.[1-2]": "127.0.0.1",
    "node[003-007,9],gpu1": "node003",
}


def completed(env, *given):
    """Return the address, the count and the id."""
    arguments = dict(zip_longest(ARGUMENTS, given))
    return tuple(complete(arguments, env).values())


def test_variables_are_read_as_jax_reads_them():
    """Open MPI's before Slurm's; an argument before an address, that before a port."""
    for nodes, first in NODES.items():
        env = SLURM | {"SLURM_STEP_NODELIST": nodes}
        assert completed(env) == (f"{first}:61441", 8, 5)
    assert completed(SLURM | OPEN_MPI) == ("10.96.0.1:62624", 4, 3)
    assert completed(PORT) == ("node1:99", 8, 5)
    assert completed(ADDRESS) == ("c:1", 8, 5)
    assert completed(ADDRESS, "d:2", 6, 0) == ("d:2", 6, 0)


REFUSED = {
    "no id": ((None, None, 8), "ids go from 0 to num_processes - 1"),
    "negative": ((None, None, -1), "process_id is -1"),
    "no port": (("node1",), "pass host:port"),
    "port": (("node1:65536",), "pass host:port"),
    "bytes": ((b"node1:1",), "pass host:port"),
    "words": ((None, "8"), "num_processes is '8': pass a whole"),
    "half": ((None, None, 0.5), "process_id is 0.5: pass a whole number"),
}


@pytest.mark.parametrize(("given", "words"), REFUSED.values(), ids=REFUSED)
def test_what_makes_no_sense_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        completed(SLURM, *given)


@pytest.mark.parametrize("timeout", [0, float("nan"), float("inf"), "10"])
def test_a_timeout_is_a_number_of_seconds(timeout):
    with pytest.raises(ValueError, match="pass seconds, more than 0"):
        checked_arguments("127.0.0.1:1", 1, 0, timeout)
