"""Numbers stand in their blocks, and what is missing is hatched: both as JAX says."""

import itertools
import re
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from pictures.test_pictures import SPECS, SVG

from examples.films import Film
from examples.meshes import bytes_missing
from examples.pictures import beside, draw
from examples.views import missing, numbers


def make_mesh(shape=(2, 4), some=slice(None), kind=AxisType.Explicit, names="xyz"):
    names = tuple(names[: len(shape)])
    kinds = (kind,) * len(shape)
    return jax.make_mesh(shape, names, kinds, devices=jax.devices()[some])


def placed(values, spec, mesh=None):
    return jax.device_put(values, jax.NamedSharding(mesh or make_mesh(), spec))


def shown(svg):
    """Of each block: its frame, the texts in it with their places, and its title."""
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        frame = next(r for r in group.iter(f"{SVG}rect") if r.get("stroke"))
        rect = [float(frame.get(key)) for key in ("x", "y", "width", "height")]
        texts = group.findall(f"{SVG}text")
        words = [(float(t.get("x")), float(t.get("y")), t.text) for t in texts]
        yield rect, words, group.find(f"{SVG}title").text


# ------------------------------------------------------------------- numbers in shards


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize(
    ("kind", "some"),
    [(AxisType.Auto, slice(None)), (AxisType.Explicit, slice(None, None, -1))],
    ids=["on", "back"],
)
def test_each_block_shows_the_numbers_of_its_shard_in_their_places(spec, kind, some):
    x = placed(np.arange(64).reshape(8, 8), spec, make_mesh((2, 4), some, kind))
    held = {shard.device.id: np.asarray(shard.data) for shard in x.addressable_shards}
    for _, (head, *words), title in shown(numbers(draw(x), x).svg):
        rows = itertools.groupby(
            sorted(words, key=lambda w: (w[1], w[0])), lambda w: w[1]
        )
        table = [[int(word) for *_, word in row] for _, row in rows]
        for device in map(int, re.findall(r"\d+", title.split("[")[0])):
            np.testing.assert_array_equal(table, held[device])
            assert any(word in head[2] for word in (str(device), "-"))


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("shape", [(8, 16), (24, 8)])
def test_numbers_lie_inside_their_block_and_apart(spec, shape):
    x = placed(np.arange(np.prod(shape)).reshape(shape) % 100, spec)
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


@pytest.mark.parametrize("n", [8, 16])
def test_a_vector_is_one_line_and_a_number_one_word(n):
    v = placed(np.arange(n), jax.P("y"))
    lines = [{y for _, y, _ in words} for _, words, _ in shown(numbers(draw(v), v).svg)]
    assert [len(line) for line in lines] == [2] * 4  # the devices, and their numbers
    one = placed(np.float32(0.25), jax.P())
    ((_, words, _),) = shown(numbers(draw(one), one).svg)
    assert [word for *_, word in words] == ["0-7", "0.25"]


def test_terminals_and_screen_readers_get_a_line_a_device():
    x = placed(np.arange(8, dtype=np.float32).reshape(2, 4), jax.P(None, "x"))
    view = numbers(draw(x), x)
    halves = "0 1 / 4 5", "2 3 / 6 7"
    lines = [f"device {d} holds {halves[d // 4]}" for d in range(8)]
    assert str(view).splitlines() == [draw(x).caption, *lines]
    assert all(f"{line}" in view.words for line in lines)
    assert f'aria-label="{view.words}"' in view.svg


@pytest.mark.parametrize(
    ("dtype", "word"),
    [
        ("bfloat16", "0.334"),
        ("int8", "1"),
        ("bool", "1"),
        ("complex64", "0.3333+0j"),
    ],
)
def test_numbers_are_written_short(dtype, word):
    whole = dtype in ("int8", "bool")
    x = jnp.full(1, 1 if whole else 1 / 3, dtype)
    assert numbers(draw(x), x).view.texts == {(0,): word}


def test_sums_that_are_due_differ_between_copies_and_all_are_written():
    with jax.set_mesh(make_mesh()):
        a = jax.device_put(np.arange(4.0).reshape(1, 4), jax.P(None, "y"))
        b = jax.device_put(np.ones((4, 1)), jax.P("y"))
        due = jnp.matmul(a, b, out_sharding=jax.P(None, None, unreduced={"y"}))
        view = numbers(draw(due), due)
    assert view.view.texts == {(0, 0): "0|1|2|3"}
    assert "device 6 holds 2" in view.view.lines


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((8, 8)), r"pass the array of shape \(8, 8\) that was drawn"),
        (jnp.zeros(8), r"pass the array of shape \(8, 8\) that was drawn"),
        (None, r"pass the array of shape \(8, 8\) that was drawn"),
    ],
)
def test_what_was_not_drawn_has_no_numbers(x, message):
    with pytest.raises(ValueError, match=message):
        numbers(draw(placed(np.zeros((8, 8)), jax.P("x"))), x)


