"""The search of the built site, in a real browser: what it finds, and how it behaves.

The errors are those of `tests/search/errors.csv`; how the ranking was tuned, and with
which half of them, stands in the README there.
"""

import csv
import re
from pathlib import Path

import pytest
from built_site import AXE, SITE
from test_site import audit

from book import error_index

ASKED = Path(__file__).resolve().parents[1] / "search"
ENTRIES = error_index.read_entries(error_index.table_file(ASKED.parents[1] / "docs"))
LOADED = "performance.getEntriesByType('resource').map(each => each.name)"
LATE = "find-index.js", "minisearch.js"
FIRST = """async questions => {
    await finder.load();
    return questions.map(text =>
        finder.search(text).map(each => each.href))}"""
PAINTED = """typeof finderKeys != "undefined"
    && performance.getEntriesByType("paint").length"""
READ = """!document.querySelector("#find-status").textContent.includes("being read")"""
ERRORS = "reference/errors.html"  # an entry counts, not the page
PAGES = sorted(str(file.relative_to(SITE)) for file in SITE.glob("*/*.ipynb"))
PARTS = sorted({page.split("/")[0] for page in PAGES})
NAME = "process_allgather"
MESSAGE = "spans non-addressable (non process local) devices"
TRACEBACK = f"""\
Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
    batch = padding * halo * pipeline
            ~~~~~~~~^~~~~~
  File "/usr/lib/python3/site-packages/jax/_src/array.py", line 631, in __array__
    return np.asarray(self._value, dtype=dtype)
RuntimeError: Fetching value for `jax.Array` that {MESSAGE} is not possible.
float32[8,1,24,3]
"""

halves = pytest.mark.parametrize("half", ["tune", "aside"])


def read_questions(file, half):
    """Return the questions of one half that the book answers, and their answers."""
    with (ASKED / file).open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["set"] == half]
    column = "line" if "line" in rows[0] else "query"
    return [
        (row[column], row["pages"].split() + entries(row[column]))
        for row in rows
        if row["pages"]
    ]


def entries(message):
    """Return the entries of the page of errors for a message."""
    found = error_index.matches(message, ENTRIES)
    return [f"reference/errors#error-{entry.name}" for entry in found]


def answers(found, wanted):
    """Return whether one of the results is on a right page."""
    pages = {page.replace("#", ".html#") for page in wanted}
    whole = {page.partition("#")[0] for page in pages} - {ERRORS}
    return any(link in pages or link.partition("#")[0] in whole for link in found)


def find_links(visit, texts):
    """Return the addresses of the first results for each of the texts."""
    return visit().open("search.html").evaluate(FIRST, texts)


def results(visit, half, file):
    """Return which questions of a half are answered by the first three results."""
    questions = read_questions(file, half)
    links = find_links(visit, [text for text, _ in questions])
    return [
        answers(three[:3], wanted)
        for (_, wanted), three in zip(questions, links, strict=True)
    ]


@halves
def test_an_error_leads_to_a_page_that_explains_it(visit, half):
    right = results(visit, half, "errors.csv")
    assert len(right) > 20
    assert sum(right) >= 0.9 * len(right)


@halves
def test_behind_its_entry_a_page_of_the_book_explains_the_error(visit, half):
    questions = read_questions("errors.csv", half)
    right = [
        answers([link for link in links if ERRORS not in link][:3], wanted)
        for (_, wanted), links in zip(
            questions, find_links(visit, [text for text, _ in questions]), strict=True
        )
    ]
    assert sum(right) >= 0.85 * len(right)


@halves
def test_a_message_that_has_an_entry_leads_to_it_first(visit, half):
    known = [text for text, _ in read_questions("errors.csv", half) if entries(text)]
    assert len(known) > 15
    for text, links in zip(known, find_links(visit, known), strict=True):
        wanted = {entry.replace("#", ".html#") for entry in entries(text)}
        assert {*links[: len(wanted)]} == wanted


def test_the_words_of_each_entry_lead_to_it_first(visit):
    words = [entry.words.replace("...", " 7 ") for entry in ENTRIES]
    firsts = [links[0] for links in find_links(visit, words)]
    assert firsts == [f"{ERRORS}#error-{entry.name}" for entry in ENTRIES]


