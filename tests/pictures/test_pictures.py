import re
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from on_devices import AUTO, EXPLICIT, mesh_of, on

from examples.pictures import COLOURS, INKS, beside, draw

SVG = "{http://www.w3.org/2000/svg}"
P = jax.P
SPECS = [P(), P("x", "y"), P("y", "x"), P("x"), P(None, "y")]
SPECS += [P(("x", "y")), P(None, ("y", "x"))]


def struct(shape, mesh, *spec):
    return jax.ShapeDtypeStruct(shape, "float32", sharding=on(mesh, *spec))


def holders(sharding, shape):
    """For every element of the array: the sum of 2**id over devices that hold it."""
    found = np.zeros(shape, int)
    for device, part in sharding.devices_indices_map(shape).items():
        found[part] += 2**device.id
    return found


def parse(picture):
    return ElementTree.fromstring(picture.svg)


def points(polygon):
    numbers = re.findall(r"-?[\d.]+", polygon.get("points"))
    return np.array(numbers, float).reshape(-1, 2)


def outline(group):
    """The frame of a block: left, top, width, height."""
    frame = next(r for r in group.iter(f"{SVG}rect") if r.get("stroke"))
    return [float(frame.get(key)) for key in ("x", "y", "width", "height")]


def outlines(root):
    """The frames of all blocks, one in a row."""
    return np.array([outline(group) for group in root.iter(f"{SVG}g")])


def blocks(svg):
    """Of each block in a drawing: its group, its devices, its part of the array."""
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        devices, _, index = group.find(f"{SVG}title").text[:-1].partition("[")
        part = tuple(slice(*map(int, s.split(":"))) for s in index.split(", ") if s)
        yield group, [int(word) for word in re.findall(r"\d+", devices)], part


def colours(group):
    strips = group.findall(f"{SVG}polygon")
    return [COLOURS.index(strip.get("fill")) for strip in strips]


# ------------------------------------------------- is the picture the index map?


def assert_parts(svg, sharding, shape):
    """Fail unless each element is drawn once, in the colours of its devices."""
    there, count = holders(sharding, shape), np.zeros(shape, int)
    for group, devices, part in blocks(svg):
        count[part] += 1
        assert (there[part] == sum(2**device for device in devices)).all()
        assert colours(group) == devices
        assert [int(text.text) for text in group.iter(f"{SVG}text")] == devices
    assert (count == 1).all()


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize(("step", "kind"), [(2, AUTO), (-1, EXPLICIT)])
def test_every_block_covers_its_part_of_the_frame_in_colours(spec, step, kind):
    some = jax.devices()[::step]
    mesh = mesh_of(2, len(some) // 2, devices=some, kind=kind)
    picture = draw(struct((16, 8), mesh, *spec))
    assert_parts(picture.svg, on(mesh, *spec), (16, 8))
    frames = outlines(parse(picture)).reshape(-1, 2, 2)
    frames[:, 0] -= frames[:, 0].min(axis=0)
    frames /= frames.sum(axis=1).max(axis=0)
    parts = [part for *_, part in blocks(picture.svg)]
    starts = np.array([[columns.start, rows.start] for rows, columns in parts])
    stops = np.array([[columns.stop, rows.stop] for rows, columns in parts])
    wanted = np.stack([starts, stops - starts], axis=1) / [8, 16]
    np.testing.assert_allclose(frames, wanted, atol=1e-3)


def test_the_numbers_at_the_edges_are_the_cuts():
    root = parse(draw(struct((16, 32), mesh_of(2, 4), "x", "y")))
    frames, ticks = outlines(root), {t.text: t for t in root.findall(f"{SVG}text")}
    assert {*ticks} == {"0", "8", "16", "24", "32", "axis 0 over x", "axis 1 over y"}
    assert float(ticks["24"].get("x")) == frames[3, 0]
    assert float(ticks["24"].get("y")) < frames[0, 1]


def contrast(light, dark, dim=1):
    """The ratio of WCAG 2.2 between two colours, each as bright as `dim` leaves it."""
    rgb = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (light, dark)]
    v = dim * np.array(rgb) / 255
    v = np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)
    return np.divide(*(v @ [0.2126, 0.7152, 0.0722] + 0.05))


@pytest.mark.parametrize("spec", [SPECS[0], SPECS[1], SPECS[3]], ids=str)
def test_copies_share_a_block_in_equal_slanting_strips(spec):
    """They fill it. One alone is not cut."""
    for group, devices, _ in blocks(draw(struct((16, 8), mesh_of(2, 4), *spec)).svg):
        whole, slants = np.prod(outline(group)[2:]), False
        for strip in group.findall(f"{SVG}polygon"):
            after, before = points(strip), np.roll(points(strip), 1, axis=0)
            slants |= (np.abs(after - before) > 0.5).all(axis=1).any()
            area = np.linalg.det(np.stack([before, after], axis=1)).sum() / 2
            np.testing.assert_allclose(abs(area), whole / len(devices), rtol=5e-3)
            assert contrast(strip.get("fill"), INKS[0]) >= 7
        assert slants == (len(devices) > 1)


