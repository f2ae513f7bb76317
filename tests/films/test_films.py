"""A film shows what the program did: other data, or another way round, are an error."""

import functools
import itertools
import math
import re
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType

from examples import films
from examples.charts import Span, timeline
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
    shards,
    summands,
)
from examples.pictures import draw

SVG = "{http://www.w3.org/2000/svg}"
RINGS = [(3, AxisType.Auto), (4, AxisType.Explicit)]
SIZES = 3, 4


def ring(size, kind=AxisType.Explicit, order=None):
    devices = [jax.devices()[i] for i in order or range(size)]
    return jax.make_mesh((size,), ("x",), (kind,), devices=devices)


def blockwise(f, mesh):
    """Make f, of what a device has, a step of a recording."""
    axes = jax.P(mesh.axis_names)
    return jax.shard_map(f, mesh=mesh, in_specs=axes, out_specs=axes)


def gather(size, each=1):
    """What each device has before an all-gather: its own numbers, `each` a block."""
    state = np.full((size, size, each), np.nan, np.float32)
    state[range(size), range(size)] = np.arange(size * each).reshape(size, each)
    return state


@functools.cache
def gather_turns(mesh, each=1, step=1, block=0, slot=0):
    """Record an all-gather in a ring; other values than the default ones are faults."""
    size = mesh.size
    on = [(i, (i + step) % size) for i in range(size)]

    def turn(count, have):
        rank = lax.axis_index("x")
        got = lax.ppermute(have[:, (rank - count + block) % size], "x", on)
        return have.at[:, (rank - count - 1 + slot) % size].set(got)

    steps = [blockwise(lambda have, n=n: turn(n, have), mesh) for n in range(size - 1)]
    state = jax.device_put(gather(size, each), jax.NamedSharding(mesh, jax.P("x")))
    return record(steps, state)


def scatter_turns(mesh, step=1):
    """Record a reduce-scatter in a ring: device d gives 2**d to every sum."""
    size = mesh.size
    on = [(i, (i + step) % size) for i in range(size)]

    def turn(count, have):
        rank = lax.axis_index("x")
        got = lax.ppermute(have[:, (rank - count - 1) % size], "x", on)
        return have.at[:, (rank - count - 2) % size].add(got)

    steps = [blockwise(lambda have, n=n: turn(n, have), mesh) for n in range(size - 1)]
    state = np.repeat(2.0 ** np.arange(size, dtype=np.float32)[:, None], size, 1)
    state = jax.device_put(state, jax.NamedSharding(mesh, jax.P("x")))
    return record(steps, state)


# ------------------------------------------------------------------------- recording


@pytest.mark.parametrize(("size", "kind"), RINGS)
def test_a_ring_gathers_what_its_neighbour_had_before(size, kind):
    turns = gather_turns(ring(size, kind), 2)
    everywhere = np.arange(size * 2)
    for values in turns[-1].held.values():
        np.testing.assert_array_equal(values.ravel(), everywhere)
    for before, turn in itertools.pairwise(turns):
        assert {*turn.pairs} == {(i, (i + 1) % size) for i in range(size)}
        came = arrived(before, turn)
        assert len(came) == size * 2
        for (to, place), (source, there) in came.items():
            assert (source, there) == ((to - 1) % size, place)
            assert math.isnan(before.held[to].ravel()[place])
            value = before.held[source].ravel()[place]
            assert value == turn.held[to].ravel()[place] == place


@pytest.mark.parametrize(("size", "kind"), RINGS)
def test_a_ring_adds_what_its_neighbour_had_before(size, kind):
    turns = scatter_turns(ring(size, kind))
    for device, values in turns[-1].held.items():
        assert values.ravel()[device] == 2**size - 1
    for before, turn in itertools.pairwise(turns):
        came = arrived(before, turn)
        assert len(came) == size
        for (to, place), (source, there) in came.items():
            assert (source, there) == ((to - 1) % size, place)
            added = turn.held[to].ravel()[place] - before.held[to].ravel()[place]
            assert added == before.held[source].ravel()[place]


def test_a_block_that_goes_round_takes_the_place_of_another():
    on = [(i, (i + 1) % 4) for i in range(4)]
    shift = blockwise(lambda block: lax.ppermute(block, "x", on), ring(4))
    state = jax.device_put(np.arange(8), jax.NamedSharding(ring(4), jax.P("x")))
    turns = record([shift] * 3, state)
    for before, turn in itertools.pairwise(turns):
        spots = itertools.product(range(4), (0, 1))
        assert arrived(before, turn) == {(d, p): ((d - 1) % 4, p) for d, p in spots}
    assert [*map(first_holders(turns), turns[-1].held[0].ravel())] == [(1,)] * 2


