"""A cube shows the blocks of three axes that are seen, and names those behind them."""

import itertools
import re
from xml.etree import ElementTree

import jax
import numpy as np
import pytest
from pictures.test_pictures import SVG, contrast, outline

from examples.cubes import cube
from examples.pictures import beside, draw
from examples.views import missing

SLABS, PENCILS = jax.P(("x", "y", "z")), jax.P(None, "x", ("y", "z"))
SPECS = [jax.P("x", "y", "z"), SLABS, jax.P("z", None, "x"), jax.P()]


def picture(spec, shape=(8, 16, 32), sizes=(2, 2, 2), some=slice(None)):
    mesh = jax.make_mesh(sizes, tuple("xyz"[: len(sizes)]), devices=jax.devices()[some])
    return draw(jax.NamedSharding(mesh, spec), shape)


def faces(drawn):
    """Of each face: its corners in the picture, and the block that its title says."""
    for group in ElementTree.fromstring(drawn.svg).findall(f"{SVG}g"):
        matrix = re.findall(r"-?[\d.]+", group.get("transform"))
        a, b, c, d, e, f = map(float, matrix)
        wide, high = outline(group)[2:]
        ends = [(0, 0), (wide, 0), (wide, high), (0, high)]
        corners = [(a * x + c * y + e, b * x + d * y + f) for x, y in ends]
        title = group.find(f"{SVG}g/{SVG}title").text
        spans = re.search(r"\[(.*)\]", title)[1].split(", ")
        yield np.array(corners), tuple(tuple(map(int, s.split(":"))) for s in spans)


def sides(drawn):
    """Of the front, the top and the side: the middle of each face, by its block."""
    found = {}
    for corners, block in faces(drawn):
        edges = np.sign(np.round(np.diff(corners, axis=0)[:2], 2))
        side = found.setdefault(edges.tobytes(), {})
        side[tuple(start for start, _ in block)] = corners.mean(axis=0)
    return [*found.values()]


def inside(point, corners):
    turns, away = (np.roll(corners, -1, axis=0) - corners).T, (point - corners).T
    crossed = turns[0] * away[1] - turns[1] * away[0]
    return (crossed > 1e-6).all() or (crossed < -1e-6).all()


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_block_is_drawn_or_listed_as_behind_others(spec):
    """Its numbers are those of its devices, here in another order."""
    drawn = cube(picture(spec, some=slice(None, None, -1)))
    hidden = dict(drawn.holders)
    for _, block in faces(drawn):
        at = (c.index(start) for c, (start, _) in zip(drawn.cuts, block, strict=True))
        hidden.pop(tuple(at), None)
    behind = drawn.caption.partition("behind others: ")[2]
    assert behind == ", ".join(map(str, sorted(sum(hidden.values(), ()))))
    for group in ElementTree.fromstring(drawn.svg).findall(f"{SVG}g/{SVG}g"):
        title = group.find(f"{SVG}title").text.split("[")[0]
        texts = {t.text for t in group.iter(f"{SVG}text") if t.text.isdigit()}
        assert texts <= {*re.findall(r"\d+", title)}


def test_of_eight_blocks_the_lower_left_one_behind_is_hidden():
    assert cube(picture(SPECS[0])).caption.endswith("behind others: 6")


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_faces_lie_beside_each_other(spec):
    """The middle of a face is in no other face."""
    found = [corners for corners, _ in faces(cube(picture(spec)))]
    for corners in found:
        middle = corners.mean(axis=0)
        assert [inside(middle, other) for other in found].count(True) == 1
        assert inside(middle, corners)


@pytest.mark.parametrize("spec", SPECS[:-1], ids=str)
def test_the_axes_go_back_down_and_to_the_right(spec):
    """On each side, a block that is further along an axis lies where the axis goes."""
    moves, moved = np.array([[0.866, -0.5], [0, 1], [0.866, 0.5]]), 0
    for side in sides(cube(picture(spec))):
        for (one, at), (other, there) in itertools.permutations(side.items(), 2):
            step = np.sign(np.subtract(other, one))
            if np.count_nonzero(step) == 1:
                way = (there - at) / np.linalg.norm(there - at)
                np.testing.assert_allclose(way, step @ moves, atol=0.01)
                moved += 1
    assert moved


@pytest.mark.parametrize(("shape", "wide"), [((64, 4, 4), 320), ((4, 4, 256), 226)])
def test_nothing_is_drawn_outside(shape, wide):
    drawn = cube(picture(SPECS[0], shape))
    root = ElementTree.fromstring(drawn.at(wide))
    size = np.array([float(root.get("width")), float(root.get("height"))])
    assert size[0] <= wide
    for text in root.findall(f"{SVG}text"):
        place = [float(n) for n in re.findall(r"-?[\d.]+", text.get("transform"))[4:]]
        assert (np.zeros(2) < place).all()
        assert (place < size).all()
    end = ElementTree.fromstring(drawn.svg)
    corners = np.concatenate([corners for corners, _ in faces(drawn)])
    assert (corners > 0).all()
    assert (corners < [float(end.get("width")), float(end.get("height"))]).all()


def test_text_on_the_darkest_side_is_read_as_well_as_axe_asks():
    """Black of 20 % lies on both, the colour and the letters."""
    svg = cube(picture(SPECS[0])).svg
    assert max(map(float, re.findall(r'fill-opacity="([\d.]+)"', svg))) == 0.2
    fills = set(re.findall(r'<polygon points="[^"]*" fill="(#\w+)"', svg))
    (ink,) = set(re.findall(r'<text[^>]* fill="(#\w+)"', svg))
    assert len(fills) >= 7
    assert all(contrast(fill, ink, dim=0.8) > 4.5 for fill in fills)


def test_a_cube_has_the_words_of_its_picture():
    plain = picture(SPECS[0])
    assert cube(plain).words == plain.words
    assert str(cube(plain)).splitlines()[1:] == str(plain).splitlines()[1:]
    assert beside(cube(plain), "→", plain)._repr_html_().count("<svg") == 2


def test_what_is_missing_is_hatched_on_a_cube():
    before, after = picture(jax.P(None, "x", "y")), picture(jax.P("x", None, "y"))
    drawn = cube(missing(before, after))
    hatched = [t for t in re.findall(r"<g><title>.*?</g>", drawn.svg) if "<path" in t]
    assert 0 < len(hatched) < len(list(faces(drawn)))
    assert "behind others" in drawn.caption


@pytest.mark.parametrize("shape", [(), (8, 8)])
def test_fewer_axes_are_no_cube(shape):
    with pytest.raises(ValueError, match="a cube has three axes, not the shape"):
        cube(picture(jax.P(), shape))
