import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

import examples
from examples.pictures import COLOURS, INKS, beside, draw

SRC = Path(examples.__file__).parents[1]
SVG = "{http://www.w3.org/2000/svg}"
MESHES = {
    "half": ((2, 2), slice(0, None, 2)),
    "backwards": ((2, 4), slice(None, None, -1)),
}
KINDS = AxisType.Auto, AxisType.Explicit
SPECS = [
    jax.P(),
    jax.P("x", "y"),
    jax.P("y", "x"),
    jax.P("x"),
    jax.P(None, "y"),
    jax.P(("x", "y")),
    jax.P(None, ("y", "x")),
]


@pytest.fixture(params=zip(MESHES, KINDS, strict=True), ids=MESHES)
def mesh(request):
    """A mesh with the axes x and y, of some devices, or of all in another order."""
    name, kind = request.param
    return make_mesh(*MESHES[name], kind)


def make_mesh(shape, some=slice(None), kind=AxisType.Explicit, names="xyz"):
    devices = jax.devices()[some]
    kinds = (kind,) * len(shape)
    return jax.make_mesh(shape, tuple(names[: len(shape)]), kinds, devices=devices)


def struct(shape, mesh, spec, dtype="float32"):
    sharding = jax.NamedSharding(mesh, spec)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def oracle(sharding, shape):
    """For every element of the array: the ids of the devices that hold it."""
    held = np.empty(shape, dtype=object)
    for where in np.ndindex(shape):
        held[where] = frozenset(
            device.id
            for device, part in sharding.devices_indices_map(shape).items()
            if all(
                i in range(*s.indices(n))
                for i, s, n in zip(where, part, shape, strict=True)
            )
        )
    return held


def parse(picture):
    return ElementTree.fromstring(picture.svg)


def numbers(text):
    return [float(word) for word in re.findall(r"-?[\d.]+", text)]


def points(polygon):
    return np.array(numbers(polygon.get("points"))).reshape(-1, 2)


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
def test_every_block_covers_its_part_of_the_frame_in_colours(spec, mesh):
    """It is in the colours of its devices, whose numbers and names stand in it."""
    picture = draw(struct((16, 8), mesh, spec))
    held = oracle(jax.NamedSharding(mesh, spec), (16, 8))
    found = list(blocks(picture))
    frames = np.array([outline(group) for group, *_ in found])
    left, top = frames[:, 0].min(), frames[:, 1].min()
    right, bottom = (frames[:, :2] + frames[:, 2:]).max(axis=0)
    painted = np.zeros((16, 8), int)
    for (_, _, pairs), (x, y, width, height) in zip(found, frames, strict=True):
        (r0, r1), (c0, c1) = pairs
        np.testing.assert_allclose((x - left) / (right - left), c0 / 8, atol=1e-3)
        np.testing.assert_allclose((y - top) / (bottom - top), r0 / 16, atol=1e-3)
        np.testing.assert_allclose(width / (right - left), (c1 - c0) / 8, atol=1e-3)
        np.testing.assert_allclose(height / (bottom - top), (r1 - r0) / 16, atol=1e-3)
        painted[r0:r1, c0:c1] += 1
    assert (painted == 1).all()
    for group, title, ((row, _), (column, _)) in found:
        assert devices(title) == held[row, column]
        assert colours(group) == sorted(devices(title))
        assert {int(t.text) for t in group.iter(f"{SVG}text")} == devices(title)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_copies_share_a_block_in_equal_slanting_strips(spec, mesh):
    """They fill it; the number of each lies in its strip. One alone is not cut."""
    for group, title, _ in blocks(draw(struct((16, 8), mesh, spec))):
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


@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 1, 4)])
@pytest.mark.parametrize(
    "spec",
    [jax.P("x", "y", "z"), jax.P("x", None, "z"), jax.P(None, ("z", "x")), jax.P("y")],
    ids=str,
)
def test_the_slabs_of_a_volume_hold_every_element_once(shape, spec):
    mesh = make_mesh(shape)
    held = oracle(jax.NamedSharding(mesh, spec), (8, 16, 16))
    painted = np.zeros((8, 16, 16), int)
    for group, title, pairs in blocks(draw(struct((8, 16, 16), mesh, spec))):
        part = tuple(slice(*pair) for pair in pairs)
        painted[part] += 1
        assert all(ids == devices(title) for ids in held[part].flat)
        assert colours(group) == sorted(devices(title))
    assert (painted == 1).all()


