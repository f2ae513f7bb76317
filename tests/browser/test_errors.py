"""The page of errors finds what is pasted into its box, and is whole without it."""

import pytest

PAGE = "reference/errors.html"
PASTED = """Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
    loss = step(params, batch)
E   jax._src.core.ShardingTypeError: Contracting dimensions are sharded
E   and it is ambiguous how the output should be sharded. Please specify the output
"""
PLACE = "#error-ambiguous-contraction"
OWN = "ValueError: K = 41 cannot be cut into 8 parts: pad it to 48"
UNKNOWN = "FrobnicatorError: the 17 frobnicators disagree, (3, 4)"
SHOWN = """[...document.querySelectorAll('.error-entry')]
    .filter(entry => entry.checkVisibility()).map(entry => `#${entry.id}`)"""
LINK = ".error-search .answer a"


@pytest.fixture
def screen(visit):
    tab = visit()
    tab.page.clock.install()
    return tab.open(PAGE)


def paste(screen, text):
    """Return the entries that are shown, once the script has looked for a text."""
    screen.fill("#error-paste", text)
    screen.clock.run_for(400)
    return screen.evaluate(SHOWN)


def test_a_traceback_leaves_its_entry_alone_and_opens_it(screen):
    whole = screen.evaluate(SHOWN)
    assert len(whole) > 100
    assert paste(screen, PASTED) == [PLACE]
    assert screen.locator(LINK).get_attribute("href") == PLACE
    assert screen.locator(f"{PLACE} strong").is_visible()
    screen.get_by_role("button", name="Show all").click()
    assert screen.evaluate(SHOWN) == whole


def test_an_entry_opens_by_its_message_and_by_a_link(visit, screen):
    cures = screen.locator(".error-entry strong", has_text="Do:")
    assert not cures.first.is_visible()
    screen.locator(".error-entry .opens").first.click()
    assert cures.first.is_visible()
    other = visit().open(PAGE + PLACE)
    assert other.locator(f"{PLACE} strong").is_visible()
    assert not other.locator(".error-entry strong").first.is_visible()


def test_an_error_of_a_module_opens_its_list(screen):
    paste(screen, OWN)
    assert screen.evaluate("document.querySelector('.own-errors').open")


def test_what_fits_nothing_leads_to_the_search(screen):
    assert len(paste(screen, UNKNOWN)) > 100
    link = screen.locator(LINK).get_attribute("href")
    assert link == "../search.html?q=the%20frobnicators%20disagree"


def test_a_link_to_a_hidden_entry_shows_it(screen):
    paste(screen, PASTED)
    screen.evaluate("location.hash = '#error-illegally-sharded'")
    screen.locator("#error-illegally-sharded").wait_for()
