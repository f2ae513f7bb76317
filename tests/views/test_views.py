"""Numbers stand in their blocks, and what is missing is hatched: both as JAX says."""

import itertools
import re
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import even, mesh_of, on
from pictures.test_pictures import SPECS, SVG, holders

from examples.films import Film
from examples.meshes import bytes_missing
from examples.pictures import beside, draw
from examples.views import missing, numbers


def placed(values, *spec):
    return jax.device_put(values, on(mesh_of(2, 4), *spec))


def shown(svg):
    """Of each block: its frame, the texts in it with their places, and its title."""
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        frame = next(r for r in group.iter(f"{SVG}rect") if r.get("stroke"))
        rect = [float(frame.get(key)) for key in ("x", "y", "width", "height")]
        texts = group.findall(f"{SVG}text")
        words = [(float(t.get("x")), float(t.get("y")), t.text) for t in texts]
        yield rect, words, group.find(f"{SVG}title").text


# ------------------------------------------------------------------- numbers in shards


@pytest.mark.parametrize("spec", SPECS[1:4], ids=str)
@pytest.mark.parametrize(
    ("kind", "way"), [(AxisType.Auto, 1), (AxisType.Explicit, -1)], ids=["on", "back"]
)
def test_each_block_shows_the_numbers_of_its_shard_in_their_places(spec, kind, way):
    mesh = mesh_of(2, 4, devices=jax.devices()[::way], kind=kind)
    x = jax.device_put(np.arange(64).reshape(8, 8), on(mesh, *spec))
    held = {shard.device.id: np.asarray(shard.data) for shard in x.addressable_shards}
    for _, (head, *words), title in shown(numbers(draw(x), x).svg):
        words.sort(key=lambda word: (word[1], word[0]))
        rows = itertools.groupby(words, lambda word: word[1])
        table = [[int(word) for *_, word in row] for _, row in rows]
        for device in map(int, re.findall(r"\d+", title.split("[")[0])):
            np.testing.assert_array_equal(table, held[device])
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
    x = placed(np.arange(np.prod(shape)).reshape(shape) % 100, *spec)
    for width in (226, 320):
        for (x0, y0, wide, high), words, _ in shown(numbers(draw(x), x).at(width)):
            for across, down, word in words:
                assert x0 <= across - 3.3 * len(word)
                assert across + 3.3 * len(word) <= x0 + wide + 0.1
                assert y0 <= down - 9
                assert down <= y0 + high
            for (a, b, one), (c, d, other) in itertools.combinations(words, 2):
                aside = abs(a - c) >= 3.3 * (len(one) + len(other))
                assert aside or abs(b - d) >= 13


def test_a_vector_is_one_line_and_a_number_one_word():
    v = placed(np.arange(16), "y")
    lines = [{y for _, y, _ in words} for _, words, _ in shown(numbers(draw(v), v).svg)]
    assert [len(line) for line in lines] == [2] * 4  # the devices, and their numbers
    one = placed(np.float32(0.25))
    ((_, words, _),) = shown(numbers(draw(one), one).svg)
    assert [word for *_, word in words] == ["0-7", "0.25"]


def test_terminals_and_screen_readers_get_a_line_a_device():
    x = placed(np.arange(8, dtype=np.float32).reshape(2, 4), None, "x")
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
    whole = dtype in ("int8", "bool")
    x = jnp.full(1, 1 if whole else 1 / 3, dtype)
    assert numbers(draw(x), x).view.texts == {(0,): word}


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
    x = placed(np.zeros(shape), "x")
    with pytest.raises(ValueError, match=message):
        numbers(draw(x), x if other is None else other)


# ---------------------------------------------------------------------- what is missing

MOVES = [*zip(SPECS, SPECS[1:] + SPECS[:1], strict=True)][::2]


def hatched(view):
    """For each device: the elements that are drawn hatched, and those that are not."""
    lacks = {device: np.zeros(view.shape, int) for device in view.boxes}
    has = {device: np.zeros(view.shape, int) for device in view.boxes}
    for group in ElementTree.fromstring(view.svg).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title").text
        spans = re.search(r"\[(.*)\]", title)[1].split(", ")
        part = tuple(slice(*map(int, span.split(":"))) for span in spans)
        ids = map(int, re.findall(r"\d+", title.split("[")[0]))
        shapes = [each for each in group if each.tag in (f"{SVG}polygon", f"{SVG}path")]
        for device in ids:
            strip = shapes.pop(0)
            pale = strip.get("fill-opacity") == ".3"
            assert pale == (bool(shapes) and shapes[0].tag == f"{SVG}path")
            shapes = shapes[1:] if pale else shapes
            (lacks if pale else has)[device][part] += 1
    return lacks, has


