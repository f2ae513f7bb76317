"""The calculator reckons as Python does, whatever is chosen; it needs no server.

It is tried on a page of its own, with the theme's colours; the site is looked at once.
"""

import json
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import explorers
import pytest
from built_site import AXE, SITE
from explorer_costs import hows, networks, tables, with_algorithm
from test_player import STATIC, THEME
from test_site import audit

from examples.ring_cost import KINDS, least, network_cost

OPERANDS = 0, 1, 100, 4096, 1_048_576, 999_999_937, 2**40
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>Costs</title><link rel="icon" href="data:,"><style>{style}</style></head>
<body><main class="bd-article"><h1>Costs</h1>
<div class="explorer explorer-costs">{tables}</div></main>
<script src="player.js"></script><script src="explore.js"></script></body></html>"""
FILES = "player.js", "explore.js", "explore_costs.js"
COSTS = """([rows, operands]) => rows.map(([counts, ...link]) => operands.map(bytes => {
    const {steps, sent, seconds, bound} = EXPLORERS.costs.cost(counts, bytes, ...link);
    return [steps, sent, seconds, bound];
}))"""
PRICE = "document.querySelector('.explorer-costs .price').dataset"
WALK = """() => {  // press each label of each choice below those that stand
    const place = document.querySelector(".explorer-costs");
    const values = key => [...place.querySelectorAll(`[name=costs-${key}]`)]
        .map(input => input.value);
    const press = (key, value) => place
        .querySelector(`[name=costs-${key}][value="${value}"]`).click();
    const seen = [];
    for (const network of values("network")) {
        press("network", network);
        for (const devices of values("devices")) {
            press("devices", devices);
            for (const how of values("how").length ? values("how") : [""]) {
                if (how) press("how", how);
                for (const kind of values("kind")) {
                    press("kind", kind);
                    const { steps, sent, seconds, bound } = place
                        .querySelector(".price").dataset;
                    seen.push([network, devices, how, kind, +steps, +sent, +seconds,
                        bound, place.querySelector(".result").textContent]);
                }
            }
        }
    }
    return seen;
}"""
CHOSEN = [
    (name, count, how, kind)
    for name, (_, _, shapes, _) in networks().items()
    for count, axes in shapes.items()
    for how in hows(axes)
    for kind in KINDS
]


def python(name, count, how, kind, operand):
    """Return what Python says of a choice."""
    alpha, beta, shapes, _ = networks()[name]
    return network_cost(kind, operand, with_algorithm(shapes[count], how), alpha, beta)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with a page of the calculator, as it lies on the site."""
    place = tmp_path_factory.mktemp("costs")
    for name in FILES:
        (place / name).write_text((STATIC / name).read_text())
    (place / "explorers").mkdir()
    (place / "explorers/costs.js").write_text(explorers.script("costs"))
    lines = "".join(
        f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
        for rows in tables().values()
        for row in rows
    )
    style = THEME + (STATIC / "explore.css").read_text()
    table = f"<table class='answers'>{lines}</table>"
    (place / "page.html").write_text(PAGE.format(style=style, tables=table))
    return place


@pytest.fixture
def open_page(visit, folder):
    """Return a function that opens the page as a file, with an address; it is quiet."""
    visits = []

    def make(address="", **options):
        visits.append(visit(f"{folder.as_uri()}/", **options))
        screen = visits[-1].open(f"page.html{address}")
        screen.wait_for_selector(".explorer-costs.live .price")
        return screen

    yield make
    assert [tab.faults for tab in visits] == [[] for _ in visits]


def read_price(screen):
    """Return steps, bytes, seconds and what bounds them, as the page has them."""
    price = screen.evaluate(f"({{...{PRICE}}})")
    numbers = int(price["steps"]), float(price["sent"]), float(price["seconds"])
    return (*numbers, price["bound"])


# ------------------------------------------------------------------------ the formula


