"""Generate the index of exercises: a line for each exercise of the book.

The directive `exercise-index` becomes a list of all exercises, page by page in the
order of the contents. Each line has a link to the exercise, its difficulty, and its
first sentence. For links, each exercise gets a target named after the tag of its stub.
Its difficulty is the sum of the lines of its solution and of its wrong answers in
`tests/wrong_answers`, in three classes.
"""

from pathlib import Path
from posixpath import relpath

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

from book import contents
from book.page import Page

LEVELS = {"easy": 5, "medium": 8}  # the largest sum of each; more is hard


def wrong_answers(exercise, page) -> Path:
    """Return the file with the wrong answers to an exercise."""
    return page.docs.parent / f"tests/wrong_answers/{exercise.name}.toml"


def difficulty(exercise, page) -> str:
    """Return the class of an exercise: a long solution, or many ways to be wrong."""
    cells = (cell for cell in page.code if {"solution", exercise.name} <= {*cell.tags})
    lines = [line for cell in cells for line in cell.source.splitlines()]
    wrong = wrong_answers(exercise, page)
    count = sum(map(bool, map(str.strip, lines)))
    if wrong.exists():
        count += wrong.read_text().count("[[wrong]]")
    return next((name for name, most in LEVELS.items() if count <= most), "hard")


def page_section(other, page) -> str:
    """Return the MyST text for one page with exercises, to stand on another page."""
    path = relpath(other.file, page.file.parent)
    lines = [f"## [{other.title}]({path})", ""]
    for each in other.exercises:
        link = f"[{each.title}]({path}#exercise-{each.name})"
        lines.append(f"- {link} ({difficulty(each, other)}): {each.asks}")
    return "\n".join(lines)


def index_text(page) -> str:
    """Return the index in MyST, to stand on a page."""
    others = (other for other in contents.pages(page.docs) if other.exercises)
    return "\n\n".join(page_section(other, page) for other in others)


class ExerciseIndex(SphinxDirective):
    """The index, generated again when its text changes."""

    def run(self):
        """Return the sections of the index."""
        page = Page(Path(self.env.doc2path(self.env.docname)), Path(self.env.srcdir))
        found = self.env.metadata[self.env.docname]["exercises"] = index_text(page)
        return self.parse_text_to_nodes(found, allow_section_headings=True)


def outdated_pages(app, env, added, changed, removed):
    """Handle `env-get-outdated`: read the index again if its text has changed."""
    if not added | changed | removed:
        return []
    docs = Path(app.srcdir)
    pages = {name: Page(Path(env.doc2path(name)), docs) for name in env.found_docs}
    texts = {n: of["exercises"] for n, of in env.metadata.items() if "exercises" in of}
    return [n for n in {*texts} & {*pages} if texts[n] != index_text(pages[n])]


class Targets(SphinxTransform):
    """Name each exercise after the tag of its stub, for links to lead to it."""

    default_priority = 400  # before Sphinx collects what links may lead to

    def apply(self):
        """Name the boxes of this page: they stand in the order of its exercises."""
        page = Page(Path(self.env.doc2path(self.env.docname)), Path(self.env.srcdir))
        boxes = self.document.findall(nodes.admonition)
        boxes = [box for box in boxes if "exercise" in box["classes"]]
        for box, exercise in zip(boxes, page.exercises, strict=False):
            box["names"].append(f"exercise-{exercise.name}")
            self.document.note_explicit_target(box)


def setup(app):
    """Register the directive and the transform."""
    app.setup_extension("filters")
    app.add_directive("exercise-index", ExerciseIndex)
    app.add_transform(Targets)
    app.connect("env-get-outdated", outdated_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