@pytest.mark.parametrize("fault", [{"block": 1}, {"step": -1}, {"slot": 1}], ids=str)
def test_a_wrong_block_and_a_ring_turned_round_are_errors(fault):
    """The program sends another block, the other way, or keeps it at another place."""
    turns = gather_turns(ring(3), **fault)
    with pytest.raises(
        ValueError, match=r"which sent to it, had that there|nothing new"
    ):
        frames(turns)


def test_a_sum_that_is_sent_the_other_way_is_an_error():
    turns = scatter_turns(ring(4), step=-1)
    with pytest.raises(ValueError, match="which sent to it, had that there"):
        frames(turns, summands)


def test_what_the_program_did_not_send_is_an_error():
    before, after, *_ = gather_turns(ring(3))
    turned = tuple((to, source) for source, to in after.pairs)
    with pytest.raises(ValueError, match="which sent to it, had that there"):
        arrived(before, Turn(after.held, turned))
    with pytest.raises(ValueError, match=r"none of the devices \[\], which sent"):
        arrived(before, Turn(after.held))


def test_messages_without_anything_new_are_an_error():
    turns = gather_turns(ring(4))
    again = Turn(turns[-1].held, turns[-1].pairs)
    with pytest.raises(ValueError, match="nothing new came with the messages"):
        arrived(turns[-1], again)
    assert arrived(turns[-1], Turn(turns[-1].held)) == {}


def test_what_changes_its_place_may_come_from_elsewhere_if_that_is_said():
    """A halo: the last number of a device becomes the first of the next one."""
    on = [(i, (i + 1) % 4) for i in range(4)]

    def borrow(have):
        return have.at[:, 0].set(lax.ppermute(have[:, -1], "x", on))

    state = np.arange(12, dtype=np.float32).reshape(4, 3)
    state[:, 0] = np.nan
    state = jax.device_put(state, jax.NamedSharding(ring(4), jax.P("x")))
    before, after = record([blockwise(borrow, ring(4))], state)
    with pytest.raises(ValueError, match="there: elsewhere=True permits"):
        arrived(before, after)
    came = arrived(before, after, elsewhere=True)
    assert came == {(to, 0): ((to - 1) % 4, 2) for to in range(4)}
    assert len(frames([before, after], elsewhere=True)) == 2


def test_what_nobody_had_is_an_error_also_from_elsewhere():
    before, after, *_ = gather_turns(ring(4))
    held = {device: values.copy() for device, values in after.held.items()}
    held[2].ravel()[1] = 99
    with pytest.raises(ValueError, match=r"device 2 has 99 in place 1, .* had that$"):
        arrived(before, Turn(held, after.pairs), elsewhere=True)


# -------------------------------------------------------------------- devices in a mesh

ORDER = 7, 5, 3, 1, 0, 2, 4, 6


@pytest.mark.parametrize(
    ("axis", "kind"), [("x", AxisType.Auto), ("y", AxisType.Explicit)]
)
def test_rings_along_either_axis_of_a_mesh_in_any_order(axis, kind):
    # devices are numbered by their place there, so the program's pairs fit them
    devices = np.array(jax.devices())[[*ORDER]].reshape(2, 4)
    mesh = jax.sharding.Mesh(devices, ("x", "y"), axis_types=(kind,) * 2)
    size = mesh.shape[axis]
    on = [(i, (i + 1) % size) for i in range(size)]

    def turn(count, have):
        rank = lax.axis_index(axis)
        got = lax.ppermute(have[:, (rank - count) % size], axis, on)
        return have.at[:, (rank - count - 1) % size].set(got)

    state = np.full((8, size), np.nan, np.float32)
    places = np.arange(8).reshape(2, 4)
    for place in range(8):
        state[place, divmod(place, 4)[axis == "y"]] = place
    state = jax.device_put(state, jax.NamedSharding(mesh, jax.P(("x", "y"))))
    turns = record(
        [blockwise(lambda have, n=n: turn(n, have), mesh) for n in range(size - 1)],
        state,
    )
    for place, values in turns[-1].held.items():
        rank = divmod(place, 4)[axis == "x"]
        line = places[:, rank] if axis == "x" else places[divmod(place, 4)[0]]
        np.testing.assert_array_equal(values.ravel(), line)
    for before, after in itertools.pairwise(turns):
        rows = (
            np.roll(places, -1, axis=0 if axis == "x" else 1) == p for p in range(8)
        )
        ends = {(int(places[row][0]), p) for p, row in enumerate(rows)}
        assert {*after.pairs} == ends
        assert len(arrived(before, after)) == 8
    assert len(frames(turns, shape=(2, 4))) == size