# ----------------------------------------------------------- what can be drawn


def test_every_way_to_say_a_sharding_gives_the_same_blocks():
    mesh = mesh_of(2, 4)
    sharding = on(mesh, "y", "x")
    array = jax.device_put(np.zeros((16, 16), np.float32), sharding)
    mapping = {d.id: s for d, s in sharding.devices_indices_map((16, 16)).items()}
    first = draw(struct((16, 16), mesh, "y", "x"))
    with jax.set_mesh(mesh):
        for way in array, P("y", "x"), sharding, mapping:
            picture = draw(way, [16, 16])
            assert (picture.holders, picture.cuts) == (first.holders, first.cuts)
    assert draw(array).svg == first.svg


def test_the_caption_names_devices_that_hold_nothing():
    some = mesh_of(2, 2, devices=jax.devices()[::2])
    assert "nothing on 1, 3, 5, 7" in draw(struct((16, 16), some, "x", "y")).caption
    caption = draw(jnp.zeros((4, 4))).caption
    assert caption == "float32[4,4]; all on device 0; 64 B a device; nothing on 1-7"


@pytest.mark.parametrize("first", [0, 4])
def test_devices_have_their_colours_by_place_if_jax_lists_them(first, monkeypatch):
    """Else by number: those of a described machine, where no others are known."""
    mesh, here = mesh_of(4, devices=jax.devices()[4:]), jax.devices()[first:][:4]
    monkeypatch.setattr(jax, "devices", lambda: here)
    picture = draw(struct((16,), mesh, "x"))
    assert "nothing" not in picture.caption
    found = [colour for group, *_ in blocks(picture.svg) for colour in colours(group)]
    assert found == [4 - first + i for i in range(4)]


BLOCKS = "a block on each of 8 devices"
PENDING = P("x", unreduced={"y"})
TWO = "2 blocks, 4 copies of each"


@pytest.mark.parametrize(
    ("dtype", "spec", "caption"),
    [
        ("float32", SPECS[1], f"[16@x,16@y]; {BLOCKS}; 128 B a device"),
        ("bool", SPECS[3], f"[16@x,16]; {TWO}; 128 B a device"),
        ("complex64", P(("y", "x")), f"[16@(y,x),16]; {BLOCKS}; 256 B a device"),
        ("float32", SPECS[0], "[16,16]; a copy on each of 8 devices; 1 KiB a device"),
        ("", PENDING, f"[16@x,16]{{U:y}}; {TWO}; to be summed over y"),
    ],
)
def test_the_caption_counts_blocks_copies_and_bytes(dtype, spec, caption):
    x = jax.NamedSharding(mesh_of(2, 4), spec)
    x = jax.ShapeDtypeStruct((16, 16), dtype, sharding=x) if dtype else x
    assert draw(x, (16, 16)).caption == f"{dtype}{caption}"


def test_a_mapping_may_leave_holes_and_overlap():
    parts = {0: (slice(0, 4), slice(0, 8)), 3: (slice(2, 8), slice(4, 8))}
    picture = draw(parts, (8, 8))
    table = [" ".join(line.split()) for line in picture.text.splitlines()[2:]]
    assert table == ["0:4 4:8", "0:2 0 0", "2:4 0 0,3", "4:8 - 3"]
    assert "devices 0, 3 hold [2:4, 4:8]" in picture.svg
    assert "no device holds [4:8, 0:4]" in picture.svg
    heights = outlines(parse(picture))[::2, 3]
    np.testing.assert_allclose(heights / heights.sum(), [0.25, 0.25, 0.5], atol=1e-3)


PART = (slice(0, 8),)


@pytest.mark.parametrize(
    ("make", "shape", "message"),
    [
        (lambda mesh: np.zeros(3), None, "a ndarray has no sharding"),
        (lambda mesh: P("x"), None, "alone has no shape"),
        (lambda mesh: {0: PART, "a": PART}, (8,), "the mapping has no device"),
        (lambda mesh: {0: 5}, (8,), "device 0 holds 5: give a slice for each axis"),
        (lambda mesh: {0: (slice(0, 8, 2),)}, (8,), "with step 1 and at least one"),
        (lambda mesh: {0: (slice(0, 0),)}, (0,), "has no elements"),
        (lambda mesh: P("z"), (8,), "z .*not found in mesh"),
        (lambda mesh: P(P.UNCONSTRAINED), (8,), "does not say where each"),
        (lambda mesh: P("x"), 7, "partitioned 2 times|divi"),
        (lambda mesh: P("x"), "ab", "'ab' is no shape: pass whole numbers"),
        (lambda mesh: on(mesh, "x", "y"), (16,), "names 2 axes, but the array has 1"),
        (lambda mesh: struct((16, 16), mesh), (8, 8), r"not \(8, 8\)"),
        (lambda mesh: on(mesh.abstract_mesh, "x"), (16,), "abstract"),
        (lambda mesh: jax.jit(draw)(jnp.ones(9)), (), r"print jax.typeof\(x\), here f"),
        (lambda mesh: beside(P("x")), (), "is no picture: pass what `draw` return"),
    ],
)
def test_bad_input_is_refused_with_advice(make, shape, message):
    mesh = mesh_of(2, 4)
    with jax.set_mesh(mesh), pytest.raises(ValueError, match=message):
        draw(make(mesh), shape)


