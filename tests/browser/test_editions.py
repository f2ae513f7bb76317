"""Every page leads to the same page of the other editions, where there are any."""

import functools
import shutil
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import publish
import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = """<!doctype html>
<html lang="en" data-content_root="{up}"><head><title>Page</title>
<link rel="icon" href="data:,"><script src="{up}editions.js"></script></head>
<body>{menu}</body></html>
"""


def site(folder, *names):
    """Make a site of these pages, each with nothing but the menu."""
    for name in names:
        file = folder / f"{name}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        menu = (DOCS / "_templates/editions.html").read_text()
        up = "../" if "/" in name else "./"
        file.write_text(PAGE.format(up=up, menu=menu))
    shutil.copy(DOCS / "_static/editions.js", folder)
    (folder / "editions.json").write_text("{}\n")
    return folder


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A folder with one site alone, and with a branch of three; and its address."""
    folder = tmp_path_factory.mktemp("published")
    branch = folder / "branch"
    branch.mkdir()
    alone = site(folder / "alone", "index", "a/x")
    publish.publish(site(folder / "first", "index", "a/x", "a/old"), branch, "2026.9")
    publish.publish(site(folder / "second", "index", "a/x"), branch, "2026.11")
    publish.publish(alone, branch)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()


@pytest.mark.parametrize(
    ("path", "name", "others"),
    [
        ("", "newest", ["index.html", "2026.11/index.html", "2026.9/index.html"]),
        ("a/x.html", "newest", ["a/x.html", "2026.11/a/x.html", "2026.9/a/x.html"]),
        (
            "2026.9/a/old.html",
            "2026.9",
            ["index.html", "2026.11/index.html", "2026.9/a/old.html"],
        ),
    ],
)
def test_a_page_leads_to_itself_in_every_edition_that_has_it(
    visit, published, path, name, others
):
    _, address = published
    seen = visit(address)
    page = seen.open(f"branch/{path}")
    page.locator("summary", has_text=f"Edition: {name}").click()
    links = page.get_by_role("navigation", name="Editions").get_by_role("link")
    found = [link.evaluate("link => link.pathname") for link in links.all()]
    assert found == [f"/branch/{other}" for other in others]
    current = page.locator('.editions [aria-current="true"]')
    assert current.text_content() == name
    assert seen.faults == []


def test_a_site_that_is_alone_or_a_file_shows_no_menu(visit, published):
    folder, address = published
    for base, path in (
        (address, "alone/a/x.html"),
        (folder.as_uri(), "/branch/a/x.html"),
    ):
        seen = visit(base)
        page = seen.open(path)
        page.wait_for_load_state("networkidle")
        assert page.locator("nav.editions").is_hidden()
        assert seen.faults == []
