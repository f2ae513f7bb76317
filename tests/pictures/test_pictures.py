import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from on_devices import even, mesh_of, on

import examples
from examples.pictures import COLOURS, beside, draw

SVG = "{http://www.w3.org/2000/svg}"
SPECS = [
    jax.P(),
    jax.P("x", "y"),
    jax.P("y", "x"),
    jax.P("x"),
    jax.P(None, "y"),
    jax.P(("x", "y")),
    jax.P(None, ("y", "x")),
]


def struct(shape, mesh, *spec):
    return jax.ShapeDtypeStruct(shape, "float32", sharding=on(mesh, *spec))


def holders(sharding, shape):
    """For every element of the array: the sum of 2**id over devices that hold it."""
    held = np.zeros(shape, int)
    for device, part in sharding.devices_indices_map(shape).items():
        held[part] += 2**device.id
    return held


def parse(picture):
    return ElementTree.fromstring(picture.svg)


def points(polygon):
    numbers = re.findall(r"-?[\d.]+", polygon.get("points"))
    return np.array(numbers, float).reshape(-1, 2)


def area(polygon):
    x, y = points(polygon).T
    return abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2


def fronts(group):
    """The strips of a block."""
    return group.findall(f"{SVG}polygon")


def outline(group):
    """The frame of a block: left, top, width, height."""
    frame = next(r for r in group.iter(f"{SVG}rect") if r.get("stroke"))
    return [float(frame.get(key)) for key in ("x", "y", "width", "height")]


def outlines(root):
    """The frames of all blocks, one in a row."""
    return np.array([outline(group) for group in root.iter(f"{SVG}g")])


def blocks(picture):
    """Of every block in the drawing: its group, and the index that its title says."""
    for group in parse(picture).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title").text
        index = re.search(r"\[(.*)\]", title)[1]
        pairs = [tuple(map(int, r.split(":"))) for r in index.split(", ") if r]
        yield group, title, pairs


def devices(title):
    return {int(word) for word in re.findall(r"\d+", title.split("[")[0])}


def colours(group):
    return [COLOURS.index(strip.get("fill")) for strip in fronts(group)]


