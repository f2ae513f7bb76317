"""The overviews of the front page, in MyST: `part-map`, `ways` and `build-line`.

`part-map` has the parts. Each line has a part, the part that it builds on, and what
it answers; a part without an arrow is for looking up:

    Arrays < Start: Which device holds what?

A block of `ways` has a title, the pages to read in this order, for each perhaps what
one does there, and what one can do at the end:

    Sharding in an evening
    - start/eight-devices: make a laptop pose as eight devices
    At its end you predict how results are split.
"""

import re
import subprocess
from textwrap import indent

from book import claims, contents
from book.error_index import link
from book.facts import ROOT, locked_version
from book.page import Page, pages

MINUTES = re.compile(r"^\*Before this page:.*?\bAbout\s+(\d+)\s+minutes\b", re.M | re.S)
PART = re.compile(r"(?P<name>[^<:]+?)(?: < (?P<after>[^:]+))?: (?P<asks>.+)")
STEP = re.compile(r"^- ([\w/-]+)", re.M)
BOX = """\
- **{link}**{after}\\
  {asks}

  <details><summary>{size}</summary>

{pages}

  </details>

{following}"""
LINE = """\
<p class="build-line">This build{date} ran {cells:,} cells on {pages:,} pages with JAX \
{jax}; {facts:,} facts were proved, and {exercises:,} exercises have answers that \
pass.</p>"""


def minutes(page) -> int:
    """Return the minutes that a page's head states, or 0."""
    found = MINUTES.search(page.text)
    return int(found[1]) if found else 0


def format_time(pages) -> str:
    """Return the minutes of pages in words: `1 h 20 min`."""
    hours, rest = divmod(sum(map(minutes, pages)), 60)
    return " ".join([f"{hours} h"] * bool(hours) + [f"{rest} min"] * bool(rest))


def size(pages) -> str:
    """Return the number of pages, and their minutes if most state them."""
    known = sum(map(bool, map(minutes, pages)))
    over = "over " * (known < len(pages))
    time = f", {over}{format_time(pages)}" * (2 * known >= len(pages))
    return f"{len(pages)} page{'s' * (len(pages) > 1)}{time}"


def map_text(page, content) -> str:
    """Return the map: a list in which what builds on a part stands below it."""
    own = dict(contents.parts(page.docs))
    parts = [PART.fullmatch(line) for line in content.splitlines()]

    def list_parts(after):
        found = (part for part in parts if part["after"] == after)
        return "\n".join(box(part) for part in found)

    def box(part):
        others = own[part["name"]]
        listed = "\n".join(f"- {link(each.title, each.name, page)}" for each in others)
        return BOX.format(
            link=link(part["name"], others[0].name, page),
            after=f" *after {part['after']}*" if part["after"] else "",
            asks=part["asks"],
            size=size(others),
            pages=indent(listed, "  "),
            following=indent(list_parts(part["name"]), "  "),
        )

    return f":::{{container}} part-map\n{list_parts(None)}\n:::"


def ways_text(page, content) -> str:
    """Return the ways, each a box with a list."""
    found = [way_text(page, text) for text in content.strip().split("\n\n")]
    return "\n".join(["::::{container} ways", *found, "::::"])


def way_text(page, text) -> str:
    """Return a way: its title, its pages with their minutes, its end."""
    steps = {
        name: Page(page.docs / f"{name}.md", page.docs) for name in STEP.findall(text)
    }

    def step(found):
        other = steps[found[1]]
        return f"- {link(other.title, other.name, page)}, {minutes(other)}\xa0min"

    title, *lines = STEP.sub(step, text).splitlines()
    lines = "\n".join(line if line.startswith("- ") else f"\n{line}" for line in lines)
    time = format_time(steps.values())
    return f":::{{container}} way\n**{title}** ({time})\n\n{lines}\n:::"


def build_line(page) -> str:
    """Return the sentence with the counts of this build."""
    found = [each for each in pages(page.docs) if each.is_notebook]
    cells = [cell for each in found for cell in each.code]
    ask = ["git", "log", "-1", "--format=, of %cs,"]
    date = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True, check=False)
    return LINE.format(
        date=date.stdout.strip(),
        cells=len(cells),
        pages=len(found),
        jax=locked_version("jax"),
        facts=sum(map(claims.count_claims, cells)),
        exercises=sum(len(each.exercises) for each in found),
    )
