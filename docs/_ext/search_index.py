"""Write the index of the search: all sections, which a page loads at its first search.

Sphinx's own loads its index on every page, wants all words of a question, ranks nearly
by the alphabet and shows menus as excerpts. Here each page, when it is read, leaves
what its sections say, and the build writes all of it as one script, `find-index.js`: a
page that is opened as a file may load scripts, and nothing else. `_static/find.js` asks
it. What is folded away is no part of it (set-up, proofs, solutions, verdicts), nor are
files that a page shows whole.

MiniSearch 7.2.0 (MIT, as it was published, in `_static/vendor`) makes its index in the
browser, in half a second, and serves for the words: BM25, a weight for each field,
beginnings of words, misspelt ones. Its sum alone prefers sections that have many common
words of a question; so `find.js` takes the share of the question that a section has, by
weight, and adds for words that stand side by side. It also takes from an error what is
its own: paths, shapes, addresses. Not tried: Pagefind, which wants `fetch` and
WebAssembly; Lunr, without a release since 2020; FlexSearch, which weighs no rare words.
"""

import json
import re
from html import unescape
from pathlib import Path

from cells import output_nodes
from docutils import nodes
from error_directives import ErrorEntry
from sphinx import addnodes

INDEX = "find-index.js"
LISTS = (
    "reference/atlas",
    "reference/api_index",
    "reference/exercises",
    "reference/modules",
)  # come last
ENTRIES = "reference/errors"  # one of them is enough
ASIDE = (
    ENTRIES,
    "index",
    "reference/porting",
    "reference/sends",
    "reference/tables",
)  # after the rest, where the question is a name
UNUSED = "_static/language_data.js", "_static/searchtools.js", "searchindex.js"
PROSE, CODE, OUTPUT = "prose", "code", "output"
HIDDEN = {"tag_exercise", "tag_solution"}
WHOLE = 60  # lines: more is a file
DRAWN = re.compile(r"<(svg|style|script)\b.*?</\1>", re.S)
ROW = re.compile(r"</(?:caption|div|p|pre|tr)>")
TAG = re.compile(r"<[^>]*>")
WORD = re.compile(r"[^\W\d]\w{2,}")


def sections(doctree) -> list[list[str]]:
    """Return the sections of a page, its head first: anchor, title, text, code.

    Of the page of errors it is the entries, since each section shows many messages.
    They have two more: the words of the message, and how long cause and cure are.
    """
    found = [*doctree.findall(title_class)]
    if entries := [node for node in found if isinstance(node, ErrorEntry)]:
        found = [found[0], *entries]
    return [
        [
            node["ids"][0],
            node.next_node(title_class(node)).astext(),
            *section_words(node),
            *entry_words(node),
        ]
        for node in found
    ]


def title_class(node):
    """Return the class of a section's title, or None for another node.

    An entry of the page of errors, to which links lead, is one, too: with a message.
    """
    if isinstance(node, nodes.section):
        return nodes.title
    entry = isinstance(node, ErrorEntry) and node["ids"]
    return nodes.literal if entry else None


def entry_words(node) -> list:
    """Return the words that find an entry, and the place where its links begin."""
    if not isinstance(node, ErrorEntry):
        return []
    text = " ".join(part.astext() for part in node.children[:2])
    return [node["words"], len(" ".join(text.split()))]


def section_words(section) -> tuple[str, str]:
    """Return the prose and the code of a section, without title and subsections.

    Its prose is whole. Of outputs there are the lines with a word that is nowhere else,
    and of code, apart, such words alone: each is found, in a third of the size.
    """
    parts = [part for node in section for part in visible_texts(node)]
    prose = " ".join(part for kind, part in parts if kind == PROSE)
    text, code, known = [], [], {*WORD.findall(prose)}
    for kind, part in parts:
        for line in [part] if kind == PROSE else part.splitlines():
            new = [word for word in WORD.findall(line) if word not in known]
            known.update(new)
            if kind == CODE:
                code += dict.fromkeys(new)
            elif new or kind == PROSE:
                text.append(line)
    return " ".join(" ".join(text).split()), " ".join(code)


def visible_texts(node):
    """Yield the kind and the words of all texts that are visible on the page."""
    if isinstance(node, nodes.title) or title_class(node):
        return
    if isinstance(node, nodes.TextElement | nodes.Text | nodes.raw):
        if kind := kind_of(node):
            html = isinstance(node, nodes.raw)
            yield kind, html_words(node.astext()) if html else node.astext()
    elif not isinstance(node, nodes.Invisible | nodes.image):
        for child in visible_children(node):
            yield from visible_texts(child)


def kind_of(node) -> str:
    """Return the kind of a text, or nothing where it is not to be found."""
    block = isinstance(node, nodes.literal_block | nodes.raw)
    if block and "output" in node["classes"]:
        return OUTPUT
    if isinstance(node, nodes.literal_block):
        return CODE if node.astext().count("\n") < WHOLE else ""
    if isinstance(node, addnodes.desc_name):
        return CODE
    return "" if isinstance(node, nodes.raw) else PROSE


def html_words(html) -> str:
    """Return the words of an output, without its drawings."""
    return unescape(TAG.sub(" ", ROW.sub("\n", DRAWN.sub("", html))))


def visible_children(node) -> list:
    """List the children of a node that are to be found."""
    if isinstance(node, addnodes.desc):
        return [*node.findall(addnodes.desc_name)]
    if node.get("nb_element") == "mime_bundle":
        return node.children[:1]  # the one that the site shows
    if node.get("nb_element") != "cell_code":
        return node.children
    if HIDDEN & {*node["classes"]}:
        return []
    if not {"check", "fold"} & {*node["classes"]}:
        return node.children
    return [nodes.Text(node["prompt_show"]), *output_nodes(node)]


def add_page(app, doctree):
    """Handle `doctree-read`: store the sections of a page."""
    app.env.metadata[app.env.docname]["sections"] = sections(doctree)


def disable_search(app):
    """Handle `builder-inited`: Sphinx writes neither its index nor its page."""
    if app.builder.format == "html":
        app.builder.search = False


def search_page(app):
    """Handle `html-collect-pages`: write the page of results."""
    return [("search", {"title": "Search"}, "search.html")]


def write_index(app, exception):
    """Handle `build-finished`: write the index; remove what Sphinx's search left."""
    if exception or app.builder.format != "html":
        return
    known = sorted(app.env.metadata.items())
    pages = {name: of["sections"] for name, of in known if of.get("sections")}
    listed = [
        [
            app.builder.get_target_uri(name),
            each[0][1],
            2 if name.startswith(LISTS) else int(name in ASIDE),
            1 if name == ENTRIES else 2,  # sections among the results
        ]
        for name, each in pages.items()
    ]
    every = [[n, *each] for n, page in enumerate(pages.values()) for each in page]
    index = {"pages": listed, "sections": every}
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    Path(app.outdir, INDEX).write_text(f"finder.data = {text};\n", encoding="utf-8")
    for name in UNUSED:
        Path(app.outdir, name).unlink(missing_ok=True)


def setup(app):
    """Register the handlers."""
    app.add_js_file("find.js", loading_method="defer")
    app.connect("builder-inited", disable_search)
    app.connect("doctree-read", add_page, priority=900)  # after all that change a page
    app.connect("html-collect-pages", search_page)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 3}
