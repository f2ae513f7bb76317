"""The page of errors finds what is pasted into its box, and is whole without it."""

import pytest
from built_site import SITE

PAGE = "reference/errors.html"
PASTED = """Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
    loss = step(params, batch)
E   jax._src.core.ShardingTypeError: Contracting dimensions are sharded
E   and it is ambiguous how the output should be sharded. Please specify the output
"""
SHOWN = """[...document.querySelectorAll('.error-entry')]
    .filter(entry => entry.checkVisibility()).map(entry => entry.id)"""


@pytest.fixture
def screen(visit):
    tab = visit()
    tab.page.clock.install()
    return tab.open(PAGE)


def shown(screen):
    """Return the entries that are seen, once the script has looked."""
    screen.clock.run_for(400)
    return screen.evaluate(SHOWN)


def test_a_traceback_leaves_its_entry_alone(screen):
    whole = shown(screen)
    assert len(whole) > 100
    screen.fill("#error-paste", PASTED)
    assert shown(screen) == ["error-ambiguous-contraction"]
    link = screen.locator(".error-search .answer a")
    assert link.get_attribute("href") == "#error-ambiguous-contraction"
    screen.get_by_role("button", name="Show all").click()
    assert shown(screen) == whole


def test_an_entry_opens_when_it_is_asked_for(visit, screen):
    """By its message, by what is pasted, and by a link from another page."""
    cures = screen.locator(".error-entry strong", has_text="Do:")
    assert not cures.first.is_visible()
    screen.locator(".error-entry .opens").first.click()
    assert cures.first.is_visible()
    screen.fill("#error-paste", PASTED)
    shown(screen)
    place = "#error-ambiguous-contraction"
    assert screen.locator(f"{place} strong").is_visible()
    other = visit().open(PAGE + place)
    assert other.locator(f"{place} strong").is_visible()
    assert not other.locator(".error-entry strong").first.is_visible()


def test_an_error_of_a_module_opens_its_list(screen):
    screen.fill(
        "#error-paste", "ValueError: K = 41 cannot be cut into 8 parts: pad it to 48"
    )
    shown(screen)
    assert screen.evaluate("document.querySelector('.own-errors').open")


def test_what_fits_nothing_leads_to_the_search(screen):
    screen.fill(
        "#error-paste", "FrobnicatorError: the 17 frobnicators disagree, (3, 4)"
    )
    assert len(shown(screen)) > 100
    link = screen.locator(".error-search .answer a").get_attribute("href")
    assert link == "../search.html?q=the%20frobnicators%20disagree"
    assert (SITE / "search.html").exists()


def test_a_link_to_a_hidden_entry_shows_it(screen):
    screen.fill("#error-paste", PASTED)
    shown(screen)
    screen.evaluate("location.hash = '#error-illegally-sharded'")
    screen.locator("#error-illegally-sharded").wait_for()
