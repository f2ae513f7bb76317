"""Put a built site into one file, for reading without a network.

    python tools/archive.py docs/_build/html

The same site gives the same bytes. Each page of it that has a place for the link,
`<span class="offline"></span>`, then shows it; the pages in the archive do not.
"""

import re
import sys
from os.path import relpath
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

NAME = "shardbook.zip"
PLACE = re.compile(rb'(<span class="offline">)(?:(?!</span>).)*(</span>)', re.S)
LINK = (
    'The whole book is offered as <a href="{}" download>one archive</a> for reading '
    "without a network, {} MB: its pages, notebooks and modules. Unpack it, and open "
    "<code>shardbook/index.html</code>."
)


def write_archive(site):
    """Write the archive of a site into it, then links to it into its pages."""
    archive, pages = site / NAME, [*site.rglob("*.html")]
    archive.unlink(missing_ok=True)
    found = [file for file in site.rglob("[!.]*") if file.suffix != ".map"]
    with ZipFile(archive, "w") as packed:
        for file in sorted(filter(Path.is_file, found)):
            entry = ZipInfo(f"shardbook/{file.relative_to(site)}")  # it has no date
            entry.external_attr = 0o644 << 16  # for all to read
            content = PLACE.sub(rb"\1\2", file.read_bytes())
            packed.writestr(entry, content, ZIP_DEFLATED, 9)
    size = max(1, round(archive.stat().st_size / 1e6))
    for page in pages:
        if PLACE.search(html := page.read_bytes()):
            link = LINK.format(relpath(archive, page.parent), size).encode()
            page.write_bytes(PLACE.sub(rb"\1" + link + rb"\2", html))


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
