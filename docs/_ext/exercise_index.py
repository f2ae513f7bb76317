"""Targets and links in the box of each exercise.

A target is named after the tag of the exercise's stub. The box ends with a link that
saves the page as a notebook. Where the site has an address and a repository, a second
one opens the notebook on Colab, at the cell to change.
"""

from html import escape
from posixpath import basename

from docutils import nodes
from downloads import colab_url
from sources import page_of
from sphinx.transforms import SphinxTransform


class Boxes(SphinxTransform):
    """Put into each box the target and the links."""

    default_priority = 400  # before Sphinx collects what links may lead to

    def apply(self):
        """Change the boxes of this page: they stand in the order of its exercises."""
        page = page_of(self.env)
        boxes = self.document.findall(nodes.admonition)
        boxes = [box for box in boxes if "exercise" in box["classes"]]
        for box, exercise in zip(boxes, page.exercises, strict=False):
            box["names"].append(f"exercise-{exercise.name}")
            self.document.note_explicit_target(box)
            html = links_html(self.config, page, exercise)
            box.append(nodes.raw("", html, format="html"))


def links_html(config, page, exercise) -> str:
    """Return the links of an exercise in HTML."""
    file = f"{basename(page.name)}.ipynb"
    links = f'<a href="{file}" download>Download it as a notebook</a>'
    if config.published and config.repository:
        tags = {"exercise", exercise.name}
        cell = next(n for n, cell in enumerate(page.cells, 1) if tags <= {*cell.tags})
        url = colab_url(page.name, config.repository)
        url = escape(f"{url}#scrollTo=cell-{cell}")
        links += f', or <a href="{url}" target="_blank">run it on Colab</a>'
    return f'<p class="to-notebook d-print-none">{links}.</p>'


def setup(app):
    """Register the transform."""
    app.setup_extension("sources")
    app.add_transform(Boxes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
