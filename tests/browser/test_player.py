"""A film plays in a real browser; without script and on paper all frames are there.

The films are those of a page of the site; the first has four frames.
"""

import re

import pytest

PAGE = "per-device/collectives.html"
FORWARD, BACK = "button[aria-label='step forward']", "button[aria-label='step back']"
PLAY, SLIDER = "button.toggle", "input[type=range]"
MOTION = {"reduced_motion": "no-preference"}
LAST = 3  # of the first film, from 0
LANDED = """document.getAnimations().every(each => each.playState != "running") &&
    [...document.querySelectorAll("figure.player")].every(film =>
        film.querySelectorAll("li")[film.querySelector("input").value].matches(".here"))"""
VISIBLE = """all => all.flatMap((li, n) =>
    getComputedStyle(li).visibility === "visible" ? [n] : [])"""
MOVING = """document.getAnimations().filter(
    each => each.effect.target.closest("figure.film li"))"""
# Of what moves to a frame: where it begins, where it (or its sender's) stands in the
# frame before, and where it ends.
FLIGHTS = """at => {
    const [before, after] = [at - 1, at].map(
        n => document.querySelectorAll("figure.film li")[n]);
    const where = thing => {
        const {x, y} = thing.getBoundingClientRect();
        return [Math.round(x), Math.round(y)];
    };
    const flights = MOVING;
    flights.forEach(each => { each.pause(); each.currentTime = 0 });
    const found = flights.filter(each => each.effect.target.dataset.key).map(each => {
        const thing = each.effect.target, {key, from} = thing.dataset;
        const start = before.querySelector(`[data-key="${from || key}"]`);
        return {begins: where(thing), start: where(start), thing};
    });
    const arrows = flights.filter(each => each.effect.target.matches(".msg")).length;
    const ways = [...new Set(flights.map(each => each.effect.getTiming().direction))];
    flights.forEach(each => each.finish());
    const moved = found.map(({begins, start, thing}) => [begins, start, where(thing)]);
    const count = after.querySelectorAll("[data-key]").length;
    return {moved, arrows, ways, rest: count - moved.length};
}""".replace("MOVING", MOVING)
OUTLINE = "getComputedStyle(document.activeElement).outlineStyle"


@pytest.fixture
def open_page(visit):
    """Return a function that opens the page; it gives the page and its first film."""

    def make(clock=False, **options):
        screen = visit(**MOTION | options).open(PAGE)
        if clock:  # `screen.clock.run_for` moves the timers of the page
            screen.clock.install(time=0)
            screen.clock.pause_at(1e6)
        return screen, screen.locator("figure.film").first

    return make


def state(film):
    """Return which frames are seen, the slider's place, and what is said."""
    say = re.sub(r"\d+ of \d+", "", film.locator(".say").inner_text()).strip()
    place = int(film.locator(SLIDER).input_value())
    return film.locator("li").evaluate_all(VISIBLE), place, say


def expect(screen, film, at):
    """Check that a frame alone is seen and said, once all has landed."""
    screen.wait_for_function(LANDED)
    words = film.locator("li > p").nth(at).text_content()
    assert state(film) == ([at], at, words)


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_buttons_keys_and_slider_reach_every_frame_and_stop_at_the_ends(
    open_page, motion
):
    screen, film = open_page(reduced_motion=motion)
    for button, path in (FORWARD, (1, 2, 3, 3)), (BACK, (2, 1, 0, 0)):
        for at in path:
            film.locator(button).click()
            if motion == "reduce":
                assert screen.evaluate(f"{MOVING}.length") == 0
            expect(screen, film, at)
    for control in SLIDER, PLAY:
        film.locator(control).focus()
        for key, at in ("ArrowRight", 1), ("End", LAST), ("ArrowLeft", 2), ("Home", 0):
            screen.keyboard.press(key)
            expect(screen, film, at)
    film.locator(SLIDER).fill("2")
    expect(screen, film, 2)
    others = screen.locator("figure.film.player").all()[1:]
    assert [state(other)[0] for other in others] == [[0]] * 4


def test_it_plays_to_the_last_frame_and_ends_there(open_page):
    screen, film = open_page(clock=True)
    toggle = film.locator(PLAY)
    toggle.click()
    assert toggle.get_attribute("aria-label") == "pause"
    screen.clock.run_for(8600)
    expect(screen, film, LAST)
    assert toggle.get_attribute("aria-label") == "play"
    toggle.click()  # begins again
    screen.clock.run_for(2300)
    film.locator(FORWARD).click()  # stops it
    screen.clock.run_for(2600)
    expect(screen, film, 2)
    assert toggle.get_attribute("aria-label") == "play"


def test_what_moved_flies_from_its_sender_and_nothing_else_moves(open_page):
    """In each turn of the all-gather four devices get two numbers each."""
    screen, film = open_page()
    for at in range(1, LAST + 1):
        film.locator(FORWARD).click()
        found = screen.evaluate(FLIGHTS, at)
        assert (len(found["moved"]), found["rest"]) == (8, 8 * at)
        assert (found["arrows"], found["ways"]) == (4, ["normal"])
        for begins, start, landed in found["moved"]:
            assert begins == pytest.approx(start, abs=2)
            assert begins != landed
        expect(screen, film, at)


def test_stepping_back_flies_back_from_the_later_frame(open_page):
    screen, film = open_page()
    film.locator(SLIDER).fill(str(LAST))
    screen.clock.install(time=0)
    screen.clock.pause_at(1e6)
    film.locator(BACK).click()
    assert screen.evaluate(FLIGHTS, LAST)["ways"] == ["reverse"]
    assert state(film)[0] == [LAST]  # it stays until all has flown back
    screen.clock.run_for(450)
    expect(screen, film, LAST - 1)


def test_a_frame_is_read_aloud_and_controls_are_large(open_page):
    screen, film = open_page(width=390)
    assert film.locator(".say").get_attribute("aria-live") == "polite"
    (image,) = film.get_by_role("img").all()
    assert "device 0 holds" in image.get_attribute("aria-label")
    names = [b.get_attribute("aria-label") for b in film.get_by_role("button").all()]
    assert names == ["step back", "play", "step forward"]
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
        screen.wait_for_function(LANDED)
        screen.emulate_media(media="print")
    assert not film.locator(".controls").is_visible()
    boxes = [item.bounding_box() for item in film.locator("li").all()]
    assert all(box["height"] > 100 for box in boxes)
    assert len({(box["x"], box["y"]) for box in boxes}) == LAST + 1
    assert film.locator("li > svg").first.is_visible()
    assert all(words.is_visible() for words in film.locator("li > p").all())
