"""A film plays in a real browser; without script and on paper all frames are there.

The films are those of a page of the site; the first has four frames.
"""

import pytest

PAGE = "per-device/collectives.html"
FORWARD, BACK = "button[aria-label='step forward']", "button[aria-label='step back']"
PLAY, SLIDER = "button.toggle", "input[type=range]"
LAST = 3  # of the first film, from 0
STATE = """film => [...film.querySelectorAll("li")].flatMap((li, n) =>
    getComputedStyle(li).visibility === "visible" ? [n] : [])"""
FLIGHTS = """film => document.getAnimations().map(each => each.effect)
    .filter(effect => film.contains(effect.target) && effect.target.dataset.key)
    .map(effect => effect.getKeyframes().map(frame => frame.transform))"""
OUTLINE = "getComputedStyle(document.activeElement).outlineStyle"


@pytest.fixture
def open_page(visit):
    """Return a function that opens the page; it gives the page and its first film."""

    def make(**options):
        screen = visit(**{"reduced_motion": "no-preference"} | options).open(PAGE)
        return screen, screen.locator("figure.film").first

    return make


def expect(film, at):
    """Check that a frame alone is seen, and that its words are said."""
    words = film.locator("li > p").nth(at).text_content()
    assert film.evaluate(STATE) == [at]
    assert film.locator(".say").text_content() == f"{at + 1} of {LAST + 1}{words}"
    assert film.locator(SLIDER).input_value() == str(at)


def test_buttons_and_keys_reach_every_frame_and_stop_at_the_ends(open_page):
    screen, film = open_page()
    for button, path in (FORWARD, (1, 2, 3, 3)), (BACK, (2, 1, 0, 0)):
        for at in path:
            film.locator(button).click()
            expect(film, at)
    film.locator(SLIDER).focus()
    for key, at in ("ArrowRight", 1), ("End", LAST), ("ArrowLeft", 2), ("Home", 0):
        screen.keyboard.press(key)
        expect(film, at)
    other = screen.locator("figure.film.player").nth(1)
    assert other.evaluate(STATE) == [0]


def test_it_plays_to_the_last_frame_and_ends_there(open_page):
    screen, film = open_page()
    screen.clock.install(time=0)  # `run_for` moves the timers of the page
    screen.clock.pause_at(1e6)
    toggle = film.locator(PLAY)
    toggle.click()
    assert toggle.get_attribute("aria-label") == "pause"
    screen.clock.run_for(8600)
    expect(film, LAST)
    assert toggle.get_attribute("aria-label") == "play"
    toggle.click()  # begins again
    screen.clock.run_for(2300)
    film.locator(FORWARD).click()  # stops it
    screen.clock.run_for(2600)
    expect(film, 2)


@pytest.mark.parametrize(("motion", "count"), [("no-preference", 8), ("reduce", 0)])
def test_what_moved_flies_and_nothing_else_moves(open_page, motion, count):
    """In each turn of the all-gather four devices get two numbers each."""
    _, film = open_page(reduced_motion=motion)
    for _ in range(LAST):
        film.locator(FORWARD).click()
        flights = film.evaluate(FLIGHTS)
        assert len(flights) == count
        assert all(begin != end for begin, end in flights)


def test_controls_have_names_and_are_large(open_page):
    screen, film = open_page(width=390)
    assert film.locator(".say").get_attribute("aria-live") == "polite"
    assert film.get_by_role("slider").get_attribute("aria-label") == "frame"
    film.locator(BACK).focus()
    for control in (BACK, PLAY, FORWARD, SLIDER):
        box = film.locator(control).bounding_box()
        assert min(box["height"], box["width"]) >= 44
        assert screen.evaluate(f"document.activeElement.matches(`{control}`)")
        assert screen.evaluate(OUTLINE) == "solid"
        screen.keyboard.press("Tab")


@pytest.mark.parametrize("media", ["without script", "print"])
def test_without_script_and_on_paper_all_frames_are_there(open_page, media):
    """Beside each other, with their sentences, and without controls."""
    screen, film = open_page(java_script_enabled=media == "print")
    if media == "print":
        film.locator(FORWARD).click()
        screen.emulate_media(media="print")
    assert not film.locator(".controls").is_visible()
    boxes = [item.bounding_box() for item in film.locator("li").all()]
    assert all(box["height"] > 100 for box in boxes)
    assert len({(box["x"], box["y"]) for box in boxes}) == LAST + 1
    assert all(words.is_visible() for words in film.locator("li > p").all())
