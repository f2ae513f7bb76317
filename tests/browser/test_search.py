"""The search of the built site, in a real browser: what it finds, and how it behaves.

The errors are those of `tests/search/errors.csv`; how the ranking was tuned, and with
which half of them, stands in the README there.
"""

import csv
import re
from pathlib import Path

import pytest
from built_site import FILES, OVERFLOW, audit

from book import error_index

ASKED = Path(__file__).resolve().parents[1] / "search"
ENTRIES = error_index.read_table(ASKED.parents[1] / "docs")[0]
FIRST = """async questions => {
    await finder.load();
    return questions.map(text =>
        finder.search(text).map(each => each.href))}"""
PAINTED = """typeof finderKeys != "undefined"
    && performance.getEntriesByType("paint").length"""
PASTE = """(field, text) => {
    const data = new DataTransfer();
    data.setData("text", text);
    const event = {clipboardData: data, bubbles: true, cancelable: true};
    field.dispatchEvent(new ClipboardEvent("paste", event))}"""
ERRORS = "reference/errors.html"  # an entry counts, not the page
NAME = "process_allgather"
FRAME = '  File "/home/me/jax/_src/core.py", line 7, in bind\n    return f(*args)\n'
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


def ask(visit, texts):
    """Return the addresses of the results for each of the texts."""
    return visit().open("search.html").evaluate(FIRST, texts)


def ask_half(visit, half, file):
    """Return the questions of one half, their answers, and the results for each."""
    with (ASKED / file).open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["set"] == half]
    rows = [row for row in rows if row["pages"]]
    texts = [row.get("line", row.get("query")) for row in rows]
    wanted = [
        {page_of(place) for place in row["pages"].split()} | entries(text)
        for row, text in zip(rows, texts, strict=True)
    ]
    assert len(rows) > 10
    return [*zip(texts, wanted, ask(visit, texts), strict=True)]


def page_of(place):
    """Return the address of `part/page#anchor`."""
    page, mark, anchor = place.partition("#")
    return f"{page}.html{mark}{anchor}"


def entries(message):
    """Return the entries of the page of errors for a message."""
    found = error_index.matches(message, ENTRIES)
    return {f"{ERRORS}#error-{entry.name}" for entry in found}


def answers(found, wanted):
    """Return whether one of the results is on a right page."""
    whole = {page.partition("#")[0] for page in wanted} - {ERRORS}
    return any(link in wanted or link.partition("#")[0] in whole for link in found)


# --------------------------------------------------------------------- what it finds


@halves
def test_an_error_leads_to_its_entry_and_to_a_page_that_explains_it(visit, half):
    asked = ask_half(visit, half, "errors.csv")
    right = [answers(links[:3], wanted) for _, wanted, links in asked]
    assert sum(right) >= 0.9 * len(right)
    pages = [
        answers([link for link in links if ERRORS not in link][:3], wanted)
        for _, wanted, links in asked
    ]
    assert sum(pages) >= 0.85 * len(pages)
    known = [(entries(text), links) for text, _, links in asked if entries(text)]
    assert len(known) > 15
    assert all({*links[: len(first)]} == first for first, links in known)


def test_the_words_of_each_entry_lead_to_it_first(visit):
    words = [entry.words.replace("...", " 7 ") for entry in ENTRIES]
    firsts = [links[0] for links in ask(visit, words)]
    assert firsts == [f"{ERRORS}#error-{entry.name}" for entry in ENTRIES]


@halves
def test_a_name_of_the_api_leads_first_to_what_explains_it(visit, half):
    asked = ask_half(visit, half, "api.csv")
    right = [[link in wanted for link in links[:3]] for _, wanted, links in asked]
    assert sum(first for first, *_ in right) >= 0.8 * len(right)
    assert sum(map(any, right)) >= 0.9 * len(right)


@halves
def test_a_name_or_a_question_leads_to_its_page(visit, half):
    asked = ask_half(visit, half, "names.csv")
    right = [answers(links[:3], wanted) for _, wanted, links in asked]
    assert sum(right) >= 0.8 * len(right)  # a few are of common words only


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
    assert NAME in first.locator("p").inner_text()
    assert NAME in first.locator("p mark").all_inner_texts()
    link = first.locator("a").get_attribute("href")
    first.locator("a").click()
    screen.wait_for_url(f"**/{link.removeprefix('./')}")
    assert screen.locator(f"[id='{link.partition('#')[2]}']").is_visible()


