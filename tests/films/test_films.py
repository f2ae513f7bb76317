"""A film shows what the program did: other data, or another way round, are an error."""

import functools
import itertools
import math
import re
from xml.etree import ElementTree

import jax
import numpy as np
import pytest
from jax import lax
from on_devices import AUTO, EXPLICIT, mesh_of, on
from pictures.test_pictures import SVG, parse

from examples import films


def ring(size, kind=EXPLICIT):
    return mesh_of(size, devices=jax.devices()[:size], kind=kind)


def record_on(mesh, steps, state):
    """Record functions of what a device has."""
    axes = jax.P(mesh.axis_names)
    steps = [jax.shard_map(f, mesh=mesh, in_specs=axes, out_specs=axes) for f in steps]
    return films.record(steps, jax.device_put(state, on(mesh, mesh.axis_names)))


def pass_on(axis, count, add, have):
    """Do a turn of an all-gather around a ring, or of a reduce-scatter, which adds."""
    size = lax.axis_size(axis)
    place = (lax.axis_index(axis) - count - add) % size
    got = lax.ppermute(have[:, place], axis, [(i, (i + 1) % size) for i in range(size)])
    there = have.at[:, (place - 1) % size]
    return there.add(got) if add else there.set(got)


@functools.cache
def gather_turns(mesh, axis="x"):
    """Record an all-gather: each device begins with two numbers of its own."""
    size = mesh.shape[axis]
    state = np.full((mesh.size, size, 2), np.nan, np.float32)
    ranks = np.indices(mesh.devices.shape)[mesh.axis_names.index(axis)].ravel()
    state[range(mesh.size), ranks] = np.arange(mesh.size * 2).reshape(-1, 2)
    steps = [functools.partial(pass_on, axis, n, False) for n in range(size - 1)]
    return record_on(mesh, steps, state)


# ------------------------------------------------------------------------- recording


def test_a_ring_adds_what_its_neighbour_had_before():
    """In a reduce-scatter device d gives 2**d to every sum."""
    state = np.repeat(2.0 ** np.arange(3)[:, None], 3, 1).astype(np.float32)
    steps = [functools.partial(pass_on, "x", n, True) for n in range(2)]
    turns = record_on(ring(3, AUTO), steps, state)
    assert [turns[-1].held[d].ravel()[d] for d in range(3)] == [2**3 - 1] * 3
    for n, pair in enumerate(itertools.pairwise(turns)):
        places = [(to, (to - n - 2) % 3) for to in range(3)]
        came = {(to, place): ((to - 1) % 3, place) for to, place in places}
        assert films.arrived(*pair) == came


def test_what_was_not_sent_and_messages_without_anything_new_are_errors():
    before, after, *_, last = gather_turns(ring(4))
    turned = tuple((to, source) for source, to in after.pairs)
    with pytest.raises(ValueError, match="which sent to it, had that there"):
        films.arrived(before, films.Turn(after.held, turned))
    with pytest.raises(ValueError, match="nothing new came with the messages"):
        films.arrived(last, last)
    assert films.arrived(last, films.Turn(last.held)) == {}


def test_what_changes_its_place_may_come_from_elsewhere_if_that_is_allowed():
    """A halo: device d borrows the first number of d + 1, and the last of d - 1."""

    def borrow(have):
        up, down = [(i, (i + 1) % 4) for i in range(4)], [(i, i - 1) for i in (1, 2, 3)]
        have = have.at[:, 3].set(lax.ppermute(have[:, 1], "x", [*down, (0, 3)]))
        return have.at[:, 0].set(lax.ppermute(have[:, 2], "x", up))

    state = np.arange(16, dtype=np.float32).reshape(4, 4)
    state[:, [0, 3]] = np.nan
    before, after = record_on(ring(4), [borrow], state)
    assert len(after.pairs) == 8
    with pytest.raises(ValueError, match="there: elsewhere=True permits"):
        films.arrived(before, after)
    came = films.arrived(before, after, elsewhere=True)
    lower = {(to, 0): ((to - 1) % 4, 2) for to in range(4)}
    assert came == lower | {(to, 3): ((to + 1) % 4, 1) for to in range(4)}
    assert len(films.frames([before, after], elsewhere=True)) == 2
    wrong = films.Turn({**after.held, 2: after.held[2] + 90}, after.pairs)
    with pytest.raises(ValueError, match=r"device 2 has \d+ in place 0, .* had that$"):
        films.arrived(before, wrong, elsewhere=True)


