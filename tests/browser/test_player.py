"""A film plays in a real browser; without script and on paper all frames are there.

Its films are recorded here, on a page of their own; the site is looked at once.
"""

import re
from pathlib import Path

import jax
import numpy as np
import pytest
from built_site import AXE, SITE
from jax import lax

from examples.charts import Span, timeline
from examples.films import Film, frames, record
from examples.pictures import draw
from examples.views import numbers

STATIC = Path(__file__).resolve().parents[2] / "docs/_static"
THEME = """:root { --pst-color-border: #ccc; --pst-color-text-muted: #555; color: #222;
  --pst-color-surface: #f4f4f4; --pst-color-text-base: #222;
  --pst-color-primary: #005f94 }"""
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Film</title>
<link rel="icon" href="data:,"><style>{theme}{style}</style></head>
<body><main class="bd-article"><h1>Films</h1>{films}</main>
<script>{script}</script></body>"""
FORWARD, BACK = "button[aria-label='step forward']", "button[aria-label='step back']"
PLAY, SLIDER = "button.toggle", "input[type=range]"
LANDED = """document.getAnimations().every(each => each.playState != "running") &&
    [...document.querySelectorAll("figure.player")].every(film =>
        film.querySelectorAll("li")[film.querySelector("input").value].matches(".here"))"""
SIZE = 4


@pytest.fixture(scope="session")
def turns():
    """An all-gather in a ring of four devices, of two numbers each."""
    mesh = jax.make_mesh((SIZE,), ("x",), devices=jax.devices()[:SIZE])
    on = [(i, (i + 1) % SIZE) for i in range(SIZE)]

    def step(turn):
        @jax.shard_map(mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P("x"))
        def shift(have):
            rank = lax.axis_index("x")
            got = lax.ppermute(have[:, (rank - turn) % SIZE], "x", on)
            return have.at[:, (rank - turn - 1) % SIZE].set(got)

        return shift

    state = np.full((SIZE, SIZE, 2), np.nan, np.float32)
    state[range(SIZE), range(SIZE)] = np.arange(2 * SIZE).reshape(SIZE, 2)
    rows = jax.NamedSharding(mesh, jax.P("x"))
    return record(map(step, range(SIZE - 1)), jax.device_put(state, rows))


@pytest.fixture(scope="session")
def page(turns, tmp_path_factory):
    """A page with three films: a ring, a time that goes on, and pictures of arrays."""
    says = [f"After turn {n}." for n in range(SIZE)]
    ring = Film(zip(frames(turns), says, strict=True), "All-gather")
    work = {"link": [Span(0, 4, "b", 3), Span(4, 8, "c", 2)]}
    lanes = [timeline(work, "s", now=now, end=8, narrow=True) for now in (1, 4, 6)]
    time = Film(zip(lanes, ["One.", "Four.", "Six."], strict=True))
    mesh = jax.make_mesh((2, 4), ("x", "y"))
    arrays = [
        jax.device_put(np.arange(32).reshape(4, 8), jax.NamedSharding(mesh, spec))
        for spec in (jax.P("x"), jax.P(None, "y"))
    ]
    pictures = [numbers(draw(array), array) for array in arrays]
    spread = Film(zip(pictures, ["Rows.", "Columns."], strict=True), "A move")
    file = tmp_path_factory.mktemp("films") / "page.html"
    text = PAGE.format(
        theme=THEME,
        style=(STATIC / "figures.css").read_text(),
        films="".join(film._repr_html_() for film in (ring, time, spread)),
        script=(STATIC / "player.js").read_text(),
    )
    file.write_text(text)
    return file.as_uri()


@pytest.fixture
def open_page(visit, page):
    """Return a function that opens the page, by default with motion; it is quiet."""
    visits = []

    def make(motion="no-preference", **options):
        visits.append(visit(page, **options))
        visits[-1].page.emulate_media(reduced_motion=motion)
        return visits[-1].open("")

    yield make
    assert [tab.faults for tab in visits] == [[] for _ in visits]


def state(screen, film=0):
    """Return which frames are seen, the slider's place, and what is said."""
    box = screen.locator("figure.film").nth(film)
    frames = box.locator("li").evaluate_all(
        """all => all.flatMap((li, n) =>
            getComputedStyle(li).visibility === "visible" ? [n] : [])"""
    )
    say = re.sub(r"\d+ of \d+", "", box.locator(".say").inner_text()).strip()
    return frames, int(box.locator(SLIDER).input_value()), say


