"""The directive `exercise-index`: a line for each exercise of the book.

For links, each exercise gets a target named after the tag of its stub.
"""

from docutils import nodes
from sources import make_text, page_of
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

from book.exercises import index_text


class ExerciseIndex(SphinxDirective):
    """The index, made again when its text changes."""

    def run(self):
        """Return the sections of the index."""
        text = make_text(self.env, index_text)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def find_boxes(document, page):
    """Yield each box of an exercise of a page, and the exercise."""
    boxes = document.findall(nodes.admonition)
    boxes = (box for box in boxes if "exercise" in box["classes"])
    yield from zip(boxes, page.exercises, strict=False)


class Targets(SphinxTransform):
    """Name each exercise after the tag of its stub, for links to lead to it."""

    default_priority = 400  # before Sphinx collects what links may lead to

    def apply(self):
        """Name the boxes of this page."""
        for box, exercise in find_boxes(self.document, page_of(self.env)):
            box["names"].append(f"exercise-{exercise.name}")
            self.document.note_explicit_target(box)


def setup(app):
    """Register the directive and the transform."""
    app.setup_extension("filters")
    app.add_directive("exercise-index", ExerciseIndex)
    app.add_transform(Targets)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
