"""Explorers: forms that look up stored answers of JAX and its compilers.

The directive `{explorer} NAME` becomes tables of answers, which stand there without
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

from docutils import nodes
from docutils.parsers.rst import directives
from sources import load_files
from sphinx.util.docutils import SphinxDirective


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


def directive_text(directive) -> str:
    """Return the tables of an explorer as Markdown, for its argument and options."""
    options, explorer = directive.options, load(directive.argument)
    if "exercise" in options:
        return ""
    return format_tables(explorer.few() if "few" in options else explorer.tables())


def format_tables(tables) -> str:
    """Return tables with their titles as Markdown."""
    return "\n\n".join(f"**{title}**\n\n{table(*tables[title])}" for title in tables)


def table(head, *body) -> str:
    """Return rows as a Markdown table."""
    first, *others = (f"| {' | '.join(row)} |" for row in (head, *body))
    return "\n".join([first, "|---" * len(head) + "|", *others])


class Explorer(SphinxDirective):
    """An explorer, as tables that a script replaces."""

    required_arguments = 1
    option_spec = {  # noqa: RUF012
        "class": directives.class_option,
        "exercise": directives.unchanged_required,
        "few": directives.flag,
    }

    def run(self):
        """Return a place with the tables of the explorer."""
        self.argument = name = self.arguments[0]
        for file in load(name).__file__, load(name).SOURCE:
            self.env.note_dependency(str(file))
        load_files(self.env, "explore.js")
        classes = ["explorer", f"explorer-{name}", *self.options.get("class", ())]
        if exercise := self.options.get("exercise"):
            classes.append(f"answers-{exercise}")
        text = directive_text(self)
        self.env.metadata[self.env.docname].setdefault("explorers", {})[name] = text
        content = self.parse_text_to_nodes(text)
        place = nodes.container("", *content, classes=classes)
        for each in place.findall(nodes.table):
            each["classes"].append("answers")
        return [place]


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


def write_data(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: write what the script looks up on this page."""
    folder = Path(app.outdir, "_static/explorers")
    for name in app.env.metadata.get(pagename, {}).get("explorers", ()):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.js").write_text(data_script(name))


def setup(app):
    """Register the directive, its script and its data."""
    app.setup_extension("sources")
    app.add_directive("explorer", Explorer)
    app.connect("html-page-context", write_data)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 5}
