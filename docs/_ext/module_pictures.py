"""Show on the page of a module the output of a cell that uses the module.

`reference/data/modules.toml` names that cell for each module: its page, how its `fold`
or a line of its code begins, and what is to be seen. So the picture is the one that the
program made last. The build fails where the cell is gone, or gives nothing to see; a
module's page is written again when the other is read again.
"""

import re

from cells import cell_source, is_code, output_nodes
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from book.guards import tidy
from book.module_reference import PICTURES

log = logging.getLogger(__name__)
REPR = re.compile(r"<.*>\Z", re.S)  # of what has no text of its own


# ------------------------------------------------------------------------ the cell


def find_cell(doctree, start):
    """Return the cell of a page whose fold, or a line of whose code, begins so.

    Raises:
        ValueError: when there is none, or more than one.
    """
    cells = doctree.findall(is_code)
    found = [each for each in cells if any(n.startswith(start) for n in lines(each))]
    if len(found) != 1:
        many = "several cells have" if found else "no cell has"
        raise ValueError(f"{many} a line that begins with {start!r}")
    return found[0]


def lines(cell) -> list[str]:
    """Return the words that stand for a cell when it is folded, and its lines."""
    own = cell_source(cell).splitlines()
    return [cell.get("prompt_show", ""), *(line.strip() for line in own)]


def outputs(cell) -> list:
    """Return the outputs of a cell: pictures and tables, or else all that it printed.

    Raises:
        ValueError: when it gave nothing to see.
    """
    found = [each for node in output_nodes(cell) for each in node]
    rich = [each for each in found if each.get("nb_element") == "mime_bundle"]
    if not (rich or found):
        raise ValueError("that cell gives nothing to see")
    return rich or found


def describe(cell) -> str:
    """Return the outputs of a cell as text, or nothing where they have none."""
    texts = [alt(cell)] if alt(cell) else [text(each) for each in outputs(cell)]
    return tidy("\n\n".join(filter(None, texts)))


def alt(cell) -> str:
    """Return the text alternative that a plot has."""
    about = cell.get("cell_metadata", {}).get("mystnb", {})
    return " ".join(about.get("image", {}).get("alt", "").split())


def text(output) -> str:
    """Return an output in its plain form."""
    if output.get("nb_element") == "mime_bundle":
        plain = [each for each in output if each["mime_type"] == "text/plain"]
        found = "".join(each.astext() for each in plain)
        return "" if REPR.match(found) else found
    kinds = nodes.paragraph | nodes.literal_block
    blocks = output.findall(lambda node: isinstance(node, kinds))
    return "\n".join(each.astext() for each in blocks)


# ------------------------------------------------------------------------ the place


class Place(nodes.General, nodes.Element):
    """The place of a picture, with what it shows in words."""


class ModulePicture(SphinxDirective):
    """A place for the picture."""

    required_arguments = 1
    option_spec = {"cell": directives.unchanged_required}  # noqa: RUF012
    has_content = True

    def run(self):
        """Return the place."""
        choice = self.arguments[0], self.options["cell"]
        self.env.metadata[self.env.docname]["picture"] = choice
        place = Place("", *self.parse_content_to_nodes(), choice=choice)
        self.set_source_info(place)
        return [place]


class Fill(SphinxPostTransform):
    """Put the picture into its place, before MyST-NB chooses the form of outputs."""

    default_priority = 1

    def run(self):
        """Replace each place by the cell's outputs, with a link to the cell."""
        for place in list(self.document.findall(Place)):
            page, start = place["choice"]
            caption = [*place.children]
            try:
                cell = find_cell(self.env.get_doctree(page), start)
                given = [each.deepcopy() for each in outputs(cell)]
            except (OSError, ValueError):  # `check_pictures` has warned
                place.replace_self(caption)
                continue
            caption[0] += [nodes.Text(" From "), self.link(page, cell), nodes.Text(".")]
            shown = nodes.container("", *given, classes=["cell_output"])
            frame = nodes.container("", shown, classes=["cell"])
            for each in caption:
                each["classes"].append("caption")
            classes = ["module-picture"]
            place.replace_self(nodes.container("", frame, *caption, classes=classes))

    def link(self, page, cell):
        """Return a link to the cell on its page."""
        here = self.env.docname
        to = self.app.builder.get_relative_uri(here, page)
        anchor = next((each for each in cell["ids"] if each.startswith("cell-")), "")
        uri = f"{to}#{anchor}" if anchor else to
        title = self.env.titles[page].astext()
        return nodes.reference("", "", nodes.Text(title), refuri=uri, internal=True)


# ------------------------------------------------------------------------ the build


def choices(env) -> dict[str, tuple[str, str]]:
    """Return the pages of modules, and the page and the start of each one's cell."""
    return {n: of["picture"] for n, of in env.metadata.items() if "picture" in of}


def read_dependents(app, env, names):
    """Handle `env-before-read-docs`: read a module's page again with the other one."""
    more = {name for name, (page, _) in choices(env).items() if page in names}
    names[:] = sorted({*names, *more} & env.found_docs)


def check_pictures(app, env):
    """Handle `env-updated`: store pictures as text; warn of those that are missing."""
    for name, (page, start) in choices(env).items():
        if "picture_text" not in env.metadata[name]:  # it was read, or fails still
            try:
                cell = find_cell(read_tree(env, page), start)
                env.metadata[name]["picture_text"] = describe(cell)
            except ValueError as error:
                message = f"its picture of {page}, by {PICTURES}: {error}"
                log.warning(message, location=name, type="modules", subtype="picture")


def read_tree(env, page):
    """Return a page as it was read.

    Raises:
        ValueError: when there is no such page.
    """
    if page not in env.found_docs:
        raise ValueError("there is no such page")
    return env.get_doctree(page)


def to_markdown(block, page, env) -> str:
    """Return a picture for the Markdown of a page: its words, and its text."""
    words = env.metadata[page.name].get("picture_text", "")
    marks = "````" if "```" in words else "```"
    fence = f"\n\n{marks}text\n{words}\n{marks}" if words else ""
    return f"{block.content}{fence}"


def setup(app):
    """Register the directive, the transform and the handlers."""
    app.setup_extension("cells")
    app.add_node(Place)
    app.add_directive("module-picture", ModulePicture)
    app.add_post_transform(Fill)
    app.connect("env-before-read-docs", read_dependents)
    app.connect("env-updated", check_pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
