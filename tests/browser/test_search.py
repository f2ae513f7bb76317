"""The search of the built site, in a real browser: what it finds, and how it behaves.

The questions and their right pages stand in `tests/search`; so does how it was tuned.
"""

import tomllib
from pathlib import Path

import pytest
from built_site import FILES, OVERFLOW, audit, set_look
from records import read_table
from search_index import KEYWORDS

from book import error_index

TABLES = Path(__file__).resolve().parents[1] / "search"
ENTRIES = error_index.read_table(TABLES.parents[1] / "docs")[0]
LEAST = [  # share of questions with a right answer among so many results
    ("errors.csv", 3, 0.85),
    ("api.csv", 1, 0.8),
    ("api.csv", 3, 0.9),
    ("tasks.csv", 3, 0.9),
    ("names.csv", 3, 0.8),  # a few are of common words only
]
ASKED = [(half, *each) for half in ("tune", "aside") for each in LEAST]
ASKED += [("thread", "tasks.csv", 3, 0.7)]  # no search was tuned to these
ERRORS = "reference/errors.html"  # an entry counts, not the page
SEARCH = """async texts => {
    await finder.load();
    return texts.map(text => finder.search(text).map(each => each.href))}"""
PLACES = "finder.load().then(() => finder.sections.map(each => each.href))"
PASTE = """(field, text) => {
    const data = new DataTransfer();
    data.setData("text", text);
    const event = {clipboardData: data, bubbles: true, cancelable: true};
    field.dispatchEvent(new ClipboardEvent("paste", event))}"""
HALO = "#find-results a[href*='per-device/halo']"
NAME = "process_allgather"
FRAME = '  File "/home/me/jax/_src/core.py", line 7, in bind\n    return f(*args)\n'
MESSAGE = "spans non-addressable (non process local) devices"
TRACEBACK = f"""\
Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
    batch = padding * halo * pipeline
            ~~~~~~~~^~~~~~
{FRAME * 80}RuntimeError: Fetching value for `jax.Array` that {MESSAGE} is not possible.
float32[8,1,24,3]
"""


def address(place):
    """Return the address of `part/page#anchor`."""
    page, mark, anchor = place.partition("#")
    return f"{page}.html{mark}{anchor}"


def results(visit, texts):
    """Return the addresses of the results for each of the texts."""
    return visit().open("search.html").evaluate(SEARCH, texts)


def page_or_entry(link):
    """Return the page of a link; of the page of errors an entry counts."""
    return link if link.startswith(ERRORS) else link.partition("#")[0]


# --------------------------------------------------------------------- what it finds


@pytest.mark.parametrize(("half", "file", "first", "least"), ASKED)
def test_questions_lead_to_their_pages(visit, half, file, first, least):
    """For a name the section counts, for an error the pages behind its entry."""
    rows = [row for row in read_table(TABLES / file) if row["set"] == half]
    rows = [row for row in rows if row["pages"]]
    assert len(rows) > 10
    found = results(visit, [row.get("line") or row["query"] for row in rows])
    known, right = str if file == "api.csv" else page_or_entry, 0
    for row, links in zip(rows, found, strict=True):
        behind = [e for e in links if file != "errors.csv" or ERRORS not in e]
        wanted = {known(address(place)) for place in row["pages"].split()}
        right += not wanted.isdisjoint(map(known, behind[:first]))
    assert right / len(rows) >= least


def test_keywords_and_tasks_are_of_sections_that_are_there(visit):
    """Of a page that was renamed they would be lost without a word."""
    places = {*visit().open("search.html").evaluate(PLACES)}
    wanted = " ".join(row["pages"] for row in read_table(TABLES / "tasks.csv")).split()
    keywords = tomllib.loads(KEYWORDS.read_text())
    assert {*map(address, [*wanted, *keywords])} <= places


def test_the_words_of_each_entry_lead_to_it_first(visit):
    words = [entry.words.replace("...", " 7 ") for entry in ENTRIES]
    firsts = [links[0] for links in results(visit, words)]
    assert firsts == [f"{ERRORS}#error-{entry.name}" for entry in ENTRIES]


