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
from jax.sharding import AxisType
from on_devices import mesh_of, on
from pictures.test_pictures import SVG, parse

from examples import films
from examples.films import (
    Cell,
    Film,
    Message,
    Turn,
    arrived,
    cards,
    first_holders,
    frames,
    record,
    summands,
)


def ring(size, kind=AxisType.Explicit):
    return mesh_of(size, devices=jax.devices()[:size], kind=kind)


def blockwise(f, mesh):
    """Make f, of what a device has, a step of a recording."""
    axes = jax.P(mesh.axis_names)
    return jax.shard_map(f, mesh=mesh, in_specs=axes, out_specs=axes)


def put(state, mesh):
    return jax.device_put(state, on(mesh, mesh.axis_names))


def steps(mesh, axis="x", add=False, fault=(1, 0, 0)):
    """All turns of a ring: of an all-gather, or of a reduce-scatter, which adds.

    fault: how far numbers go, and how far off the right ones are block and place.
    """
    size, (far, block, place) = mesh.shape[axis], fault
    pairs = [(i, (i + far) % size) for i in range(size)]

    def turn(count, have):
        rank = lax.axis_index(axis) - (count + add)
        got = lax.ppermute(have[:, (rank + block) % size], axis, pairs)
        there = have.at[:, (rank - 1 + place) % size]
        return there.add(got) if add else there.set(got)

    return [blockwise(lambda have, n=n: turn(n, have), mesh) for n in range(size - 1)]


@functools.cache
def gather_turns(mesh, axis="x", fault=(1, 0, 0)):
    """Record an all-gather: each device begins with two numbers of its own."""
    state = np.full((mesh.size, mesh.shape[axis], 2), np.nan, np.float32)
    ranks = np.indices(mesh.devices.shape)[mesh.axis_names.index(axis)].ravel()
    state[range(mesh.size), ranks] = np.arange(mesh.size * 2).reshape(-1, 2)
    return record(steps(mesh, axis, fault=fault), put(state, mesh))


# ------------------------------------------------------------------------- recording


def test_a_ring_adds_what_its_neighbour_had_before():
    """In a reduce-scatter device d gives 2**d to every sum."""
    mesh = ring(3, AxisType.Auto)
    state = np.repeat(2.0 ** np.arange(3)[:, None], 3, 1).astype(np.float32)
    turns = record(steps(mesh, add=True), put(state, mesh))
    for device, values in turns[-1].held.items():
        assert values.ravel()[device] == 2**3 - 1
    for before, turn in itertools.pairwise(turns):
        came = arrived(before, turn)
        assert len(came) == 3
        for (to, place), (source, there) in came.items():
            assert (source, there) == ((to - 1) % 3, place)
            added = turn.held[to].ravel()[place] - before.held[to].ravel()[place]
            assert added == before.held[source].ravel()[place]


@pytest.mark.parametrize("fault", [(1, 1, 0), (-1, 0, 0), (1, 0, 1)], ids=str)
def test_a_wrong_block_and_a_ring_turned_round_are_errors(fault):
    """The program sends another block, the other way, or keeps it at another place."""
    turns, words = gather_turns(ring(3), fault=fault), "had that there|nothing new"
    with pytest.raises(ValueError, match=words):
        frames(turns)


def test_what_was_not_sent_and_messages_without_anything_new_are_errors():
    before, after, *_, last = gather_turns(ring(4))
    turned = tuple((to, source) for source, to in after.pairs)
    with pytest.raises(ValueError, match="which sent to it, had that there"):
        arrived(before, Turn(after.held, turned))
    with pytest.raises(ValueError, match="nothing new came with the messages"):
        arrived(last, last)
    assert arrived(last, Turn(last.held)) == {}


