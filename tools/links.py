"""Check every link of the built site: `python tools/links.py docs/_build/html`.

Inside the site each file and each anchor must exist, also when the site is opened from
the file system. So must each anchor that was ever published, for others link to it:
`tests/anchors.txt` lists them, and `--keep` before the site's folder adds the new ones.
Links to other hosts are followed where there is a network; otherwise they are listed as
not tried.

Neither LinkChecker nor Sphinx's `linkcheck` can do this: the first sees no page to
which nothing links, takes a folder for a page, and a path from the root for another
site; the second reads no built page, and fails where a host only refuses programs.
"""

import re
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urlsplit

LINKS = {"a": "href", "img": "src", "link": "href", "script": "src", "source": "src"}
IGNORED = {"data", "javascript", "mailto"}
AGENT = {"User-Agent": "Mozilla/5.0 (link check of a book)"}
GONE = {404, 410}
PUBLISHED = Path(__file__).resolve().parents[1] / "tests/anchors.txt"
OF_A_CELL = re.compile(r"cell-[0-9a-f]{6}(?:-\d+)?")  # which goes when the cell changes
TARGETS = "div", "dl", "dt", "section", "span"  # in the text of a page


class Link(NamedTuple):
    """A link: the file that it stands in, from the site's root, and its target."""

    file: str
    target: str


class Reader(HTMLParser):
    """Collects the links and the anchors of one page."""

    def __init__(self, text):
        """Read `text`."""
        super().__init__()
        self.links, self.anchors = set(), {"", "top"}
        self.targets, self.inside = set(), False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Note what the element links to, and what links may lead to it."""
        given = dict(attrs)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if target := given.get(LINKS.get(tag)):
            self.links.add(target)
        self.inside |= tag == "article"
        if self.inside and tag in TARGETS and given.get("id"):
            self.targets.add(given["id"])

    def handle_endtag(self, tag):
        """Note where the text of the page ends."""
        self.inside &= tag != "article"


def read(root) -> dict[str, Reader]:
    """Read all pages below `root`, and `llms.txt`, where links are Markdown's."""
    files = (f for f in sorted(root.rglob("*.html")) if "_static" not in f.parts)
    pages = {str(f.relative_to(root)): Reader(f.read_text()) for f in files}
    llms = root / "llms.txt"
    if llms.exists():
        pages["llms.txt"] = page = Reader("")
        page.links |= set(re.findall(r"\]\(([^)]+)\)", llms.read_text()))
    return pages


def is_external(target) -> bool:
    """Say whether a link leads to another host."""
    return bool(urlsplit(target).scheme or urlsplit(target).netloc)


def problem(link, root, pages) -> str | None:
    """Return what is wrong with a link inside the site, or nothing."""
    address, anchor = urldefrag(link.target)
    path = unquote(urlsplit(address).path)
    if path.startswith("/"):
        if link.file != "404.html":  # which stands in for a page at any depth
            return "leads nowhere in the file system"
        path = f".{path}"
    folder = root if path.startswith("./") else (root / link.file).parent
    file = (folder / path).resolve() if path else root / link.file
    if not file.is_file():
        return "leads to a folder" if file.is_dir() else "has no target"
    name = str(file.relative_to(root.resolve())) if path else link.file
    if name in pages and unquote(anchor) not in pages[name].anchors:
        return "has no such anchor"
    return None


def broken(root) -> list[str]:
    """List what is wrong with the links inside the site."""
    pages = read(root)
    found = []
    for file, page in pages.items():
        for target in sorted(page.links):
            if not is_external(target) and (
                fault := problem(Link(file, target), root, pages)
            ):
                found.append(f"{file}: {target} {fault}")
    return found


def published(root) -> list[str]:
    """List the headings and other targets of the site, such as `a/b.html#heading`."""
    pages = read(root).items()
    found = {(file, name) for file, page in pages for name in page.targets}
    return sorted(f"{file}#{n}" for file, n in found if not OF_A_CELL.fullmatch(n))


def lost(root, kept) -> list[str]:
    """Say which of these anchors the site does not have any more."""
    pages, found = read(root), []
    for address in kept:
        file, _, anchor = address.partition("#")
        if file not in pages:
            found.append(f"{address} was published, and the page is gone")
        elif anchor not in pages[file].anchors:
            found.append(f"{address} was published, and is no anchor any more")
    return found


def external(root) -> dict[str, set[str]]:
    """List the links to other hosts: each page with the anchors that are wanted."""
    found = {}
    for page in read(root).values():
        for target in page.links:
            if is_external(target) and urlsplit(target).scheme not in IGNORED:
                address, anchor = urldefrag(target)
                found.setdefault(address, set()).add(anchor)
    return dict(sorted(found.items()))


def answer(address):
    """Return a page's text; the error's number; or nothing when it does not answer."""
    request = urllib.request.Request(address, headers=AGENT)
    try:
        with urllib.request.urlopen(request, timeout=20) as page:
            return page.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def has_network(addresses) -> bool:
    """Say whether one of three hosts answers at all."""
    hosts = {urlsplit(address).netloc: address for address in addresses}
    return any(answer(address) is not None for address in list(hosts.values())[:3])


def judged(address, anchors, page) -> str | None:
    """Say what an external link's answer means, where it is not good."""
    if page is None:
        return f"no answer   {address}"
    if isinstance(page, int):
        return f"{'GONE' if page in GONE else 'refused'} {page}  {address}"
    missing = anchors - Reader(page).anchors
    return f"no anchor   {address} {' '.join(sorted(missing))}" if missing else None


def follow(links) -> list[str]:
    """Follow links to other hosts; print what is odd, return what is gone."""
    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(answer, links))
    words = [
        judged(*link, page) for link, page in zip(links.items(), pages, strict=True)
    ]
    odd = [word for word in words if word]
    print(*odd, sep="\n")
    print(f"{len(links)} external pages followed, {len(odd)} worth a look")
    return [word for word in odd if word.startswith("GONE")]


def main(root):
    """Check the site below `root`; return 1 when a link is broken."""
    faults = broken(root) + lost(root, PUBLISHED.read_text().split())
    print(*faults, sep="\n")
    print(f"{len(read(root))} files read: {len(faults)} broken links inside the site")
    links = external(root)
    if has_network(links):
        faults += follow(links)
    else:
        print(*links, sep="\n")
        print(f"no network: {len(links)} external pages (above) were not tried")
    return 1 if faults else 0


def keep(root):
    """Add the anchors of the site below `root` to those that were published."""
    known = PUBLISHED.read_text().split() if PUBLISHED.exists() else []
    PUBLISHED.write_text("\n".join(sorted({*known, *published(root)})) + "\n")


if __name__ == "__main__":
    *options, folder = sys.argv[1:]
    sys.exit(keep(Path(folder)) if options == ["--keep"] else main(Path(folder)))