def test_the_blocks_of_one_slab_lie_together_and_slabs_lie_apart():
    picture = draw(struct((8, 16, 16), make_mesh((2, 2, 2)), jax.P("x", "y", "z")))
    spots = {p[0]: [] for *_, p in blocks(picture)}
    for group, _, pairs in blocks(picture):
        spots[pairs[0]].append(outline(group))
    first, second = (np.array(frames) for frames in spots.values())
    for frames in (first, second):  # two by two, without gaps
        np.testing.assert_allclose(frames[1, 0] - frames[0, 0], frames[0, 2], atol=0.01)
        np.testing.assert_allclose(frames[2, 1] - frames[0, 1], frames[0, 3], atol=0.01)
    assert (first[:, 0] + first[:, 2]).max() + 9 <= second[:, 0].min()


def test_four_axes_are_slabs_at_each_place_of_the_first_two():
    picture = draw(struct((4, 4, 8, 8), make_mesh((2, 4)), jax.P("x", "y")))
    texts = [text.text for text in parse(picture).iter(f"{SVG}text")]
    assert "[0:2, 3:4, ...]" in texts
    assert len(list(blocks(picture))) == 8


@pytest.mark.parametrize(
    ("shape", "spec", "rows"),
    [
        ((16,), jax.P("x"), ["0-3 4-7"]),
        ((16,), jax.P(("x", "y")), ["0 1 2 3 4 5 6 7"]),
        ((), jax.P(), ["0-7"]),
    ],
)
def test_arrays_of_one_axis_and_of_none_are_one_row(shape, spec, rows):
    picture = draw(struct(shape, make_mesh((2, 4)), spec))
    lines = picture.text.splitlines()[3 if shape else 2 :]
    assert [" ".join(line.split()) for line in lines] == rows
    ids = [d for group, *_ in blocks(picture) for d in colours(group)]
    assert ids == list(range(8))


def test_unequal_blocks_keep_their_proportions():
    columns = {0: (0, 1), 1: (1, 4), 2: (4, 16)}
    boxes = {d: (slice(0, 16), slice(*pair)) for d, pair in columns.items()}
    root = parse(draw(boxes, (16, 16)))
    frames = np.array([outline(group) for group in root.iter(f"{SVG}g")])
    widths = frames[:, 2] / frames[:, 2].sum()
    np.testing.assert_allclose(widths, [1 / 16, 3 / 16, 12 / 16], atol=1e-3)
    ends = frames[:, 0] + frames[:, 2]
    np.testing.assert_allclose(ends[:-1], frames[1:, 0], atol=0.01)


def test_the_numbers_at_the_edges_are_the_cuts():
    root = parse(draw(struct((16, 32), make_mesh((2, 4)), jax.P("x", "y"))))
    frames = np.array([outline(group) for group in root.iter(f"{SVG}g")])
    ticks = {t.text: t for t in root.findall(f"{SVG}text")}
    assert set(ticks) == {"0", "8", "16", "24", "32"} | {
        "axis 0 over x",
        "axis 1 over y",
    }
    assert float(ticks["24"].get("x")) == frames[3, 0]
    assert float(ticks["24"].get("y")) < frames[0, 1]


# ----------------------------------------------------------- what can be drawn


def test_every_way_to_say_a_sharding_gives_the_same_blocks():
    mesh = make_mesh((2, 4))
    sharding = jax.NamedSharding(mesh, jax.P("y", "x"))
    array = jax.device_put(np.zeros((16, 16), np.float32), sharding)
    mapping = {d.id: s for d, s in sharding.devices_indices_map((16, 16)).items()}
    with jax.set_mesh(mesh):
        spec = draw(jax.P("y", "x"), (16, 16))
    others = draw(sharding, (16, 16)), draw(mapping, (16, 16)), draw(sharding, [16, 16])
    for picture in (draw(struct((16, 16), mesh, jax.P("y", "x"))), spec, *others):
        assert picture.holders == draw(array).holders
        assert picture.cuts == draw(array).cuts
    assert draw(array).svg == draw(struct((16, 16), mesh, jax.P("y", "x"))).svg