def test_shards_of_some_devices_are_numbered_from_0():
    some = jax.make_mesh((3,), ("x",), devices=jax.devices()[4:7])
    x = jax.device_put(np.arange(6), jax.NamedSharding(some, jax.P("x")))
    assert {k: v.tolist() for k, v in shards(x).items()} == {
        0: [0, 1],
        1: [2, 3],
        2: [4, 5],
    }
    there = jax.device_put(np.arange(2), jax.devices()[3])
    assert {k: v.tolist() for k, v in shards(there).items()} == {0: [0, 1]}


def test_each_message_of_a_turn_is_recorded():
    mesh = ring(4)

    def both_ways(have):
        left = lax.ppermute(have[:, 1], "x", [(i, (i + 1) % 4) for i in range(4)])
        right = lax.ppermute(have[:, 1], "x", [(i, (i - 1) % 4) for i in range(4)])
        return have.at[:, 0].set(left).at[:, 2].set(right)

    state = np.full((4, 3), np.nan, np.float32)
    state[:, 1] = range(4)
    state = jax.device_put(state, jax.NamedSharding(mesh, jax.P("x")))
    before, after = record([blockwise(both_ways, mesh)], state)
    assert len(after.pairs) == 8
    came = arrived(before, after, elsewhere=True)
    assert {(to, p): s for (to, p), (s, _) in came.items()} == {
        (to, p): (to - 1) % 4 if p == 0 else (to + 1) % 4
        for to in range(4)
        for p in (0, 2)
    }


def test_summands_are_the_devices_that_gave_powers_of_two():
    for devices in itertools.chain.from_iterable(
        itertools.combinations(range(8), n) for n in range(4)
    ):
        assert summands(sum(2.0**d for d in devices)) == devices


# --------------------------------------------------------------------------- drawing


def parse(drawing):
    return ElementTree.fromstring(drawing.svg)


def places(drawing):
    """The things that can move: where each of them is, and came from."""
    found = {}
    for group in parse(drawing).iter(f"{SVG}g"):
        if key := group.get("data-key"):
            at = tuple(map(float, re.findall(r"-?[\d.]+", group.get("transform"))))
            words = "".join(t.text or "" for t in group.iter(f"{SVG}text"))
            found[key] = at, group.get("data-from"), words
    return found


@pytest.mark.parametrize("size", SIZES)
def test_a_frame_shows_what_is_held_and_where_it_came_from(size):
    turns = gather_turns(ring(size), 2)
    for before, turn, drawing in zip(
        [turns[0], *turns], turns, frames(turns), strict=False
    ):
        found = places(drawing)
        came = arrived(before, turn) if turn.pairs else {}
        assert found.keys() == {
            f"{d}.{p}"
            for d, values in turn.held.items()
            for p in np.flatnonzero(~np.isnan(values.ravel()))
        }
        for key, (_, source, words) in found.items():
            device, place = map(int, key.split("."))
            assert words == f"{turn.held[device].ravel()[place]:g}"
            start = came.get((device, place))
            assert source == (f"{start[0]}.{start[1]}" if start else None)
        missing = sum(int(np.isnan(v).sum()) for v in turn.held.values())
        hatched = drawing.svg.count('stroke-opacity=".6"/><path')
        assert hatched >= missing


def test_a_thing_keeps_its_place_in_all_frames():
    spots = {}
    for drawing in frames(gather_turns(ring(4))):
        for key, (at, *_) in places(drawing).items():
            assert spots.setdefault(key, at) == at


def test_a_cell_is_in_the_colours_of_its_owners():
    drawing = cards({0: [Cell((1, 2, 5), "7")], 1: [None]})
    group = next(g for g in parse(drawing).iter(f"{SVG}g") if g.get("data-key"))
    fills = [rect.get("fill") for rect in group.iter(f"{SVG}rect")]
    assert fills == [films.COLOURS[d] for d in (1, 2, 5)]
    widths = [float(rect.get("width")) for rect in group.iter(f"{SVG}rect")]
    assert max(widths) == pytest.approx(min(widths), abs=0.01)


def test_the_words_say_who_holds_what_and_who_sends():
    turns = gather_turns(ring(3), 2)
    words = frames(turns)[1].words
    assert "device 0 holds 0, 1, 4, 5; device 1 holds 0, 1, 2, 3; device 2" in words
    assert "device 2 sends 8 B to device 0" in words
    assert words.count("sends") == 3
    assert frames(turns, unit=2)[1].words.count("sends 4 B") == 3
    assert "sends" not in frames(turns)[0].words
    assert "device 1 holds nothing" in cards({0: [Cell((0,), "a")], 1: [None]}).words


