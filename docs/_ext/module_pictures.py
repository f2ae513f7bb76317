"""Show on the page of a module the output of a cell that uses the module.

`reference/data/modules.toml` has that cell for each module: its page, how its `fold` or
a line of its code begins, and what is to be seen. So the picture is the one that the
program made last. The build fails where the cell is gone, or gives nothing to see.
"""

import re
import tomllib
from pathlib import Path

from cells import cell_source, is_code, output_nodes
from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from book.guards import tidy
from book.module_reference import PAGES_OF_MODULES, PICTURES

log = logging.getLogger(__name__)
REPR = re.compile(r"<.*>\Z", re.S)  # of what has no text of its own


def read_pictures(env) -> dict[str, dict]:
    """Return what the page of each module shows: a `page`, its `cell`, and in words."""
    return tomllib.loads(Path(env.srcdir, PICTURES).read_text())


def find_cell(env, picture):
    """Return the cell of a picture, and its outputs: rich ones, or else printed text.

    Raises:
        ValueError: unless one cell begins so, and gave something to see.
    """

    def fits(cell):
        lines = [cell.get("prompt_show", ""), *cell_source(cell).splitlines()]
        return any(line.strip().startswith(picture["cell"]) for line in lines)

    cells = env.get_doctree(picture["page"]).findall(is_code)
    found = [cell for cell in cells if fits(cell)]
    outputs = [each for cell in found for node in output_nodes(cell) for each in node]
    if len(found) != 1 or not outputs:
        start = f"{picture['page']}: {len(found)} cells have a line that begins with "
        raise ValueError(f"{start}{picture['cell']!r}, with {len(outputs)} outputs")
    rich = [each for each in outputs if each.get("nb_element") == "mime_bundle"]
    return found[0], rich or outputs


def output_text(output) -> str:
    """Return an output in its plain form, or nothing where it has none."""
    kinds = nodes.paragraph | nodes.literal_block
    blocks = output.findall(lambda node: isinstance(node, kinds))
    text = "\n".join(each.astext() for each in blocks)
    return "" if REPR.match(text) else text


class ModulePicture(SphinxDirective):
    """A place for the picture, with what it shows in words."""

    required_arguments = 1

    def run(self):
        """Return the place."""
        self.env.note_dependency(Path(self.env.srcdir, PICTURES))
        picture = read_pictures(self.env)[self.arguments[0]]
        words = self.parse_text_to_nodes(picture["shows"])
        kind = "module-picture"
        return [nodes.container("", *words, picture=picture, classes=[kind])]


class Fill(SphinxPostTransform):
    """Put a cell's outputs into their place, before MyST-NB chooses a form of them."""

    default_priority = 1

    def run(self):
        """Change each place, or warn where there is no such cell."""
        for place in list(self.document.findall(nodes.container)):
            if "picture" in place:
                try:
                    self.fill(place, *find_cell(self.env, place["picture"]))
                except (OSError, ValueError) as error:
                    log.warning("%s", error, location=self.env.docname, type="modules")

    def fill(self, place, cell, outputs):
        """Put the outputs above the words, and a link to the cell behind them."""
        page, (words,) = place["picture"]["page"], place
        uri = self.app.builder.get_relative_uri(self.env.docname, page)
        anchor = next(each for each in cell["ids"] if each.startswith("cell-"))
        title = nodes.Text(self.env.titles[page].astext())
        link = nodes.reference("", "", title, refuri=f"{uri}#{anchor}", internal=True)
        words["classes"].append("caption")
        words += [nodes.Text(" From "), link, nodes.Text(".")]
        shown = [each.deepcopy() for each in outputs]
        output = nodes.container("", *shown, classes=["cell_output"])
        place.insert(0, nodes.container("", output, classes=["cell"]))


def read_dependents(app, env, names):
    """Handle `env-before-read-docs`: read a module's page again with the other one."""
    pictures = read_pictures(env).items()
    more = {f"{PAGES_OF_MODULES}/{n}" for n, of in pictures if of["page"] in names}
    names[:] = sorted({*names, *more} & env.found_docs)


def to_markdown(block, page, env) -> str:
    """Return a picture for the Markdown of a page: its words, and its text."""
    picture = read_pictures(env)[block.argument]
    cell, outputs = find_cell(env, picture)
    image = cell["cell_metadata"].get("mystnb", {}).get("image", {})
    alt = " ".join(image.get("alt", "").split())
    texts = [alt] if alt else map(output_text, outputs)
    words = tidy("\n\n".join(filter(None, texts)))
    marks = "````" if "```" in words else "```"
    fence = f"\n\n{marks}text\n{words}\n{marks}" if words else ""
    return f"{picture['shows']}{fence}"


def setup(app):
    """Register the directive, the transform and the handler."""
    app.add_directive("module-picture", ModulePicture)
    app.add_post_transform(Fill)
    app.connect("env-before-read-docs", read_dependents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