def test_an_array_on_one_device_names_those_that_hold_nothing():
    caption = draw(jnp.zeros((4, 4))).caption
    assert caption == "float32[4,4]; all on device 0; 64 B a device; nothing on 1-7"
    some = struct((16, 16), make_mesh((2, 2), slice(0, None, 2)), jax.P("x", "y"))
    assert "nothing on 1, 3, 5, 7" in draw(some).caption
    assert "nothing" not in draw(struct((16,), make_mesh((8,)), jax.P("x"))).caption


def test_devices_that_jax_does_not_list_are_drawn_by_number(monkeypatch):
    """Those of a described machine: nothing is known about the others there."""
    mesh, here = make_mesh((4,), slice(4, 8)), jax.devices()[:4]
    monkeypatch.setattr(jax, "devices", lambda: here)
    picture = draw(struct((16,), mesh, jax.P("x")))
    assert "nothing" not in picture.caption
    assert [d for group, *_ in blocks(picture) for d in colours(group)] == [4, 5, 6, 7]


def test_the_first_eight_devices_differ_whatever_their_numbers(monkeypatch):
    """Each process numbers its devices from a multiple of 2048."""

    class Far(jax.sharding.Sharding):
        def devices_indices_map(self, shape):
            return {d: (slice(d.id % 16, d.id % 16 + 1),) for d in devices}

        def shard_shape(self, shape):
            return (1,)

    @dataclass(frozen=True)
    class Device:
        id: int

    devices = [Device(2048 * process + i) for process in range(4) for i in range(2)]
    monkeypatch.setattr(jax, "devices", lambda: devices)
    boxes = Far.__new__(Far)
    assert list(draw(boxes, (16,)).colours.values()) == list(range(8))


@pytest.mark.parametrize(
    ("spec", "caption"),
    [
        (jax.P("x", "y"), "float32[16@x,16@y]; a block on each of 8 devices; 128 B"),
        (jax.P("x"), "float32[16@x,16]; 2 blocks, 4 copies of each; 512 B"),
        (
            jax.P(("y", "x")),
            "float32[16@(y,x),16]; a block on each of 8 devices; 128 B",
        ),
        (jax.P(), "float32[16,16]; a copy on each of 8 devices; 1 KiB"),
    ],
)
def test_the_caption_counts_blocks_copies_and_bytes(spec, caption):
    x = jax.device_put(
        np.zeros((16, 16), np.float32), jax.NamedSharding(make_mesh((2, 4)), spec)
    )
    assert draw(x).caption == f"{caption} a device"
    assert str(jax.typeof(x)) == caption.split(";")[0]


@pytest.mark.parametrize("dtype", ["bool", "complex64"])
def test_the_bytes_are_those_of_a_shard(dtype):
    x = jax.device_put(
        jnp.zeros((16, 16), dtype), jax.NamedSharding(make_mesh((2, 4)), jax.P("y"))
    )
    assert f"; {x.addressable_shards[0].data.nbytes} B a device" in draw(x).caption


def test_sums_that_are_pending_are_said_to_be():
    with jax.set_mesh(make_mesh((2, 4))):
        partial = jax.NamedSharding(
            jax.sharding.get_mesh(), jax.P("x", unreduced={"y"})
        )
        picture = draw(partial, (16, 16))
        assert picture.facts[0] == "[16@x,16]{U:y}"
        assert "to be summed over y" in picture.caption
        assert picture.holders == draw(jax.P("x"), (16, 16)).holders


def test_a_mapping_may_leave_holes_and_overlap():
    picture = draw(
        {0: (slice(0, 4), slice(0, 8)), 3: (slice(2, 8), slice(4, 8))}, (8, 8)
    )
    table = [line.split() for line in picture.text.splitlines()[2:]]
    assert table == [
        ["0:4", "4:8"],
        ["0:2", "0", "0"],
        ["2:4", "0", "0,3"],
        ["4:8", "-", "3"],
    ]
    titles = [title for _, title, _ in blocks(picture)]
    assert "devices 0, 3 hold [2:4, 4:8]" in titles
    assert "no device holds [4:8, 0:4]" in titles


