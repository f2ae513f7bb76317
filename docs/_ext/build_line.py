"""The directive `build-line`: a sentence with the counts of this build."""

import subprocess

from docutils import nodes
from sources import make_text
from sphinx.util.docutils import SphinxDirective

from book import claims
from book.facts import ROOT, locked_version
from book.page import pages


class BuildLine(SphinxDirective):
    """The sentence, made again when a count changes."""

    def run(self):
        """Return the sentence."""
        line = make_text(self.env, format_line)
        html = f'<p class="build-line">{line}</p>'  # no word of it is searched
        return [nodes.raw("", html, format="html")]


def commit_date() -> str:
    """Return the date of the commit, or nothing where there is no history."""
    ask = ["git", "log", "-1", "--format=%cs"]
    done = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def format_line(page) -> str:
    """Return the sentence."""
    found = [each for each in pages(page.docs) if each.is_notebook]
    cells = [cell for each in found for cell in each.code]
    facts = sum(map(claims.count_claims, cells))
    exercises = sum(len(each.exercises) for each in found)
    day = commit_date()
    return (
        f"This build{f', of {day},' if day else ''} ran {len(cells):,} cells on "
        f"{len(found):,} pages with JAX {locked_version('jax')}; {facts:,} facts were "
        f"proved, and {exercises:,} exercises have answers that pass."
    )


def setup(app):
    """Register the directive."""
    app.setup_extension("sources")
    app.add_directive("build-line", BuildLine)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
