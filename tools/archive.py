"""Put a built site into one file, for reading without a network.

    python tools/archive.py docs/_build/html

writes `shardbook.zip` into the site: all pages, with what they load, their notebooks
and all modules, in a folder that is opened by its `index.html`. The same site gives the
same bytes. Each page that has a place for it, `<span class="offline"></span>`, then
shows a link; the pages in the archive do not. `nox -s docs -- --archive` calls it.
"""

import re
import sys
import zipfile
from pathlib import Path
from posixpath import relpath

NAME, FOLDER = "shardbook.zip", "shardbook"
BEGAN = (1980, 1, 1, 0, 0, 0)  # the first date that an archive can state
RIGHTS = 0o100644 << 16  # a file that all may read
PLACE = re.compile(r'(<span class="offline">)(?:(?!</span>).)*(</span>)', re.S)
LINK = (
    'The whole book is offered as <a href="{path}" download>one archive</a> for '
    "reading without a network, {size} MB: its pages, notebooks and modules. "
    "Unpack it, and open <code>{folder}/index.html</code>."
)


def archived_files(site) -> list[Path]:
    """Return what a reader has a use for, sorted: no hidden files, nor the archive."""
    files = (file.relative_to(site) for file in site.rglob("*") if file.is_file())
    files = (file for file in files if file.suffix != ".map" and file.name != NAME)
    return sorted(f for f in files if not any(p.startswith(".") for p in f.parts))


def replace_link(text, link="") -> str:
    """Return a page with these words in the places for the link."""
    return PLACE.sub(lambda found: f"{found[1]}{link}{found[2]}", text)


def write_archive(site) -> Path:
    """Write the archive of a site into it, and the links to it; return the archive."""
    archive = site / NAME
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for file in archived_files(site):
            entry = zipfile.ZipInfo(f"{FOLDER}/{file.as_posix()}", BEGAN)
            entry.external_attr = RIGHTS
            data = (site / file).read_bytes()
            if file.suffix == ".html":
                data = replace_link(data.decode()).encode()
            packed.writestr(entry, data, zipfile.ZIP_DEFLATED)
    write_links(site, archive)
    return archive


def write_links(site, archive):
    """Show the link on the pages of the site that have a place for it."""
    size = max(1, round(archive.stat().st_size / 1e6))
    for page in site.rglob("*.html"):
        text = page.read_text()
        path = relpath(archive.as_posix(), page.parent.as_posix())
        linked = replace_link(text, LINK.format(path=path, size=size, folder=FOLDER))
        if linked != text:
            page.write_text(linked)


if __name__ == "__main__":
    print(write_archive(Path(sys.argv[1])))
