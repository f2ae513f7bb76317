"""Show predictions: `book.predictions` says how they are written.

Each answer is a `details` element, which opens to its reason: without a script, and
with the keyboard alone. `predict.js` counts what was chosen first.
"""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from book.predictions import read_answers


class Predict(SphinxDirective):
    """A question with answers to choose from."""

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


def setup(app):
    """Register the directive."""
    app.add_directive("predict", Predict)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