@pytest.mark.parametrize(
    "make",
    [
        jax.jit,
        lambda f: jax.shard_map(
            f, mesh=make_mesh((8,)), in_specs=jax.P("x"), out_specs=jax.P("x")
        ),
    ],
    ids=["jit", "shard_map"],
)
def test_a_traced_array_is_refused_with_advice(make):
    x = jax.device_put(
        np.zeros(16, np.float32), jax.NamedSharding(make_mesh((8,)), jax.P("x"))
    )
    with pytest.raises(ValueError, match=r"print jax.typeof\(x\), here float32\["):
        make(draw)(x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(3),), "a ndarray has no sharding"),
        ((jax.ShapeDtypeStruct((8,), "float32"),), "has no sharding"),
        ((jax.P("x"),), "alone has no shape"),
        ((jax.P("x"), (8,)), "call jax.set_mesh"),
        (({}, (8,)), "has no device"),
        (({"a": (slice(0, 8),)}, (8,)), "the mapping has no device"),
        (({0: (slice(0, 8),), "a": (slice(0, 8),)}, (8,)), "the mapping has no device"),
        (({0: 5}, (8,)), "device 0 holds 5: give a slice for each axis"),
        (({0: (5,)}, (8,)), r"device 0 holds \(5,\): give a slice for each axis"),
        (({0: (slice(0, 8),)}, (8, 8)), "give a slice for each axis of \\(8, 8\\)"),
        (({0: (slice(8, 9),)}, (8,)), "with step 1 and at least one element"),
        (({0: (slice(0, 8, 2),)}, (8,)), "with step 1 and at least one element"),
        (({0: (slice(0, 0),)}, (0,)), "has no elements"),
    ],
)
def test_bad_input_is_refused_with_advice(arguments, message):
    with pytest.raises(ValueError, match=message):
        draw(*arguments)


@pytest.mark.parametrize(
    ("spec", "shape", "message"),
    [
        (jax.P("z"), (8,), "z .*not found in mesh"),
        (jax.P(jax.P.UNCONSTRAINED), (8,), "does not say where each element belongs"),
        (jax.P("x"), 7, "partitioned 2 times|divi"),
        (jax.P(None, ("x", "y")), (8, 12), "partitioned 8 times|divi"),
        (jax.P("x"), "ab", "'ab' is no shape: pass whole numbers"),
    ],
)
def test_a_spec_that_lies_nowhere_is_refused(spec, shape, message):
    with jax.set_mesh(make_mesh((2, 4))), pytest.raises(ValueError, match=message):
        draw(spec, shape)


def test_a_sharding_that_does_not_fit_is_refused():
    mesh = make_mesh((2, 4))
    with pytest.raises(ValueError, match="names 2 axes, but the array has 1"):
        draw(jax.NamedSharding(mesh, jax.P("x", "y")), (16,))
    with pytest.raises(ValueError, match=r"partitioned 4 times|divi"):
        draw(jax.NamedSharding(mesh, jax.P("y")), (6,))
    with pytest.raises(ValueError, match="not \\(8, 8\\)"):
        draw(struct((16, 16), mesh, jax.P()), (8, 8))
    with pytest.raises(ValueError, match="abstract"):
        draw(jax.NamedSharding(mesh.abstract_mesh, jax.P("x")), (16,))


# ------------------------------------------------------------- can it be read?


def channels(colour):
    short = colour[1:] if len(colour) == 7 else "".join(c + c for c in colour[1:])
    values = np.array([int(short[i : i + 2], 16) for i in (0, 2, 4)]) / 255
    return np.where(
        values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4
    )


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
    "normal": np.eye(3),
    "protanopia": [
        [0.152, 1.053, -0.205],
        [0.115, 0.786, 0.099],
        [-0.004, -0.048, 1.052],
    ],
    "deuteranopia": [
        [0.367, 0.861, -0.228],
        [0.280, 0.673, 0.047],
        [-0.012, 0.043, 0.969],
    ],
    "tritanopia": [
        [1.256, -0.077, -0.179],
        [-0.078, 0.931, 0.148],
        [0.005, 0.691, 0.304],
    ],
}


