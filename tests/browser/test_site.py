"""The built site in a real browser: `nox -s browser`."""

import ast
import hashlib
import json
import os
import re
from pathlib import Path

import nbformat
import pytest
from built_site import AXE, SITE

from book import marks

PAGES = sorted(
    str(file.relative_to(SITE))
    for file in SITE.rglob("*.html")
    if file.name != "404.html"  # it is served in place of a page at any depth
    and "_static" not in file.parts
)
SOURCES = {page for page in PAGES if (SITE / page).with_suffix(".md").exists()}
NOTEBOOKS = {page for page in SOURCES if (SITE / page).with_suffix(".ipynb").exists()}
PARTS = {page.split("/")[0] for page in SOURCES if "/" in page}
MODULES = sorted(file.name for file in (SITE / "modules").glob("[!_]*.py"))
SCREENS = [(s, w) for s in ("light", "dark") for w in (1280, 390)]
AUDITED = [("light", 1280), ("dark", 390)]  # a page in one; every week in all four
ALL_LOOKS = bool(os.environ.get("BOOK_LOOKS"))
LOOK = "[document.documentElement.scrollWidth, innerWidth]"
BOX = r'<div class="(cell_input|cell_output|output|highlight-\w+)'
TOKEN = re.compile(BOX + r'|<span class="(\w{1,3})">')
# Among the links of a long listing one rule takes minutes: it compares each with each.
AUDIT = """(async ({include = [["html"]], exclude = []}) => {
    const rule = "link-in-text-block", rules = {[rule]: {enabled: false}};
    const resultTypes = ["violations"], prose = [...exclude, [".highlight"]];
    const found = [
        await axe.run({include, exclude}, {resultTypes, rules}),
        await axe.run({include, exclude: prose}, {resultTypes, runOnly: [rule]}),
    ];
    return found.flatMap(each => each.violations)
        .filter(rule => ["serious", "critical"].includes(rule.impact))
        .flatMap(({id, nodes}) => nodes.map(each => `${id}: ${each.target.join(" ")}`));
})"""
STILL = "document.getAnimations().every(each => each.playState != 'running')"
THEME = "document.documentElement.dataset.theme"
OPEN = "for (const box of document.querySelectorAll('details.hide')) box.open = true"


def find_tokens(page) -> set[tuple[str, str]]:
    """Return the tokens of code that a page shows, each with the kind of its box."""
    found, where = set(), ""
    for box, token in TOKEN.findall((SITE / page).read_text()):
        where = box or where
        found |= {(where, token)} if token else set()
    return found


def choose_pages(shown: dict[str, set]) -> set[str]:
    """Return pages that show between them all that any page shows."""
    left, chosen = set().union(*shown.values()), set()
    while left:
        page = max(sorted(shown), key=lambda page: len(shown[page] & left))
        chosen.add(page)
        left -= shown[page]
    return chosen


# The words of a listing take half of an audit: those of a few pages stand for all.
LISTED = choose_pages({page: find_tokens(page) for page in PAGES})


def audit(screen, **context):
    """List what axe finds, and finds again once nothing fades in or moves."""
    if not screen.evaluate(AUDIT, context):
        return []
    screen.wait_for_function(STILL)
    return screen.evaluate(AUDIT, context)


def test_the_site_is_built():
    assert len(NOTEBOOKS) > 1
    assert {"arrays", "global-view", "reference", "start"} <= PARTS
    assert MODULES


def mark_of(page) -> str:
    """Return the mark of a page that looks and runs like this one."""
    audited_as = str(page in LISTED).encode()
    digest = hashlib.sha256(LOOKS + audited_as + (SITE / page).read_bytes())
    return f"browser-{digest.hexdigest()}"


FILES = sorted((SITE / "_static").rglob("*.*"))
FILES += [AXE, *map(Path(__file__).with_name, ("conftest.py", "built_site.py"))]
FILES += [Path(__file__)]
LOOKS = b"".join(file.read_bytes() for file in FILES if file.is_file())
LOOKS += marks.describe_environment("chromium").encode()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_quiet_fits_and_is_accessible(visit, page, record_property):
    """In one window that changes its colours and its width."""
    mark = mark_of(page)
    if marks.read_mark(mark) is not None:
        record_property("had_passed", 1)
        return
    tab = visit()
    screen = tab.open(page)
    screen.evaluate(OPEN)
    screen.evaluate(AXE.read_text())
    hidden = [] if page in LISTED else [[".highlight"]]
    one = AUDITED if page in LISTED else [AUDITED[PAGES.index(page) % 2]]
    screens = SCREENS if ALL_LOOKS else one
    for scheme, width in SCREENS:
        screen.emulate_media(color_scheme=scheme)
        screen.set_viewport_size({"width": width, "height": 900})
        screen.wait_for_function(f"{THEME} == '{scheme}'")
        wide, window = screen.evaluate(LOOK)
        assert wide <= window, width
        if (scheme, width) in screens or page == "index.html":
            assert audit(screen, exclude=hidden) == [], (scheme, width)
    assert tab.faults == []
    marks.write_mark(mark)


