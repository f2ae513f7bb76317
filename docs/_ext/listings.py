"""Show functions and classes without what follows the first line of their docstrings.

So does a `literalinclude` with `:pyobject:`; a module's own page has all of them.
"""

from pathlib import Path

from docutils import nodes
from sphinx.directives.code import LiteralInclude

from book.export import source_of


class Listing(LiteralInclude):
    """The directive `literalinclude`."""

    def run(self):
        """Return the code as a block."""
        found = super().run()
        if name := self.options.get("pyobject"):
            _, path = self.env.relfn2path(self.arguments[0])
            block = next(found[0].findall(nodes.literal_block))
            block.rawsource = source_of(Path(path), name)
            block.children = [nodes.Text(block.rawsource)]
        return found


def setup(app):
    """Replace Sphinx's directive."""
    app.add_directive("literalinclude", Listing, override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
