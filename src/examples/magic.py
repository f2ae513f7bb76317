# SPDX-License-Identifier: MIT-0
"""A magic for notebooks, `%%every`: a cell runs in several processes, and is shown.

`every(processes)` registers it for an object whose `run(source, ...)` returns what each
process shows, such as `Processes` of `processes.py`. Each output has a bar in the
colour of its process; outputs that are equal appear once.

    four = every(Processes(4, devices=2))
    %%every                         first line of a cell: all four run it
    %%every --raises ValueError --on 0,1 --timeout 5        options of `run`

Cost: that of `run`.

    python magic.py

Copy this file alone: it needs the standard library only, and IPython in a notebook.
"""

import html
import shlex
import sys

# The eight colours of the book's devices; the label says the same without them.
COLOURS = ("#67bdf5", "#f5ad45", "#2fb08c", "#fbe184")
COLOURS += ("#9b93f7", "#e28a52", "#d99cc8", "#c5d3d6")
BAR = "border-left: .25rem solid {}; margin: .5rem 0; padding-left: .75rem"
LABEL = "font-size: .8rem; font-weight: 600; line-height: 1.5"
TEXT = "background: none; border: 0; box-shadow: none; color: inherit; margin: 0"
TEXT += "; overflow-wrap: anywhere; padding: 0; white-space: pre-wrap"


def every(processes):
    """Let cells that begin with `%%every` run in these processes; return them.

    Outside a notebook nothing happens. The options are those of `run`, and all of them
    may be left out: `--raises ERROR`, `--on 0,1`, `--timeout SECONDS`. A cell raises
    ValueError for other options, and what `run` raises.
    """

    def magic(line, cell):
        processes.run(cell, show=display, **options(line))

    if shell := _shell():
        shell.register_magic_function(magic, "cell", "every")
        formatter = shell.display_formatter.formatters["text/html"]
        formatter.for_type_by_name(type(processes).__module__, "Output", as_html)
    return processes


def _shell():
    """Return IPython's shell, if this Python has one."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def options(line: str) -> dict:
    """Read the options of `%%every`."""
    kinds = {"--raises": str, "--on": _ranks, "--timeout": float}
    words = shlex.split(line)
    try:
        pairs = zip(words[::2], words[1::2], strict=True)
        return {name.removeprefix("--"): kinds[name](text) for name, text in pairs}
    except (KeyError, ValueError):
        raise ValueError(
            f"%%every {line}: the options are --raises ERROR, --on 0,1 and "
            "--timeout SECONDS"
        ) from None


def _ranks(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def display(output):
    """Show an output in a notebook, unless it is empty; print it elsewhere."""
    if not output.groups:
        return
    if shell := _shell():
        data = {"text/plain": str(output), "text/html": as_html(output)}
        shell.display_pub.publish(data)
    else:
        print(output)


def as_html(output) -> str:
    """Return an output as HTML: a bar for each group of processes with equal parts."""
    return "".join(
        f'<div role="group" aria-label="{output.label(ranks)}" '
        f'style="{BAR.format(_colour(ranks, len(output.shown)))}">'
        f'<div style="{LABEL}">{output.label(ranks)}</div>{_parts(shown)}</div>'
        for shown, ranks in output.groups.items()
    )


def _parts(shown) -> str:
    """Return what was printed, the last value in its own form, and the error."""
    return _pre(shown.printed) + (shown.html or _pre(shown.value)) + _pre(shown.error)


def _colour(ranks, count: int) -> str:
    return "currentColor" if 1 < len(ranks) == count else COLOURS[ranks[0] % 8]


def _pre(text: str) -> str:
    return f'<pre style="{TEXT}">{html.escape(text.rstrip())}</pre>' if text else ""


def main():
    """Show the options of a cell as `run` gets them."""
    print(options("--raises 'ValueError: odd' --on 0,1 --timeout 5"))


if __name__ == "__main__":
    main()
