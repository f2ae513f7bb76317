"""Write the index of the search: all sections, which a page loads at its first search.

Sphinx's own loads its index on every page, wants all words of a question, ranks nearly
by the alphabet and shows menus as excerpts. Here the build writes what the sections say
as one script, `find-index.js`: a page that is opened as a file may load scripts, and
nothing else. `_static/find.js` asks it, by MiniSearch 7.2.0 (MIT, in `_static/vendor`:
its `dist/umd/index.js` by `esbuild --minify` 0.25.12, a third of the bytes). What is
folded away is no part of it (set-up, proofs, solutions), nor are files that a page
shows whole.
"""

import json
import re
import tomllib
from html import unescape
from pathlib import Path

from cells import output_nodes
from docutils import nodes
from sources import page_of
from sphinx import addnodes

INDEX = "find-index.js"
KEYWORDS = Path(__file__).parents[1] / "reference/data/keywords.toml"
LISTS = tuple(f"reference/{n}" for n in ("api_index", "atlas", "exercises", "modules"))
ASIDE = {f"reference/{n}" for n in ("errors", "porting", "sends", "tables")} | {"index"}
PROSE, CODE, OUTPUT = "prose", "code", "output"
WHOLE = 60  # lines: more is a file
DRAWING = re.compile(r"<(svg|style|script)\b.*?</\1>", re.S)
ROW = re.compile(r"</(?:caption|div|p|pre|tr)>")
TAG = re.compile(r"<[^>]*>")
WORD = re.compile(r"[^\W\d]\w{2,}")
TEX = re.compile(r"[\\{}]")
FORMULA = nodes.math, nodes.math_block
UNSEEN = nodes.image, nodes.Invisible, nodes.raw, nodes.section, nodes.title


def page_sections(doctree) -> list[dict]:
    """List the sections of a page, its head first; of a page with entries, these."""
    found = [*doctree.findall(nodes.section)]
    entries = [node for node in doctree.findall(nodes.container) if "search" in node]
    records = [section_record(node) for node in (found[:1] if entries else found)]
    return records + [{"anchor": node["ids"][0], **node["search"]} for node in entries]


def section_record(section) -> dict:
    """Return the anchor, the title, the prose and the code of a section.

    Its prose is whole. Of outputs there are the lines with a word that is nowhere else,
    and of code, apart, such words alone: each is found, in a third of the size.
    """
    parts = [part for node in section for part in visible_texts(node)]
    prose = " ".join(part for kind, part in parts if kind == PROSE)
    text, code, known = [], [], {*WORD.findall(prose)}
    for kind, part in parts:
        lines = [part] if kind == PROSE else part.splitlines()
        if kind == CODE and len(lines) > WHOLE:
            continue
        for line in lines:
            new = [word for word in WORD.findall(line) if word not in known]
            known.update(new)
            if kind == CODE:
                code += dict.fromkeys(new)
            elif new or kind == PROSE:
                text.append(line)
    title = section.next_node(nodes.title).astext()
    words = {"text": " ".join(" ".join(text).split()), "code": " ".join(code)}
    return {"anchor": section["ids"][0], "title": title, **words}


def visible_texts(node):
    """Yield the kind and the words of all texts that are visible on the page."""
    block = isinstance(node, nodes.literal_block | nodes.raw)
    if block and "output" in node["classes"]:
        yield OUTPUT, output_words(node)
    elif isinstance(node, UNSEEN):
        return
    elif isinstance(node, nodes.literal_block | addnodes.desc_name):
        yield CODE, node.astext()
    elif isinstance(node, nodes.TextElement | nodes.Text):
        yield PROSE, "".join(map(readable_text, node.findall(nodes.Text)))
    else:
        for child in visible_children(node):
            yield from visible_texts(child)


def readable_text(text) -> str:
    """Return a piece of prose; of a formula with commands of TeX, three dots."""
    tex = isinstance(text.parent, FORMULA) and TEX.search(text)
    return "\u2026" if tex else text.astext()


def output_words(node) -> str:
    """Return the words of an output, without its drawings."""
    if not isinstance(node, nodes.raw):
        return node.astext()
    return unescape(TAG.sub(" ", ROW.sub("\n", DRAWING.sub("", node.astext()))))


def visible_children(node) -> list:
    """List the children of a node that are to be found."""
    classes = {*node["classes"]}
    if isinstance(node, addnodes.desc):
        return [*node.findall(addnodes.desc_name)]
    if node.get("nb_element") == "mime_bundle":
        return node.children[:1]  # the one that the site shows
    if {"tag_exercise", "tag_solution", "part-map", "ways"} & classes:
        return []
    if node.get("nb_element") == "cell_code" and {"check", "fold"} & classes:
        return [nodes.Text(node["prompt_show"]), *output_nodes(node)]
    return node.children


def add_page(app, doctree):
    """Handle `doctree-read`: store the sections of a page."""
    app.env.metadata[app.env.docname]["sections"] = page_sections(doctree)


def disable_search(app):
    """Handle `builder-inited`: Sphinx writes neither its index nor its page."""
    if app.builder.format == "html":
        app.builder.search = False


def site_sections(app):
    """Yield the sections of all pages as the search wants them.

    Where the question is a name, pages that only mention it come late (`place` is 1);
    lists of everything come last (2). `about` has words of users: they are found, too.
    """
    keywords = tomllib.loads(KEYWORDS.read_text(encoding="utf-8"))
    for name, metadata in sorted(app.env.metadata.items()):
        url = app.builder.get_target_uri(name)
        place = 2 if name.startswith(LISTS) else int(name in ASIDE)
        head, *others = metadata.get("sections") or [None]
        if head:
            page = {"page": head["title"], "place": place}
            about = f"{page_of(app.env, name).description} {keywords.get(name, '')}"
            yield head | page | {"href": url, "title": "", "about": about}
            for each in others:
                anchor = f"#{each['anchor']}"
                about = keywords.get(f"{name}{anchor}")
                yield each | page | {"href": f"{url}{anchor}", "about": about}


def write_index(app, exception):
    """Handle `build-finished`: write the index."""
    if exception or app.builder.format != "html":
        return
    text = json.dumps([*site_sections(app)], ensure_ascii=False, separators=(",", ":"))
    Path(app.outdir, INDEX).write_text(f"finder.sections = {text};\n", encoding="utf-8")


def setup(app):
    """Register the handlers."""
    app.connect("builder-inited", disable_search)
    app.connect("doctree-read", add_page, priority=900)  # after all that change a page
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 5}
