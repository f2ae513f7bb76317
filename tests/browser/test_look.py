"""How the built site looks: sizes, widths, contrast, paper; and the way to the text."""

from built_site import AXE, THEME, set_look

PROSE, PLOTS = "algorithms/cg.html", "algorithms/lu.html"
STYLE = "(each, name) => getComputedStyle(each)[name]"
ROWS = """all => all.map(line => {
    const rows = line.clientHeight / parseFloat(getComputedStyle(line).lineHeight);
    return [line.innerText.length, Math.round(rows)]})"""
CONTRAST = """all => {
    const {Color, getContrast} = axe.commons.color;
    const color = (each, name) => {
        const found = new Color();
        found.parseString(getComputedStyle(each)[name]);
        return found;
    };
    const paper = color(document.body, "backgroundColor");
    return all.map(text => getContrast(paper, color(text, "fill")))}"""


def test_a_line_of_prose_has_about_seventy_characters(visit):
    lines = visit().open(PROSE).locator(".bd-article section > p")
    lengths = [length / n for length, n in lines.evaluate_all(ROWS) if n > 3]
    assert 60 < sum(lengths) / len(lengths) < 80


def test_words_in_plots_stand_out(visit):
    """Words on a coloured area choose a colour of their own: a fourth of all may."""
    screen = visit().open(PLOTS)
    screen.evaluate(AXE.read_text())
    for scheme in "light", "dark":
        set_look(screen, scheme, 1280)
        ratios = sorted(screen.locator(".plot text").evaluate_all(CONTRAST))
        assert ratios[len(ratios) // 4] >= 7, scheme


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
    screen = visit().open(PROSE)
    set_look(screen, "dark", 1280)
    screen.evaluate("dispatchEvent(new Event('beforeprint'))")
    screen.emulate_media(media="print")
    assert screen.evaluate(THEME) == "light"
    article, cell = (screen.locator(at).first for at in (".bd-article", "div.cell"))
    assert article.evaluate(STYLE, "printColorAdjust") == "exact"
    assert cell.evaluate(STYLE, "breakInside") == "avoid"
    screen.evaluate("dispatchEvent(new Event('afterprint'))")
    assert screen.evaluate(THEME) == "dark"


def test_the_first_screen_asks_and_answers_with_a_picture(visit):
    screen = visit().open("index.html")
    screen.locator(".explorer .step svg").first.wait_for()
    for at in ".buttons", ".given", ".explorer .lines", ".explorer .step svg":
        boxes = [each.bounding_box() for each in screen.locator(at).all()]
        assert max(box["y"] + box["height"] for box in boxes) <= 900, at
