"""Cells that run in every process: what they show, how they fail, and that they end."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from cases import each_week
from on_processes import SLOW, begin, share_processes

from examples import processes
from examples.processes import Processes, ProcessesError

pytestmark = pytest.mark.processes
SOURCE = Path(__file__).parents[2] / "src"
NAMES = """
import os, sys, time
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
me = jax.process_index()
"""
four = share_processes(4, 2, NAMES)


@pytest.fixture
def two():
    """Start two processes that a test may end."""
    with begin(2, names=NAMES) as two:
        yield two


def ended(ids, within=SLOW):
    """Say whether processes end in time: then their pidfd can be read."""
    for number in ids:
        gone = contextlib.suppress(ProcessLookupError)
        with gone, os.fdopen(os.pidfd_open(number), "rb", 0) as watch:
            if not select.select([watch], [], [], within)[0]:
                return False
    return True


def refused(group, *args, **options):
    """Run what must fail; return the error."""
    with pytest.raises(ProcessesError) as caught:
        group.run(*args, **options)
    return caught.value


# ------------------------------------------------------------------------ what is shown


EVERY = "[every process]\n{}".format
SHOWN = [
    *((silent, "") for silent in ("None", "a = 1", "me;", "", "# a comment")),
    ("me % 2", "[processes 0, 2]\n0\n[processes 1, 3]\n1"),
    ("if me == 2: print('alone')", "[process 2]\nalone"),
    ("jax.device_count(), jax.process_count()", EVERY("(8, 4)")),
    ("print('Übung ✓ 矢 \\N{ROCKET}')", EVERY("Übung ✓ 矢 🚀")),
    (r"print('\ud800')", EVERY(r"\ud800")),
    (r"sys.stdout.buffer.write(b'\xff');", EVERY("\ufffd")),
]


@pytest.mark.parametrize(("cell", "shown"), SHOWN)
def test_equal_outputs_stand_once_and_no_word_of_none(four, cell, shown):
    """Nor what a statement gives, or a semicolon ends; any text as it was printed."""
    assert str(four.run(cell)) == shown


def test_outputs_stand_in_the_order_of_the_processes_and_values_last(four):
    late_first = "time.sleep(0.2 * (4 - me)); print('has')\n"
    texts = four.run(late_first + "[d.id for d in jax.local_devices()]").texts
    assert len(four.run("hash('a')").groups) == 1  # also those of sets, in each start
    assert texts == tuple(f"has\n[{2048 * p}, {2048 * p + 1}]" for p in range(4))


def test_a_value_keeps_its_form_for_the_web(four):
    four.run("class Bold:\n    def _repr_html_(self):\n        return f'<b>{me}</b>'")
    output = four.run("Bold()")
    assert [shown.html for shown in output.shown] == [f"<b>{p}</b>" for p in range(4)]
    assert four.run("Bold").texts == ("<class '__main__.Bold'>",) * 4


def test_large_outputs_and_large_cells_pass(four):
    output = four.run(f"text = {'x' * 3_000_000!r}\nprint(text)\nlen(text)")
    assert {len(text) for text in output.texts} == {3_000_000 + len("\n3000000")}


def test_what_a_callback_prints_belongs_to_its_cell(four):
    four.run("""
def late(x):
    time.sleep(0.3)
    print("x is", x)

