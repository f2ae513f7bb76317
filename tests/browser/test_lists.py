"""Long lists have a field that filters them, and the address keeps what is in it."""

import pytest
from built_site import FILES, OVERFLOW, audit

LISTS = {
    "modules": ("reference/modules.html", "solve"),
    "names": ("reference/api_index.html", "device_put"),
    "exercises": ("reference/exercises.html", "hard"),
    "operations": ("reference/atlas.html", "cpu:all-reduce"),
}
LEFT = "all => all.filter(i => !i.hidden).length"


def left(screen):
    """Return how many lines are seen, and what the page says of it."""
    items = screen.locator(".list-filter").get_attribute("data-items")
    shown = screen.locator(items).evaluate_all(LEFT)
    return shown, screen.locator(".list-filter .count").inner_text()


@pytest.mark.parametrize("what", LISTS)
def test_a_word_filters_the_list_and_stands_in_the_address(visit, server, what):
    path, word = LISTS[what]
    screen = visit().open(path)
    count, text = left(screen)
    assert text == f"{count} {what}"
    screen.get_by_label(f"Filter the {what}").fill(word)
    screen.wait_for_function("location.search.includes('filter=')")
    few, text = left(screen)
    assert 0 < few < count
    assert text == f"{few} of {count} {what}"
    found = screen.url.removeprefix(server)
    screen = visit(base=FILES, width=390, scheme="dark").open(found)
    assert left(screen) == (few, text)
    assert audit(screen, include=[[".list-filter"]]) == []
    assert not screen.evaluate(OVERFLOW)


def test_offered_words_go_in_and_out_by_the_keyboard(visit):
    screen = visit().open("reference/exercises.html")
    button = screen.get_by_role("button", name="hard", exact=True)
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    assert screen.get_by_label("Filter the exercises").input_value() == "hard"
    button.press("Enter")
    screen.wait_for_url("**/exercises.html")


def test_a_name_of_the_api_is_found_by_its_long_form(visit):
    screen = visit().open("reference/api_index.html?filter=jax.lax.all_to_all")
    rows = screen.locator("tr:not([hidden]) td:first-child").all_inner_texts()
    assert "all_to_all" in " ".join(rows)
    assert len(rows) < 20


def test_a_word_may_be_asked_of_a_column_or_be_wanted_away(visit):
    screen = visit().open("reference/modules.html?filter=needs:optax")
    assert left(screen)[0] == 1
    screen.goto(screen.url.replace("needs:optax", "solve -lu"))
    rows = screen.locator("table.listing tbody tr:not([hidden])").all_inner_texts()
    assert rows
    assert all("solve" in row.lower() and "lu" not in row.split()[0] for row in rows)


def test_old_links_to_the_list_of_modules_lead_on(visit):
    """Without script to the line of the module."""
    old = "reference/modules.html#examples.lu.solve"
    visit().open(old).wait_for_url("**/reference/modules/lu.html#examples.lu.solve")
    screen = visit(java_script_enabled=False).open(old)
    row = screen.locator("tr:has([id='examples.lu.solve'])")
    assert row.locator("a").first.get_attribute("href") == "modules/lu.html"