def test_the_script_reckons_as_python_does_to_the_last_bit(open_page):
    screen = open_page()
    data = json.loads(explorers.script("costs").partition(" = ")[2].removesuffix(";\n"))
    rows = []
    for name, count, how, kind in CHOSEN:
        network = data["networks"][name]
        counts = network["counts"][how][str(count)][KINDS.index(kind)]
        rows.append([counts, network["alpha"], network["beta"]])
    found = screen.evaluate(COSTS, [rows, OPERANDS])
    for choice, answers in zip(CHOSEN, found, strict=True):
        for operand, answer in zip(OPERANDS, answers, strict=True):
            assert tuple(answer) == python(*choice, operand), (choice, operand)


def test_every_choice_that_can_be_pressed_shows_what_python_says(open_page):
    rows = open_page().evaluate(WALK)
    assert len(rows) == len(CHOSEN)
    for (name, count, how, kind, *rest), choice in zip(rows, CHOSEN, strict=True):
        assert (name, int(count), how, kind) == choice
        *numbers, words = rest
        expected = python(*choice, 2**20)
        assert tuple(numbers) == expected
        assert f"{expected.steps} steps" in words


# -------------------------------------------------------------------------- the bytes


def test_the_slider_and_the_field_say_the_same(open_page):
    screen = open_page()
    slider, field = screen.locator("[type=range]"), screen.locator("[type=number]")
    for power in (0, 11, 30, 40):
        slider.fill(str(power))
        assert field.input_value() == str(2**power)
        assert read_price(screen) == python("TPU v5p", 64, "", "all-reduce", 2**power)
    for operand, power in (0, 0), (3_000, 12), (2_000_000_000, 31):
        field.fill(str(operand))
        assert slider.input_value() == str(power)
        assert read_price(screen) == python("TPU v5p", 64, "", "all-reduce", operand)
    assert slider.get_attribute("aria-valuetext") == "1.86 GiB"


@pytest.mark.parametrize("words", ["-5", "0.5", "", str(2**41)])
def test_a_number_of_bytes_that_is_none_changes_nothing(open_page, words):
    screen = open_page()
    screen.locator("[type=number]").fill(words)
    assert read_price(screen) == python("TPU v5p", 64, "", "all-reduce", 2**20)


def test_a_slider_is_drawn_along_and_stays(open_page):
    screen = open_page()
    slider = screen.locator("[type=range]")
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    middle = box["y"] + box["height"] / 2
    screen.mouse.move(box["x"] + box["width"] / 2, middle)
    screen.mouse.down()
    for part in (0.6, 0.7, 0.8, 0.95):
        screen.mouse.move(box["x"] + part * box["width"], middle)
    screen.mouse.up()
    assert int(slider.input_value()) > 35


# --------------------------------------------------------------- keyboard and address


def test_the_keyboard_reaches_all_choices_and_keeps_its_place(open_page):
    screen = open_page()
    screen.locator("[name=costs-kind][value=all-reduce]").focus()
    screen.keyboard.press("ArrowRight")
    assert read_price(screen) == python("TPU v5p", 64, "", "all-to-all", 2**20)
    for _ in range(2):  # a machine, and the devices
        screen.keyboard.press("Tab")
    assert screen.evaluate("document.activeElement.name") == "costs-devices"
    screen.keyboard.press("ArrowRight")
    screen.keyboard.press("ArrowRight")
    assert read_price(screen) == python("TPU v5p", 256, "", "all-to-all", 2**20)
    screen.keyboard.press("Tab")
    assert screen.evaluate("document.activeElement.name") == "costs-power"
    screen.keyboard.press("ArrowRight")
    screen.keyboard.press("ArrowRight")
    assert read_price(screen) == python("TPU v5p", 256, "", "all-to-all", 2**22)


