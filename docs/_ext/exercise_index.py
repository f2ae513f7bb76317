"""The index of exercises writes itself: a line for each exercise of the book.

A line `{exercise-index}` on a page becomes a list of all exercises, page by page in the
order of the contents, each with a link to the exercise itself and the first sentence of
what it asks. For that, each exercise gets a target named after the tag of its stub.
"""

import re
from pathlib import Path
from posixpath import relpath
from typing import NamedTuple

from plain import Page

PLACE = "{exercise-index}"
ENTRY = re.compile(r"^[\w-]+/[\w-]+$", re.M)  # a page in the contents
TITLE = re.compile(r"^# +(.+)$", re.M)
LINK = re.compile(r"\[([^\]]*)\]\([^)\s]*\)")
SENTENCE = re.compile(r".+?(?:[.?](?=\s)|$)")
ENOUGH = 40  # characters
EXERCISE = re.compile(
    r"^(?P<marks>:{3,})\{admonition\} (?:Exercise: )?(?P<title>[^\n]+)\n"
    r"(?P<class>:class: exercise)\n+"
    r"(?P<statement>.*?)\n(?P=marks)$"
    r".*?tags: \[exercise, (?P<name>[\w-]+)",
    re.M | re.S,
)


class Exercise(NamedTuple):
    """An exercise: the tag of its stub, its title, and what it asks in a sentence."""

    name: str
    title: str
    asks: str


def exercises(text) -> list[Exercise]:
    """List the exercises on a page."""
    return [
        Exercise(
            found["name"],
            found["title"][0].upper() + found["title"][1:],
            first_sentence(found["statement"]),
        )
        for found in EXERCISE.finditer(text)
    ]


def first_sentence(text) -> str:
    """Return how a statement in MyST begins, on one line, its links without targets.

    That is its first sentence, or a few if the first says little.
    """
    words = " ".join(LINK.sub(r"\1", text.strip().partition("\n\n")[0]).split())
    found = ""
    for sentence in SENTENCE.findall(words):
        if len(found) < ENOUGH:
            found += sentence
    return found.strip().rstrip(".,:;?") + "."


def with_targets(text) -> str:
    """Return the text of a page with a target at each exercise."""

    def name(found):
        return found[0].replace(
            found["class"], f"{found['class']}\n:name: exercise-{found['name']}", 1
        )

    return EXERCISE.sub(name, text)


def pages(docs) -> list[Path]:
    """List the pages that have exercises, in the order of the contents."""
    index = docs / "index.md"
    order = ENTRY.findall(index.read_text()) if index.exists() else []
    files = [docs / f"{entry}.md" for entry in order]
    return [
        file for file in files if file.exists() and EXERCISE.search(file.read_text())
    ]


def section(file, page) -> str:
    """Return the MyST text for one page: its title, and its exercises."""
    text = file.read_text()
    path = relpath(file, page.file.parent)
    lines = [f"## [{TITLE.search(text)[1]}]({path})", ""]
    for name, title, asks in exercises(text):
        lines.append(f"- [{title}]({path}#exercise-{name}): {asks}")
    return "\n".join(lines)


def expanded(text, page) -> str:
    """Return the text of a page with all exercises in the place for them."""
    sections = (section(file, page) for file in pages(page.docs))
    return text.replace(PLACE, "\n\n".join(sections)) if PLACE in text else text


def fill(app, docname, source):
    """Handle `source-read`: set the targets, and write the index."""
    page = Page(Path(app.env.doc2path(docname)), Path(app.srcdir))
    source[0] = expanded(with_targets(source[0]), page)


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
