"""How the built site looks: sizes, widths, contrast, paper; and the way to the text."""

import pytest

PROSE, PLOTS = "algorithms/cg.html", "algorithms/lu.html"
THEME = "document.documentElement.dataset.theme"
STYLE = "([at, name]) => getComputedStyle(document.querySelector(at))[name]"
ROWS = """() => [...document.querySelectorAll(".bd-article section > p")].map(line => {
    const rows = line.clientHeight / parseFloat(getComputedStyle(line).lineHeight);
    return [line.innerText.length, Math.round(rows)]})"""
CONTRAST = """() => {
    const linear = c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const light = colour => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(c => linear(c / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b};
    const paper = light(getComputedStyle(document.body).backgroundColor);
    return [...document.querySelectorAll(".plot text")].map(text => {
        const ink = light(getComputedStyle(text).fill);
        return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05)})}"""
BOXES = """at => [...document.querySelectorAll(at)].map(each => {
    const {left, top, right, bottom} = each.getBoundingClientRect();
    return [left, top, right, bottom]})"""


def test_a_line_of_prose_has_about_seventy_characters(visit):
    rows = visit().open(PROSE).evaluate(ROWS)
    lengths = [length / count for length, count in rows if count > 3]
    assert lengths
    assert 60 < sum(lengths) / len(lengths) < 80


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_in_plots_stand_out(visit, scheme):
    """Words on a coloured area choose a colour of their own: a fourth of all may."""
    screen = visit(scheme=scheme).open(PLOTS)
    screen.wait_for_function(f"{THEME} == '{scheme}'")
    ratios = sorted(screen.evaluate(CONTRAST))
    assert ratios[len(ratios) // 4] >= 7


def test_the_text_is_one_tab_away_and_the_contents_are_folded(visit):
    screen = visit().open(PROSE)
    screen.keyboard.press("Tab")
    assert screen.evaluate("document.activeElement.hash") == "#main-content"
    stops = 0
    while not screen.evaluate("document.activeElement.closest('main') != null"):
        screen.keyboard.press("Tab")
        stops += 1
        assert stops < 35
    assert screen.locator("nav.bd-links a.current").is_visible()
    assert screen.locator("nav.bd-links details[open]").count() == 1


def test_paper_is_white_and_keeps_colours(visit):
    screen = visit(scheme="dark").open(PROSE)
    screen.wait_for_function(f"{THEME} == 'dark'")
    screen.evaluate("dispatchEvent(new Event('beforeprint'))")
    screen.emulate_media(media="print")
    assert screen.evaluate(THEME) == "light"
    assert screen.evaluate(STYLE, [".bd-article", "printColorAdjust"]) == "exact"
    assert screen.evaluate(STYLE, ["div.cell", "breakInside"]) == "avoid"
    screen.evaluate("dispatchEvent(new Event('afterprint'))")
    assert screen.evaluate(THEME) == "dark"


def test_the_first_screen_asks_and_answers_with_a_picture(visit):
    screen = visit().open("index.html")
    screen.wait_for_selector(".explorer .step svg")
    for at in ".buttons", ".given", ".explorer .lines", ".explorer .step svg":
        boxes = screen.evaluate(BOXES, at)
        assert boxes, at
        assert all(bottom <= 900 for *_, bottom in boxes), at


@pytest.mark.parametrize("width", [1280, 390])
def test_the_boxes_of_the_map_stand_apart_in_their_columns(visit, width):
    screen = visit(width=width).open("index.html")
    boxes = screen.evaluate(BOXES, ".part-map .part")
    for n, (left, top, right, bottom) in enumerate(boxes):
        assert 0 <= left < right <= width
        for west, north, east, south in boxes[:n]:
            assert right <= west or east <= left or bottom <= north or south <= top
    assert len({left for left, *_ in boxes}) == 5
