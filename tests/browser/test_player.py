"""A film plays in a real browser; without script and on paper all frames are there.

The films are those of a page of the site; the first has four frames.
"""

import pytest

PAGE = "per-device/collectives.html"
FORWARD, BACK = "button[aria-label='step forward']", "button[aria-label='step back']"
PLAY, SLIDER = "button.toggle", "input[type=range][aria-label=frame]"
LAST = 3  # of the first film, from 0
FLIGHTS = """film => document.getAnimations().map(each => each.effect)
    .filter(effect => film.contains(effect.target) && effect.target.dataset.key)
    .map(effect => effect.getKeyframes().map(frame => frame.transform))"""
FOCUS = "each => each == document.activeElement && getComputedStyle(each).outlineStyle"


@pytest.fixture
def open_film(visit):
    """Return a function that opens the page, and gives its first film."""

    def make(motion="no-preference", **options):
        page = visit(reduced_motion=motion, **options).open(PAGE)
        return page.locator("figure.film").first

    return make


def expect(film, at):
    """Check that a frame alone is seen, and that its words are said."""
    visible = [frame.is_visible() for frame in film.locator("li > svg").all()]
    assert visible == [n == at for n in range(LAST + 1)]
    words = f"{at + 1} of {LAST + 1}{film.locator('li > p').nth(at).text_content()}"
    assert film.locator(".say[aria-live=polite]").text_content() == words
    assert film.locator(SLIDER).input_value() == str(at)


def test_buttons_and_keys_reach_every_frame_and_stop_at_the_ends(open_film):
    film = open_film()
    for button, path in (FORWARD, (1, 2, 3, 3)), (BACK, (2, 1, 0, 0)):
        for at in path:
            film.locator(button).click()
            expect(film, at)
    for key, at in ("ArrowRight", 1), ("End", LAST), ("ArrowLeft", 2), ("Home", 0):
        film.locator(SLIDER).press(key)
        expect(film, at)


def test_it_plays_to_the_last_frame_and_ends_there(open_film):
    film = open_film()
    clock, toggle = film.page.clock, film.locator(PLAY)
    clock.install(time=0)  # `run_for` moves the timers of the page
    clock.pause_at(1e6)
    toggle.click()
    assert toggle.get_attribute("aria-label") == "pause"
    clock.run_for(8600)
    expect(film, LAST)
    toggle.click()  # begins again
    clock.run_for(2300)
    film.locator(FORWARD).click()  # stops it
    clock.run_for(2600)
    expect(film, 2)


@pytest.mark.parametrize(("motion", "count"), [("no-preference", 8), ("reduce", 0)])
def test_what_moved_flies_and_nothing_else_moves(open_film, motion, count):
    """In each turn of the all-gather four devices get two numbers each."""
    film = open_film(motion)
    for _ in range(LAST):
        film.locator(FORWARD).click()
        flights = film.evaluate(FLIGHTS)
        assert len(flights) == count
        assert all(begin != end for begin, end in flights)


def test_controls_are_large_and_their_focus_is_seen(open_film):
    film = open_film(width=390)
    film.locator(BACK).focus()
    for control in map(film.locator, (BACK, PLAY, FORWARD, SLIDER)):
        box = control.bounding_box()
        assert min(box["height"], box["width"]) >= 44
        assert control.evaluate(FOCUS) == "solid"
        film.page.keyboard.press("Tab")


@pytest.mark.parametrize("media", ["screen", "print"])
def test_without_script_and_on_paper_all_frames_are_there(open_film, media):
    """Beside each other, with their sentences, and without controls."""
    film = open_film(java_script_enabled=media == "print")
    film.page.emulate_media(media=media)
    assert not film.locator(".controls").is_visible()
    boxes = [item.bounding_box() for item in film.locator("li").all()]
    assert len({(box["x"], box["y"]) for box in boxes}) == LAST + 1
    assert film.locator("li > :is(svg, p):visible").count() == 2 * (LAST + 1)
