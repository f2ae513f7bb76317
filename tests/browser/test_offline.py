"""The archive of a site, unpacked and opened as files."""

import zipfile

import archive
import pytest
from test_bundle import HOW, PAGES
from tiny_site import Site


@pytest.fixture(scope="module")
def archive_folder(tmp_path_factory):
    """Unpack the archive of a book with the theme, the bundles and an explorer."""
    folder = tmp_path_factory.mktemp("offline")
    site = Site(folder, PAGES, **HOW)
    archive.write_archive(site.out)
    with zipfile.ZipFile(site.out / archive.NAME) as packed:
        packed.extractall(folder / "elsewhere")
    return folder / "elsewhere" / archive.FOLDER


def test_pages_scripts_and_data_work_as_files(visit, archive_folder):
    """An explorer needs the styles, both kinds of scripts, and data."""
    tab = visit(base=f"{archive_folder.as_uri()}/")
    screen = tab.open("index.html")
    screen.get_by_role("link", name="A list").first.click()
    screen.locator(".explorer-costs").scroll_into_view_if_needed()
    screen.locator(".explorer-costs form input").first.wait_for()
    assert screen.evaluate("document.styleSheets.length") == 1
    assert screen.url.startswith("file:")
    assert tab.faults == []