@pytest.mark.parametrize("eye", EYES)
def test_the_colours_differ_for_every_eye(eye):
    labs = [lab(np.array(EYES[eye]) @ channels(colour)) for colour in COLOURS]
    assert len(set(COLOURS)) == 8
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(labs, 2)) > 12


def test_every_number_has_contrast():
    for colour, ink in zip(COLOURS, INKS, strict=True):
        assert contrast(colour, ink) >= 7
    for spec in (jax.P("x", "y"), jax.P("y"), jax.P()):
        for group, *_ in blocks(draw(struct((16, 16), make_mesh((2, 4)), spec))):
            for text, strip in zip(
                group.iter(f"{SVG}text"), fronts(group), strict=True
            ):
                assert contrast(text.get("fill"), strip.get("fill")) >= 4.5


def test_the_colours_of_the_site_are_those_of_the_pictures(request):
    css = (request.config.rootpath / "docs/_static/site.css").read_text()
    assert re.findall(r"--device-\d: (#\w{6});", css) == list(COLOURS)


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_the_words_say_which_device_holds_what(spec, mesh):
    picture = draw(struct((16, 8), mesh, spec))
    root = parse(picture)
    assert root.get("role") == "img"
    label = root.get("aria-label")
    for device, ((r0, r1), (c0, c1)) in picture.boxes.items():
        assert re.search(rf"\b{device}\b[^;\[]* holds? \[{r0}:{r1}, {c0}:{c1}\]", label)


def test_it_fits_a_phone_and_stays_legible():
    """The column is 358 pixels wide there; a picture is never shrunk to fit it."""
    wide = struct((16, 65536), make_mesh((8,)), jax.P(None, "x"))
    for x in (wide, struct((65536, 16), make_mesh((8,)), jax.P("x"))):
        root = parse(draw(x))
        assert float(root.get("width")) <= 342
        assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
        assert "max-width: 100%" in root.get("style")
        sizes = [int(text.get("font-size", 11)) for text in root.iter(f"{SVG}text")]
        assert min(sizes) >= 10
    assert len(list(parse(draw(wide)).iterfind(f"{SVG}g/{SVG}text"))) == 8


@pytest.mark.parametrize("shape", [(16, 16), (4, 65536), (65536, 4), (16,), ()])
def test_nothing_is_drawn_outside(shape):
    spec = jax.P(*("x", "y")[: len(shape)])
    root = parse(draw(struct(shape, make_mesh((2, 4)), spec)))
    width, height = float(root.get("width")), float(root.get("height"))
    for group in root.iter(f"{SVG}g"):
        x, y, w, h = outline(group)
        assert (x >= 0, y >= 0, x + w <= width, y + h <= height) == (True,) * 4
    for text in root.iter(f"{SVG}text"):
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
    assert len(list(blocks(picture))) == 512
    assert len(picture.svg) < 250_000
    texts = list(parse(picture).iter(f"{SVG}text"))
    assert min(int(text.get("font-size", 11)) for text in texts) >= 10
    assert len(picture.words) < 5_000
    assert max(map(len, picture.text.splitlines())) < 400
    for group, title, _ in blocks(picture):
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


def test_it_has_no_ids_no_scripts_and_the_ink_of_the_page():
    svg = draw(struct((8, 16, 16), make_mesh((2, 2, 2)), jax.P("x", "y"))).svg
    assert not re.search(r"\bid=|<script|<style|href|url\(", svg)
    assert parse(draw(jnp.zeros(3))).get("fill") == "currentColor"


def test_the_bytes_are_the_same_in_every_process(run):
    code = (
        "import jax\nfrom examples.pictures import draw\n"
        "mesh = jax.make_mesh((2, 4), ('x', 'y'))\n"
        "sharding = jax.NamedSharding(mesh, jax.P('x', None))\n"
        "print(draw(sharding, (16, 16))._repr_html_())"
    )
    here = draw(jax.NamedSharding(make_mesh((2, 4)), jax.P("x", None)), (16, 16))
    assert run("-c", code, cwd=SRC) == here._repr_html_() + "\n"