@halves
def test_a_name_of_the_api_leads_first_to_what_explains_it(visit, half):
    questions = read_questions("api.csv", half)
    links = find_links(visit, [name for name, _ in questions])
    right = [
        [link in {page_of(each) for each in wanted} for link in three[:3]]
        for (_, wanted), three in zip(questions, links, strict=True)
    ]
    assert len(right) > 15
    assert sum(first for first, *_ in right) >= 0.8 * len(right)
    assert sum(map(any, right)) >= 0.9 * len(right)


def page_of(place):
    """Return the address of `part/page#anchor`."""
    page, mark, anchor = place.partition("#")
    return f"{page}.html{mark}{anchor}"


@pytest.mark.parametrize("name", ["ppermute", "device_put", "shard_map"])
def test_headings_with_the_name_stand_above_texts_with_it(visit, name):
    screen = visit().open("search.html")
    (links,) = screen.evaluate(FIRST, [name])
    titles = screen.evaluate(
        "name => finder.search(name).map(each => each.title || each.page)", name
    )
    rows = enumerate(zip(links, titles, strict=True))
    has = [n for n, (link, title) in rows if name in title or f"/{name}.html" in link]
    assert len(has) >= 3
    assert has == [*range(len(has))]
    assert not any("#error-" in link for link in links[: len(has)])


@halves
def test_a_name_or_a_question_leads_to_its_page(visit, half):
    right = results(visit, half, "names.csv")
    assert len(right) > 10
    assert sum(right) >= 0.8 * len(right)  # a few are of common words only


def search(visit, text, base=None, **window):
    """Open the page of results with a question; return it when it has answered."""
    tab = visit(base, **window) if base else visit(**window)
    screen = tab.open("search.html")
    screen.locator("#find-field").fill(text)
    screen.keyboard.press("Enter")
    screen.locator("#find-results li").first.wait_for()
    return tab, screen


def test_a_result_names_page_and_section_and_shows_the_words_found(visit):
    tab, screen = search(visit, NAME)
    first = screen.locator("#find-results li").first
    assert "\u203a" in first.locator("a").inner_text()
    assert NAME in first.locator("p").inner_text()
    assert NAME in first.locator("p mark").all_inner_texts()
    link = first.locator("a").get_attribute("href")
    first.locator("a").click()
    screen.wait_for_url(f"**/{link.removeprefix('./')}")
    assert screen.locator(f"[id='{link.partition('#')[2]}']").is_visible()
    assert tab.faults == []


@pytest.mark.parametrize("part", PARTS)
def test_a_page_of_each_part_is_found_by_its_title(visit, part):
    page = max(page for page in PAGES if page.startswith(f"{part}/"))
    source = (SITE / page).with_suffix(".md").read_text()
    _, screen = search(visit, re.search(r"^# (.+)$", source, re.M)[1])
    address = Path(page).with_suffix(".html").as_posix()
    assert screen.locator(f"#find-results a[href*='{address}']").count() > 0


def test_no_page_has_more_than_two_results_and_lists_come_last(visit):
    _, screen = search(visit, "all_gather")
    links = screen.locator("#find-results a").evaluate_all(
        "all => all.map(a => a.href)"
    )
    pages = [link.partition("#")[0] for link in links]
    assert max(map(pages.count, pages)) <= 2
    late = [page.endswith(("atlas.html", "modules.html")) for page in pages]
    assert late == sorted(late)


def test_a_traceback_is_searched_by_its_message(visit):
    _, screen = search(visit, TRACEBACK)
    found = screen.locator("#find-results li")
    assert "Do:" in found.first.locator("p").inner_text()  # of the entry: the cure
    assert MESSAGE in found.nth(1).inner_text()


def test_what_the_index_lacks_changes_nothing(visit):
    text = "are halos exchanged by a ppermute here"
    with_more = f"{text} qwxyzzy vlorptan 12345"
    plain, more = (
        visit().open("search.html").evaluate(FIRST, [each])
        for each in (text, with_more)
    )
    assert plain == more


def test_nothing_says_that_nothing_was_found(visit):
    tab = visit()
    screen = tab.open("search.html?q=qwxyzzyvlorptan")
    status = screen.get_by_role("status")
    status.get_by_text("Nothing in this book").wait_for()
    assert screen.locator("#find-results li").count() == 0
    assert tab.faults == []


@pytest.mark.parametrize(
    "page", ["start/judge.html", "arrays/meshes.html", "search.html"]
)
def test_no_page_loads_the_index_before_somebody_searches(visit, page):
    screen = visit().open(page)
    screen.wait_for_load_state("networkidle")
    assert not any(name.endswith(LATE) for name in screen.evaluate(LOADED))
    if page == "search.html":
        screen.keyboard.type("mesh")
    else:
        screen.keyboard.press("/")
    screen.wait_for_function("finder.index")
    assert all(
        sum(each in name for name in screen.evaluate(LOADED)) == 1 for each in LATE
    )


