"""The built site in a real browser: `nox -s browser`."""

import hashlib
import json
import os
import re
from pathlib import Path

import nbformat
import pytest
from built_site import AXE, COLORS, FILES, OVERFLOW, SITE, audit

from book import marks

PAGES = sorted(
    str(file.relative_to(SITE))
    for file in SITE.rglob("*.html")
    if file.name != "404.html"  # it is served in place of a page at any depth
    and "_static" not in file.parts
)
NOTEBOOKS = [page for page in PAGES if (SITE / page).with_suffix(".ipynb").exists()]
PAGE, LU = "arrays/meshes.html", "reference/modules/lu.html"
ALL_LOOKS = bool(os.environ.get("BOOK_LOOKS"))  # every week
LOOKS = [("light", 1280), ("dark", 390)]
LOOKS += [("light", 390), ("dark", 1280)] * ALL_LOOKS
THEME = "document.documentElement.dataset.theme"
OPEN = "for (const box of document.querySelectorAll('details.hide')) box.open = true"


SHARED = [*sorted((SITE / "_static").rglob("*.*")), AXE, Path(__file__)]
SHARED += map(Path(__file__).with_name, ("conftest.py", "built_site.py"))
SITE_WIDE = b"".join(file.read_bytes() for file in SHARED if file.is_file())
SITE_WIDE += marks.describe_environment("chromium").encode()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_quiet_fits_and_is_accessible(tab, page, record_property):
    """In two looks, of which one is audited by all rules; every week in all four."""
    digest = hashlib.sha256(SITE_WIDE + (SITE / page).read_bytes()).hexdigest()
    mark = f"browser-{digest}"  # of a page that looks and runs like this one
    if marks.read_mark(mark) is not None:
        record_property("had_passed", 1)
        return
    tab.faults.clear()
    screen = tab.open(page)
    screen.evaluate(OPEN)
    first = 0 if ALL_LOOKS else PAGES.index(page) % 2
    for scheme, width in LOOKS[first:] + LOOKS[:first]:
        screen.emulate_media(color_scheme=scheme)
        screen.set_viewport_size({"width": width, "height": 900})
        screen.wait_for_function(f"{THEME} == '{scheme}'")
        assert not screen.evaluate(OVERFLOW), width
        only = None if ALL_LOOKS or (scheme, width) == LOOKS[first] else COLORS
        assert audit(screen, only=only, all=ALL_LOOKS) == [], (scheme, width)
    assert tab.faults == []
    marks.write_mark(mark)


def test_an_audit_finds_a_text_and_a_link_of_low_contrast(visit):
    screen = visit().open(PAGE)
    text = "<div style='background: #777'><p>As dark as other words.</p></div>"
    link = "<p>A <a href='#' style='color: #444; text-decoration: none'>link</a> that"
    screen.locator("article").evaluate(
        "(article, html) => article.insertAdjacentHTML('beforeend', html)",
        f"{text}{link} only its color shows.</p>",
    )
    assert {each.split(":")[0] for each in audit(screen)} == set(COLORS)


def test_the_site_opens_from_the_file_system(visit):
    screen = visit(FILES).open("index.html")
    screen.locator("article .buttons a").first.click()
    screen.wait_for_url("**/start/*.html")
    first = screen.locator("article h1").text_content()
    screen.locator("a.right-next").click()
    screen.wait_for_load_state()
    assert screen.locator("article h1").text_content() != first


@pytest.mark.parametrize(
    ("page", "box"),
    [(PAGE, "div.cell_input:visible"), (LU, "section#source-lu")],
    ids=["cell", "module"],
)
def test_code_is_copied_whole(visit, page, box):
    """The set-up, which is the first cell, may be folded."""
    screen = visit(permissions=["clipboard-read", "clipboard-write"]).open(page)
    box = screen.locator(box).first
    screen.evaluate("navigator.clipboard.writeText('')")  # of another test
    box.hover()
    box.locator("button.copybtn").click()
    screen.wait_for_function("navigator.clipboard.readText().then(text => text != '')")
    text = screen.evaluate("navigator.clipboard.readText()").strip()
    module = (SITE / "modules/lu.py").read_text()
    code = module if page == LU else box.locator("pre").inner_text()
    assert text == code.strip()


def assert_saves(screen, link, file):
    """Fail unless a link downloads this file of the site."""
    with screen.expect_download() as download:
        link.click()
    found = download.value
    assert found.suggested_filename == file.name
    assert Path(found.path()).read_text() == file.read_text()


def test_each_page_offers_its_notebook_and_its_markdown(visit):
    for page in NOTEBOOKS:
        text, file = (SITE / page).read_text(), SITE / page
        links = re.findall(r'href="([^"]+)" download class="btn', text)
        assert links == [f"{file.stem}.ipynb", f"{file.stem}.md"], page
        assert "Toggle hidden content" not in text, page  # MyST-NB's name of a cell
        nbformat.validate(json.loads(file.with_suffix(".ipynb").read_text()))
        assert re.search(r"^# .", file.with_suffix(".md").read_text(), re.M), page
    screen = visit().open(PAGE)
    menu = screen.locator(".dropdown-download-buttons .dropdown-menu")
    for suffix in ".ipynb", ".md":
        screen.get_by_role("button", name="Download this page").click()
        assert menu.locator("a, button").all_inner_texts() == [".ipynb", ".md", "Print"]
        link = menu.get_by_text(suffix)
        assert_saves(screen, link, (SITE / PAGE).with_suffix(suffix))


def test_each_module_can_be_downloaded(visit):
    for file in (SITE / "modules").glob("[!_]*.py"):
        page = SITE / f"reference/modules/{file.stem}.html"
        link = f'<a class="module-file" href="../../modules/{file.name}" download>'
        assert link in page.read_text()
    screen = visit().open(LU)
    assert_saves(screen, screen.locator("a.module-file").first, SITE / "modules/lu.py")