@pytest.mark.parametrize("shape", [(64, 8), (64,)])
def test_too_many_numbers_are_refused(shape):
    x = placed(np.zeros(shape), jax.P("x"))
    with pytest.raises(ValueError, match="such numbers do not fit: draw fewer"):
        numbers(draw(x), x)


def test_numbers_of_three_axes_are_refused():
    x = placed(np.zeros((2, 2, 2)), jax.P("x"))
    with pytest.raises(ValueError, match=r"draw a part, such as x\[0\]"):
        numbers(draw(x), x)


# ---------------------------------------------------------------------- what is missing

MOVES = [
    *zip(SPECS, SPECS[1:] + SPECS[:1], strict=True),
    *itertools.pairwise(SPECS[::-2]),
]


def hatched(view, shape):
    """For each device: the elements that are drawn hatched, and those that are not."""
    lacks = {device: np.zeros(shape, int) for device in view.boxes}
    has = {device: np.zeros(shape, int) for device in view.boxes}
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


def held(sharding, shape):
    masks = {}
    for device, part in sharding.devices_indices_map(shape).items():
        masks[device.id] = np.zeros(shape, int)
        masks[device.id][part] = 1
    return masks


@pytest.mark.parametrize(("start", "end"), MOVES, ids=str)
def test_hatched_is_what_a_device_holds_then_and_did_not_before(start, end):
    """The caption and the lines say how many bytes and elements these are."""
    x = placed(np.zeros((16, 8), np.float32), start)
    target = jax.NamedSharding(x.sharding.mesh, end)
    goes = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=target)
    view = missing(draw(x), draw(goes))
    lacks, has = hatched(view, x.shape)
    before, after = held(x.sharding, x.shape), held(target, x.shape)
    for device in range(8):
        new = after[device] * (1 - before[device])
        np.testing.assert_array_equal(lacks[device], new)
        np.testing.assert_array_equal(has[device], after[device] * before[device])
    expected = bytes_missing(x, target)
    upto = "up to " if len({*expected.values()}) > 1 else ""
    most = max(expected.values())
    assert view.facts[-1] == f"hatched: {upto}{most} B a device to get"
    lines = [f"device {d} lacks {n // 4} elements" for d, n in sorted(expected.items())]
    assert str(view).splitlines()[1:] == lines
    assert all(line in view.words for line in lines)


def test_a_device_that_held_nothing_lacks_all():
    few = jax.NamedSharding(make_mesh((4,), slice(0, None, 2)), jax.P("x"))
    all_ = jax.NamedSharding(make_mesh((8,)), jax.P("x"))
    lacks, has = hatched(missing(draw(few, (16, 4)), draw(all_, (16, 4))), (16, 4))
    before, after = held(few, (16, 4)), held(all_, (16, 4))
    for device in range(8):
        mine = before.get(device, 0 * after[device])
        np.testing.assert_array_equal(has[device], after[device] * mine)
        np.testing.assert_array_equal(lacks[device], after[device] * (1 - mine))


def test_a_number_on_one_device_is_missing_on_the_others():
    one = jax.sharding.SingleDeviceSharding(jax.devices()[2])
    view = missing(draw(one, ()), draw(jax.NamedSharding(make_mesh(), jax.P()), ()))
    assert [line.split()[3] for line in view.view.lines] == list("11011111")
    assert view.facts[-1] == "hatched: up to 1 elements a device to get"


def test_hatching_lies_inside_its_strip():
    view = missing(*(draw(placed(np.zeros((16, 8)), s)) for s in (SPECS[3], SPECS[4])))
    found = 0
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
    small, large = (draw(placed(np.zeros(n), jax.P("x"))) for n in (8, 16))
    with pytest.raises(ValueError, match=r"\(8,\) is not \(16,\): draw one shape"):
        missing(small, large)


# -------------------------------------------------------------------------------- both


def test_views_stand_in_rows_at_one_scale_and_in_films():
    x = placed(np.arange(16).reshape(4, 4), jax.P("x"))
    y = placed(np.arange(16).reshape(4, 4), jax.P(None, "y"))
    views = numbers(draw(x), x), numbers(draw(y), y)
    html = beside(views[0], "→", views[1])._repr_html_()
    sizes = re.findall(r'<svg[^>]* width="(\d+)"', html)
    assert len(sizes) == 2
    assert int(sizes[0]) == pytest.approx(int(sizes[1]), rel=0.3)
    film = Film([(views[0], "Rows."), (missing(draw(x), draw(y)), "Columns.")])
    assert film._repr_html_().count("<svg") == 2
    assert not re.search(r"\bid=|<style|<script|href|url\(", film._repr_html_())
    assert all(view.svg in film._repr_html_() for view in views[:1])


def test_in_a_grid_of_three_numbers_have_their_room():
    x = placed(np.arange(16) + 10, jax.P("y"))
    html = beside(*[numbers(draw(x), x)] * 3)._repr_html_()
    boxes = re.findall(r'class="picture" style="[^"]*width: (\d+)px', html)
    drawn = re.findall(r'<svg[^>]* width="(\d+)"', html)
    assert all(int(box) >= int(svg) for box, svg in zip(boxes, drawn, strict=True))