def test_what_changes_its_place_may_come_from_elsewhere_if_that_is_allowed():
    """A halo: device d borrows the first number of d + 1, and the last of d - 1."""

    def borrow(have):
        up, down = [(i, (i + 1) % 4) for i in range(4)], [(i, i - 1) for i in (1, 2, 3)]
        have = have.at[:, 3].set(lax.ppermute(have[:, 1], "x", [*down, (0, 3)]))
        return have.at[:, 0].set(lax.ppermute(have[:, 2], "x", up))

    state = np.arange(16, dtype=np.float32).reshape(4, 4)
    state[:, [0, 3]] = np.nan
    before, after = record([blockwise(borrow, ring(4))], put(state, ring(4)))
    assert len(after.pairs) == 8
    with pytest.raises(ValueError, match="there: elsewhere=True permits"):
        arrived(before, after)
    came = arrived(before, after, elsewhere=True)
    lower = {(to, 0): ((to - 1) % 4, 2) for to in range(4)}
    assert came == lower | {(to, 3): ((to + 1) % 4, 1) for to in range(4)}
    assert len(frames([before, after], elsewhere=True)) == 2
    wrong = Turn({**after.held, 2: after.held[2] + 90}, after.pairs)
    with pytest.raises(ValueError, match=r"device 2 has \d+ in place 0, .* had that$"):
        arrived(before, wrong, elsewhere=True)


# -------------------------------------------------------------------- devices in a mesh


@pytest.mark.parametrize(
    ("axis", "kind"), [("x", AxisType.Auto), ("y", AxisType.Explicit)]
)
def test_rings_along_either_axis_of_a_mesh_in_any_order(axis, kind):
    # devices are numbered by their place there, so the program's pairs fit them
    devices = np.array(jax.devices())[[7, 5, 3, 1, 0, 2, 4, 6]].reshape(2, 4)
    mesh = jax.sharding.Mesh(devices, ("x", "y"), axis_types=(kind,) * 2)
    turns = gather_turns(mesh, axis)
    places = np.arange(8).reshape(2, 4)
    for place, values in turns[-1].held.items():
        at = divmod(place, 4)
        line = places[:, at[1]] if axis == "x" else places[at[0]]
        pairs = values.reshape(-1, 2)
        np.testing.assert_array_equal(pairs, np.stack([2 * line, 2 * line + 1], 1))
    following = np.roll(places, -1, axis="xy".index(axis))
    for before, after in itertools.pairwise(turns):
        assert {*after.pairs} == {*zip(places.flat, following.flat, strict=True)}
        came = arrived(before, after)
        assert len(came) == 16
        assert all((source, to) in after.pairs for (to, _), (source, _) in came.items())
    assert len(frames(turns, shape=(2, 4))) == mesh.shape[axis]


