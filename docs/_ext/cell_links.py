"""Give each code cell a link, and a link to a form that reports a false claim.

The link is `#cell-` and the start of a digest of the cell's code: it stays as long as
the cell does, whatever is written around it, or where it moves on its page. A figure in
a file is named after it. `#` stands beside a cell, and is seen when the cell is pointed
at or has the focus. Where `repository` is set, `report` beside it opens the form for
wrong claims there, with page, cell and versions filled in.
"""

from hashlib import sha256
from html import escape
from pathlib import PurePosixPath
from urllib.parse import urlencode

from cells import cell_source, is_code
from docutils import nodes
from sphinx.transforms import SphinxTransform

from book.facts import locked_version
from book.page import unique_name


class Targets(SphinxTransform):
    """Name the cells and figures of a page, for links to lead to them."""

    default_priority = 410  # after other names that a cell may have

    def apply(self):
        """Append the name to the ids of each; existing ids stay first."""
        taken = set()
        for node in self.document.findall():
            if is_code(node):
                digest = sha256(cell_source(node).strip().encode()).hexdigest()
                node["ids"].append(unique_name(f"cell-{digest[:6]}", taken))
            elif isinstance(node, nodes.image):
                stem = PurePosixPath(node["uri"]).stem
                node["ids"].append(unique_name(f"figure-{stem}", taken))


def add_links(app, doctree):
    """Handle `doctree-read`: put the links at the end of each cell."""
    for node in doctree.findall(is_code):
        name = next(each for each in node["ids"] if each.startswith("cell-"))
        links = f'<a href="#{name}" title="Link to this cell">#</a>'
        if app.config.repository:
            url = report_url(app.config.repository, app.env.docname, name)
            links += f' <a href="{escape(url)}" title="Report a false claim">report</a>'
        html = f'<span class="cell-links">{links}</span>'
        node.append(nodes.raw("", html, format="html"))


def report_url(repository, page, name) -> str:
    """Return the address of the form for wrong claims, filled in."""
    query = {
        "template": "a-claim-is-wrong.yaml",
        "title": f"{page}: ",
        "page": f"{page}, #{name}",
        "versions": f"JAX {locked_version('jax')}, as the site was built",
    }
    place = repository.removesuffix(".git").rstrip("/")
    return f"{place}/issues/new?{urlencode(query)}"


def setup(app):
    """Register the transform and the handler."""
    app.setup_extension("sources")  # it owns the setting `repository`
    app.add_transform(Targets)
    app.connect("doctree-read", add_links, priority=950)  # no word of it is searched
    return {"parallel_read_safe": True, "parallel_write_safe": True}
