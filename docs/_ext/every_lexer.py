"""Highlight cells that every process runs, `%%every`, as Python.

For Pygments all below the first line of such a cell is plain text. Here these cells get
a language of their own: Python, after a line of options.
"""

import re
from typing import ClassVar

from docutils import nodes
from pygments.lexer import bygroups, inherit
from pygments.lexers.python import PythonLexer
from pygments.token import Keyword, Text

MAGIC = re.compile(r"\A%%every\b.*")


class EveryLexer(PythonLexer):
    """Python below a line that begins with `%%every`."""

    name = "every"
    aliases = ("every",)
    tokens: ClassVar = {
        "root": [(r"\A(%%every)(.*\n)", bygroups(Keyword, Text)), inherit]
    }


def set_language(app, doctree):
    """Handle `doctree-read`: set the language of such cells."""
    for node in doctree.findall(nodes.literal_block):
        if MAGIC.match(node.astext()):
            node["language"] = "every"


def setup(app):
    """Register the language and the handler."""
    app.add_lexer("every", EveryLexer)
    app.connect("doctree-read", set_language)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