# ------------------------------------------------- is the picture the index map?


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize(
    ("step", "kind"), [(2, AxisType.Auto), (-1, AxisType.Explicit)]
)
def test_every_block_covers_its_part_of_the_frame_in_colours(spec, step, kind):
    """It is in the colours of its devices, whose numbers and names stand in it."""
    some = jax.devices()[::step]
    mesh = mesh_of(2, len(some) // 2, devices=some, kind=kind)
    held = holders(on(mesh, *spec), (16, 8))
    found = list(blocks(draw(struct((16, 8), mesh, *spec))))
    frames = np.array([outline(group) for group, *_ in found]).reshape(-1, 2, 2)
    frames[:, 0] -= frames[:, 0].min(axis=0)
    frames /= frames.sum(axis=1).max(axis=0)
    painted = np.zeros((16, 8), int)
    for (_, _, ((r0, r1), (c0, c1))), frame in zip(found, frames, strict=True):
        wanted = [[c0 / 8, r0 / 16], [(c1 - c0) / 8, (r1 - r0) / 16]]
        np.testing.assert_allclose(frame, wanted, atol=1e-3)
        painted[r0:r1, c0:c1] += 1
    assert (painted == 1).all()
    for group, title, ((row, _), (column, _)) in found:
        assert sum(2**d for d in devices(title)) == held[row, column]
        assert colours(group) == sorted(devices(title))
        assert {int(t.text) for t in group.iter(f"{SVG}text")} == devices(title)


@pytest.mark.parametrize(
    "spec", [jax.P(), jax.P("x"), jax.P(None, "y"), jax.P("x", "y")], ids=str
)
def test_copies_share_a_block_in_equal_slanting_strips(spec):
    """They fill it; the number of each is read in its strip. One alone is not cut."""
    for group, title, _ in blocks(draw(struct((16, 8), mesh_of(2, 4), *spec))):
        width, height = outline(group)[2:]
        areas = [area(strip) for strip in fronts(group)]
        expected = np.full(len(areas), width * height / len(areas))
        np.testing.assert_allclose(areas, expected, rtol=5e-3)
        edges = [points(s) - np.roll(points(s), 1, axis=0) for s in fronts(group)]
        slanted = any((np.abs(edge) > 0.5).all(axis=1).any() for edge in edges)
        assert slanted == (len(devices(title)) > 1)
        for text, strip in zip(group.iter(f"{SVG}text"), fronts(group), strict=True):
            x, y = float(text.get("x")), float(text.get("y"))
            size = int(text.get("font-size"))
            (left, top), (right, bottom) = points(strip).min(0), points(strip).max(0)
            assert left < x < right
            assert top <= y - size * 0.75
            assert y <= bottom
            assert contrast(text.get("fill"), strip.get("fill")) >= 7


@pytest.mark.parametrize(
    ("shape", "spec"),
    [
        ((8, 16, 16), jax.P(None, ("z", "x"))),
        ((4, 4, 8, 8), jax.P("x", "y", None, "z")),
    ],
    ids=str,
)
def test_the_slabs_of_a_volume_hold_every_element_once(shape, spec):
    mesh = mesh_of(2, 2, 2)
    held, painted = holders(on(mesh, *spec), shape), np.zeros(shape, int)
    for group, title, pairs in blocks(draw(struct(shape, mesh, *spec))):
        part = tuple(slice(*pair) for pair in pairs)
        painted[part] += 1
        assert (held[part] == sum(2**d for d in devices(title))).all()
        assert colours(group) == sorted(devices(title))
    assert (painted == 1).all()


def test_the_blocks_of_one_slab_lie_together_and_slabs_lie_apart():
    picture = draw(struct((8, 16, 16), mesh_of(2, 2, 2), "x", "y", "z"))
    texts = [text.text for text in parse(picture).iter(f"{SVG}text")]
    assert {"[0:4, ...]", "[4:8, ...]"} <= {*texts}
    first, second = outlines(parse(picture)).reshape(2, 4, 4)
    for frames in (first, second):  # two by two, without gaps
        np.testing.assert_allclose(frames[1, 0] - frames[0, 0], frames[0, 2], atol=0.01)
        np.testing.assert_allclose(frames[2, 1] - frames[0, 1], frames[0, 3], atol=0.01)
    assert (first[:, 0] + first[:, 2]).max() + 9 <= second[:, 0].min()


@pytest.mark.parametrize(
    ("shape", "spec", "row"), [((16,), ["x"], "0-3 4-7"), ((), [], "0-7")]
)
def test_arrays_of_one_axis_and_of_none_are_one_row(shape, spec, row):
    picture = draw(struct(shape, mesh_of(2, 4), *spec))
    lines = picture.text.splitlines()[3 if shape else 2 :]
    assert [" ".join(line.split()) for line in lines] == [row]
    ids = [d for group, *_ in blocks(picture) for d in colours(group)]
    assert ids == list(range(8))


def test_the_numbers_at_the_edges_are_the_cuts():
    root = parse(draw(struct((16, 32), mesh_of(2, 4), "x", "y")))
    frames = outlines(root)
    ticks = {t.text: t for t in root.findall(f"{SVG}text")}
    cuts = {"0", "8", "16", "24", "32"}
    assert set(ticks) == cuts | {"axis 0 over x", "axis 1 over y"}
    assert float(ticks["24"].get("x")) == frames[3, 0]
    assert float(ticks["24"].get("y")) < frames[0, 1]


# ----------------------------------------------------------- what can be drawn


def test_every_way_to_say_a_sharding_gives_the_same_blocks():
    mesh = mesh_of(2, 4)
    sharding = on(mesh, "y", "x")
    array = jax.device_put(np.zeros((16, 16), np.float32), sharding)
    mapping = {d.id: s for d, s in sharding.devices_indices_map((16, 16)).items()}
    described = draw(struct((16, 16), mesh, "y", "x"))
    with jax.set_mesh(mesh):
        spec = draw(jax.P("y", "x"), (16, 16))
    others = draw(sharding, (16, 16)), draw(mapping, (16, 16)), draw(sharding, [16, 16])
    for picture in (described, spec, *others):
        assert picture.holders == draw(array).holders
        assert picture.cuts == draw(array).cuts
    assert draw(array).svg == described.svg


def test_an_array_on_one_device_names_those_that_hold_nothing():
    caption = draw(jnp.zeros((4, 4))).caption
    assert caption == "float32[4,4]; all on device 0; 64 B a device; nothing on 1-7"
    some = struct((16, 16), even(2, 2), "x", "y")
    assert "nothing on 1, 3, 5, 7" in draw(some).caption
    assert "nothing" not in draw(struct((16,), mesh_of(8), "x")).caption


@pytest.mark.parametrize(
    ("some", "numbers"), [(slice(4), [4, 5, 6, 7]), (slice(4, 8), [0, 1, 2, 3])]
)
def test_devices_have_their_colours_by_place_if_jax_lists_them(
    some, numbers, monkeypatch
):
    """Else by number: those of a described machine, where no others are known."""
    mesh, here = mesh_of(4, devices=jax.devices()[4:8]), jax.devices()[some]
    monkeypatch.setattr(jax, "devices", lambda: here)
    picture = draw(struct((16,), mesh, "x"))
    assert "nothing" not in picture.caption
    assert [d for group, *_ in blocks(picture) for d in colours(group)] == numbers


BLOCKS = "a block on each of 8 devices"


@pytest.mark.parametrize(
    ("dtype", "spec", "caption"),
    [
        ("float32", ["x", "y"], f"[16@x,16@y]; {BLOCKS}; 128 B"),
        ("bool", ["x"], "[16@x,16]; 2 blocks, 4 copies of each; 128 B"),
        ("complex64", [("y", "x")], f"[16@(y,x),16]; {BLOCKS}; 256 B"),
        ("float32", [], "[16,16]; a copy on each of 8 devices; 1 KiB"),
    ],
)
def test_the_caption_counts_blocks_copies_and_bytes(dtype, spec, caption):
    x = jax.device_put(np.zeros((16, 16), dtype), on(mesh_of(2, 4), *spec))
    assert draw(x).caption == f"{dtype}{caption} a device"
    assert str(jax.typeof(x)) == draw(x).facts[0]


def test_sums_that_are_pending_are_said_to_be():
    mesh = mesh_of(2, 4)
    partial = jax.NamedSharding(mesh, jax.P("x", unreduced={"y"}))
    picture = draw(partial, (16, 16))
    assert picture.facts[0] == "[16@x,16]{U:y}"
    assert "to be summed over y" in picture.caption
    assert picture.holders == draw(on(mesh, "x"), (16, 16)).holders


def test_a_mapping_may_leave_holes_and_overlap():
    parts = {0: (slice(0, 4), slice(0, 8)), 3: (slice(2, 8), slice(4, 8))}
    picture = draw(parts, (8, 8))
    table = [" ".join(line.split()) for line in picture.text.splitlines()[2:]]
    assert table == ["0:4 4:8", "0:2 0 0", "2:4 0 0,3", "4:8 - 3"]
    titles = [title for _, title, _ in blocks(picture)]
    assert "devices 0, 3 hold [2:4, 4:8]" in titles
    assert "no device holds [4:8, 0:4]" in titles
    heights = outlines(parse(picture))[::2, 3]
    np.testing.assert_allclose(heights / heights.sum(), [0.25, 0.25, 0.5], atol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(3),), "a ndarray has no sharding"),
        ((jax.P("x"),), "alone has no shape"),
        ((jax.P("x"), (8,)), "call jax.set_mesh"),
        (({}, (8,)), "has no device"),
        (({0: (slice(0, 8),), "a": (slice(0, 8),)}, (8,)), "the mapping has no device"),
        (({0: 5}, (8,)), "device 0 holds 5: give a slice for each axis"),
        (({0: (slice(0, 8),)}, (8, 8)), "give a slice for each axis of \\(8, 8\\)"),
        (({0: (slice(8, 9),)}, (8,)), "with step 1 and at least one element"),
        (({0: (slice(0, 8, 2),)}, (8,)), "with step 1 and at least one element"),
        (({0: (slice(0, 0),)}, (0,)), "has no elements"),
    ],
)
def test_bad_input_is_refused_with_advice(arguments, message):
    with pytest.raises(ValueError, match=message):
        draw(*arguments)


