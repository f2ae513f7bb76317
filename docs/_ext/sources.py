"""What extensions know of the sources of pages."""

from pathlib import Path

from book.page import Page, read_page


def page_of(env, name="") -> Page:
    """Return a page by its name in the site; without a name, the one that is read."""
    file, address = Path(env.doc2path(name or env.docname)), env.config.published
    return read_page(file, Path(env.srcdir), address)


def setup(app):
    """Register the addresses of the site and its repository."""
    for name in "published", "repository":
        app.add_config_value(name, "", "env", str)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
