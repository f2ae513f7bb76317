"""The page of errors finds what is pasted into its box, and is whole without it."""

import pytest

PAGE = "reference/errors.html"
PASTED = """Traceback (most recent call last):
  File "/home/me/train.py", line 12, in <module>
E   jax.errors.ShardingTypeError: Contracting dimensions are sharded
E   and it is ambiguous how the output should be sharded. Please specify the output
"""
PLACE = "#error-ambiguous-contraction"
OWN = "ValueError: K = 41 cannot be cut into 8 parts: pad it to 48"
SHOWN = """[...document.querySelectorAll('.error-entry, .own-errors li')]
    .filter(entry => entry.checkVisibility()).map(entry => `#${entry.id}`)"""


@pytest.fixture
def screen(visit):
    return visit().open(PAGE)


def paste(screen, text):
    """Return the entries that are shown, once the script has looked for a text."""
    screen.fill("#error-paste", text)
    screen.locator(".error-search .answer", has_text="entr").wait_for()
    return screen.evaluate(SHOWN)


def test_a_traceback_leaves_its_entry_alone_and_opens_it(screen):
    cure = screen.locator(f"{PLACE} strong", has_text="Do:")
    whole = screen.evaluate(SHOWN)
    assert len(whole) > 100
    assert not cure.is_visible()
    assert paste(screen, PASTED) == [PLACE]
    assert cure.is_visible()
    screen.evaluate("location.hash = '#error-illegally-sharded'")  # is hidden
    screen.locator("#error-illegally-sharded strong").first.wait_for()
    paste(screen, PASTED)
    screen.get_by_role("button", name="Show all").click()
    assert screen.evaluate(SHOWN) == whole


def test_an_error_of_a_module_opens_its_list(screen):
    paste(screen, OWN)
    assert screen.locator(".own-errors li:visible").count() > 0


def test_what_fits_nothing_leads_to_the_search(screen):
    assert len(paste(screen, "FrobnicatorError: they disagree")) > 100
    link = screen.locator(".error-search a").get_attribute("href")
    assert link == "../search.html?q=FrobnicatorError%3A+they+disagree"


def test_a_link_opens_an_entry_and_without_script_each_opens(visit):
    assert visit().open(PAGE + PLACE).locator(f"{PLACE} strong").is_visible()
    screen = visit(java_script_enabled=False).open(PAGE)
    screen.locator(f"{PLACE} summary").click()
    assert screen.locator(f"{PLACE} strong").is_visible()