def test_owners_are_summands_and_first_holders():
    for devices in (), (0,), (1, 5), (0, 2, 7):
        assert summands(sum(2.0**d for d in devices)) == devices
    turns = gather_turns(ring(4))
    found = [*map(first_holders(turns), turns[-1].held[0].ravel())]
    assert found == [(n // 2,) for n in range(8)]


# --------------------------------------------------------------------------- drawing


def places(drawing):
    """The things that can move: where each of them is, and came from."""
    found = {}
    for group in parse(drawing).iter(f"{SVG}g"):
        if key := group.get("data-key"):
            at = tuple(map(float, re.findall(r"-?[\d.]+", group.get("transform"))))
            words = "".join(t.text or "" for t in group.iter(f"{SVG}text"))
            found[key] = at, group.get("data-from"), words
    return found


def test_a_frame_shows_where_each_number_came_from():
    """A thing keeps its place in all frames."""
    turns, spots = gather_turns(ring(4)), {}
    before = [turns[0], *turns[:-1]]
    for last, turn, drawing in zip(before, turns, frames(turns), strict=True):
        found, came = places(drawing), arrived(last, turn)
        assert found.keys() == {
            f"{d}.{p}"
            for d, values in turn.held.items()
            for p in np.flatnonzero(~np.isnan(values.ravel()))
        }
        for key, (at, source, words) in found.items():
            assert spots.setdefault(key, at) == at
            device, place = map(int, key.split("."))
            assert words == f"{turn.held[device].ravel()[place]:g}"
            start = came.get((device, place))
            assert source == (f"{start[0]}.{start[1]}" if start else None)


def test_a_cell_is_in_equal_parts_in_the_colours_of_its_owners():
    drawing = cards({0: [Cell((1, 2, 5), "7")], 1: [None]})
    group = next(g for g in parse(drawing).iter(f"{SVG}g") if g.get("data-key"))
    strips = [*group.iter(f"{SVG}rect")]
    assert [s.get("fill") for s in strips] == [films.COLOURS[d] for d in (1, 2, 5)]
    widths = [float(strip.get("width")) for strip in strips]
    assert max(widths) == pytest.approx(min(widths), abs=0.01)
    assert "device 1 holds nothing" in drawing.words


def test_the_words_say_who_holds_what_and_who_sends():
    turns = gather_turns(ring(4))
    words = frames(turns)[1].words
    assert "device 0 holds 0, 1, 6, 7; device 1 holds 0, 1, 2, 3; device 2" in words
    assert "device 3 sends 8 B to device 0" in words
    assert words.count("sends") == 4
    assert frames(turns, unit=2)[1].words.count("sends 4 B") == 4
    assert "sends" not in frames(turns)[0].words


@pytest.mark.parametrize("shape", [None, (2, 4), (1, 8)])
def test_cards_lie_apart_and_every_message_is_an_arrow_with_its_bytes(shape):
    messages = [Message(d, d ^ 4, (d, d ^ 1), "64 B") for d in range(8)]
    messages += [Message(0, 3, (0,), "8 B"), Message(1, 5, (3,), "8 B")]
    cell = [Cell((1,), "8"), None, Cell((2,), "1", pale=True)]
    root = parse(cards(dict.fromkeys(range(8), cell), messages, shape=shape))
    boxes = [r for r in root.findall(f"{SVG}rect") if r.get("rx") == "8"]
    boxes = [[float(r.get(k)) for k in ("x", "y", "width", "height")] for r in boxes]
    assert len(boxes) == 8
    for (x, y, wide, high), (a, b, *_) in itertools.combinations(boxes, 2):
        assert abs(x - a) >= wide - 0.1 or abs(y - b) >= high - 0.1
    arrows = [g for g in root.iter(f"{SVG}g") if g.get("class") == "msg"]
    assert len({ElementTree.tostring(arrow) for arrow in arrows}) == len(messages)
    words = " ".join(t.text or "" for t in root.iter(f"{SVG}text"))
    assert all(message.label in words for message in messages)


def test_devices_of_a_ring_lie_beside_their_neighbours():
    """The second row goes back, so that every message is a short arrow."""
    found = places(cards({d: [Cell((d,), str(d))] for d in range(8)}))
    spots = [found[f"{d}.0"][0] for d in range(8)]
    assert max(math.dist(spots[d], spots[(d + 1) % 8]) for d in range(8)) < 130


# ------------------------------------------------------------------------------ films


def test_a_film_shows_all_frames_with_their_sentences_and_prints_them():
    turns = gather_turns(ring(4))
    says = [f"Turn {n} < 4." for n in range(4)]
    film = Film(zip(frames(turns), says, strict=True), "All & everywhere")
    html = film._repr_html_()
    root = ElementTree.fromstring(html)
    items = root.findall("ol/li")
    assert root.get("class") == "film"
    assert [item.find("p").text for item in items] == says
    assert all(item.find(f"{SVG}svg").get("aria-label") for item in items)
    assert root.find("figcaption").text == "All & everywhere"
    lines = [f"{n}. {say}" for n, say in enumerate(says, 1)]
    assert str(film).splitlines() == [*lines, "All & everywhere"]
    # it may stand twice on a page
    assert not re.search(r"\bid=|<style|<script|href|url\(", html)


@pytest.mark.parametrize(
    ("pictures", "message"),
    [([], "without frames"), ([("<b>", "One.")], r"without drawings.*One\.")],
)
def test_a_film_of_nothing_is_refused(pictures, message):
    with pytest.raises(ValueError, match=message):
        Film(pictures)