def test_no_page_has_more_than_two_results_and_lists_come_last(visit):
    (links,) = results(visit, ["all_gather"])
    pages = [link.partition("#")[0] for link in links]
    assert max(map(pages.count, pages)) <= 2
    late = [page.endswith(("atlas.html", "modules.html")) for page in pages]
    assert late == sorted(late)


def search(visit, text, **window):
    """Open the page of results with a question; return it when it has answered."""
    screen = visit(**window).open("search.html")
    screen.locator("#find-field").fill(text)
    screen.keyboard.press("Enter")
    screen.locator("#find-results li").first.wait_for()
    return screen


@pytest.mark.parametrize("window", [{}, {"base": FILES}], ids=["served", "as files"])
def test_a_result_has_page_and_section_and_shows_the_words_found(visit, window):
    screen = search(visit, NAME, **window)
    assert "sections" in screen.get_by_role("status").inner_text()
    first = screen.locator("#find-results li").first
    assert "\u203a" in first.locator("a").inner_text()
    assert NAME in first.locator("p mark").all_inner_texts()
    link = first.locator("a").get_attribute("href")
    first.locator("a").click()
    screen.wait_for_url(f"**/{link.removeprefix('./')}")
    assert screen.locator(f"[id='{link.partition('#')[2]}']").is_visible()


def test_a_long_traceback_is_searched_by_its_message(visit):
    """The address holds the question; what is found fits."""
    screen = search(visit, TRACEBACK)
    assert len(screen.url) < 3000
    first = screen.locator("#find-results li").first
    link = first.locator("a").get_attribute("href")
    assert link.endswith("#error-spans-non-addressable")
    assert "Do:" in first.locator("p").inner_text()  # the cure
    words = first.inner_text()
    screen.reload()
    first.wait_for()
    assert first.inner_text() == words
    for look in ("light", 1280), ("dark", 390):
        set_look(screen, *look)
        assert not screen.evaluate(OVERFLOW), look
        assert audit(screen) == [], look


# -------------------------------------------------------------------- how it behaves


def test_a_key_leads_to_the_field_and_enter_to_the_results(visit):
    screen = visit().open("arrays/meshes.html")
    screen.keyboard.press("/")
    assert screen.evaluate("document.activeElement.name") == "q"
    screen.keyboard.type("halo exchange")
    screen.keyboard.press("Enter")
    screen.wait_for_url("**/search.html?q=halo+exchange")
    screen.locator(HALO).first.wait_for()
    screen.keyboard.press("Tab")
    screen.keyboard.press("Tab")
    assert screen.evaluate("document.activeElement.closest('#find-results') != null")
    field = screen.locator("#find-field")
    field.press("/")  # is typed here
    assert "/" in field.input_value()


def test_where_no_field_is_seen_the_key_leads_to_the_page_of_results(visit):
    """As on the front page on a phone. Words of every text are not searched."""
    screen = visit(width=390).open("index.html")
    screen.keyboard.press("Control+k")
    screen.wait_for_url("**/search.html")
    screen.keyboard.type("how to exchange the halo")
    screen.keyboard.press("Enter")
    screen.locator(HALO).first.wait_for()
    found = {*screen.locator("#find-results mark").all_inner_texts()}
    assert "halo" in found
    assert not {"how", "to", "the"} & found


def test_a_field_of_one_line_takes_the_message_of_a_traceback(visit):
    field = visit().open("arrays/meshes.html").locator(".find input")
    field.evaluate(PASTE, TRACEBACK)
    text = field.input_value()
    assert text.startswith("RuntimeError: Fetching value for `jax.Array` that spans")
    assert "padding" not in text


def test_without_script_the_page_says_where_else_to_look(visit):
    screen = visit(java_script_enabled=False).open("search.html?q=mesh")
    assert screen.locator("noscript p", has_text="needs JavaScript").is_visible()
    assert screen.locator("#find-field").is_hidden()
    assert screen.locator(".find-else a").count() >= 4
