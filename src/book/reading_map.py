"""The directives `part-map` and `ways`: an overview, from the book's contents.

`part-map` draws the parts. Each line has a part, the part that it builds on, and what
it answers; a part without an arrow is for looking up:

    Arrays < Start: Which device holds what?

A block of `ways` has a title, the pages to read in this order, for each perhaps what
one does there, and what one can do at the end:

    Sharding in an evening
    - start/eight-devices: make a laptop pose as eight devices
    At its end you predict how results are split.
"""

import re
from html import escape
from posixpath import relpath

from book import contents
from book.error_index import link

MINUTES = re.compile(r"^\*Before this page:.*?\bAbout\s+(\d+)\s+minutes\b", re.M | re.S)
PART = re.compile(r"(?P<name>[^<:]+?)(?: < (?P<after>[^:]+))?: (?P<asks>.+)")


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


def code_html(text) -> str:
    """Return a line of Markdown as HTML; of its marks it may have those of code."""
    return re.sub(r"`(.+?)`", r"<code>\1</code>", escape(text))


def link_html(other, page, title="") -> str:
    """Return a link from a page to another one."""
    url = relpath(f"{other.name}.html", f"{page.name}/..")
    title = code_html(title or other.title)
    return f'<a class="reference internal" href="{url}">{title}</a>'


def read_parts(content, docs) -> list[dict]:
    """Return the parts of a map: their names, what they answer, and their pages."""
    pages = dict(contents.parts(docs))
    parts = [PART.fullmatch(line).groupdict() for line in content.splitlines()]
    if [part["name"] for part in parts] != [*pages]:
        raise ValueError(f"the map needs these parts, in order: {', '.join(pages)}")
    return [part | {"pages": pages[part["name"]]} for part in parts]


def map_html(page, content) -> str:
    """Return the map as HTML: boxes in nested lists, between which arrows are drawn."""
    parts = read_parts(content, page.docs)

    def list_parts(after):
        own = [part for part in parts if part["after"] == after]
        items = (f"<li>{box(p, page)}{list_parts(p['name'])}</li>" for p in own)
        return f"<ul>{''.join(items)}</ul>" if own else ""

    return f'<div class="part-map">{list_parts(None)}</div>'


def box(part, page) -> str:
    """Return the box of a part: its name, what it answers, its pages, which open."""
    own, after = part["pages"], part["after"]
    pages = "".join(f"<li>{link_html(each, page)}</li>" for each in own)
    words = f'<span class="after">after {after}</span>' if after else ""
    return (
        f'<div class="part"><p class="name">{link_html(own[0], page, part["name"])} '
        f"{words}</p><p>{code_html(part['asks'])}</p>"
        f"<details><summary>{size(own)}</summary><ul>{pages}</ul></details></div>"
    )


def map_text(page, content) -> str:
    """Return the map as a list in Markdown."""
    lines = []
    for part in read_parts(content, page.docs):
        name = link(part["name"], part["pages"][0].name, page)
        after = f"after {part['after']}; " if part["after"] else ""
        lines.append(f"- **{name}** ({after}{size(part['pages'])}): {part['asks']}")
    return "\n".join(lines)


def read_ways(content, docs):
    """Yield of each way its title, its pages with what is done there, and its end."""
    known = {page.name: page for page in contents.pages(docs) if minutes(page)}
    for text in content.strip().split("\n\n"):
        title, *lines = text.splitlines()
        steps = [line[2:].partition(": ") for line in lines if line.startswith("- ")]
        if unknown := {name for name, *_ in steps} - known.keys():
            raise ValueError(f"no pages whose heads state minutes: {sorted(unknown)}")
        end = " ".join(line for line in lines if not line.startswith("- "))
        yield title, {known[name]: does for name, _, does in steps}, end


def ways_html(page, content) -> str:
    """Return ways side by side as HTML."""
    blocks = []
    for title, steps, end in read_ways(content, page.docs):
        listed = "".join(
            f"<li>{link_html(other, page)} <small>{minutes(other)} min</small>"
            f"{f'<br>{code_html(does)}' if does else ''}</li>"
            for other, does in steps.items()
        )
        blocks.append(
            f'<div class="way"><p class="name">{code_html(title)} '
            f"<small>{format_time(steps)}</small></p><ol>{listed}</ol>"
            f"{f'<p>{code_html(end)}</p>' if end else ''}</div>"
        )
    return f'<div class="ways">{"".join(blocks)}</div>'


def ways_text(page, content) -> str:
    """Return ways as lists in Markdown."""
    blocks = []
    for title, steps, end in read_ways(content, page.docs):
        lines = []
        for other, does in steps.items():
            more = f" min: {does}" if does else " min"
            place = link(other.title, other.name, page)
            lines.append(f"- {place}, {minutes(other)}{more}")
        blocks += [f"**{title}** ({format_time(steps)})", "\n".join(lines), end]
    return "\n\n".join(filter(None, blocks))


HTML = {"part-map": map_html, "ways": ways_html}
TEXT = {"part-map": map_text, "ways": ways_text}


def directive_text(part, page) -> str:
    """Return a directive of a page as Markdown."""
    return TEXT[part.name](page, part.content)
