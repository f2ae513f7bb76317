"""Give each code cell a link, and a link to a form that reports a false claim.

The link is `#cell-` and the start of a digest of the cell's code: it stays as long as
the cell does, whatever is written around it, or where it moves on its page. A figure in
a file is named after it. `#` stands beside a cell, and is seen when the cell is pointed
at or has the focus. Where `repository` is set, `report` beside it opens the form for
wrong claims there, with page, cell and versions filled in.
"""

from hashlib import sha256
from pathlib import PurePosixPath
from urllib.parse import urlencode

from cells import cell_source, is_code
from docutils import nodes
from sphinx.transforms import SphinxTransform

from book.facts import locked_version
from book.page import unique_name

FORM = "a-claim-is-wrong.yaml"


def link_names(document):
    """Yield each cell and figure of a page, and the name of its link."""
    taken = set()
    for node in document.findall(lambda n: is_code(n) or isinstance(n, nodes.image)):
        if is_code(node):
            digest = sha256(cell_source(node).strip().encode()).hexdigest()
            stem = f"cell-{digest[:6]}"
        else:
            stem = f"figure-{PurePosixPath(node['uri']).stem}"
        yield node, unique_name(stem, taken)


class Targets(SphinxTransform):
    """Name the cells and figures of a page, for links to lead to them."""

    default_priority = 410  # after other names that a cell may have

    def apply(self):
        """Append the name to the ids of each; existing ids stay first."""
        for node, name in link_names(self.document):
            node["ids"].append(name)


def add_links(app, doctree):
    """Handle `doctree-read`: put the links at the end of each cell."""
    for node in doctree.findall(is_code):
        names = [each for each in node["ids"] if each.startswith("cell-")]
        for name in names[:1]:
            found = links_html(app.config, app.env.docname, name)
            node.append(nodes.raw("", found, format="html"))


def links_html(config, page, name) -> str:
    """Return the links of a cell in HTML."""
    url = report_url(config, page, name)
    own = f'<a href="#{name}" title="Link to this cell">#</a>'
    more = f' <a href="{url}" title="Report a false claim">report</a>' if url else ""
    return f'<span class="cell-links">{own}{more}</span>'


def report_url(config, page, name) -> str:
    """Return the address of the form for wrong claims, filled in, if there is one."""
    place = config.repository.removesuffix(".git").rstrip("/")
    if not place:
        return ""
    query = {
        "template": FORM,
        "title": f"{page}: ",
        "page": f"{page}, #{name}",
        "versions": f"JAX {locked_version('jax')}, as the site was built",
    }
    return f"{place}/issues/new?{urlencode(query)}".replace("&", "&amp;")


def setup(app):
    """Register the transform and the handler."""
    app.setup_extension("sources")  # it owns the setting `repository`
    app.add_transform(Targets)
    app.connect("doctree-read", add_links, priority=950)  # no word of it is searched
    return {"parallel_read_safe": True, "parallel_write_safe": True}