f = jax.jit(lambda x: jax.debug.callback(late, x))
spread = jax.NamedSharding(jax.make_mesh((8,), ("x",)), jax.P("x"))
ones = jax.device_put(np.ones(8, np.float32), spread)
""")
    texts = four.run("f(ones.sum()); None").texts
    assert texts == ("x is 8.0", "", "", "")  # it is called on device 0 only


def test_libraries_stay_silent_and_python_warnings_do_not(four, capfd):
    four.run("x = multihost_utils.process_allgather(jnp.ones(2)); os.system('echo no')")
    assert capfd.readouterr() == ("", "")
    four.run("import warnings\nif me == 2: warnings.warn('careful')")
    streams = capfd.readouterr()
    assert streams.out == ""
    assert streams.err.startswith("[process 2]\n")
    assert "UserWarning: careful" in streams.err


# ------------------------------------------------------------------------- the start


def test_without_initialize_each_is_alone():
    assert jax.device_count() == 8  # this Python has looked for its own
    with Processes(2, devices=3, timeout=SLOW, initialize=False) as two:
        output = two.run("import jax\njax.process_count(), jax.device_count()")
    assert str(output) == "[every process]\n(1, 3)"


def test_it_works_in_a_python_that_has_not_looked_for_devices(run):
    code = (
        "import jax; from examples.processes import Processes\n"
        "with Processes(2, timeout=300) as two: print(two.run('1 + 1'))\n"
        "jax.config.update('jax_num_cpu_devices', 3)  # refused once JAX has looked\n"
        "print(jax.device_count())"
    )
    assert run("-c", code, cwd=SOURCE) == "[every process]\n2\n3\n"


def test_a_module_beside_the_notebook_is_found_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("answer = 42\n")
    monkeypatch.chdir(tmp_path)
    with Processes(1, timeout=SLOW) as one:
        one.run("import os\nos.chdir('/')")
        assert one.run("import beside\nbeside.answer").texts == ("42",)


# ------------------------------------------------------------------ when one goes wrong


def test_an_exception_shows_the_frames_of_cells_only(four):
    four.run("def divide(a, b):\n    return jnp.ones(a) @ jnp.ones(b)")
    error = refused(four, "if me == 1:\n    divide(2, 3)")
    assert error.args[0] == "process 1 raised TypeError"
    shown = error.output.texts[1].splitlines()
    places = [line for line in shown if line.startswith("  File")]
    lines = [place.partition("line ")[2] for place in places]
    assert lines == ["2, in <module>", "2, in divide"]
    assert shown[-1].startswith("TypeError: ")
    assert error.output.texts[0] == ""
    assert "TypeError: " in str(error)


def test_any_end_of_a_cell_is_an_exception_and_variables_stay(four):
    refused(four, "mine = 1 // (me - 1)")
    assert four.run("'mine' in globals() and mine").texts == ("-1", "False", "1", "0")
    for cell, last in {"def f(:": "invalid syntax", "exit(3)": "SystemExit: 3"}.items():
        assert refused(four, cell).output.texts[0].endswith(last)


@pytest.mark.parametrize("raises", ["KeyError", "IndexError: on Sunday"])
def test_an_expected_exception_has_its_kind_and_words(four, raises):
    """The page shows where it must come, and that a class above it will do."""
    words = f"every process raised IndexError; expected was {raises} on every process"
    assert refused(four, "[][0]", raises=raises).args == (words,)
    assert len(four) == 4


def test_no_process_and_no_device_are_refused():
    for arguments in (0, 2), (2, 0):
        with pytest.raises(ValueError, match="pass 1 or more of both"):
            Processes(*arguments)


def end_of(two, cell, **options):
    """Run what ends all; return the reason, and what each has shown."""
    ids = two.ids
    error = refused(two, cell, **options)
    assert ended(ids)
    assert "start new ones" in str(refused(two, "1"))
    return error.args[0].removesuffix("; all processes were ended"), error.output.texts


def test_what_a_process_started_ends_with_it(two):
    """The page shows how long the others wait for one that raised."""
    start = "import subprocess\nsubprocess.Popen(['sleep', '1000']).pid"
    ids = [int(text) for text in two.run(start).texts]
    two.close()
    assert ended(ids)


def test_causes_stand_before_what_may_have_come_of_them(two):
    """One that dies ends all; what was printed before stays."""
    cell = "print('so far', flush=True)\nif me == 1:\n    os._exit(7)\n1 / 0"
    reason, (first, second) = end_of(two, cell)
    assert reason == "process 1 died; process 0 raised ZeroDivisionError"
    assert first.startswith("so far\n")
    assert second == "so far\nDied: exit code 7"


def test_death_between_two_cells_is_an_error(two):
    os.kill(two.ids[1], signal.SIGKILL)  # JAX would end all without process 0
    assert ended(two.ids[1:])
    assert refused(two, "me").output.texts == ("0", "Died: SIGKILL")


def test_the_error_says_why_one_aborted(two):
    _, texts = end_of(two, "import ctypes\nif me == 0:\n    ctypes.string_at(0)")
    assert "Died: SIGSEGV\nFatal Python error: Segmentation fault" in texts[0]


def test_an_interrupt_ends_all(two, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    ids = two.ids
    monkeypatch.setattr(processes, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        two.run("time.sleep(1000)")
    assert ended(ids)


# --------------------------------------------------------------------------- no orphans

PARENT = """
import sys, threading
from examples.processes import Processes

def start():
    global two
    two = Processes(2, timeout=300)

if "thread" in sys.argv:  # then Linux sends no signal: the closed channel must do
    starter = threading.Thread(target=start)
    starter.start()
    starter.join()
else:
    start()
print(*two.ids, flush=True)
two.run(sys.argv[1])
"""


@pytest.mark.parametrize(
    "words", [["import time; time.sleep(1e4)", "thread"], each_week(["while 1: pass"])]
)
def test_when_the_parent_is_killed_they_die(words):
    command = [sys.executable, "-c", PARENT, *words]
    pipe = {"stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=SOURCE, **pipe) as parent:
        first, second = map(int, parent.stdout.readline().split())
        parent.kill()
    assert ended([first, second])


def test_when_the_parent_ends_they_end(run):
    ids = [int(word) for word in run("-c", PARENT, "", cwd=SOURCE).split()]
    assert len(ids) == 2
    assert ended(ids, within=0)


def test_those_without_a_reference_end():
    one = Processes(1, timeout=SLOW, initialize=False)
    ids = one.ids
    del one
    assert ended(ids)


def test_a_start_that_fails_leaves_none(monkeypatch):
    join = "import os\nprint(os.getpid())\nif {rank} == 1:\n    raise OSError('no')"
    monkeypatch.setattr(processes, "JOIN", join)
    monkeypatch.setattr(processes, "GRACE", SLOW)
    with pytest.raises(ProcessesError, match="process 1 raised OSError") as caught:
        Processes(2)
    assert ended(int(text.split()[0]) for text in caught.value.output.texts)