def settle(screen):
    """Wait until all flights have landed, and the frame that they lead to is seen."""
    screen.wait_for_function(LANDED)


def stop_clock(screen):
    """Stop the clock of a page's timers: `screen.clock.run_for` moves it."""
    screen.clock.install(time=0)
    screen.clock.pause_at(1e6)
    return screen


# ------------------------------------------------------------- every frame, every way


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_the_buttons_reach_every_frame_and_stop_at_the_ends(open_page, motion):
    screen = open_page(motion)
    film = screen.locator("figure.film").first
    path = [0, 1, 2, 3, 3]
    for at in path[1:]:
        film.locator(FORWARD).click()
        settle(screen)
        assert state(screen) == ([at], at, f"After turn {at}.")
    for at in (2, 1, 0, 0):
        film.locator(BACK).click()
        settle(screen)
        assert state(screen) == ([at], at, f"After turn {at}.")


def test_the_keys_reach_every_frame(open_page):
    screen = open_page()
    film = screen.locator("figure.film").first
    for control in (SLIDER, FORWARD, PLAY):
        film.locator(control).focus()
        keys = "ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home"
        for key, at in zip(keys, (1, 2, 1, 3, 3, 0), strict=True):
            screen.keyboard.press(key)
            settle(screen)
            assert state(screen) == ([at], at, f"After turn {at}.")


def test_the_slider_reaches_every_frame(open_page):
    screen = open_page()
    slider = screen.locator("figure.film").first.locator(SLIDER)
    for at in (3, 1, 2, 0):
        slider.fill(str(at))
        settle(screen)
        assert state(screen) == ([at], at, f"After turn {at}.")
        assert slider.get_attribute("aria-valuetext") == f"After turn {at}."


def test_clicks_in_the_middle_of_a_flight_end_where_they_lead(open_page):
    screen = stop_clock(open_page())
    film = screen.locator("figure.film").first
    for button in (FORWARD, FORWARD, BACK, FORWARD, BACK, BACK, FORWARD):
        film.locator(button).click()
        screen.clock.run_for(90)
    settle(screen)
    assert state(screen) == ([1], 1, "After turn 1.")
    screen.clock.run_for(600)
    assert state(screen) == ([1], 1, "After turn 1.")


def test_it_plays_to_the_last_frame_and_ends_there(open_page):
    screen = stop_clock(open_page())
    film = screen.locator("figure.film").nth(1)  # of three frames
    toggle = film.locator(PLAY)
    assert toggle.get_attribute("aria-label") == "play"
    toggle.click()
    assert toggle.get_attribute("aria-label") == "pause"
    screen.clock.run_for(6600)
    assert state(screen, 1) == ([2], 2, "Six.")
    assert toggle.get_attribute("aria-label") == "play"
    toggle.click()  # begins again
    screen.clock.run_for(300)
    assert state(screen, 1)[1] == 0


@pytest.mark.parametrize("control", [PLAY, FORWARD, BACK])
def test_any_control_stops_a_film_that_plays(open_page, control):
    screen = stop_clock(open_page())
    film = screen.locator("figure.film").first
    film.locator(PLAY).click()
    film.locator(control).click()
    at = state(screen)[1]
    screen.clock.run_for(2600)
    assert state(screen)[1] == at
    assert film.locator(PLAY).get_attribute("aria-label") == "play"


def test_each_film_of_a_page_is_for_itself(open_page):
    screen = open_page()
    screen.locator("figure.film").nth(2).locator(FORWARD).click()
    settle(screen)
    assert [state(screen, n)[0] for n in range(3)] == [[0], [0], [1]]


# ------------------------------------------------------------------------------ motion


def flights(screen):
    """Return the keys of what moves now, and the number of arrows that appear."""
    return screen.evaluate("""() => {
        const moving = document.getAnimations().map(({effect}) => ({
            thing: effect.target,
            turned: "transform" in effect.getKeyframes()[0],
            way: effect.getTiming().direction,
        }));
        const arrow = ({thing}) => thing.matches(".msg");
        const seen = ({thing}) => getComputedStyle(thing).visibility === "visible";
        return {
            moved: moving.filter(m => m.turned).map(m => m.thing.dataset.key).sort(),
            arrows: moving.filter(arrow).length,
            others: moving.filter(m => !arrow(m) && !m.turned).length,
            ways: [...new Set(moving.map(m => m.way))],
            hidden: moving.filter(m => !seen(m)).length,
        };
    }""")


