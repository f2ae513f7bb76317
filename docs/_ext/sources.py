"""What extensions know of the sources of pages."""

from pathlib import Path

from book import marks
from book.page import Page, read_page

STATE = ".state"  # in the site: a digest of all files that it was made of


def page_of(env, name="") -> Page:
    """Return a page by its name in the site; without a name, the one that is read."""
    file, address = Path(env.doc2path(name or env.docname)), env.config.published
    return read_page(file, Path(env.srcdir), address)


def state(app) -> str:
    """Return a digest of all files; it is empty where git does not know them all."""
    commit = marks.read_output("git", "-C", str(marks.ROOT), "rev-parse", "HEAD")
    is_book = Path(app.srcdir) == marks.ROOT / "docs"
    return marks.digest(marks.tracked_files(), commit) if is_book else ""


def is_unchanged(app) -> bool:
    """Return whether all files are those that the site was made of."""
    file = Path(app.outdir, STATE)
    return file.exists() and file.read_text() == state(app) != ""


def write_state(app, exception):
    """Handle `build-finished`, last: write the state."""
    if not exception:
        Path(app.outdir, STATE).write_text(state(app))


def setup(app):
    """Register the addresses of the site and its repository, and the handler."""
    for name in "published", "repository":
        app.add_config_value(name, "", "env", str)
    app.connect("build-finished", write_state, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
