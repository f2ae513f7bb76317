"""The built site in a real browser: `nox -s browser`."""

import gzip
import hashlib
import json
import os
import re
import zlib
from pathlib import Path

import built_site
import nbformat
import pytest
from built_site import AXE, MOST, SITE, audit, sent_bytes, set_look
from bundle import THEME_SCRIPTS, THEME_STYLES, read_file

from book import marks

PAGES = sorted(
    str(file.relative_to(SITE))
    for file in SITE.rglob("*.html")
    if file.name != "404.html"  # it is served in place of a page at any depth
    and "_static" not in file.parts
)
PAGE, PROSE = "arrays/meshes.html", "algorithms/cg.html"
LU = "reference/modules/lu.html"
ALL_LOOKS = bool(os.environ.get("BOOK_LOOKS"))  # every week
LOOKS = [("light", 1280), ("dark", 390)]
LOOKS += [("light", 390), ("dark", 1280)] * ALL_LOOKS
OPEN = "for (const box of document.querySelectorAll('details.hide')) box.open = true"
ICON = re.compile(r'<i class="fa\w?(?:-solid)? fa-([\w-]+)')
STYLE = "(each, name) => getComputedStyle(each)[name]"
ROWS = """all => all.map(line => {
    const rows = line.clientHeight / parseFloat(getComputedStyle(line).lineHeight);
    return [line.innerText.length, Math.round(rows)]})"""
SHARED = [*sorted(SITE.glob("_[is]*/**/*.*")), AXE, Path(__file__)]
SHARED += map(Path(__file__).with_name, ("conftest.py", "built_site.py"))
SITE_WIDE = b"".join(file.read_bytes() for file in SHARED if file.is_file())
SITE_WIDE += marks.describe_environment("chromium --version").encode()


def mark_of(page, *programs):
    """Return the mark of a test by these programs of a page that looks like this."""
    parts = SITE_WIDE, *(Path(file).read_bytes() for file in (SITE / page, *programs))
    return f"browser-{hashlib.sha256(b''.join(parts)).hexdigest()}"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_quiet_fits_and_is_accessible(tab, page):
    """In two looks, of which one is audited by all rules; every week in all four."""
    if marks.read_mark(mark_of(page)) is not None:
        pytest.skip("had passed")
    tab.faults.clear()
    screen = tab.open(page)
    screen.evaluate(OPEN)
    first = 0 if ALL_LOOKS else PAGES.index(page) % 2
    for look in LOOKS[first:] + LOOKS[:first]:
        set_look(screen, *look)
        assert not screen.evaluate(built_site.OVERFLOW), look
        only = None if ALL_LOOKS or look == LOOKS[first] else built_site.COLORS
        assert audit(screen, only=only, all=ALL_LOOKS) == [], look
    built_site.assert_light(screen)
    assert tab.faults == []
    marks.write_mark(mark_of(page))


def test_an_audit_finds_a_text_and_a_link_of_low_contrast(visit):
    screen = visit().open(PAGE)
    text = "<div style='background: #777'><p>As dark as other words.</p></div>"
    link = (
        "<p>A <a href='#' style='color: #444; text-decoration: none'>link</a> too.</p>"
    )
    screen.locator("article").evaluate("(e, html) => e.innerHTML += html", text + link)
    assert {each.split(":")[0] for each in audit(screen)} == set(built_site.COLORS)


