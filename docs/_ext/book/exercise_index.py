"""The index of exercises writes itself: a line for each exercise of the book.

A line `{exercise-index}` on a page becomes a list of all exercises, page by page in the
order of the contents, each with a link to the exercise itself and the first sentence of
what it asks. For that, each exercise gets a target named after the tag of its stub.
"""

import re
from pathlib import Path
from posixpath import relpath

from book.page import Page

PLACE = "{exercise-index}"
ENTRY = re.compile(r"^[\w-]+/[\w-]+$", re.M)  # a page in the contents


def with_targets(page) -> str:
    """Return the text of a page with a target at each exercise."""
    lines = page.text.split("\n")
    for exercise in reversed(page.exercises):
        lines.insert(exercise.line + 1, f":name: exercise-{exercise.name}")
    return "\n".join(lines)


def pages(docs) -> list[Page]:
    """List the pages that have exercises, in the order of the contents."""
    index = docs / "index.md"
    order = ENTRY.findall(index.read_text()) if index.exists() else []
    found = (Page(docs / f"{entry}.md", docs) for entry in order)
    return [page for page in found if page.file.exists() and page.exercises]


def section(other, page) -> str:
    """Return the MyST text for one page with exercises, to stand on another page."""
    path = relpath(other.file, page.file.parent)
    lines = [f"## [{other.title}]({path})", ""]
    for each in other.exercises:
        lines.append(f"- [{each.title}]({path}#exercise-{each.name}): {each.asks}")
    return "\n".join(lines)


def expanded(text, page) -> str:
    """Return the text of a page with all exercises in the place for them."""
    sections = (section(other, page) for other in pages(page.docs))
    return text.replace(PLACE, "\n\n".join(sections)) if PLACE in text else text


def fill(app, docname, source):
    """Handle `source-read`: set the targets, and write the index."""
    file = Path(app.env.doc2path(docname))
    page = Page(file, Path(app.srcdir), source=source[0])
    source[0] = expanded(with_targets(page), page)


def outdated(app, env, added, changed, removed):
    """Handle `env-get-outdated`: read the index again when any page changes."""
    if not added | changed | removed:
        return []
    return [name for name in env.found_docs if PLACE in env.doc2path(name).read_text()]


def setup(app):
    """Register the handlers."""
    app.connect("source-read", fill)
    app.connect("env-get-outdated", outdated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
