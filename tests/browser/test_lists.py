"""Long lists have a field that filters them, and the address keeps what is in it."""

import pytest
from built_site import FILES, OVERFLOW, audit

LISTS = {
    "modules": ("reference/modules.html", "needs:optax"),
    "names": ("reference/api_index.html", "jax.lax.all_to_all"),
    "exercises": ("reference/exercises.html", "hard"),
    "operations": ("reference/atlas.html", "cpu:all-reduce -sort"),
}
SHOWN = "all => all.filter(item => !item.hidden).length"
SPILLS = "all => all.some(cell => cell.scrollWidth > cell.clientWidth + 1)"


def shown(screen):
    """Return how many lines are shown, and what the page says of it."""
    items = screen.locator(".list-filter").get_attribute("data-items")
    count = screen.locator(items).evaluate_all(SHOWN)
    return count, screen.locator(".list-filter .count").inner_text()


@pytest.mark.parametrize("what", LISTS)
def test_a_word_filters_the_list_and_stands_in_the_address(visit, server, what):
    path, word = LISTS[what]
    screen = visit().open(path)
    every, text = shown(screen)
    assert text == f"{every} {what}"
    assert not screen.locator("table.listing td").evaluate_all(SPILLS)
    screen.get_by_label(f"Filter the {what}").fill(word)
    screen.wait_for_function("location.search.includes('filter=')")
    few, text = shown(screen)
    assert 0 < few < every / 2
    assert text == f"{few} of {every} {what}"
    address = screen.url.removeprefix(server)
    screen = visit(base=FILES, width=390, scheme="dark").open(address)
    assert shown(screen) == (few, text)
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


def test_old_links_to_the_list_of_modules_lead_on(visit):
    """Without script to the line of the module."""
    old = "reference/modules.html#examples.lu.solve"
    visit().open(old).wait_for_url("**/reference/modules/lu.html#examples.lu.solve")
    screen = visit(java_script_enabled=False).open(old)
    row = screen.locator("tr:has([id='examples.lu.solve'])")
    assert row.locator("a").first.get_attribute("href") == "modules/lu.html"