def test_an_address_leads_to_its_answer(open_page):
    screen = open_page()
    screen.locator("[name=costs-network][value='H100, NVLink']").check(force=True)
    screen.locator("[name=costs-how][value=doubling]").check(force=True)
    screen.locator("[type=number]").fill("5000")
    expected = python("H100, NVLink", 8, "doubling", "all-reduce", 5000)
    assert read_price(screen) == expected
    chosen = {"kind": "all-reduce", "network": "H100, NVLink", "devices": "8"}
    chosen |= {"how": "doubling", "bytes": "5000"}
    again = open_page(f"?costs={quote(urlencode(chosen))}")
    assert read_price(again) == expected
    assert again.locator("[name=costs-how]:checked").input_value() == "doubling"


def test_an_address_is_kept_of_what_is_chosen(visit, server):
    """A page that was opened as a file may not change its address in each browser."""
    screen = on_the_site(visit(server))
    screen.locator("[name=costs-devices][value='128']").check(force=True)
    [query] = parse_qs(urlsplit(screen.url).query)["costs"]
    assert parse_qs(query)["devices"] == ["128"]


@pytest.mark.parametrize(
    "asked",
    [
        "nonsense",
        "network=Cray&devices=-3",
        "kind=psum&bytes=1e9",
        "devices=1e99&how=x",
    ],
)
def test_an_address_that_makes_no_sense_is_read_as_far_as_it_does(open_page, asked):
    screen = open_page(f"?costs={quote(asked)}")
    steps, _, seconds, _ = read_price(screen)
    assert steps > 0
    assert seconds > 0
    for key in "kind", "network", "devices":
        assert screen.locator(f"[name=costs-{key}]:checked").count() == 1


# ----------------------------------------------------------------------- what is told


def test_the_least_is_what_python_says(open_page):
    text = open_page().locator(".answer").inner_text()
    far, needed = least("all-reduce", networks()["TPU v5p"].axes[64])
    assert f"the farthest device is {far} steps away" in text
    assert f"must get {int(needed * 1024)} KiB over each of its links" in text
    assert "= 12 \u00d7 1 µs + 344,064 B / 90 GB/s" in text
    assert "= 12 µs + 3.82 µs = 15.8 µs" in text


def test_links_lead_to_the_sources(open_page):
    screen = open_page()
    links = screen.locator(".answer .versions a")
    found = [link.get_attribute("href") for link in links.all()]
    assert found == [*networks()["TPU v5p"].sources]
    screen.locator("[name=costs-network][value=switch]").check(force=True)
    assert "invented" in screen.locator(".answer .versions").inner_text()


# ------------------------------------------------------------------------ on the site

COST = "global-view/cost.html"


def on_the_site(tab, wait=".live .price"):
    screen = tab.open(COST)
    screen.locator(".explorer-costs").scroll_into_view_if_needed()
    screen.wait_for_selector(f".explorer-costs{wait}")
    return screen


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_on_its_page_it_fits_and_is_accessible(visit, scheme, width):
    tab = visit(width=width, scheme=scheme)
    screen = on_the_site(tab)
    assert screen.evaluate("document.documentElement.scrollWidth") <= width
    screen.evaluate(AXE.read_text())
    assert audit(screen, include=[[".explorer-costs"]]) == []
    assert tab.faults == []


def test_it_works_from_the_file_system(visit):
    tab = visit(SITE.as_uri() + "/")
    screen = on_the_site(tab)
    screen.locator("[name=costs-kind][value=all-gather]").check(force=True)
    assert read_price(screen) == python("TPU v5p", 64, "", "all-gather", 2**20)
    assert tab.faults == []


def test_without_scripts_and_on_paper_tables_stand_there(visit):
    rows = sum(map(len, tables().values()))
    screen = visit(java_script_enabled=False).open(COST)
    assert screen.locator(".explorer-costs tr:visible").count() == rows
    assert screen.locator(".explorer-costs form").count() == 0
    screen = on_the_site(visit())
    screen.emulate_media(media="print")
    assert screen.locator(".explorer-costs tr:visible").count() == rows
    assert not screen.locator(".explorer-costs form").is_visible()
