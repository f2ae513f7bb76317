"""Long lists have a field that filters them, and the address keeps what is in it."""

import pytest
from built_site import AXE, SITE

LISTS = {
    "modules": ("reference/modules.html", "solve"),
    "names": ("reference/api_index.html", "device_put"),
    "exercises": ("reference/exercises.html", "hard"),
    "operations": ("reference/atlas.html", "cpu:all-reduce"),
}
each_list = pytest.mark.parametrize("what", LISTS)


def left(screen, what):
    """Return how many lines are seen, and what the page says of it."""
    items = screen.locator(".list-filter").get_attribute("data-items")
    shown = screen.locator(items).evaluate_all(
        "all => all.filter(i => !i.hidden).length"
    )
    return shown, screen.locator(".list-filter .count").inner_text()


@each_list
def test_a_word_filters_the_list_and_stands_in_the_address(visit, what):
    path, word = LISTS[what]
    tab = visit()
    screen = tab.open(path)
    count, text = left(screen, what)
    assert text == f"{count} {what}"
    screen.get_by_label(f"Filter the {what}").fill(word)
    screen.wait_for_function("location.search.includes('filter=')")
    few, text = left(screen, what)
    assert 0 < few < count
    assert text == f"{few} of {count} {what}"
    screen = visit().open(screen.url.removeprefix(tab.base))
    assert left(screen, what) == (few, text)
    assert tab.faults == []


@each_list
def test_a_filter_works_in_a_file_and_on_a_phone(visit, what):
    path, word = LISTS[what]
    screen = visit(width=390).page
    screen.goto(f"{(SITE / path).as_uri()}?filter={word}")
    shown, text = left(screen, what)
    assert text.startswith(f"{shown} of ")
    assert screen.evaluate("document.documentElement.scrollWidth") <= 390


@each_list
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_filter_is_accessible(visit, what, theme):
    screen = visit(scheme=theme).open(f"{LISTS[what][0]}?filter={LISTS[what][1]}")
    screen.evaluate(AXE.read_text())
    found = screen.evaluate("axe.run('.list-filter').then(found => found.violations)")
    assert [each["id"] for each in found] == []


def test_offered_words_go_in_and_out_by_the_keyboard(visit):
    screen = visit().open("reference/exercises.html")
    button = screen.get_by_role("button", name="hard", exact=True)
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    assert screen.get_by_label("Filter the exercises").input_value() == "hard"
    button.press("Enter")
    screen.wait_for_url("**/exercises.html")


@pytest.mark.parametrize("name", ["jax.lax.all_to_all", "jax.numpy.sum", "lax.psum"])
def test_a_name_of_the_api_is_found_however_it_is_written(visit, name):
    screen = visit().open(f"reference/api_index.html?filter={name}")
    rows = screen.locator("tr:not([hidden]) td:first-child").all_inner_texts()
    assert name.rpartition(".")[2] in " ".join(rows)
    assert len(rows) < 20


def test_a_word_may_be_asked_of_a_column_or_be_wanted_away(visit):
    screen = visit().open("reference/modules.html?filter=needs:optax")
    assert left(screen, "modules")[0] == 1
    screen.goto(screen.url.replace("needs:optax", "solve -lu"))
    rows = screen.locator("table.listing tbody tr:not([hidden])").all_inner_texts()
    assert rows
    assert all("solve" in row.lower() and "lu" not in row.split()[0] for row in rows)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("#examples.lu.solve", "reference/modules/lu.html#examples.lu.solve"),
        ("#module-lu", "reference/modules/lu.html"),
        ("#module-examples.lu", "reference/modules/lu.html#module-examples.lu"),
        ("#examples.lu.long_gone", "reference/modules/lu.html#examples.lu.long_gone"),
    ],
)
def test_old_links_to_the_list_of_modules_lead_on(visit, old, new):
    tab = visit()
    screen = tab.page
    screen.goto(f"{tab.base}reference/modules.html{old}")
    screen.wait_for_url(tab.base + new)


def test_without_script_old_links_lead_to_the_line_of_the_module(visit):
    tab = visit(java_script_enabled=False)
    screen = tab.open("reference/modules.html#examples.lu.solve")
    row = screen.locator("tr:has([id='examples.lu.solve'])")
    assert row.locator("a").first.get_attribute("href") == "modules/lu.html"