def test_the_site_opens_from_the_file_system(visit):
    tab = visit(SITE.as_uri() + "/")
    screen = tab.open("index.html")
    screen.locator("article .buttons a").first.click()
    screen.wait_for_url("**/start/*.html")
    first = screen.locator("article h1").text_content()
    screen.locator("a.right-next").click()
    screen.wait_for_load_state()
    assert screen.locator("article h1").text_content() != first
    assert tab.faults == []


CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}


def copy_text(screen, button):
    """Press a copy button; return what is then in the clipboard."""
    screen.evaluate("navigator.clipboard.writeText('')")  # of another test
    button.scroll_into_view_if_needed()
    button.hover()
    button.click()
    screen.wait_for_function("navigator.clipboard.readText().then(text => text != '')")
    return screen.evaluate("navigator.clipboard.readText()")


def test_a_cell_can_be_copied(visit):
    page = min(NOTEBOOKS - {"index.html"})
    screen = visit(**CLIPBOARD).open(page)
    cell = screen.locator("div.cell_input:visible").first  # set-up may be folded
    text = copy_text(screen, cell.locator("button.copybtn"))
    assert text.strip() == cell.locator("pre").inner_text().strip()
    assert len(text) > 20


@pytest.mark.parametrize("module", MODULES[:1])
def test_a_module_can_be_copied_whole(visit, module):
    name = Path(module).stem
    screen = visit(**CLIPBOARD).open(f"reference/modules/{name}.html")
    box = screen.locator(f"section#source-{name}")
    text = copy_text(screen, box.locator("button.copybtn"))
    assert text.strip() == (SITE / "modules" / module).read_text().strip()


def save_file(screen, link):
    """Follow a download link; return the file's name and text."""
    with screen.expect_download() as download:
        link.click()
    file = download.value
    return file.suggested_filename, Path(file.path()).read_text()


def wrong_downloads(page):
    """Yield what is wrong with the files that a page offers, its notebook and text."""
    text, stem = (SITE / page).read_text(), Path(page).stem
    tags = re.findall(r"<a [^>]*>", text)
    offers = [tag for tag in tags if " download" in tag and 'class="btn' in tag]
    links = [re.search(r'href="([^"]+)"', tag)[1] for tag in offers]
    if links != [f"{stem}.ipynb", f"{stem}.md"]:
        yield f"{page} offers {links}"
    if not re.search(r"^# .", (SITE / page).with_suffix(".md").read_text(), re.M):
        yield f"{page}: its text has no title"
    try:
        nbformat.validate(json.loads((SITE / page).with_suffix(".ipynb").read_text()))
    except (ValueError, nbformat.ValidationError) as error:
        yield f"{page}: {error}"


def test_each_page_offers_its_notebook_and_its_markdown(visit):
    assert [w for page in sorted(NOTEBOOKS) for w in wrong_downloads(page)] == []
    page = min(NOTEBOOKS - {"index.html"})
    screen = visit().open(page)
    menu = screen.locator(".dropdown-download-buttons .dropdown-menu")
    for suffix in ".ipynb", ".md":
        screen.get_by_role("button", name="Download this page").click()
        assert menu.locator("a, button").all_inner_texts() == [".ipynb", ".md", "Print"]
        file = (SITE / page).with_suffix(suffix)
        link = menu.get_by_text(suffix)
        assert save_file(screen, link) == (file.name, file.read_text())


def test_each_module_can_be_downloaded(visit):
    for module in MODULES:
        page = SITE / f"reference/modules/{Path(module).stem}.html"
        (link,) = re.findall(r"<a [^>]*module-file[^>]*>", page.read_text())
        assert f'href="../../modules/{module}"' in link
        assert " download" in link
        ast.parse((SITE / "modules" / module).read_text())
    screen = visit().open(f"reference/modules/{Path(module).stem}.html")
    name, text = save_file(screen, screen.locator("a.module-file").first)
    assert (name, text) == (module, (SITE / "modules" / module).read_text())