TRACED = r"print jax.typeof\(x\), here float32\["


@pytest.mark.parametrize(
    ("make", "shape", "message"),
    [
        (lambda mesh: jax.P("z"), (8,), "z .*not found in mesh"),
        (lambda mesh: jax.P(jax.P.UNCONSTRAINED), (8,), "does not say where each"),
        (lambda mesh: jax.P("x"), 7, "partitioned 2 times|divi"),
        (lambda mesh: jax.P("x"), "ab", "'ab' is no shape: pass whole numbers"),
        (lambda mesh: on(mesh, "x", "y"), (16,), "names 2 axes, but the array has 1"),
        (lambda mesh: struct((16, 16), mesh), (8, 8), r"not \(8, 8\)"),
        (lambda mesh: on(mesh.abstract_mesh, "x"), (16,), "abstract"),
        (lambda mesh: jax.jit(draw)(jnp.ones(9)), (), TRACED),
    ],
)
def test_a_sharding_that_does_not_fit_and_a_trace_are_refused(make, shape, message):
    mesh = mesh_of(2, 4)
    with jax.set_mesh(mesh), pytest.raises(ValueError, match=message):
        draw(make(mesh), shape)


# ------------------------------------------------------------- can it be read?


def channels(colour):
    v = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """The ratio of WCAG 2.2, from 1 to 21."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    dark, light = sorted(channels(colour) @ weights for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


def lab(linear):
    xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    f = np.cbrt(np.array(xyz) @ np.clip(linear, 0, 1) / [0.9505, 1, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


# What is left of red, green and blue: Machado, Oliveira and Fernandes, IEEE TVCG 2009.
EYES = {
    "normal": [1, 0, 0, 0, 1, 0, 0, 0, 1],
    "protanopia": [0.152, 1.053, -0.205, 0.115, 0.786, 0.099, -0.004, -0.048, 1.052],
    "deuteranopia": [0.367, 0.861, -0.228, 0.280, 0.673, 0.047, -0.012, 0.043, 0.969],
    "tritanopia": [1.256, -0.077, -0.179, -0.078, 0.931, 0.148, 0.005, 0.691, 0.304],
}


@pytest.mark.parametrize("eye", EYES)
def test_the_colours_differ_for_every_eye(eye):
    matrix = np.reshape(EYES[eye], (3, 3))
    labs = [lab(matrix @ channels(colour)) for colour in COLOURS]
    assert len(set(COLOURS)) == 8
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(labs, 2)) > 12


@pytest.mark.parametrize("spec", [jax.P(), jax.P("x"), jax.P("x", "y")], ids=str)
def test_the_words_say_which_device_holds_what(spec):
    picture = draw(struct((16, 8), mesh_of(2, 4), *spec))
    root = parse(picture)
    assert root.get("role") == "img"
    assert root.get("fill") == "currentColor"  # the ink of the page
    assert not re.search(r"\bid=|<script|<style|href|url\(", picture.svg)
    label = root.get("aria-label")
    for device, ((r0, r1), (c0, c1)) in picture.boxes.items():
        assert re.search(rf"\b{device}\b[^;\[]* holds? \[{r0}:{r1}, {c0}:{c1}\]", label)


@pytest.mark.parametrize("shape", [(16, 65536), (65536, 16), (16,), ()])
def test_nothing_is_drawn_outside(shape):
    """A phone's column is 358 pixels wide; a picture is never shrunk to fit it."""
    root = parse(draw(struct(shape, mesh_of(2, 4), *("x", "y")[: len(shape)])))
    width, height = float(root.get("width")), float(root.get("height"))
    assert width <= 342
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    assert "max-width: 100%" in root.get("style")
    assert len(root.findall(f"{SVG}g/{SVG}text")) == 8
    frames = outlines(root)
    assert (frames[:, :2] >= 0).all()
    assert (frames[:, :2] + frames[:, 2:] <= [width, height]).all()
    for text in root.iter(f"{SVG}text"):
        assert int(text.get("font-size", 11)) >= 10
        half = 3.1 * len(text.text)
        if text.get("transform"):
            assert half <= float(text.get("y")) <= height - half
        elif text.get("text-anchor") != "end":
            assert half <= float(text.get("x")) <= width - half


