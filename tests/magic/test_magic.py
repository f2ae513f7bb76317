"""Cells that begin with `%%every`: where they run, what is shown, and their options."""

import re
from pathlib import Path

import pytest
from on_processes import share_processes

from examples import magic
from examples.processes import Output, ProcessesError, Shown

SOURCE = Path(magic.__file__).parents[1]
OUTPUT = Output(tuple(Shown(printed=f"{word}\n") for word in ("one", "two", "one")))


class Shell:
    """What of IPython's shell is used."""

    def __init__(self):
        self.published = []
        self.display_formatter = self.display_pub = self
        self.formatters = {"text/html": self}

    def register_magic_function(self, function, kind, name):
        assert (kind, name) == ("cell", "every")
        self.every = function

    def for_type_by_name(self, *names):
        pass

    def publish(self, data):
        self.published.append(data)


four = share_processes(4, names="import jax\nme = jax.process_index()")


@pytest.fixture
def shell(four, monkeypatch):
    """A notebook in which `%%every` runs cells in four processes."""
    shell = Shell()
    monkeypatch.setattr(magic, "_shell", lambda: shell)
    assert magic.every(four) is four
    return shell


@pytest.mark.processes
def test_a_cell_displays_what_the_processes_show(shell):
    shell.every("", "me // 2")
    (data,) = shell.published
    assert data["text/plain"] == "[processes 0, 1]\n0\n[processes 2, 3]\n1"
    assert data["text/html"].count('role="group"') == 2
    shell.every("", "quiet = 1")
    assert len(shell.published) == 1


def test_its_options_are_those_of_run():
    line = '--raises "ValueError: a b" --on 0,3 --timeout 2.5'
    options = {"raises": "ValueError: a b", "on": (0, 3), "timeout": 2.5}
    assert magic.options(line) == options
    assert magic.options("") == {}
    for line in "--raise ValueError", "5", "--timeout soon", "--on x":
        with pytest.raises(ValueError, match="the options are --raises ERROR"):
            magic.options(line)


@pytest.mark.processes
def test_an_error_is_displayed_once(shell):
    shell.every("--raises ZeroDivisionError --on 0", "1 / me")
    shell.published.clear()
    with pytest.raises(ProcessesError) as caught:
        shell.every("", "1 / me")
    assert str(caught.value) == "process 0 raised ZeroDivisionError"
    assert caught.value._render_traceback_() == [f"ProcessesError: {caught.value}"]
    assert "ZeroDivisionError: " in shell.published[0]["text/html"]


def test_the_web_page_names_the_processes_in_words():
    page = magic.as_html(OUTPUT)
    assert page.index('aria-label="processes 0, 2"') < page.index(">process 1</div>")
    all_alike = magic.as_html(Output(OUTPUT.shown[::2]))
    assert "border-left: .25rem solid currentColor" in all_alike
    assert magic.as_html(Output((Shown(),) * 3)) == ""


def test_each_process_has_the_colour_of_its_number():
    for rank in range(10):
        alone = [Shown(value="x" * (n == rank)) for n in range(10)]
        page = magic.as_html(Output(tuple(alone)))
        assert re.findall(r"solid (#\w+)", page) == [magic.COLOURS[rank % 8]]


def test_text_is_escaped_and_a_value_keeps_its_html():
    shown = Shown(printed="<above>", value="Bold()", html="<b>1</b>", error="<below>")
    page = magic.as_html(Output((shown,)))
    assert page.index("&lt;above&gt;") < page.index("<b>1</b>")
    assert page.index("<b>1</b>") < page.index("&lt;below&gt;")
    assert "Bold" not in page


NOTEBOOK = """
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_cell("from examples.magic import every")
shell.run_cell("from examples.processes import Processes")
shell.run_cell("two = every(Processes(2, timeout=300))")
shell.run_cell("%%every\\nimport jax\\njax.process_index()")
output = shell.user_ns["two"].run("1 + 1")
print(shell.display_formatter.format(output)[0]["text/html"])
shell.user_ns["two"].close()
"""


@pytest.mark.processes
def test_it_works_in_ipython(run):
    shown = run("-c", NOTEBOOK, cwd=SOURCE)
    assert "[process 0]\n0\n[process 1]\n1" in shown
    assert 'aria-label="every process"' in shown