@pytest.mark.parametrize(
    ("page", "box"),
    [(PAGE, "div.cell_input:visible"), (LU, "section#source-lu")],
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
    assert text == (module if page == LU else box.locator("pre").inner_text()).strip()


def assert_saves(screen, link, file):
    """Fail unless a link downloads this file of the site."""
    with screen.expect_download() as download:
        link.click()
    assert download.value.suggested_filename == file.name
    assert Path(download.value.path()).read_bytes() == file.read_bytes()


def test_pages_offer_their_notebook_their_markdown_and_their_module(visit):
    for notebook in SITE.rglob("*.ipynb"):
        text, name = notebook.with_suffix(".html").read_text(), notebook.stem
        links = re.findall(r'href="([^"]+)" download class="btn', text)
        assert links == [f"{name}.ipynb", f"{name}.md"], notebook
        assert "Toggle hidden content" not in text, notebook  # MyST-NB's name of a cell
        nbformat.validate(json.loads(notebook.read_text()))
        assert re.search(r"^# .", notebook.with_suffix(".md").read_text(), re.M)
    screen = visit().open(PAGE)
    menu = screen.locator(".dropdown-download-buttons .dropdown-menu")
    for suffix in ".ipynb", ".md":
        screen.get_by_role("button", name="Download this page").click()
        assert menu.locator("a, button").all_inner_texts() == [".ipynb", ".md", "Print"]
        file = (SITE / PAGE).with_suffix(suffix)
        assert_saves(screen, menu.get_by_text(suffix), file)
    screen.goto(screen.url.replace(PAGE, LU))
    assert screen.locator("cite").count() == 0  # what docstrings make of `code`
    assert_saves(screen, screen.locator("a.module-file").first, SITE / "modules/lu.py")


# --------------------------------------------------------------- how a page looks


def test_a_line_of_prose_has_about_seventy_characters(visit):
    lines = visit().open(PROSE).locator(".bd-article section > p")
    lengths = [length / n for length, n in lines.evaluate_all(ROWS) if n > 3]
    assert 60 < sum(lengths) / len(lengths) < 80


def test_the_text_is_one_tab_away_and_the_contents_are_folded(visit):
    screen = visit().open(PROSE)
    screen.keyboard.press("Tab")
    assert screen.evaluate("document.activeElement.hash") == "#main-content"
    stops = 0
    while not screen.evaluate("document.activeElement.closest('main') != null"):
        screen.keyboard.press("Tab")
        stops += 1
        assert stops < 35
    assert screen.locator("nav.bd-links a.current").is_visible()
    assert screen.locator("nav.bd-links details[open]").count() == 1


def test_paper_is_white_and_keeps_colours(visit):
    screen = visit().open(PROSE)
    set_look(screen, "dark", 1280)
    screen.evaluate("dispatchEvent(new Event('beforeprint'))")
    screen.emulate_media(media="print")
    assert screen.evaluate(built_site.THEME) == "light"
    article, cell = (screen.locator(at).first for at in (".bd-article", "div.cell"))
    assert article.evaluate(STYLE, "printColorAdjust") == "exact"
    assert cell.evaluate(STYLE, "breakInside") == "avoid"
    screen.evaluate("dispatchEvent(new Event('afterprint'))")
    assert screen.evaluate(built_site.THEME) == "dark"


def test_the_first_screen_asks_and_answers_with_a_picture(visit):
    screen = visit().open("index.html")
    screen.locator(".explorer .step svg").first.wait_for()
    for at in ".buttons", ".given", ".explorer .lines", ".explorer .step svg":
        boxes = [each.bounding_box() for each in screen.locator(at).all()]
        assert max(box["y"] + box["height"] for box in boxes) <= 900, at


# ---------------------------------------------------------------- over a slow line


def test_each_page_has_its_icons_and_the_new_script():
    """The script by its content, or a browser would go on with an old one."""
    script = zlib.crc32((SITE / "_static/bundle.js").read_bytes())
    icons = {*re.findall(r"\.fa-([\w-]+)", (SITE / "_static/bundle.css").read_text())}
    for page in PAGES:
        text = (SITE / page).read_text()
        assert {*ICON.findall(text)} <= icons, page
        assert f'bundle.js?v={script:08x}"' in text.partition("</main>")[2], page
        scripts = re.findall(r"<script\b[^>]*\bsrc=[^>]*>", text)
        assert all("defer" in script for script in scripts), page


def test_a_page_says_what_the_theme_takes():
    parts = (read_file(SITE, name) for name in (*THEME_STYLES, *THEME_SCRIPTS))
    texts = sum(len(gzip.compress(part.encode())) for part in parts)
    share = texts + sent_bytes("_static/vendor/fontawesome/webfonts/fa-solid-900.woff2")
    text = (SITE / "start/how-to-read.html").read_text()
    (words,) = re.findall(r"at most (\d+) KiB, of which the\s+theme takes (\d+)", text)
    assert [*words] == [str(MOST // 1024), f"{round(share / 1024, -1):.0f}"]