@pytest.mark.parametrize("rows", [16, 512])
def test_512_devices_still_make_a_picture(rows):
    columns = 512 // rows
    grid = {
        i * columns + j: (slice(4 * i, 4 * i + 4), slice(4 * j, 4 * j + 4))
        for i, j in np.ndindex(rows, columns)
    }
    picture = draw(grid, (4 * rows, 4 * columns))
    found = list(blocks(picture))
    assert len(found) == 512
    assert len(picture.svg) < 250_000
    texts = list(parse(picture).iter(f"{SVG}text"))
    assert min(int(text.get("font-size", 11)) for text in texts) >= 10
    assert len(picture.words) < 5_000
    assert max(map(len, picture.text.splitlines())) < 400
    for group, title, _ in found:
        assert colours(group) == [next(iter(devices(title))) % 8]


def test_many_copies_are_striped_and_named_in_short():
    whole = (slice(0, 8), slice(0, 8))
    ((group, title, _),) = blocks(draw(dict.fromkeys(range(512), whole), (8, 8)))
    assert "0-511" in title
    assert [text.text for text in group.iter(f"{SVG}text")] == ["0-511"]
    assert set(colours(group)) == set(range(8))


def test_a_long_table_is_printed_in_part():
    lines = draw({i: (slice(i, i + 1),) for i in range(40)}, (40,)).text.splitlines()
    assert lines[-1].split() == [*map(str, range(32)), "..."]
    rows = draw({i: (slice(i, i + 1), slice(0, 4)) for i in range(40)}, (40, 4)).text
    assert "31:32" in rows
    assert "32:33" not in rows


# ------------------------------------------------ is it the same everywhere?