def test_sphinx_s_own_search_is_gone():
    unused = "searchindex.js", "searchtools.js", "language_data.js"
    assert not any([*SITE.rglob(name)] for name in unused)
    for page in ("index.html", "search.html"):
        assert not any(name in (SITE / page).read_text() for name in unused)


@pytest.mark.parametrize("keys", ["/", "Control+k"])
def test_a_key_leads_to_the_field_and_enter_to_the_results(visit, keys):
    tab = visit()
    screen = tab.open("arrays/meshes.html")
    screen.keyboard.press(keys)
    assert screen.evaluate("document.activeElement.name") == "q"
    screen.keyboard.type("halo exchange")
    screen.keyboard.press("Enter")
    screen.wait_for_url("**/search.html?q=halo+exchange")
    screen.locator("#find-results a[href*='per-device/halo']").first.wait_for()
    screen.keyboard.press("Tab")
    screen.keyboard.press("Tab")
    assert screen.evaluate("document.activeElement.closest('#find-results') != null")
    assert tab.faults == []


def test_a_slash_that_is_typed_stays_one(visit):
    screen = visit().open("search.html")
    screen.locator("#find-field").press("/")
    assert screen.locator("#find-field").input_value() == "/"


def test_on_a_phone_a_button_leads_to_the_results(visit):
    screen = visit(width=390).open("arrays/meshes.html")
    screen.get_by_role("link", name="Search", exact=True).click()
    screen.wait_for_url("**/search.html")
    assert screen.evaluate("document.activeElement.id") == "find-field"


def test_where_no_field_is_seen_the_keys_open_one(visit):
    tab = visit(width=390)
    screen = tab.open("arrays/meshes.html")
    screen.keyboard.type("/halo")
    box = screen.get_by_role("dialog", name="Search")
    assert box.locator("input").input_value() == "halo"
    screen.keyboard.press("Escape")
    assert not box.is_visible()
    screen.keyboard.press("Control+k")
    screen.keyboard.type("halo exchange")
    screen.keyboard.press("Enter")
    screen.wait_for_url("**/search.html?q=halo+exchange")
    assert tab.faults == []


@pytest.mark.parametrize(
    ("page", "width", "begin"),
    [
        ("arrays/meshes.html", 1280, "/"),
        ("arrays/meshes.html", 390, "/"),
        ("index.html", 1280, "Control+k"),
        ("search.html", 1280, None),  # its field has the focus
        ("search.html", 390, None),
    ],
)
def test_what_is_typed_before_the_scripts_are_there_is_kept(visit, page, width, begin):
    tab, held = visit(width=width), []
    screen = tab.page
    screen.route(re.compile(r"\.js(\?|$)"), lambda route: held.append(route.request))
    screen.goto(tab.base + page, wait_until="commit")
    screen.wait_for_function(PAINTED)  # keys before that are lost to every page
    if begin:
        screen.keyboard.press(begin)
    screen.keyboard.type("halos exchange")
    assert held  # no script has come
    for _ in range(4):
        screen.keyboard.press("Backspace")
    screen.keyboard.type("ange")
    screen.unroute(re.compile(r"\.js(\?|$)"))  # lets them go on
    screen.wait_for_function("document.activeElement?.value == 'halos exchange'")
    screen.keyboard.press("Enter")
    screen.locator("#find-results a[href*='per-device/halo']").first.wait_for()
    assert tab.faults == []


@pytest.mark.parametrize("width", [641, 1000, 1280, 1920])
def test_the_front_page_has_a_field_and_the_mark_in_its_header(visit, width):
    screen = visit(width=width).open("index.html")
    header = screen.locator(".bd-header-article")
    assert header.get_by_role("link", name="Shardbook").is_visible()
    assert header.locator(".logo__image:visible").count() == 1
    header.get_by_role("searchbox").fill("halo exchange")
    screen.keyboard.press("Enter")
    screen.wait_for_url("**/search.html?q=halo+exchange")


def test_on_a_phone_the_front_page_has_the_mark_and_a_button(visit):
    screen = visit(width=390).open("index.html")
    header = screen.locator(".bd-header-article")
    assert header.get_by_role("link", name="Shardbook").is_visible()
    assert header.get_by_role("link", name="Search", exact=True).is_visible()
    assert header.get_by_role("searchbox").count() == 0


