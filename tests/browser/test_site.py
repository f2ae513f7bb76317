"""The built site in a real browser: `nox -s browser`."""

import ast
import json
import re
from pathlib import Path

import nbformat
import pytest
from built_site import AXE, SITE

PAGES = sorted(
    str(file.relative_to(SITE))
    for file in SITE.rglob("*.html")
    if file.name != "404.html"  # it is served in place of a page at any depth
    and "_static" not in file.parts
)
SOURCES = {page for page in PAGES if (SITE / page).with_suffix(".md").exists()}
NOTEBOOKS = {page for page in SOURCES if (SITE / page).with_suffix(".ipynb").exists()}
PARTS = sorted({page.split("/")[0] for page in SOURCES if "/" in page})
MODULES = sorted(file.name for file in (SITE / "modules").glob("[!_]*.py"))
SCREENS = [(s, w) for s in ("light", "dark") for w in (1280, 390)]
AUDITED = [("light", 1280), ("dark", 390)]  # each colour and each width, on all pages
LOOK = "[document.documentElement.scrollWidth, innerWidth]"
AUDIT = """axe.run(document, {resultTypes: ["violations"]}).then(result =>
    result.violations.filter(rule => ["serious", "critical"].includes(rule.impact))
    .flatMap(rule => rule.nodes.map(node => `${rule.id}: ${node.target.join(" ")}`)))"""
OPEN = "for (const box of document.querySelectorAll('details.hide')) box.open = true"


def title(page):
    """Return the words of a page's first heading, as its source has them."""
    text = (SITE / page).with_suffix(".md").read_text()
    return re.search(r"^# (.+)$", text, re.M)[1]


def audited(screen):
    """List what axe finds, and finds again once nothing fades in or moves."""
    if not screen.evaluate(AUDIT):
        return []
    screen.wait_for_timeout(1000)
    return screen.evaluate(AUDIT)


def test_the_site_is_built():
    assert len(NOTEBOOKS) > 1
    assert {"arrays", "global-view", "reference", "start"} <= {*PARTS}
    assert MODULES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_quiet_fits_and_is_accessible(visit, page):
    """In one window that changes its colours and its width."""
    seen = visit()
    screen = seen.open(page)
    screen.evaluate(OPEN)
    screen.evaluate(AXE.read_text())
    for scheme, width in SCREENS:
        screen.emulate_media(color_scheme=scheme)
        screen.set_viewport_size({"width": width, "height": 900})
        assert screen.evaluate("document.documentElement.dataset.theme") == scheme
        wide, window = screen.evaluate(LOOK)
        assert wide <= window, width
        if (scheme, width) in AUDITED or page == "index.html":
            assert audited(screen) == [], (scheme, width)
    assert seen.faults == []


@pytest.mark.parametrize("part", PARTS)
def test_search_finds_a_page_of_each_part(visit, part):
    page = max(page for page in SOURCES if page.startswith(f"{part}/"))
    seen = visit()
    screen = seen.open("index.html")
    screen.locator("input[name=q]:visible").first.fill(title(page))
    screen.keyboard.press("Enter")
    screen.wait_for_url("**/search.html?q=*")
    found = screen.locator(f"ul.search a[href^='{page}']").first
    found.wait_for()
    assert title(page) in found.text_content()
    assert seen.faults == []


def test_search_from_the_file_system_finds_a_page(visit):
    page = max(NOTEBOOKS)
    seen = visit(SITE.as_uri() + "/")
    screen = seen.open(f"search.html?q={title(page)}")
    screen.locator(f"ul.search a[href^='{page}']").first.wait_for()


def test_the_site_opens_from_the_file_system(visit):
    seen = visit(SITE.as_uri() + "/")
    screen = seen.open("index.html")
    screen.locator("nav.bd-links a").first.click()
    screen.wait_for_url("**/start/*.html")
    first = screen.locator("article h1").text_content()
    screen.locator("a.right-next").click()
    screen.wait_for_load_state()
    assert screen.locator("article h1").text_content() != first
    assert seen.faults == []


CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}


def copied(screen, button):
    """Press a copy button; return what is then in the clipboard."""
    button.scroll_into_view_if_needed()
    button.hover()
    button.click()
    screen.wait_for_function("navigator.clipboard.readText().then(text => text != '')")
    return screen.evaluate("navigator.clipboard.readText()")


def test_a_cell_can_be_copied(visit):
    page = min(NOTEBOOKS - {"index.html"})
    screen = visit(**CLIPBOARD).open(page)
    cell = screen.locator("div.cell_input").first
    text = copied(screen, cell.locator("button.copybtn"))
    assert text.strip() == cell.locator("pre").inner_text().strip()
    assert "import jax" in text


@pytest.mark.parametrize("module", MODULES[:1])
def test_a_module_can_be_copied_whole(visit, module):
    screen = visit(**CLIPBOARD).open("reference/modules.html")
    box = screen.locator(
        f"#module-{Path(module).stem} ~ details, section details"
    ).first
    box.locator("summary").click()
    text = copied(screen, box.locator("button.copybtn"))
    assert text.strip() == (SITE / "modules" / module).read_text().strip()


def saved(screen, link):
    """Follow a download link; return the file's name and text."""
    with screen.expect_download() as download:
        link.click()
    file = download.value
    return file.suggested_filename, Path(file.path()).read_text()


@pytest.mark.parametrize("page", sorted(NOTEBOOKS))
def test_a_page_offers_its_notebook_and_its_markdown(visit, page):
    screen = visit().open(page)
    screen.get_by_role("button", name="Download this page").click()
    menu = screen.locator(".dropdown-download-buttons .dropdown-menu")
    assert menu.locator("a, button").all_inner_texts() == [".ipynb", ".md", "Print"]
    name, text = saved(screen, menu.get_by_text(".ipynb"))
    assert name == Path(page).with_suffix(".ipynb").name
    nbformat.validate(json.loads(text))
    screen.get_by_role("button", name="Download this page").click()
    name, text = saved(screen, menu.get_by_text(".md"))
    assert name == Path(page).with_suffix(".md").name
    assert f"# {title(page)}" in text


def test_each_module_can_be_downloaded(visit):
    screen = visit().open("reference/modules.html")
    for module in MODULES:
        link = screen.locator(f"a.module-file[href$='/{module}']")
        assert link.get_attribute("download") is not None
        text = screen.request.get(link.evaluate("a => a.href")).text()
        assert text == (SITE / "modules" / module).read_text()
        ast.parse(text)
    assert saved(screen, link) == (module, text)
