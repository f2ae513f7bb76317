"""Write the texts that directives stand for, and facts, before a page is parsed.

The table of these directives, `TEXTS`, is that of notebooks and of Markdown, too.
"""

from sources import is_unchanged, page_of

from book.export import TEXTS, markdown

OF_FILES = {"explorer", "literalinclude"}  # others may name any page
LISTS = {name: text for name, text in TEXTS.items() if name not in OF_FILES}


def insert_texts(app, docname, source):
    """Handle `source-read`: write the texts."""
    page, stored = page_of(app.env), app.env.metadata[docname]
    lists = markdown(page.text, page, LISTS)
    source[0] = markdown(lists, page, TEXTS)
    stored["lists"] = lists if lists != page.text else ""
    stored["made"] = source[0] if source[0] != page.text else ""


def outdated_pages(app, env, *changes):
    """Handle `env-get-outdated`: list the pages that would have other texts."""
    if is_unchanged(app):
        return []
    only_pages = is_unchanged(app, "others")
    name, table = ("lists", LISTS) if only_pages else ("made", TEXTS)
    texts = ((page, env.metadata[page].get(name)) for page in env.found_docs)
    pages = ((page_of(env, page), text) for page, text in texts if text)
    return [p.name for p, text in pages if markdown(p.text, p, table) != text]


def setup(app):
    """Register the handlers."""
    app.connect("source-read", insert_texts)
    app.connect("env-get-outdated", outdated_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 2}
