"""Long lists have a field that filters them, for words or for an error."""

import pytest
from built_site import FILES, OVERFLOW, audit

LISTS = {
    "modules": ("reference/modules.html", "needs:optax"),
    "names": ("reference/api_index.html", "jax.lax.all_to_all"),
    "exercises": ("reference/exercises.html", "hard"),
    "operations": ("reference/atlas.html", "cpu:all-reduce -sort"),
}
ERRORS = "reference/errors.html"
PASTED = """Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
E   jax.errors.ShardingTypeError: Contracting dimensions are sharded
E   and it is ambiguous how the output should be sharded. Please specify the output
"""
PLACE = "#error-ambiguous-contraction"
OWN = "ValueError: K = 41 cannot be cut into 8 parts: pad it to 48"
SHOWN = "all => all.filter(item => item.checkVisibility()).length"
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
    _, text = shown(screen)
    every = int(text.removesuffix(f" {what}"))
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


def paste(screen, text):
    """Return how many entries of the page of errors are shown for a text."""
    screen.get_by_label("Paste a message").fill(text)
    screen.locator(".count", has_text=" of ").wait_for()
    return shown(screen)[0]


def test_a_traceback_leaves_its_entry_alone_and_opens_it(visit):
    screen = visit().open(ERRORS)
    cure, hidden = (
        screen.locator(f"{at} strong", has_text="Do:")
        for at in (PLACE, "#error-illegally-sharded")
    )
    whole, _ = shown(screen)
    assert not cure.is_visible()
    assert paste(screen, PASTED) == 1
    assert cure.is_visible()
    screen.evaluate("location.hash = '#error-illegally-sharded'")
    hidden.wait_for()
    assert paste(screen, OWN) > 0  # of a module
    screen.get_by_role("button", name="Show all").click()
    assert shown(screen)[0] == whole
    assert paste(screen, "FrobnicatorError: they disagree") == 0
    link = screen.locator(".count a").get_attribute("href")
    assert link == "../search.html?q=FrobnicatorError%3A+they+disagree"


def test_a_link_opens_an_entry_and_without_script_each_opens(visit):
    assert visit().open(ERRORS + PLACE).locator(f"{PLACE} strong").is_visible()
    screen = visit(java_script_enabled=False).open(ERRORS)
    screen.locator(f"{PLACE} summary").click()
    assert screen.locator(f"{PLACE} strong").is_visible()
