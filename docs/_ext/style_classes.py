"""Add classes for the style sheet to the elements at the head of a page.

A badge of a mode, such as `Auto`, gets the class `mode-auto`; a paragraph of its own
that begins with *Before this page*, in italics, gets the class `before`. A page with
`wide: true` in its front matter has wide tables: its section gets the class `wide`, and
its contents do not stand beside the text, but open at a button.
"""

from docutils import nodes

MODES = {"auto", "explicit", "manual", "processes"}


def add_class(app, doctree):
    """Handle `doctree-read`: add the class to each of these."""
    for badge in doctree.findall(nodes.inline):
        word = badge.astext().lower()
        if "sd-badge" in badge["classes"] and word in MODES:
            badge["classes"].append(f"mode-{word}")
    for line in doctree.findall(nodes.paragraph):
        alone = len(line) == 1 and isinstance(line[0], nodes.emphasis)
        if alone and line.astext().startswith("Before this page"):
            line["classes"].append("before")
    if app.env.metadata[app.env.docname].get("wide"):
        doctree.next_node(nodes.section)["classes"].append("wide")


def setup(app):
    """Register the handler."""
    app.connect("doctree-read", add_class, priority=600)  # the metadata are read at 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}
