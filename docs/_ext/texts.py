"""Write the texts that directives stand for, and facts, before a page is parsed.

The table of these directives, `TEXTS`, is that of notebooks and of Markdown, too.
"""

from sources import is_unchanged, page_of

from book.export import TEXTS, markdown


def insert_texts(app, docname, source):
    """Handle `source-read`: write the texts."""
    page = page_of(app.env)
    source[0] = markdown(page.text, page, TEXTS)
    if source[0] != page.text:
        app.env.metadata[docname]["made"] = source[0]


def outdated_pages(app, env, *changes):
    """Handle `env-get-outdated`: list the pages that would have other texts."""
    if is_unchanged(app):
        return []
    made = ((name, env.metadata[name].get("made")) for name in env.found_docs)
    pages = ((page_of(env, name), text) for name, text in made if text)
    return [p.name for p, text in pages if markdown(p.text, p, TEXTS) != text]


def setup(app):
    """Register the handlers."""
    app.connect("source-read", insert_texts)
    app.connect("env-get-outdated", outdated_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True, "env_version": 1}