def assert_hatched(view, start, end):
    """Fail unless what each device gets is hatched, and what it has is not."""
    lacks, has = hatched(view)
    before, after = holders(start, view.shape), holders(end, view.shape)
    for device in range(8):
        np.testing.assert_array_equal(lacks[device], (after & ~before) >> device & 1)
        np.testing.assert_array_equal(has[device], (after & before) >> device & 1)


@pytest.mark.parametrize(("start", "end"), MOVES, ids=str)
def test_hatched_is_what_a_device_holds_then_and_did_not_before(start, end):
    """The caption and the lines say how many bytes and elements these are."""
    x = placed(np.zeros((16, 8), np.float32), *start)
    target = jax.NamedSharding(x.sharding.mesh, end)
    goes = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=target)
    view = missing(draw(x), draw(goes))
    assert_hatched(view, x.sharding, target)
    expected = bytes_missing(x, target)
    upto = "up to " if len({*expected.values()}) > 1 else ""
    most = max(expected.values())
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


def test_hatching_lies_inside_its_strip():
    before, after = (placed(np.zeros((16, 8)), *spec) for spec in (["x"], [None, "y"]))
    view, found = missing(draw(before), draw(after)), 0
    for group in ElementTree.fromstring(view.svg).iter(f"{SVG}g"):
        strips = group.findall(f"{SVG}polygon")
        pale = [strip for strip in strips if strip.get("fill-opacity")]
        for strip, path in zip(pale, group.findall(f"{SVG}path"), strict=True):
            corners = np.array(re.findall(r"-?[\d.]+", strip.get("points")), float)
            corners = corners.reshape(-1, 2)
            pieces = re.findall(r"M(\S+) (\S+)L(\S+) (\S+?)(?=M|$)", path.get("d"))
            assert len(pieces) >= 5
            edges = np.roll(corners, -1, axis=0) - corners
            for x1, y1, x2, y2 in np.array(pieces, float):
                assert x1 + y1 == pytest.approx(x2 + y2, abs=0.1)  # slanting
                for point in ((x1, y1), (x2, y2)):
                    to = point - corners
                    turns = edges[:, 0] * to[:, 1] - edges[:, 1] * to[:, 0]
                    turns /= np.linalg.norm(edges, axis=1)
                    assert (turns > -0.1).all() or (turns < 0.1).all()
                    found += 1
    assert found


def test_two_shapes_are_no_move():
    small, large = (draw(placed(np.zeros(n), "x")) for n in (8, 16))
    with pytest.raises(ValueError, match=r"\(8,\) is not \(16,\): draw one shape"):
        missing(small, large)


# -------------------------------------------------------------------------------- both


def test_views_stand_in_rows_at_one_scale_and_in_films():
    x = placed(np.arange(16).reshape(4, 4), "x")
    y = placed(np.arange(16).reshape(4, 4), None, "y")
    views = numbers(draw(x), x), numbers(draw(y), y)
    html = beside(views[0], "→", views[1])._repr_html_()
    sizes = re.findall(r'<svg[^>]* width="(\d+)"', html)
    assert len(sizes) == 2
    assert int(sizes[0]) == pytest.approx(int(sizes[1]), rel=0.3)
    film = Film([(views[0], "Rows."), (missing(draw(x), draw(y)), "Columns.")])
    assert film._repr_html_().count("<svg") == 2
    assert not re.search(r"\bid=|<style|<script|href|url\(", film._repr_html_())
    assert views[0].svg in film._repr_html_()


def test_in_a_grid_of_three_numbers_have_their_room():
    x = placed(np.arange(16) + 10, "y")
    html = beside(*[numbers(draw(x), x)] * 3)._repr_html_()
    boxes = re.findall(r'class="picture" style="[^"]*width: (\d+)px', html)
    drawn = re.findall(r'<svg[^>]* width="(\d+)"', html)
    assert all(int(box) >= int(svg) for box, svg in zip(boxes, drawn, strict=True))