def test_no_page_has_more_than_two_results_and_lists_come_last(visit):
    (links,) = ask(visit, ["all_gather"])
    pages = [link.partition("#")[0] for link in links]
    assert max(map(pages.count, pages)) <= 2
    late = [page.endswith(("atlas.html", "modules.html")) for page in pages]
    assert late == sorted(late)


def test_a_long_traceback_is_searched_by_its_message(visit):
    """What looks like HTML on a page is text; the address holds the question."""
    text = TRACEBACK.replace("\n", f"\n{FRAME * 80}", 1)
    assert len(text) > 5000
    screen = search(visit, text)
    assert len(screen.url) < 3000
    assert '"<cell>", line' in screen.locator("#find-results").inner_text()
    first = screen.locator("#find-results li").first
    link = first.locator("a").get_attribute("href")
    assert link.endswith("#error-spans-non-addressable")
    assert "Do:" in first.locator("p").inner_text()  # the cure
    words = first.inner_text()
    screen.reload()
    first.wait_for()
    assert first.inner_text() == words


# -------------------------------------------------------------------- how it behaves


def test_a_key_leads_to_the_field_and_enter_to_the_results(visit):
    screen = visit().open("arrays/meshes.html")
    screen.keyboard.press("/")
    assert screen.evaluate("document.activeElement.name") == "q"
    screen.keyboard.type("halo exchange")
    screen.keyboard.press("Enter")
    screen.wait_for_url("**/search.html?q=halo+exchange")
    screen.locator("#find-results a[href*='per-device/halo']").first.wait_for()
    screen.keyboard.press("Tab")
    screen.keyboard.press("Tab")
    assert screen.evaluate("document.activeElement.closest('#find-results') != null")
    field = screen.locator("#find-field")
    field.press("/")  # is typed here
    assert "/" in field.input_value()


def test_where_no_field_is_seen_the_keys_open_one(visit):
    screen = visit(width=390).open("arrays/meshes.html")
    screen.keyboard.type("/halo")
    box = screen.get_by_role("dialog", name="Search")
    assert box.locator("input").input_value() == "halo"
    screen.keyboard.press("Escape")
    assert not box.is_visible()
    screen.keyboard.press("Control+k")
    screen.keyboard.type("halo exchange")
    screen.keyboard.press("Enter")
    screen.wait_for_url("**/search.html?q=halo+exchange")


@pytest.mark.parametrize(("page", "keys"), [("index", "/"), ("search", "")])
def test_what_is_typed_before_the_scripts_are_there_stays(visit, server, page, keys):
    """On a phone the front page opens a field; that of the results has the focus."""
    screen, waiting = visit(width=390).page, []
    scripts = re.compile(r"\.js(\?|$)")
    screen.route(scripts, lambda route: waiting.append(route.request))
    screen.goto(f"{server}{page}.html", wait_until="commit")
    screen.wait_for_function(PAINTED)  # keys before that are lost to every page
    screen.keyboard.type(f"{keys}halo exch")
    assert waiting  # no script has come
    screen.keyboard.press("Backspace")
    screen.keyboard.type("hange")
    screen.unroute(scripts)  # lets them go on
    screen.wait_for_function("document.activeElement?.value == 'halo exchange'")
    screen.keyboard.press("Enter")
    screen.locator("#find-results a[href*='per-device/halo']").first.wait_for()


def test_a_field_of_one_line_takes_the_message_of_a_traceback(visit):
    screen = visit().open("arrays/meshes.html")
    field = screen.locator(".find input")
    field.focus()
    field.evaluate(PASTE, TRACEBACK)
    text = field.input_value()
    assert text.startswith("RuntimeError: Fetching value for `jax.Array` that spans")
    assert "padding" not in text


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_results_fit_and_are_accessible(visit, scheme, width):
    screen = search(visit, TRACEBACK, scheme=scheme, width=width)
    assert not screen.evaluate(OVERFLOW)
    assert audit(screen) == []


def test_without_script_the_page_says_where_else_to_look(visit):
    screen = visit(java_script_enabled=False).open("search.html?q=mesh")
    words = screen.locator("noscript p", has_text="To search needs JavaScript")
    assert words.is_visible()
    assert screen.locator("#find-field").is_hidden()
    assert screen.locator(".find-else a").count() >= 4
