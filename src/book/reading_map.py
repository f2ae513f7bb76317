"""The directives `part-map` and `ways`: an overview, from the book's contents.

`part-map` draws the parts, and which leads to which. Each line names a part, the part
that it builds on, and what it answers; a part without an arrow is for looking up:

    Arrays < Start: Which device holds what?

`ways` lists pages to read in this order. A block has its title, its pages, for each
perhaps what one does there, and what one can do at the end:

    Sharding in an evening
    - start/eight-devices: make a laptop pose as eight devices
    At its end you predict how results are split.

Titles, numbers of pages and minutes are those of the pages, as their heads state them.
A part that is missing, an arrow that no link on a page supports, and a page without
minutes on a way are errors.
"""

import re
from functools import cached_property
from html import escape
from itertools import count
from pathlib import Path
from posixpath import normpath, relpath

from book import contents

HEAD = re.compile(r"^\*Before this page:.*?\*$", re.M | re.S)
MINUTES = re.compile(r"\bAbout\s+(\d+)\s+minutes\b")
LINK = re.compile(r"\]\(([^)\s:#]+)\.md[)#]")
PART = re.compile(r"(?P<name>[^<:]+?)(?: < (?P<after>[^:]+))?: (?P<asks>.+)")


class Book:
    """The titles and minutes in the heads of all pages.

    Attributes:
        parts: the name of a part -> its pages, in their order.
        pages: the name of a page -> the page.
    """

    def __init__(self, docs):
        """Read the contents."""
        self.parts = dict(contents.parts(docs))
        self.pages = {page.name: page for own in self.parts.values() for page in own}

    @cached_property
    def minutes(self) -> dict[str, int]:
        """The minutes of each page that states them."""
        heads = {name: HEAD.search(page.text) for name, page in self.pages.items()}
        hits = {name: MINUTES.search(head[0]) for name, head in heads.items() if head}
        return {name: int(found[1]) for name, found in hits.items() if found}

    def leads(self, start, end) -> bool:
        """Return whether a page of the part `end` has a link to one of `start`."""
        goals = {page.name for page in self.parts[start]}
        return any(goals & linked_pages(page) for page in self.parts[end])

    def size(self, part) -> str:
        """Return the pages of a part, and its minutes if most pages state them."""
        own = [page.name for page in self.parts[part]]
        minutes = [self.minutes[name] for name in own if name in self.minutes]
        words = f"{len(own)} page{'s' * (len(own) > 1)}"
        if 2 * len(minutes) < len(own):
            return words
        more = "over " * (len(minutes) < len(own))
        return f"{words}, {more}{format_time(sum(minutes))}"


def linked_pages(page) -> set[str]:
    """Return the names of the pages to which a page has links."""
    folder = Path(page.name).parent.as_posix()
    return {normpath(f"{folder}/{goal}") for goal in LINK.findall(page.text)}


def format_time(minutes) -> str:
    """Return minutes in words: `1 h 20 min`."""
    hours, rest = divmod(minutes, 60)
    return " ".join([f"{hours} h"] * bool(hours) + [f"{rest} min"] * bool(rest))


def code_html(text) -> str:
    """Return a line of Markdown as HTML; of its marks it may have those of code."""
    return re.sub(r"`(.+?)`", r"<code>\1</code>", escape(text))


# ------------------------------------------------------------------------- the map


def place_parts(content, book) -> list[dict]:
    """Return the parts of a map, each with its place: its column and its row, from 1.

    Raises ValueError for a part that is not in the contents, or lacks its line, and for
    an arrow that no page supports.
    """
    found = map(PART.fullmatch, content.splitlines())
    parts = [match.groupdict() for match in found if match]
    if [part["name"] for part in parts] != list(book.parts):
        raise ValueError(
            f"the map needs these parts, in order: {', '.join(book.parts)}"
        )
    used, places = set(), {}
    for part in parts:
        before = part["after"]
        if before and (before not in places or not book.leads(before, part["name"])):
            raise ValueError(
                f"no arrow from {before} to {part['name']}: no page has that link"
            )
        part["alone"] = is_alone(part, parts)
        column, first = places.get(before, (0, 1))
        if part["alone"]:  # a row of its own below the others
            first = max(row for _, row in used) + 1
        row = next(n for n in count(first) if (column + 1, n) not in used)
        places[part["name"]] = column + 1, row
        used.add((column + 1, row))
        part |= {"column": column + 1, "row": row, "start": first}
    return parts


def is_alone(part, parts) -> bool:
    """Return whether a part has no arrow."""
    return not part["after"] and all(each["after"] != part["name"] for each in parts)


def map_html(content, book, page) -> str:
    """Return the map as HTML: boxes and arrows in a grid, which a phone stacks."""
    parts = place_parts(content, book)
    wide = max(part["column"] for part in parts)
    columns = " 2.25rem ".join(["minmax(0, 1fr)"] * wide)  # boxes and gaps
    boxes = [box(part, book, page) for part in sort_parts(parts)]
    arrows = [arrow(part) for part in parts if part["after"]]
    return (
        f'<div class="part-map"><div style="--columns: {columns}">'
        f"{''.join(boxes)}{''.join(arrows)}</div></div>"
    )


