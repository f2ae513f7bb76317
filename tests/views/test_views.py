"""Numbers stand in their blocks, and what is missing is hatched: both as JAX says."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from on_devices import AUTO, EXPLICIT, even, mesh_of, on
from pictures.test_pictures import SPECS, SVG, blocks, holders, outline, points

from examples.films import Film
from examples.meshes import bytes_missing
from examples.pictures import beside, draw
from examples.views import missing, numbers


def put(values, *spec):
    return jax.device_put(values, on(mesh_of(2, 4), *spec))


def words_of(group):
    """The texts in a block, with their places, line by line."""
    texts = group.findall(f"{SVG}text")
    words = [(float(t.get("x")), float(t.get("y")), t.text) for t in texts]
    return sorted(words, key=lambda word: (word[1], word[0]))


# ------------------------------------------------------------------- numbers in shards


@pytest.mark.parametrize("spec", SPECS[1:4], ids=str)
@pytest.mark.parametrize(("kind", "way"), [(AUTO, 1), (EXPLICIT, -1)])
def test_each_block_shows_the_numbers_of_its_shard_in_their_places(spec, kind, way):
    mesh = mesh_of(2, 4, devices=jax.devices()[::way], kind=kind)
    x = jax.device_put(np.arange(64).reshape(8, 8), on(mesh, *spec))
    stored = {shard.device.id: shard.data for shard in x.addressable_shards}
    for group, devices, _ in blocks(numbers(draw(x), x).svg):
        head, *words = words_of(group)
        rows = itertools.groupby(words, lambda word: word[1])
        table = [[int(word) for *_, word in row] for _, row in rows]
        for device in devices:
            np.testing.assert_array_equal(table, stored[device])
            assert any(word in head[2] for word in (str(device), "-"))


@pytest.mark.parametrize(
    ("spec", "shape"),
    [
        (jax.P("x", "y"), (8, 16)),
        (jax.P(("x", "y")), (24, 8)),
        (jax.P(None, ("y", "x")), (8, 16)),
        (jax.P(), (24, 8)),
    ],
    ids=str,
)
def test_numbers_lie_inside_their_block_and_apart(spec, shape):
    x = put(np.arange(np.prod(shape)).reshape(shape) % 100, *spec)
    for width in (226, 320):
        for group, *_ in blocks(numbers(draw(x), x).at(width)):
            words, (left, top, wide, high) = words_of(group), outline(group)
            for across, down, word in words:
                half = 3.3 * len(word)
                assert left <= across - half < across + half <= left + wide + 0.1
                assert top <= down - 9 < down <= top + high
            for (a, b, one), (c, d, other) in itertools.combinations(words, 2):
                aside = abs(a - c) >= 3.3 * (len(one) + len(other))
                assert aside or abs(b - d) >= 13


def test_terminals_and_screen_readers_get_a_line_a_device():
    x = put(np.arange(8, dtype=np.float32).reshape(2, 4), None, "x")
    view = numbers(draw(x), x)
    halves = "0 1 / 4 5", "2 3 / 6 7"
    lines = [f"device {d} holds {halves[d // 4]}" for d in range(8)]
    assert str(view).splitlines() == [draw(x).caption, *lines]
    assert all(line in view.words for line in lines)
    assert f'aria-label="{view.words}"' in view.svg


@pytest.mark.parametrize(
    ("dtype", "word"),
    [("bfloat16", "0.334"), ("int8", "1"), ("bool", "1"), ("complex64", "0.3333+0j")],
)
def test_numbers_are_written_short(dtype, word):
    x = jnp.full((), 1 if dtype in ("int8", "bool") else 1 / 3, dtype)
    assert numbers(draw(x), x).view.texts == {(): word}


def test_sums_that_are_due_differ_between_copies_and_all_are_written():
    with jax.set_mesh(mesh_of(2, 4)):
        a = jax.device_put(np.arange(4.0).reshape(1, 4), jax.P(None, "y"))
        b = jax.device_put(np.ones((4, 1)), jax.P("y"))
        due = jnp.matmul(a, b, out_sharding=jax.P(None, None, unreduced={"y"}))
        view = numbers(draw(due), due)
    assert view.view.texts == {(0, 0): "0|1|2|3"}
    assert "device 6 holds 2" in view.view.lines


@pytest.mark.parametrize(
    ("shape", "other", "message"),
    [
        ((8, 8), np.zeros((8, 8)), r"pass the array of shape \(8, 8\) that was drawn"),
        ((8, 8), jnp.zeros(8), r"pass the array of shape \(8, 8\) that was drawn"),
        ((64, 8), None, "such numbers do not fit: draw fewer"),
        ((64,), None, "such numbers do not fit: draw fewer"),
        ((2, 2, 2), None, r"draw a part, such as x\[0\]"),
    ],
)
def test_what_was_not_drawn_or_does_not_fit_is_refused(shape, other, message):
    x = put(np.zeros(shape), "x")
    with pytest.raises(ValueError, match=message):
        numbers(draw(x), x if other is None else other)
    with pytest.raises(ValueError, match=r"\(8,\) is not \(16,\): draw one shape"):
        missing(*(draw(put(np.zeros(n), "x")) for n in (8, 16)))


# ---------------------------------------------------------------------- what is missing

MOVES = [*zip(SPECS, SPECS[1:] + SPECS[:1], strict=True)][::2]


def assert_hatched(view, start, end):
    """Fail unless what each device gets is hatched, and what it has is not."""
    before, after = holders(start, view.shape), holders(end, view.shape)
    hatched, plain = np.zeros(view.shape, int), np.zeros(view.shape, int)
    for group, devices, part in blocks(view.svg):
        shapes = [each for each in group if each.tag in (f"{SVG}polygon", f"{SVG}path")]
        for device in devices:
            strip = shapes.pop(0)
            pale = strip.get("fill-opacity") == ".3"
            (hatched if pale else plain)[part] += 2**device
            if pale:
                assert_slanting_inside(shapes.pop(0), points(strip))
        assert not shapes
    np.testing.assert_array_equal(hatched, after & ~before)
    np.testing.assert_array_equal(plain, after & before)


def assert_slanting_inside(path, corners):
    """Fail unless the lines of a hatching slant and lie in its strip."""
    points = np.array(re.findall(r"[^ML ]+", path.get("d")), float).reshape(-1, 2)
    np.testing.assert_allclose(points[::2].sum(1), points[1::2].sum(1), atol=0.1)
    sides = np.roll(corners, -1, axis=0) - corners
    for point in points:
        turns = np.linalg.det(np.stack([sides, point - corners], axis=1))
        turns /= np.linalg.norm(sides, axis=1)
        assert (turns > -0.1).all() or (turns < 0.1).all()


@pytest.mark.parametrize(("start", "end"), MOVES, ids=str)
def test_hatched_is_what_a_device_holds_then_and_did_not_before(start, end):
    """The caption and the lines say how many bytes and elements these are."""
    x = put(np.zeros((16, 8), np.float32), *start)
    target = jax.NamedSharding(x.sharding.mesh, end)
    goes = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=target)
    view = missing(draw(x), draw(goes))
    assert_hatched(view, x.sharding, target)
    expected = bytes_missing(x, target)
    upto, most = "up to " * (len({*expected.values()}) > 1), max(expected.values())
    assert view.facts[-1] == f"hatched: {upto}{most} B a device to get"
    lines = [f"device {d} lacks {n // 4} elements" for d, n in sorted(expected.items())]
    assert str(view).splitlines()[1:] == lines
    assert all(line in view.words for line in lines)


def test_a_device_that_held_nothing_lacks_all():
    few, all_ = on(even(4), "x"), on(mesh_of(8), "x")
    assert_hatched(missing(draw(few, (16, 4)), draw(all_, (16, 4))), few, all_)
    one = jax.sharding.SingleDeviceSharding(jax.devices()[2])
    view = missing(draw(one, ()), draw(on(mesh_of(2, 4)), ()))
    assert [line.split()[3] for line in view.view.lines] == list("11011111")
    assert view.facts[-1] == "hatched: up to 1 elements a device to get"


def test_views_stand_in_rows_with_room_and_in_films():
    x = put(np.arange(16).reshape(4, 4) + 10, "x")
    view = numbers(draw(x), x)
    html = beside(*[view] * 3)._repr_html_()
    boxes = re.findall(r'class="picture" style="[^"]*width: (\d+)px', html)
    drawn = re.findall(r'<svg[^>]* width="(\d+)"', html)
    assert all(int(box) >= int(svg) for box, svg in zip(boxes, drawn, strict=True))
    assert view.svg in Film([(view, "Rows.")])._repr_html_()