# ------------------------------------------------------------- can it be read?


@pytest.mark.parametrize("shape", [(16, 65536), (65536, 16), (8, 16, 16), (16,), ()])
def test_nothing_is_drawn_outside_or_twice(shape):
    """A phone's column is 358 pixels wide; a picture is never shrunk to fit it."""
    mesh, spec = mesh_of(2, 4), ("x", "y")[: len(shape)]
    picture = draw(struct(shape, mesh, *spec))
    assert_parts(picture.svg, on(mesh, *spec), shape)
    root = parse(picture)
    size = np.array([float(root.get("width")), float(root.get("height"))])
    assert size[0] <= 342
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    starts = outlines(root)[:, :2]
    ends = starts + outlines(root)[:, 2:]
    assert ((starts >= 0) & (ends <= size)).all()
    common = np.minimum(ends[:, None], ends) - np.maximum(starts[:, None], starts)
    np.testing.assert_array_equal((common > 0.01).all(-1), np.eye(len(ends)))
    for text in root.iter(f"{SVG}text"):
        assert int(text.get("font-size", 11)) >= 10
        half = 3.1 * len(text.text)
        if text.get("transform"):
            assert half <= float(text.get("y")) <= size[1] - half
        elif text.get("text-anchor") != "end":
            assert half <= float(text.get("x")) <= size[0] - half


def test_many_devices_and_copies_still_make_a_picture():
    grid = {i: (slice(i, i + 1), slice(0, 4)) for i in range(512)}
    picture = draw(grid, (512, 4))
    found = [colours(group) for group, *_ in blocks(picture.svg)]
    assert found == [[k % 8] for k in range(512)]
    assert len(picture.svg) < 250_000
    assert len(picture.words) < 5_000
    assert "31:32" in picture.text
    assert "32:33" not in picture.text
    ((group, *_),) = blocks(draw(dict.fromkeys(range(512), (slice(0, 8),)), (8,)).svg)
    assert [text.text for text in group.iter(f"{SVG}text")] == ["0-511"]
    assert set(colours(group)) == set(range(8))


# ------------------------------------------------------------------ rows of pictures


def test_pictures_stand_side_by_side():
    one = draw(struct((16, 16), mesh_of(2, 4), "x"), title="rows & <blocks>")
    html = one._repr_html_()
    assert beside(one, one)._repr_html_() == html * 2
    assert str(beside(one, "=", one)) == f"{one}\n\n=\n\n{one}"
    assert "rows &amp; &lt;blocks&gt;" in html
    assert str(one).isascii()  # for pipes that take nothing else
    assert one.text.startswith("rows & <blocks>\n")
    assert not re.search(r"\bid=|<script|<style|href|url\(", one.svg)
    assert parse(one).get("fill") == "currentColor"
    ElementTree.fromstring(html.replace("<br>", "<br/>"))


@pytest.mark.parametrize(("m", "k", "n"), [(16, 32, 24), (8, 256, 16)])
def test_with_signs_pictures_have_one_scale(m, k, n):
    """And no axes, but their types."""
    shapes = (m, k), (k, n), (m, n)
    a, b, c = (draw(struct(shape, mesh_of(2, 4), "x", "y")) for shape in shapes)
    html = beside(a, "@", b, "≤", c)._repr_html_()
    roots = map(ElementTree.fromstring, re.findall(r"<svg.*?</svg>", html))
    corners = [outlines(root)[[0, -1]] for root in roots]  # of the first and the last
    frames = [last[:2] + last[2:] - first[:2] for first, last in corners]
    scales, widths = frames / np.array(shapes)[:, ::-1], np.divide(frames, [4, 2])
    wide = scales[widths > 20.5]  # others are as small as can be
    np.testing.assert_allclose(wide, wide[0], rtol=1e-3)
    assert (widths >= 19.9).all()
    assert np.max(frames) <= 320
    types = [f"float32[{m}@x,{n}@y]" for m, n in shapes]
    assert re.findall(r"<code>(.*?)</code>", html) == types
    assert re.findall(r">([^<>]+)</text>", html) == [str(d) for d in range(8)] * 3
    assert re.findall(r">([@≤])<", html) == ["@", "≤"]