def sort_parts(parts, after=None) -> list[dict]:
    """Return the parts in order, each below the one that leads to it."""
    found = []
    for part in parts:
        if part["after"] == after:
            found += [part, *sort_parts(parts, part["name"])]
    return found


def box(part, book, page) -> str:
    """Draw a part: its name, what it answers, and its pages, which open."""
    name, own = part["name"], [page.name for page in book.parts[part["name"]]]
    after = f'<span class="after">after {part["after"]}</span>' if part["after"] else ""
    pages = "".join(f"<li>{page_link(each, book, page)}</li>" for each in own)
    column, row = part["column"], part["row"]
    place = f"--depth: {column - 1}; --column: {2 * column - 1}; --row: {row}"
    return (
        f'<div class="part{" alone" * part["alone"]}" style="{place}">'
        f'<p class="name">{link_html(own[0], name, page)} {after}</p>'
        f"<p>{code_html(part['asks'])}</p>"
        f"<details><summary>{book.size(name)}</summary><ul>{pages}</ul></details></div>"
    )


def link_html(name, title, page) -> str:
    """Return a link from a page to another one."""
    url = relpath(f"{name}.html", f"{page.name}/..")
    return f'<a class="reference internal" href="{url}">{title}</a>'


def page_link(name, book, page) -> str:
    """Return a link to a page, with its title."""
    return link_html(name, code_html(book.pages[name].title), page)


def arrow(part) -> str:
    """Draw the way to a part, in the gap before its column, from the row of another."""
    gap, row, start = 2 * part["column"] - 2, part["row"], part["start"]
    place = f"grid-column: {gap}; grid-row:"
    if row == start:
        return f'<i class="on" style="{place} {row}"></i>'
    way = f'<i class="down" style="{place} {start} / {row}"></i>'
    return f'{way}<i class="turn" style="{place} {row}"></i>'


def map_text(content, book, page) -> str:
    """Return the map as a list in Markdown."""
    lines = []
    for part in place_parts(content, book):
        first = relpath(f"{book.parts[part['name']][0].name}.md", f"{page.name}/..")
        beside = [f"after {part['after']}"] * bool(part["after"])
        details = "; ".join([*beside, book.size(part["name"])])
        lines.append(f"- **[{part['name']}]({first})** ({details}): {part['asks']}")
    return "\n".join(lines)


# ------------------------------------------------------------------------ the ways


def read_ways(content, book) -> list[dict]:
    """Return each way: its title, its pages with what is done there, its end, its time.

    Raises ValueError for a page that is not in the contents, or tells no minutes.
    """
    found = []
    for text in re.split(r"\n\s*\n", content.strip()):
        title, *lines = text.splitlines()
        steps = [line[2:].partition(": ") for line in lines if line.startswith("- ")]
        for page, *_ in steps:
            if page not in book.minutes:
                raise ValueError(f"{page} is no page whose head tells its minutes")
        found.append(
            {
                "title": title,
                "steps": [(page, does) for page, _, does in steps],
                "end": " ".join(line for line in lines if not line.startswith("- ")),
                "time": format_time(sum(book.minutes[page] for page, *_ in steps)),
            }
        )
    return found


def ways_html(content, book, page) -> str:
    """Return ways side by side as HTML."""
    blocks = []
    for way in read_ways(content, book):
        steps = "".join(
            f"<li>{page_link(name, book, page)} <small>{book.minutes[name]} min</small>"
            f"{f'<br>{code_html(does)}' if does else ''}</li>"
            for name, does in way["steps"]
        )
        end = f"<p>{code_html(way['end'])}</p>" if way["end"] else ""
        blocks.append(
            f'<div class="way"><p class="name">{code_html(way["title"])} '
            f"<small>{way['time']}</small></p><ol>{steps}</ol>{end}</div>"
        )
    return f'<div class="ways">{"".join(blocks)}</div>'


def ways_text(content, book, page) -> str:
    """Return ways as lists in Markdown."""
    lines = []
    for way in read_ways(content, book):
        lines += [f"**{way['title']}** ({way['time']})", ""]
        for step, does in way["steps"]:
            path = relpath(f"{step}.md", f"{page.name}/..")
            link = f"[{book.pages[step].title}]({path})"
            more = f": {does}" if does else ""
            lines.append(f"- {link}, {book.minutes[step]} min{more}")
        lines += ["", way["end"], ""] if way["end"] else [""]
    return "\n".join(lines).rstrip()


# --------------------------------------------------------------------- directives


HTML = {"part-map": map_html, "ways": ways_html}
TEXT = {"part-map": map_text, "ways": ways_text}


def directive_html(page, name, content) -> str:
    """Return a directive of a page as HTML."""
    return HTML[name](content, Book(page.docs), page)


def directive_text(part, page) -> str:
    """Return a directive of a page as Markdown."""
    return TEXT[part.name](part.content, Book(page.docs), page)
