"""The site as one file: the same bytes each time, whole, and readable as files."""

import os
import re
import zipfile
from urllib.parse import unquote

import archive
import pytest
import tiny_site
from tiny_site import Site

HEAD = f"{tiny_site.HEAD.removesuffix('---\n')}needs: jax\n---\n"
OFFLINE = '<span class="offline"></span>'
PAGES = {
    "index.md": "# Book\n\n```{toctree}\npart/less\n```\n",
    "part/less.md": f"{HEAD}# Less\n\nSee [the book](../index.md).\n\n{OFFLINE}\n\n"
    "```{code-cell}\n1 + 1\n```\n",
    "../src/less.py": '"""Less."""\n',
    "../pyproject.toml": '[project]\nrequires-python = ">=3.12"\n'
    'dependencies = ["jax>=0.12"]\n',
}
LED_TO = re.compile(r'(?:href|src)="([^"#?:]+)')


def build_site(folder):
    """Build a book of two pages and a module."""
    how = {
        "extensions": ["myst_nb", "downloads"],
        "nb_execution_mode": "off",
        "execution_modules": str(folder / "src"),
        "html_theme": "sphinx_book_theme",
        "project": "Book",
        "suppress_warnings": ["misc.highlighting_failure"],
    }
    (folder / "docs").mkdir(parents=True)
    return Site(folder, PAGES, **how)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    site = build_site(tmp_path_factory.mktemp("archive"))
    assert "shardbook.zip" not in site("part/less.html")
    archive.write_archive(site.out)
    return site


@pytest.fixture(scope="module")
def archive_folder(site, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(site.out / archive.NAME) as packed:
        packed.extractall(folder)
    return folder / archive.FOLDER


def test_it_has_the_site_its_notebooks_and_its_modules(archive_folder):
    for name in ("index.html", "part/less.html", "part/less.ipynb", "modules/less.py"):
        assert (archive_folder / name).stat().st_size, name
    assert not [*archive_folder.rglob("*.map"), *archive_folder.rglob("*.zip")]
    assert (archive_folder / "modules/less.py").read_text() == '"""Less."""\n'


def test_all_that_a_page_leads_to_is_in_it(archive_folder):
    """So it works without a server, and without a network."""
    for page in archive_folder.rglob("*.html"):
        if "_static" in page.parts:
            continue
        led = {unquote(path) for path in LED_TO.findall(page.read_text())}
        assert led
        missing = [path for path in led if not (page.parent / path).exists()]
        assert missing == [], page
        assert not [path for path in led if path.startswith("/")], page


def test_the_same_site_gives_the_same_bytes(site):
    first = (site.out / archive.NAME).read_bytes()
    for number, file in enumerate(sorted(site.out.rglob("*.html"))):
        os.utime(file, (number, number))
    archive.write_archive(site.out)  # the pages have the link now
    assert (site.out / archive.NAME).read_bytes() == first


def test_the_link_stands_where_the_archive_is(site, archive_folder):
    shown = re.search(r'<span class="offline">(.*?)</span>', site("part/less.html"))[1]
    assert '<a href="../shardbook.zip" download>' in shown
    assert "1 MB" in shown
    assert OFFLINE in (archive_folder / "part/less.html").read_text()
    assert "offline" not in site("index.html")
