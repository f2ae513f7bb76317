"""What extensions know of the sources of pages."""

import json
import re
from pathlib import Path
from subprocess import getoutput

from book import marks
from book.page import Page, read_page

STATE = ".state.json"  # in the site: digests of the files that it was made of


def page_of(env, name="") -> Page:
    """Return a page by its name in the site; without a name, the one that is read."""
    file, address = Path(env.doc2path(name or env.docname)), env.config.published
    return read_page(file, Path(env.srcdir), address)


def states(app) -> dict[str, str]:
    """Return digests of all files, and of all but pages, if git knows them all."""
    files = marks.tracked_files()
    if Path(app.srcdir) != marks.ROOT / "docs" or not files:
        return {}
    commit = getoutput(f"{marks.GIT} rev-parse HEAD")
    pages = {name for name in files if re.fullmatch(r"docs/.*\.md", name)}
    return {
        "all": marks.digest(files, commit),
        "others": marks.digest({*files} - pages),
    }


def is_unchanged(app, what="all") -> bool:
    """Return whether these files are those that the site was made of: see `states`."""
    file = Path(app.outdir, STATE)
    stored = json.loads(file.read_text()) if file.exists() else {}
    return what in stored and stored[what] == states(app).get(what)


def write_state(app, exception):
    """Handle `build-finished`, last: write the state."""
    if not exception:
        Path(app.outdir, STATE).write_text(json.dumps(states(app)))


def setup(app):
    """Register the addresses of the site and its repository, and the handler."""
    for name in "published", "repository":
        app.add_config_value(name, "", "env", str)
    app.connect("build-finished", write_state, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