def arrivals(turns, at):
    """Return the places of which the recording says that something came there."""
    before, after = turns[at - 1], turns[at]
    return sorted(
        f"{device}.{place}"
        for device, values in after.held.items()
        for place in np.flatnonzero(
            np.isnan(before.held[device].ravel()) & ~np.isnan(values.ravel())
        )
    )


def test_what_moved_moves_and_nothing_else(open_page, turns):
    screen = open_page()
    film = screen.locator("figure.film").first
    for at in (1, 2, 3):
        film.locator(FORWARD).click()
        found = flights(screen)
        assert found["moved"] == arrivals(turns, at)
        assert found["arrows"] == SIZE
        assert found["others"] == found["hidden"] == 0
        assert found["ways"] == ["normal"]
        settle(screen)


def test_stepping_back_flies_back_from_the_later_frame(open_page, turns):
    screen = open_page()
    film = screen.locator("figure.film").first
    film.locator(SLIDER).fill("3")
    settle(screen)
    stop_clock(screen)
    film.locator(BACK).click()
    found = flights(screen)
    assert found["moved"] == arrivals(turns, 3)
    assert found["ways"] == ["reverse"]
    assert state(screen)[0] == [3]  # it stays until all has flown back
    screen.clock.run_for(450)
    assert state(screen)[0] == [2]


def test_a_flight_is_not_ended_by_an_earlier_one(open_page):
    """A step back, and forward again before all has flown back."""
    screen = open_page()
    film = screen.locator("figure.film").first
    film.locator(FORWARD).click()
    settle(screen)
    stop_clock(screen)
    count = screen.evaluate(
        """([back, on]) => {
        window.ended = 0;
        const animate = Element.prototype.animate;
        Element.prototype.animate = function (...how) {
            const flight = animate.apply(this, how);
            flight.finished.then(() => { window.ended += 1; }, () => {});
            return flight;
        };
        document.querySelector(back).click();
        document.querySelector(on).click();
        return document.getAnimations().length;
    }""",
        [BACK, FORWARD],
    )
    screen.clock.run_for(900)
    settle(screen)
    assert screen.evaluate("window.ended") == count > 0


def test_a_flight_starts_at_the_sender(open_page, turns):
    """At its first moment a thing lies where it was on the device that sent it."""
    screen = open_page()
    film = screen.locator("figure.film").first
    where = """key => {
        const li = document.querySelector("figure.film li.here");
        const box = li.querySelector(`[data-key="${key}"]`).getBoundingClientRect();
        return [box.x, box.y];
    }"""
    start = screen.evaluate(where, "0.0")
    film.locator(FORWARD).click()
    screen.evaluate(
        "document.getAnimations().forEach(a => { a.pause(); a.currentTime = 0 })"
    )
    flown = screen.evaluate(where, "1.0")
    assert np.abs(np.subtract(flown, start)).max() < 2
    screen.evaluate("document.getAnimations().forEach(a => a.finish())")
    landed = screen.evaluate(where, "1.0")
    assert np.abs(np.subtract(landed, start)).max() > 50


def test_a_line_of_time_moves_with_the_time(open_page):
    screen = open_page()
    film = screen.locator("figure.film").nth(1)
    where = """() => [...document.querySelectorAll("li.here [data-key=now]")].map(
        line => line.getBoundingClientRect().x)[0]"""
    places = []
    for _ in range(3):
        places.append(screen.evaluate(where))
        film.locator(FORWARD).click()
        settle(screen)
    steps = np.diff(places)
    assert steps.min() > 20
    assert steps[0] / steps[1] == pytest.approx(3 / 2, rel=0.05)


def test_who_wants_less_motion_gets_none(open_page):
    screen = open_page("reduce")
    film = screen.locator("figure.film").first
    for button in (FORWARD, FORWARD, BACK, FORWARD):
        film.locator(button).click()
        assert screen.evaluate("document.getAnimations().length") == 0
    assert state(screen) == ([2], 2, "After turn 2.")


def test_nothing_below_a_film_moves_while_it_plays(open_page):
    screen = open_page()
    film = screen.locator("figure.film").first
    below = screen.locator("figure.film").nth(1)
    top = below.bounding_box()["y"]
    assert len({li.bounding_box()["y"] for li in film.locator("li").all()}) == 1
    for button in [FORWARD] * 3 + [BACK] * 2:
        film.locator(button).click()
        assert below.bounding_box()["y"] == top
        settle(screen)
        assert below.bounding_box()["y"] == top