def test_it_prints_on_a_plain_pipe():
    """In ASCII, for pipes that take nothing else."""
    picture = draw(struct((8, 16, 16), make_mesh((2, 2, 2)), jax.P("x", "y", "z")))
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
    mesh = make_mesh((2, 4))
    one = draw(struct((16, 16), mesh, jax.P("x")), title="rows & <blocks>")
    other = draw(struct((16, 16), mesh, jax.P("y")), title="columns")
    row = beside(one, other)
    assert row._repr_html_() == one._repr_html_() + other._repr_html_()
    assert str(row) == f"{one}\n\n{other}"
    assert "rows &amp; &lt;blocks&gt;" in one._repr_html_()
    assert one.text.startswith("rows & <blocks>\n")
    assert (
        ElementTree.fromstring(one._repr_html_().replace("<br>", "<br/>")) is not None
    )


def frames(html):
    """The box around the blocks of each picture in a row: its width and height."""
    found = []
    for svg in re.findall(r"<svg.*?</svg>", html):
        boxes = np.array(
            [outline(g) for g in ElementTree.fromstring(svg).iter(f"{SVG}g")]
        )
        ends = boxes[:, :2] + boxes[:, 2:]
        found.append((ends.max(axis=0) - boxes[:, :2].min(axis=0)).tolist())
    return np.array(found)


@pytest.mark.parametrize(("m", "k", "n"), [(16, 32, 24), (64, 8, 8), (8, 256, 16)])
def test_with_signs_pictures_have_one_scale(m, k, n):
    mesh = make_mesh((2, 4))
    shapes = (m, k), (k, n), (m, n)
    a, b, c = (draw(struct(shape, mesh, jax.P("x", "y"))) for shape in shapes)
    row = beside(a, "@", b, "=", c)
    scales = frames(row._repr_html_()) / np.array(shapes)[:, ::-1]
    blocks = np.array(shapes)[:, ::-1] / [4, 2]
    wide = scales.ravel()[
        (scales * blocks).ravel() > 20.5
    ]  # others are as small as can be
    np.testing.assert_allclose(wide, wide[0], rtol=1e-3)
    assert (scales * blocks >= 19.9).all()
    assert frames(row._repr_html_()).max() <= 320
    assert str(row) == f"{a}\n\n@\n\n{b}\n\n=\n\n{c}"


def test_a_row_of_signs_shows_types_without_axes_and_cuts():
    picture = draw(struct((16, 8), make_mesh((2, 4)), jax.P("x", "y")), title="<a>")
    html = beside(picture, "→", picture, "≤")._repr_html_()
    assert re.findall(r"<code>(.*?)</code>", html) == ["float32[16@x,8@y]"] * 2
    assert re.findall(r">([^<>]+)</text>", html) == [str(d) for d in range(8)] * 2
    assert html.count("&lt;a&gt;") == 2
    assert re.findall(r">([→≤])<", html) == ["→", "≤"]
    assert "axis 0" not in html


def test_three_pictures_in_a_row_are_smaller_than_two():
    """Three of them and their margins are as wide as the site's column of outputs."""
    picture = draw(struct((16, 16), make_mesh((2, 4)), jax.P("x", "y")))
    two, three, six = (
        [float(w) for w in re.findall(r'<svg[^>]* width="(\d+)"', row._repr_html_())]
        for row in (beside(*[picture] * n) for n in (2, 3, 6))
    )
    assert two == [320] * 2
    assert three == six[:3] == six[3:]
    assert sum(three) + 3 * 8 <= 728
    for text in parse(picture).iter(f"{SVG}text"):
        assert int(text.get("font-size", 11)) >= 11  # the same letters in both


@pytest.mark.parametrize("what", [1, None, jax.P("x"), np.ones(8)])
def test_what_is_no_picture_is_not_put_beside_one(what):
    with pytest.raises(ValueError, match="is no picture: pass what `draw` returns"):
        beside(draw(jnp.ones(8)), what)