@pytest.mark.parametrize("width", [1000, 1280, 1920])
def test_what_a_field_says_fits_into_it(visit, width):
    for page in "index.html", "arrays/meshes.html":
        field = visit(width=width).open(page).locator(".find input")
        assert (
            field.evaluate("""field => {
            const style = getComputedStyle(field);
            const canvas = document.createElement("canvas").getContext("2d");
            canvas.font = style.font;
            const room = field.clientWidth - parseFloat(style.paddingLeft)
                - parseFloat(style.paddingRight);
            return room - canvas.measureText(field.placeholder).width}""")
            > 0
        )


@pytest.mark.parametrize(
    "text",
    ["", "x", "8", "\u65e5\u672c\u8a9e", "<img src=q onerror=alert(1)>", "...", "jax."],
)
def test_any_text_is_text(visit, text):
    tab = visit()
    screen = tab.open("search.html")
    screen.locator("#find-field").fill(text or " ")
    screen.keyboard.press("Enter")
    screen.wait_for_function("finder.index")
    screen.wait_for_function(READ)
    assert screen.locator("#find-results img").count() == 0
    assert tab.faults == []


def test_what_looks_like_html_on_a_page_is_text(visit):
    _, screen = search(visit, TRACEBACK)
    assert '"<cell>", line' in screen.locator("#find-results").inner_text()


def test_a_traceback_of_5000_characters_leads_to_its_entry(visit):
    frame = '  File "/home/me/jax/_src/core.py", line 7, in bind\n    return f(*args)\n'
    text = "Traceback (most recent call last):\n" + frame * 80
    text += (
        f"RuntimeError: Fetching value for `jax.Array` that {MESSAGE} is not possible"
    )
    assert len(text) > 5000
    tab, screen = search(visit, text)
    first = screen.locator("#find-results li").first
    assert "#error-" in first.locator("a").get_attribute("href")
    assert len(screen.url) < 3000
    screen.reload()
    first.wait_for()
    assert "#error-" in first.locator("a").get_attribute("href")
    assert tab.faults == []


def test_a_field_of_one_line_takes_the_message_of_a_traceback(visit):
    screen = visit().open("arrays/meshes.html")
    field = screen.locator(".find input")
    field.focus()
    paste = """(field, text) => {
        const data = new DataTransfer();
        data.setData("text", text);
        const event = {clipboardData: data, bubbles: true, cancelable: true};
        field.dispatchEvent(new ClipboardEvent("paste", event))}"""
    field.evaluate(paste, TRACEBACK)
    text = field.input_value()
    assert text.startswith("RuntimeError: Fetching value for `jax.Array` that spans")
    assert "padding" not in text
    screen.keyboard.press("Enter")
    first = screen.locator("#find-results a").first
    assert first.get_attribute("href").endswith("#error-spans-non-addressable")


def test_the_address_holds_the_question(visit):
    _, screen = search(visit, "pipeline bubble")
    assert screen.url.endswith("search.html?q=pipeline+bubble")
    before = screen.locator("#find-results").inner_text()
    screen.reload()
    screen.locator("#find-results li").first.wait_for()
    assert screen.locator("#find-results").inner_text() == before


def test_it_works_from_the_file_system(visit):
    tab, screen = search(visit, NAME, base=SITE.as_uri() + "/")
    screen.locator("#find-results a").first.click()
    screen.wait_for_url("file://**/*.html#*")
    assert NAME in screen.locator("main").inner_text()
    assert tab.faults == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_results_fit_and_are_accessible(visit, scheme, width):
    tab, screen = search(visit, TRACEBACK, scheme=scheme, width=width)
    wide = screen.evaluate("document.documentElement.scrollWidth")
    assert wide <= width
    screen.evaluate(AXE.read_text())
    assert audit(screen) == []
    assert tab.faults == []


def test_without_script_the_page_says_where_else_to_look(visit):
    screen = visit(java_script_enabled=False).open("search.html?q=mesh")
    words = screen.locator("noscript p", has_text="To search needs JavaScript")
    assert words.is_visible()
    assert screen.locator("#find-field").is_hidden()
    assert screen.locator(".find-else a").count() >= 4


def test_a_screen_reader_hears_how_many_were_found(visit):
    _, screen = search(visit, NAME)
    assert "sections" in screen.get_by_role("status").inner_text()
