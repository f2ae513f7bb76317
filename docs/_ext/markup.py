"""Add to the markup of pages what the style sheet and readers need.

A page with `wide: true` in its front matter has wide tables.
"""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from book.predictions import read_answers


class Predict(SphinxDirective):
    """A question with answers that open to reasons, without a script: `predictions`."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self):
        """Return a box with the question, and a line for each answer."""
        group = f"predict-{self.env.new_serialno('predict') + 1}"
        question = self.paragraph("Predict. ", self.arguments[0])
        box = nodes.container("", question, classes=["predict"])
        for answer in read_answers("\n".join(self.content)):
            kind, verdict = ("right", "Right. ") if answer.right else ("wrong", "No: ")
            box += [
                raw(f'<details class="{kind}" name="{group}">\n<summary>'),
                nodes.inline("", "", *self.parse_inline(answer.text)[0]),
                raw("</summary>\n<div>"),
                self.paragraph(verdict, answer.reason),
                raw("</div>\n</details>\n"),
            ]
        return [box]

    def paragraph(self, start, text):
        """Return a paragraph with a bold start."""
        words, _ = self.parse_inline(text)
        return nodes.paragraph("", "", nodes.strong("", start), *words)


def raw(html):
    """Return a part of a page in HTML."""
    return nodes.raw("", html, format="html")


def add_classes(app, doctree):
    """Handle `doctree-read`: add the classes."""
    for badge in doctree.findall(nodes.inline):
        if "sd-badge" in badge["classes"]:
            badge["classes"].append(f"mode-{badge.astext().lower()}")
    for line in doctree.findall(nodes.paragraph):
        alone = len(line) == 1 and isinstance(line[0], nodes.emphasis)
        if alone and line.astext().startswith("Before this page"):
            line["classes"].append("before")
    if app.env.metadata[app.env.docname].get("wide"):
        doctree.next_node(nodes.section)["classes"].append("wide")


def set_language(app, doctree):
    """Handle `doctree-read`: color as Python what stands below `%%every`."""
    for code in doctree.findall(nodes.literal_block):
        if code.astext().startswith("%%every"):
            code["language"] = "python"


def setup(app):
    """Register the directive and the handlers."""
    app.add_directive("predict", Predict)
    app.connect("doctree-read", add_classes, priority=600)  # the metadata come at 500
    app.connect("doctree-read", set_language)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
