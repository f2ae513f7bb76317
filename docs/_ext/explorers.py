"""Explorers: forms that look up stored answers of JAX and its compilers.

The directive `{explorer} NAME` stands for tables of answers, which a reader has without
script, on paper and in the Markdown of a page; with `:exercise: TAG` there are none.
`_static/explore.js` puts a form in their place, and loads `_static/explorers/NAME.js`:
a page that was opened as a file can read data of a script only. `explorer_NAME.py` has

    SOURCE      the file that the answers come from
    data()      what the form looks up, a dict for JSON: see explore.js
    tables()    title -> rows of Markdown, the first of them a heading
    few()       the same, for the option `:few:`
"""

import csv
import json
import re
from html import escape
from importlib import import_module
from pathlib import Path

from sources import is_unchanged


def load(name):
    """Return the module of an explorer."""
    return import_module(f"explorer_{name}")


def index_rows(file, keys) -> dict[tuple[str, ...], dict[str, str]]:
    """Return the rows of a table by their values in the columns `keys`."""
    with file.open(newline="") as opened:
        return {tuple(row[key] for key in keys): row for row in csv.DictReader(opened)}


def entry_code(dim) -> str:
    """Return the code of an entry that a table writes as `-`, `x` or `xy`."""
    entry = None if dim == "-" else dim if len(dim) == 1 else (*dim,)
    return repr(entry).replace("'", '"')


def spec_code(text) -> str:
    """Return the code of a spec that a table writes as `xy,-`."""
    return f"P({', '.join(map(entry_code, text.split(',')))})"


def tables_text(block) -> str:
    """Return the tables of an explorer as Markdown."""
    explorer = load(block.argument)
    if "exercise" in block.options:
        return ""
    return format_tables(
        explorer.few() if "few" in block.options else explorer.tables()
    )


def place_text(block) -> str:
    """Return the place of an explorer, in which a script replaces the tables."""
    exercise = block.options.get("exercise")
    more = f"answers-{exercise}" if exercise else block.options.get("class", "")
    start = f'<div class="explorer explorer-{block.argument} {more}">'
    return f"{start}\n\n{tables_text(block)}\n\n</div>"


def format_tables(tables) -> str:
    """Return tables with their titles as Markdown."""
    return "\n\n".join(f"**{title}**\n\n{table(*tables[title])}" for title in tables)


def table(head, *body) -> str:
    """Return rows as a Markdown table."""
    first, *others = (f"| {' | '.join(row)} |" for row in (head, *body))
    return "\n".join([first, "|---" * len(head) + "|", *others])


def code(text) -> str:
    """Return a text as code in HTML."""
    return f"<code>{escape(text, quote=False)}</code>"


def choice(key, legend, options, checked=None, name="") -> str:
    """Return a choice of one: options are value -> HTML, "" checks none of them."""
    if checked not in {*options, ""}:
        checked = next(iter(options))
    labels = (
        f'<label><input type="radio" name="{key}" value="{value}"'
        f"{' checked' * (value == checked)}><span>{html}</span></label>"
        for value, html in options.items()
    )
    return (
        f'<fieldset class="choice {name}"><legend>{legend}</legend>'
        f"<div>{''.join(labels)}</div></fieldset>"
    )


def data_script(name) -> str:
    """Return the data of an explorer as a script, which has each picture once."""
    pictures = {}
    text = re.sub(
        "<svg.*?</svg>",
        lambda svg: f"{{{pictures.setdefault(svg[0], len(pictures))}}}",
        json.dumps(load(name).data(), ensure_ascii=False),
    )
    shared = ", ".join(f'"{svg}"' for svg in pictures)  # is JSON, as it was cut out
    data = f'{text[:-1]}, "pictures": [{shared}]}}'
    return f"(window.shardbook ??= {{}}).{name} = {data};\n"


def write_data(app, exception):
    """Handle `build-finished`: write what the script looks up."""
    if exception or is_unchanged(app, "others"):
        return
    folder = Path(app.outdir, "_static/explorers")
    folder.mkdir(parents=True, exist_ok=True)
    for file in Path(__file__).parent.glob("explorer_*.py"):
        name = file.stem.removeprefix("explorer_")
        (folder / f"{name}.js").write_text(data_script(name))


def setup(app):
    """Register the handler."""
    app.connect("build-finished", write_data)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