# -------------------------------------------------------------------- devices in a mesh


@pytest.mark.parametrize(("axis", "kind"), [("x", AUTO), ("y", EXPLICIT)])
def test_rings_along_either_axis_of_a_mesh_in_any_order(axis, kind):
    # devices are numbered by their place there, so the program's pairs fit them
    devices = np.array(jax.devices())[[7, 5, 3, 1, 0, 2, 4, 6]].reshape(2, 4)
    mesh = jax.sharding.Mesh(devices, ("x", "y"), axis_types=(kind,) * 2)
    turns = gather_turns(mesh, axis)
    places = np.arange(8).reshape(2, 4)
    for line in places.T if axis == "x" else places:
        every = np.stack([2 * line, 2 * line + 1], axis=1)
        for place in line:
            np.testing.assert_array_equal(turns[-1].held[place][0], every)
    following = np.roll(places, -1, axis="xy".index(axis))
    for before, after in itertools.pairwise(turns):
        assert {*after.pairs} == {*zip(places.flat, following.flat, strict=True)}
        assert len(films.arrived(before, after)) == 16
    assert len(films.frames(turns, shape=(2, 4))) == mesh.shape[axis]


def test_owners_are_summands_and_first_holders():
    for devices in (), (0,), (1, 5), (0, 2, 7):
        assert films.summands(sum(2.0**d for d in devices)) == devices
    turns = gather_turns(ring(4))
    found = [*map(films.first_holders(turns), turns[-1].held[0].ravel())]
    assert found == [(n // 2,) for n in range(8)]


# --------------------------------------------------------------------------- drawing


def places(drawing):
    """Return what can move, by device and place: where it is, its source, its words."""
    found = {}
    for group in parse(drawing).iter(f"{SVG}g"):
        if key := group.get("data-key"):
            at = tuple(map(float, re.findall(r"-?[\d.]+", group.get("transform"))))
            ends = key, group.get("data-from") or ""
            key, source = (tuple(map(int, re.findall(r"\d+", end))) for end in ends)
            words = "".join(t.text or "" for t in group.iter(f"{SVG}text"))
            found[key] = at, source or None, words
    return found


def test_a_frame_shows_where_each_number_came_from():
    """A thing keeps its place in all frames."""
    turns, spots = gather_turns(ring(4)), {}
    before = [turns[0], *turns[:-1]]
    for last, turn, drawing in zip(before, turns, films.frames(turns), strict=True):
        found, came = places(drawing), films.arrived(last, turn)
        held = {d: values.ravel() for d, values in turn.held.items()}
        there = {(d, p) for d in held for p in np.flatnonzero(~np.isnan(held[d]))}
        assert found.keys() == there
        for (device, place), (at, source, words) in found.items():
            assert spots.setdefault((device, place), at) == at
            assert words == f"{held[device][place]:g}"
            assert source == came.get((device, place))


def test_the_words_say_who_holds_what_and_who_sends_how_much():
    turns = gather_turns(ring(4))
    for unit, size in (4, "8 B"), (2, "4 B"):
        first, second = (each.words for each in films.frames(turns, unit=unit)[:2])
        assert "device 0 holds 0, 1, 6, 7; device 1 holds 0, 1, 2, 3; device" in second
        assert f"device 3 sends {size} to device 0" in second
        assert (first.count("sends"), second.count("sends")) == (0, 4)


def test_a_cell_is_in_equal_parts_in_the_colours_of_its_owners():
    drawing = films.cards({0: [films.Cell((1, 2, 5), "7")], 1: [None]})
    group = next(g for g in parse(drawing).iter(f"{SVG}g") if g.get("data-key"))
    strips = [*group.iter(f"{SVG}rect")]
    assert [s.get("fill") for s in strips] == [films.COLOURS[d] for d in (1, 2, 5)]
    widths = [float(strip.get("width")) for strip in strips]
    assert max(widths) == pytest.approx(min(widths), abs=0.01)
    assert "device 1 holds nothing" in drawing.words


@pytest.mark.parametrize("shape", [None, (2, 4), (1, 8)])
def test_cards_lie_apart_and_every_message_is_an_arrow_with_its_bytes(shape):
    messages = [films.Message(d, d ^ 4, (d, d ^ 1), "64 B") for d in range(8)]
    messages += [films.Message(0, 3, (0,), "8 B"), films.Message(1, 5, (3,), "8 B")]
    cell = [films.Cell((1,), "8"), None, films.Cell((2,), "1", pale=True)]
    root = parse(films.cards(dict.fromkeys(range(8), cell), messages, shape=shape))
    boxes = [
        [float(r.get(k)) for k in ("x", "y", "width", "height")]
        for r in root.findall(f"{SVG}rect[@rx='8']")
    ]
    assert len(boxes) == 8
    for (x, y, wide, high), (a, b, *_) in itertools.combinations(boxes, 2):
        assert abs(x - a) >= wide - 0.1 or abs(y - b) >= high - 0.1
    arrows = [g for g in root.iter(f"{SVG}g") if g.get("class") == "msg"]
    assert len({ElementTree.tostring(arrow) for arrow in arrows}) == len(messages)
    words = " ".join(t.text or "" for t in root.iter(f"{SVG}text"))
    assert all(message.label in words for message in messages)


@pytest.mark.parametrize(("labels", "count"), [(["4 B"] * 3, 1), (["4 B", "8 B"], 2)])
def test_bows_lie_inside_the_picture_and_a_size_of_all_stands_once_below(labels, count):
    cells = {device: [films.Cell((device,), "abcd")] for device in range(4)}
    ends = [(0, 3), (3, 0), (1, 2)][: len(labels)]
    sent = [films.Message(*e, (), label) for e, label in zip(ends, labels, strict=True)]
    svg = films.cards(cells, sent, shape=(1, 4)).svg
    top = float(re.search(r'viewBox="0 (\S+)', svg)[1])
    highest = min(float(y) for y in re.findall(r"Q\S+ (\S+) ", svg))
    assert top <= highest - 9  # half of a label
    assert len(re.findall(r">(?:each arrow: )?\d B<", svg)) == count


def test_devices_of_a_ring_lie_beside_their_neighbours():
    """The second row goes back, so that every message is a short arrow."""
    found = places(films.cards({d: [films.Cell((d,), str(d))] for d in range(8)}))
    spots = [found[d, 0][0] for d in range(8)]
    assert max(map(math.dist, spots, np.roll(spots, 1, axis=0))) < 130


# ------------------------------------------------------------------------------ films


def test_a_film_shows_all_frames_with_their_sentences_and_prints_them():
    turns = gather_turns(ring(4))
    says = [f"Turn {n} < 4." for n in range(4)]
    film = films.Film(zip(films.frames(turns), says, strict=True), "All & everywhere")
    html = film._repr_html_()
    assert not re.search(r"\bid=|<style|<script|href|url\(", html)  # it may stand twice
    root = ElementTree.fromstring(html)
    items = root.findall("ol/li")
    assert root.get("class") == "film"
    assert [item.find("p").text for item in items] == says
    assert all(item.find(f"{SVG}svg").get("aria-label") for item in items)
    assert root.find("figcaption").text == "All & everywhere"
    lines = [f"{n}. {say}" for n, say in enumerate(says, 1)]
    assert str(film).splitlines() == [*lines, "All & everywhere"]


@pytest.mark.parametrize(
    ("pictures", "message"),
    [([], "without frames"), ([("<b>", "One.")], r"without drawings.*One\.")],
)
def test_a_film_of_nothing_is_refused(pictures, message):
    with pytest.raises(ValueError, match=message):
        films.Film(pictures)