@pytest.mark.parametrize(
    ("shape", "count"), [(None, 3), (None, 8), ((1, 8), 4), ((4, 2), 8)]
)
def test_cards_lie_apart_and_inside(shape, count):
    cells = {
        d: [Cell((d,), "8"), None, Cell((d,), "1", pale=True)] for d in range(count)
    }
    messages = [Message(d, (d + 1) % count, (d,), f"{d} B") for d in range(count)]
    root = parse(cards(cells, messages, shape=shape))
    left, top, wide, high = map(float, root.get("viewBox").split())
    frames_ = [
        [float(r.get(k)) for k in ("x", "y", "width", "height")]
        for r in root.findall(f"{SVG}rect")
        if r.get("rx") == "8"
    ]
    assert len(frames_) == count
    for x, y, w, h in frames_:
        assert left - 0.1 <= x
        assert x + w <= left + wide + 0.1
        assert top <= y
        assert y + h <= top + high
    for (x, y, w, h), (a, b, _, _) in itertools.combinations(frames_, 2):
        assert abs(x - a) >= w - 0.1 or abs(y - b) >= h - 0.1


def test_devices_of_a_ring_lie_beside_their_neighbours():
    """The second row goes back, so that every message is a short arrow."""
    found = {}
    root = parse(cards({d: [Cell((d,), str(d))] for d in range(8)}))
    for group in root.iter(f"{SVG}g"):
        if group.get("data-key"):
            found[int(group.get("data-key")[0])] = [
                float(n) for n in re.findall(r"-?[\d.]+", group.get("transform"))
            ]
    near = [math.dist(found[d], found[(d + 1) % 8]) for d in range(8)]
    assert max(near) < 130
    others = [math.dist(found[d], found[(d + 3) % 8]) for d in range(8)]
    assert max(near) <= min(others)
    assert sum(near) < sum(others) / 1.5


@pytest.mark.parametrize(
    "messages",
    [
        [Message(d, (d + 1) % 8, (d,), "8 B") for d in range(8)],
        [Message(d, d ^ 4, (d, d ^ 1), "64 B") for d in range(8)],
        [Message(0, 3, (0,), "8 B"), Message(1, 5, (1,), "64 B")],
        [Message(3, 0, (3,), "8 B"), Message(0, 3, (0,), "8 B")],
    ],
)
@pytest.mark.parametrize("shape", [None, (2, 4)])
def test_every_message_is_an_arrow_with_its_bytes(messages, shape):
    cells = {d: [Cell((d,), str(d))] for d in range(8)}
    root = parse(cards(cells, messages, shape=shape))
    arrows = [g for g in root.iter(f"{SVG}g") if g.get("class") == "msg"]
    assert len(arrows) == len({ElementTree.tostring(arrow) for arrow in arrows})
    assert len(arrows) == len(messages)
    words = " ".join(t.text or "" for t in root.iter(f"{SVG}text"))
    assert all(message.label in words for message in messages)


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


def test_a_film_may_stand_twice_on_a_page():
    """It has no ids, no styles and no scripts of its own."""
    turns = gather_turns(ring(4))
    film = Film(zip(frames(turns), "abcd", strict=True))
    assert not re.search(r"\bid=|<style|<script|href|url\(", film._repr_html_())
    assert "figcaption" not in film._repr_html_()


def test_a_frame_may_be_a_picture_or_several_drawings():
    x = jax.ShapeDtypeStruct(
        (8, 8), np.float32, sharding=jax.NamedSharding(ring(8), jax.P("x"))
    )
    picture, lanes = draw(x), timeline({"link": [Span(0, 1)]}, narrow=True)
    film = Film([(picture, "One."), ([cards({0: [None]}), lanes], "Two.")])
    assert picture.svg in film._repr_html_()
    assert lanes.svg in film._repr_html_()
    assert film._repr_html_().count("<svg") >= 3
    assert str(film) == "1. One.\n2. Two."


@pytest.mark.parametrize(
    ("pictures", "message"),
    [([], "without frames"), ([("<b>", "One.")], r"without drawings.*One\.")],
)
def test_a_film_of_nothing_is_refused(pictures, message):
    with pytest.raises(ValueError, match=message):
        Film(pictures)


def test_jnp_states_are_recorded_as_numpy():
    turns = record([lambda x: x + 1], jnp.zeros(4))
    assert [t.held[0].tolist() for t in turns] == [[0] * 4, [1] * 4]
    assert turns[1].pairs == ()