def test_the_bytes_are_the_same_in_every_process(run):
    code = (
        "import jax\nfrom examples.pictures import draw\n"
        "mesh = jax.make_mesh((2, 4), ('x', 'y'))\n"
        "print(draw(jax.NamedSharding(mesh, jax.P('x')), (16, 16))._repr_html_())"
    )
    here = draw(on(mesh_of(2, 4), "x"), (16, 16))._repr_html_()
    assert run("-c", code, cwd=Path(examples.__file__).parents[1]) == f"{here}\n"


def test_it_prints_on_a_plain_pipe():
    """In ASCII, for pipes that take nothing else."""
    picture = draw(struct((8, 16, 16), mesh_of(2, 2, 2), "x", "y", "z"))
    assert str(picture) == repr(picture) == picture.text
    assert picture.text.isascii()
    assert picture.text.splitlines() == [
        "float32[8@x,16@y,16@z]; a block on each of 8 devices; 1 KiB a device",
        "",
        "[0:4, ...]",
        "     0:8  8:16",
        " 0:8  0    1",
        "8:16  2    3",
        "",
        "[4:8, ...]",
        "     0:8  8:16",
        " 0:8  4    5",
        "8:16  6    7",
    ]


def test_pictures_stand_side_by_side():
    mesh = mesh_of(2, 4)
    one = draw(struct((16, 16), mesh, "x"), title="rows & <blocks>")
    other = draw(struct((16, 16), mesh, "y"), title="columns")
    row = beside(one, other)
    assert row._repr_html_() == one._repr_html_() + other._repr_html_()
    assert str(row) == f"{one}\n\n{other}"
    assert "rows &amp; &lt;blocks&gt;" in one._repr_html_()
    assert one.text.startswith("rows & <blocks>\n")
    ElementTree.fromstring(one._repr_html_().replace("<br>", "<br/>"))


def row_frames(html):
    """The box around the blocks of each picture in a row: its width and height."""
    found = []
    for svg in re.findall(r"<svg.*?</svg>", html):
        boxes = outlines(ElementTree.fromstring(svg))
        ends = boxes[:, :2] + boxes[:, 2:]
        found.append(ends.max(axis=0) - boxes[:, :2].min(axis=0))
    return np.array(found)


@pytest.mark.parametrize(("m", "k", "n"), [(16, 32, 24), (8, 256, 16)])
def test_with_signs_pictures_have_one_scale(m, k, n):
    shapes = (m, k), (k, n), (m, n)
    a, b, c = (draw(struct(shape, mesh_of(2, 4), "x", "y")) for shape in shapes)
    row = beside(a, "@", b, "=", c)
    frames, sizes = row_frames(row._repr_html_()), np.array(shapes)[:, ::-1]
    scales, widths = frames / sizes, frames / [4, 2]
    wide = scales[widths > 20.5]  # others are as small as can be
    np.testing.assert_allclose(wide, wide[0], rtol=1e-3)
    assert (widths >= 19.9).all()
    assert frames.max() <= 320
    assert str(row) == f"{a}\n\n@\n\n{b}\n\n=\n\n{c}"


def test_a_row_of_signs_shows_types_without_axes_and_cuts():
    picture = draw(struct((16, 8), mesh_of(2, 4), "x", "y"), title="<a>")
    html = beside(picture, "→", picture, "≤")._repr_html_()
    assert re.findall(r"<code>(.*?)</code>", html) == ["float32[16@x,8@y]"] * 2
    assert re.findall(r">([^<>]+)</text>", html) == [str(d) for d in range(8)] * 2
    assert html.count("&lt;a&gt;") == 2
    assert re.findall(r">([→≤])<", html) == ["→", "≤"]
    assert "axis 0" not in html


def test_three_pictures_in_a_row_are_smaller_than_two():
    """Three of them and their margins are as wide as the site's column of outputs."""
    picture = draw(struct((16, 16), mesh_of(2, 4), "x", "y"))
    two, three, six = (
        [float(w) for w in re.findall(r'<svg[^>]* width="(\d+)"', row._repr_html_())]
        for row in (beside(*[picture] * n) for n in (2, 3, 6))
    )
    assert two == [320] * 2
    assert three == six[:3] == six[3:]
    assert sum(three) + 3 * 8 <= 728
    for text in parse(picture).iter(f"{SVG}text"):
        assert int(text.get("font-size", 11)) >= 11  # the same letters in both


def test_what_is_no_picture_is_not_put_beside_one():
    with pytest.raises(ValueError, match="is no picture: pass what `draw` returns"):
        beside(draw(jnp.ones(8)), jax.P("x"))