# ----------------------------------------------------------------- for every reader


def test_what_is_seen_is_said(open_page):
    """The sentence is in a live region, and only the frame that is seen is told."""
    screen = open_page()
    film = screen.locator("figure.film").first
    assert film.locator(".say").get_attribute("aria-live") == "polite"
    film.locator(FORWARD).click()
    settle(screen)
    assert film.locator(".say").inner_text().split("\n") == ["2 of 4", "After turn 1."]
    images = film.get_by_role("img").all()
    assert len(images) == 1
    assert "sends 8 B to device" in images[0].get_attribute("aria-label")
    names = [b.get_attribute("aria-label") for b in film.get_by_role("button").all()]
    assert names == ["step back", "play", "step forward"]
    assert film.get_by_role("slider").get_attribute("aria-label") == "frame"


@pytest.mark.parametrize("width", [1280, 390])
def test_controls_are_large_and_show_the_focus(open_page, width):
    screen = open_page(width=width)
    film = screen.locator("figure.film").first
    film.locator(BACK).focus()
    for control in (BACK, PLAY, FORWARD, SLIDER):
        box = film.locator(control).bounding_box()
        assert box["height"] >= 44
        assert box["width"] >= 44
        focused = "getComputedStyle(document.activeElement)"
        assert screen.evaluate(f"document.activeElement.matches(`{control}`)")
        assert screen.evaluate(f"{focused}.outlineStyle") == "solid"
        assert screen.evaluate(f"parseFloat({focused}.outlineWidth)") >= 2
        screen.keyboard.press("Tab")


@pytest.mark.parametrize("width", [1280, 390])
def test_a_player_is_no_wider_than_the_page(open_page, width):
    screen = open_page(width=width)
    assert screen.evaluate("document.documentElement.scrollWidth") <= width
    for svg in screen.locator("li.here > svg").all():
        box = svg.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["width"] >= 300


def shown(screen):
    """Return the number of frames that are seen, and their sentences."""
    return (
        screen.locator("figure.film")
        .first.locator("li")
        .evaluate_all(
            """all => all.filter(li => getComputedStyle(li).visibility === 'visible'
            && li.querySelector('svg').getBoundingClientRect().height > 50
            && li.querySelector('p').getBoundingClientRect().height > 5)
            .map(li => li.querySelector('p').textContent)"""
        )
    )


SAYS = [f"After turn {n}." for n in range(SIZE)]


def test_without_script_all_frames_are_there(open_page):
    screen = open_page(java_script_enabled=False)
    assert screen.locator("figure.film").count() == 3
    assert screen.locator("figure.film button").count() == 0
    items = screen.locator("figure.film").first.locator("li")
    assert items.count() == SIZE
    boxes = [item.bounding_box() for item in items.all()]
    assert all(box["height"] > 100 for box in boxes)
    assert len({(box["x"], box["y"]) for box in boxes}) == SIZE  # beside each other
    assert [p.inner_text() for p in items.locator("p").all()] == SAYS


def test_on_paper_all_frames_are_there(open_page):
    screen = open_page()
    screen.locator(FORWARD).first.click()
    settle(screen)
    screen.emulate_media(media="print")
    assert shown(screen) == SAYS
    boxes = [
        li.bounding_box()
        for li in screen.locator("figure.film").first.locator("li").all()
    ]
    assert len({(box["x"], box["y"]) for box in boxes}) == SIZE
    assert not screen.locator(".controls").first.is_visible()


def test_axe_finds_nothing(open_page):
    if not AXE.exists():
        pytest.skip("nox -s browser installs axe-core")
    screen = open_page()
    screen.evaluate(AXE.read_text())
    found = screen.evaluate("""axe.run(document).then(result => result.violations.map(
        rule => `${rule.id}: ${rule.nodes.map(node => node.html).join(" ")}`))""")
    assert found == []


def test_the_films_of_the_site_are_players(visit):
    pages = [f for f in SITE.rglob("*.html") if 'class="film"' in f.read_text()]
    assert pages
    tab = visit()
    screen = tab.open(str(min(pages).relative_to(SITE)))
    films = screen.locator("figure.film").count()
    assert screen.locator("figure.film.player .controls").count() == films > 0
    assert tab.faults == []
