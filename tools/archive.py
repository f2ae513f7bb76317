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

NAME, FOLDER = "shardbook.zip", "shardbook"
BEGIN = 1980, 1, 1, 0, 0, 0  # the first date that an archive can state
PLACE = re.compile(r'(<span class="offline">)(?:(?!</span>).)*(</span>)', re.S)
LINK = (
    'The whole book is offered as <a href="{path}" download>one archive</a> for '
    "reading without a network, {size} MB: its pages, notebooks and modules. "
    "Unpack it, and open <code>{folder}/index.html</code>."
)


def write_links(site, size=0):
    """Put the link into its places on the pages of a site; without a size, no link."""
    for page in site.rglob("*.html"):
        text, path = page.read_text(), relpath(site / NAME, page.parent)
        link = LINK.format(path=path, size=size, folder=FOLDER) if size else ""
        if text != (linked := PLACE.sub(rf"\1{link}\2", text)):
            page.write_text(linked)


def write_archive(site):
    """Write the archive of a site into it, and the links to it."""
    archive = site / NAME
    archive.unlink(missing_ok=True)
    write_links(site)
    files = sorted(file for file in site.rglob("[!.]*") if file.is_file())
    with ZipFile(archive, "w") as packed:
        for file in files:
            if file.suffix != ".map":
                entry = ZipInfo.from_file(file, FOLDER / file.relative_to(site))
                entry.date_time = BEGIN
                packed.writestr(entry, file.read_bytes(), ZIP_DEFLATED, 9)
    write_links(site, max(1, round(archive.stat().st_size / 1e6)))


if __name__ == "__main__":
    write_archive(Path(sys.argv[1]))
