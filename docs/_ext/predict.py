"""Show predictions: `book.predictions` says how they are written.

Each answer is a `details` element, which opens to its reason: without a script, and
with the keyboard alone. `predict.js` counts what was chosen first.
"""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from book.predictions import read_answers


class Answer(nodes.container):
    """An answer, whose first child stands for it while it is closed."""


class Reason(nodes.container):
    """What an answer opens to."""


def open_answer(writer, node):
    """Write the start of an answer."""
    attributes = {"name": node["group"], "CLASS": node["kind"]}
    writer.body.append(writer.starttag(node, "details", **attributes) + "<summary>")


def open_reason(writer, node):
    """Write the end of an answer's line, and the start of its reason."""
    writer.body.append("</summary>\n<div>")


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
            text = nodes.inline("", "", *self.parse_inline(answer.text)[0])
            reason = Reason("", self.paragraph(verdict, answer.reason))
            box += Answer("", text, reason, group=group, kind=kind)
        return [box]

    def paragraph(self, start, text):
        """Return a paragraph with a bold start."""
        words, _ = self.parse_inline(text)
        return nodes.paragraph("", "", nodes.strong("", start), *words)


def setup(app):
    """Register the directive and its nodes."""
    app.add_node(Answer, html=(open_answer, lambda w, _: w.body.append("</details>\n")))
    app.add_node(Reason, html=(open_reason, lambda w, _: w.body.append("</div>\n")))
    app.add_directive("predict", Predict)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
