"""Explorers: forms that look up stored answers of JAX and its compilers.

The directive `{explorer} NAME` becomes tables of all answers, which stand there without
script, on paper and in the plain text of a page. `_static/explore.js` puts a form in
their place. Its data, `_static/explorers/NAME.js`, are written when the code or the
table that they come from is newer (tools/ keeps the tables in `data/`); they are
scripts, since a page that was opened as a file may read no others. Each name has a
module `explorer_NAME` with two functions: `data()`, a dict for JSON, and `tables()`,
what stands there without script: title -> rows of cells, whose first row is their
heading; and with `SOURCE`, the file that both read. With `:few:` the tables are those
of a third function, `few()`. With `:exercise: TAG` an explorer takes the answer to that
exercise, one of the module's `EXERCISES`; it has no tables.
"""

import csv
import json
from importlib import import_module
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sources import load_files
from sphinx.util.docutils import SphinxDirective

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "src/examples"
NAMES = [file.stem.removeprefix("explorer_") for file in HERE.glob("explorer_*.py")]


class UniqueList(list):
    """Items, each once; `index_of` adds what is not there yet."""

    def index_of(self, item) -> int:
        """Return the place of an item."""
        if item not in self:
            self.append(item)
        return self.index(item)


def load(name):
    """Return the module of an explorer."""
    return import_module(f"explorer_{name}")


def index_rows(file, keys) -> dict[tuple[str, ...], dict[str, str]]:
    """Return the rows of a table by their values in the columns `keys`."""
    with file.open(newline="") as opened:
        return {tuple(row[key] for key in keys): row for row in csv.DictReader(opened)}


def script(name) -> str:
    """Return the data of an explorer as a script."""
    data = json.dumps(load(name).data(), separators=(",", ":"), ensure_ascii=False)
    return f"(window.shardbook ??= {{}}).{name} = {data};\n"


def table(rows) -> nodes.table:
    """Return rows of texts as a table, whose first row and first cells are headings."""
    head, *body = rows
    group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in head), cols=len(head))
    group += nodes.thead("", row(head))
    group += nodes.tbody("", *map(row, body))
    return nodes.table("", group, classes=["answers"])


def row(cells) -> nodes.row:
    """Return texts as a row."""
    return nodes.row("", *(nodes.entry("", cell(text)) for text in cells))


def cell(text) -> nodes.paragraph:
    """Return a text as a paragraph, as code if it stands between backquotes."""
    if text[:1] == text[-1:] == "`" and text:
        return nodes.paragraph("", "", nodes.literal(text[1:-1], text[1:-1]))
    return nodes.paragraph(text, text)


def directive_text(part) -> str:
    """Return a directive as Markdown: the tables."""
    if "exercise" in part.options:
        return ""
    titles = tables(part.argument, part.options).items()
    return "\n\n".join(f"**{title}**\n\n{markdown(rows)}" for title, rows in titles)


def tables(name, options) -> dict[str, list[list[str]]]:
    """Return the tables that pages show without script: all, or the few."""
    known = load(name)
    return known.few() if "few" in options else known.tables()


def markdown(rows) -> str:
    """Return rows of texts as a Markdown table."""
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|---" * len(rows[0]) + "|", *body])


class Explorer(SphinxDirective):
    """An explorer, as tables that a script replaces."""

    required_arguments = 1
    option_spec = {  # noqa: RUF012
        "class": directives.class_option,
        "exercise": directives.unchanged_required,
        "few": directives.flag,
    }

    def run(self):
        """Return a place with the tables of the explorer that is named."""
        name = self.arguments[0]
        if name not in NAMES:
            raise self.error(f"no explorer {name}: pass one of {NAMES}")
        known = load(name)
        for file in (known.__file__, known.SOURCE):
            self.env.note_dependency(str(file))
        self.env.metadata[self.env.docname].setdefault("explores", set()).add(name)
        load_files(self.env, "explore.js")
        place = nodes.container(classes=["explorer", f"explorer-{name}"])
        place["classes"] += self.options.get("class", [])
        if exercise := self.options.get("exercise"):
            if exercise not in known.EXERCISES:
                raise self.error(f"explorer_{name}.py has no exercise {exercise}")
            place["classes"].append(f"answers-{exercise}")
            return [place]
        for title, rows in tables(name, self.options).items():
            place += nodes.rubric(title, title)
            place += table(rows)
        return [place]


def is_current(file, name) -> bool:
    """Return whether a script is newer than the code and the table it is made of."""
    sources = [*HERE.rglob("*.py"), *EXAMPLES.glob("*.py"), load(name).SOURCE]
    latest = max(source.stat().st_mtime for source in sources)
    return file.exists() and file.stat().st_mtime > latest


def write_data(app, error):
    """Handle `build-finished`: write the data of what pages explore, if it is old."""
    if error or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "_static/explorers"
    explorers = (page.get("explores", ()) for page in app.env.metadata.values())
    for name in sorted({name for names in explorers for name in names}):
        file = folder / f"{name}.js"
        if not is_current(file, name):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(script(name))


def setup(app):
    """Register the directive, its script and its data."""
    app.setup_extension("sources")
    app.add_directive("explorer", Explorer)
    app.connect("build-finished", write_data)
    safe = {"parallel_read_safe": True, "parallel_write_safe": True}
    return safe | {"env_version": 3}  # an environment of another one is read anew
