"""An explorer shows each answer that is stored, by mouse, by keys and from an address.

Without script, and on paper, its tables stand there. The pages are those of the site.
"""

import random
import re

import explorer_sends
import explorer_specs
import explorers
import jax
import pytest
from built_site import FILES, OVERFLOW, audit
from explorer_costs import hows, networks, with_algorithm

from examples.cubes import cube
from examples.pictures import draw
from examples.ring_cost import KINDS, least, network_cost

PLACES = {
    "sends": ("reference/sends.html", ".explorer-sends"),
    "door": ("index.html", ".explorer-sends"),
    "specs": ("arrays/meshes.html", ".explorer-specs:not([class*=answers])"),
    "two-by-four": ("arrays/picture_to_spec.html", ".answers-two-by-four"),
    "costs": ("global-view/cost.html", ".explorer-costs"),
}
# Choose what each question says, and return the texts that then stand there.
WALK = """(place, [name, questions, texts]) => {
    history.replaceState = () => {};  // a browser does not bear so many
    const form = place.querySelector("form");
    const all = at => [...form.querySelectorAll(at)].map(each => each.textContent);
    return questions.map(question => {
        for (const [key, value] of Object.entries(question)) {
            const at = `[name="${name}-${key}"][value="${CSS.escape(value)}"]`;
            const input = form.querySelector(at);
            if (!input.checked) input.click();
        }
        const found = Object.entries(texts).map(([key, at]) => [key, all(at)]);
        const price = form.querySelector(".price")?.dataset;
        return {...Object.fromEntries(found), price: {...price}};
    });
}"""
COSTS = """([rows, operands]) => rows.map(([counts, ...link]) => operands.map(bytes => {
    const {steps, sent, seconds, bound} = EXPLORERS.costs.cost(counts, bytes, ...link);
    return [steps, sent, seconds, bound];
}))"""
THEME = "document.documentElement.dataset.theme"
SMALL = "all => all.filter(e => e.getBoundingClientRect().height < 40).length"
SCROLL = """(place, y) => scrollBy(
    0, place.querySelector(".asks").getBoundingClientRect().top - y)"""
LEFT = """place => innerHeight
    - place.querySelector(".foot").getBoundingClientRect().bottom"""


@pytest.fixture
def explore(visit):
    """Return a function that opens the page of an explorer; it returns its place."""

    def make(name, query="", **options):
        path, at = PLACES[name]
        place = visit(**options).open(path + query).locator(at)
        place.evaluate("place => place.scrollIntoView()")
        place.locator("form").wait_for()
        return place

    return make


def count_rows(name):
    """Count the rows of an explorer's tables."""
    return sum(map(len, explorers.load(name).tables().values()))


# ------------------------------------------------------------------ every explorer


@pytest.mark.parametrize("name", ["sends", "specs", "costs"])
def test_without_script_and_on_paper_the_tables_stand_there(visit, explore, name):
    path, at = PLACES[name]
    place = visit(java_script_enabled=False).open(path).locator(at)
    assert place.locator("tr:visible").count() == count_rows(name)
    place = explore(name)
    assert place.locator("tr:visible").count() == 0
    place.page.emulate_media(media="print")
    assert place.locator("tr:visible").count() == count_rows(name)
    assert not place.locator("form").is_visible()


def test_an_arrow_key_chooses_the_next_and_leaves_the_focus(explore):
    place = explore("costs")
    inputs = place.locator("fieldset").first.locator("input")
    inputs.first.check(force=True)
    inputs.first.focus()
    place.page.keyboard.press("ArrowRight")
    assert inputs.nth(1).is_checked()
    assert inputs.nth(1).evaluate("input => input == document.activeElement")


@pytest.mark.parametrize("name", PLACES)
def test_an_explorer_fits_and_is_accessible(explore, name):
    place = explore(name)
    for scheme, width in ("light", 1280), ("dark", 390):
        place.page.emulate_media(color_scheme=scheme)
        place.page.set_viewport_size({"width": width, "height": 900})
        place.page.wait_for_function(f"{THEME} == '{scheme}'")
        assert not place.page.evaluate(OVERFLOW)
        assert audit(place.page, include=[[PLACES[name][1]]]) == []
    assert place.locator("label > span, button").evaluate_all(SMALL) == 0


def test_on_a_phone_the_answer_stays_in_sight_once_choices_are_made(explore):
    place = explore("sends", width=390)
    place.page.evaluate("document.querySelector('main').style.paddingTop = '60rem'")
    place.evaluate(SCROLL, 700)
    place.locator("form:not(.begun)").wait_for()
    assert place.evaluate(LEFT) < 0
    place.evaluate(SCROLL, 200)
    place.locator("form.begun").wait_for()
    assert abs(place.evaluate(LEFT)) <= 1
    answer = place.locator(".result").text_content()
    assert place.locator(".foot").inner_text() == answer


def test_an_address_leads_to_its_answer_and_a_wrong_one_to_the_first(explore):
    place = explore("costs")
    first = place.locator(".answer").inner_text()
    for key, value in ("network", "H100, NVLink"), ("how", "doubling"):
        place.locator(f"[name=costs-{key}][value='{value}']").check(force=True)
    words = place.locator(".answer").inner_text()
    assert words != first
    again = explore("costs", f"?{place.page.url.partition('?')[2]}")
    assert again.locator(".answer").inner_text() == words
    wrong = explore("costs", "?costs=network%3DCray%26bytes%3D1e9%26kind%3Dpsum")
    assert wrong.locator(".answer").inner_text() == first
    place = explore("specs", "?specs=mesh%3D9%26axis0%3Dq")  # the mesh has no axis q
    assert place.locator(".type").inner_text() == "float32[16,32@y]"


# ------------------------------------------------------------------ sends

READ = {
    "[4096@(x,y), 8192]": "4096 cut in 8 over mesh axes x and y",
    "[2048@y, 4096@x]": "2048 cut in 4 over mesh axis y, 4096 cut in 2 over x",
    "[2048, 8192]": "whole on every device",
}
SAYS = {
    "sends": ".cards strong",
    "holds": ".cards small",
    "result": ".result",
    "steps": ".step b",
    "explicit": ".answer > p:nth-of-type(2)",
    "lines": ".lines code",
    "beside": ".lines em",
}


def question_of(line, specs, result):
    """Return what to choose for a row of the table."""
    if line == explorer_sends.PRODUCT:
        x, w = specs.split()
        return {"ask": "product", "x": x, "w": w, "to": result}
    if line == explorer_sends.RESHARD:
        return {"ask": "reshard", "from": specs, "into": result}
    return {"ask": "operation", "spec": specs, "line": line}


def rows_of(*key):
    """Return the rows of a question, one of each machine."""
    return [explorer_sends.rows()[*key, m] for m in explorer_sends.MACHINES]


def check_sends(state, key, machine):
    """Compare what stands there for a question with the table."""
    amount, rows = explorer_sends.format_bytes, rows_of(*key)
    row = rows[machine]
    assert state["sends"] == [amount(each["sent"]) for each in rows]
    assert state["holds"] == [f"temporaries {amount(each['held'])}" for each in rows]
    start = f"Each of eight devices sends {amount(row['sent'])}. The result: "
    start += f"{row['output']}, "
    assert state["result"][0].startswith(start + READ.get(row["output"], ""))
    assert state["steps"] == re.findall(r"\d+ ([a-z-]+) of", row["collectives"])
    assert explorer_sends.trim(rows[0]["explicit"]) in state["explicit"][0]
    for line, beside in zip(state["lines"], state["beside"], strict=True):
        sent = [amount(each["sent"]) for each in rows_of(line, key[1], "")]
        assert beside == sent[machine] + " ≠" * (len({*sent}) > 1)


def test_each_state_of_the_sends_says_what_is_stored(explore):
    """The machines take turns in being looked at closely."""
    keys = sorted({key[:3] for key in explorer_sends.rows()})
    assert {rows_of(*key)[0]["output"] for key in keys} >= READ.keys()
    questions = [
        {"machine": str(n % 3), **question_of(*key)} for n, key in enumerate(keys)
    ]
    found = explore("sends").evaluate(WALK, ["sends", questions, SAYS])
    for n, (key, state) in enumerate(zip(keys, found, strict=True)):
        check_sends(state, key, n % 3)


def test_the_front_page_says_what_is_stored(explore):
    place, door = explore("door"), explorer_sends.FRONT_PAGE
    assert not place.locator(".foot").is_visible()  # it is for phones
    assert place.locator(".lines code").all_inner_texts() == door["lines"]
    labels = place.locator(".specs label").all_inner_texts()
    assert [each.split("\n")[-1] for each in labels] == [*door["specs"].values()]
    keys = [(line, spec, "") for spec in door["specs"] for line in door["lines"]]
    questions = [{"spec": spec, "line": line, "machine": "1"} for line, spec, _ in keys]
    found = place.evaluate(WALK, ["sends", questions, SAYS])
    for key, state in zip(keys, found, strict=True):
        check_sends(state, key, 1)


# ------------------------------------------------------------------ specs


def test_each_state_of_the_specs_says_what_is_stored(explore):
    keys = [key for key in explorer_specs.rows() if not key[0]]
    questions = [spec_question(*key[1:]) for key in keys]
    texts = {"type": ".type", "error": ".refused", "facts": "dd", "code": "pre"}
    texts["pictures"] = ".shown svg"
    found = explore("specs").evaluate(WALK, ["specs", questions, texts])
    for (_, mesh, shape, spec), state in zip(keys, found, strict=True):
        row = explorer_specs.rows()["", mesh, shape, spec]
        assert state["type"] + state["error"] == [row["type"] or row["error"]]
        facts = [row["bytes"], row["copies"], row["holds"]] if row["type"] else []
        assert state["facts"] == facts
        assert len(state["pictures"]) == bool(facts)
        made = explorer_specs.MESHES[mesh]
        assert state["code"] == [explorer_specs.code(made, shape, spec)]


def spec_question(mesh, shape, spec):
    """Return what to choose for a mesh, a shape and a spec."""
    dims = {f"axis{n}": dim for n, dim in enumerate(spec.split(","))}
    return {"mesh": mesh} | ({"shape": shape} if shape else {}) | dims


def test_the_pictures_of_the_specs_are_those_of_the_modules(explore):
    place = explore("specs")
    rows = [row for row in explorer_specs.rows().values() if row["type"]]
    for row in random.sample(rows, 10):
        question = spec_question(row["mesh"], row["shape"], row["spec"])
        place.evaluate(WALK, ["specs", [question], {}])
        found = place.locator(".shown svg").evaluate("svg => svg.outerHTML")
        with jax.set_mesh(eval(f"jax.make_mesh({explorer_specs.MESHES[row['mesh']]})")):
            where = eval(explorer_specs.spec(row["spec"]))
            picture = draw(where, explorer_specs.sizes(row["shape"]))
        whole = cube(picture) if picture.shape[2:] else picture
        assert flatten(found) == flatten(whole.at(explorer_specs.WIDE))


def flatten(svg):
    """Return the shapes of a picture with three digits, however they are written."""
    svg = re.sub(r"<title>.*?</title>|^<svg[^>]*>|</svg>$", "", svg)
    svg = re.sub(r"\d+\.\d+", lambda found: f"{float(found[0]):.3g}", svg)
    svg = re.sub(r"></(?:rect|polygon|path|line)>", "/>", svg).replace(" >", ">")
    return re.sub(r'<rect[^>]*opacity="0"/>', "", svg)


def test_each_answer_to_an_exercise_gets_the_words_of_the_judge(explore):
    place, name = explore("two-by-four"), "two-by-four"
    assert place.locator("input:checked").count() == 0
    rows = {key: row for key, row in explorer_specs.rows().items() if key[0] == name}
    questions = [spec_question(mesh, "", spec) for _, mesh, _, spec in rows]
    texts = {"words": ".verdict strong, .verdict li", "pictures": ".shown svg"}
    found = place.evaluate(WALK, [name, questions, texts])
    for row, state in zip(rows.values(), found, strict=True):
        lines = row["verdict"].splitlines()
        assert state["words"] == [line.removeprefix("- ") for line in lines]
        assert len(state["pictures"]) == 1 + bool(row["holds"])


# ------------------------------------------------------------------ costs

OPERANDS = 0, 1, 100, 4096, 1_048_576, 999_999_937, 2**40
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


def read_price(price):
    """Return steps, bytes, seconds and what bounds them, as the page has them."""
    numbers = int(price["steps"]), float(price["sent"]), float(price["seconds"])
    return (*numbers, price["bound"])


def test_the_script_reckons_as_python_does_to_the_last_bit(explore):
    screen, rows = explore("costs").page, []
    data = screen.evaluate("shardbook.costs.networks")
    for name, count, how, kind in CHOSEN:
        counts = data[name]["counts"][how][str(count)][[*KINDS].index(kind)]
        rows.append([counts, data[name]["alpha"], data[name]["beta"]])
        axes = with_algorithm(networks()[name].axes[count], how)
        far, needed = least(kind, axes)
        assert counts[3:5] == [far, needed * counts[5]]
    found = screen.evaluate(COSTS, [rows, OPERANDS])
    for choice, answers in zip(CHOSEN, found, strict=True):
        for operand, answer in zip(OPERANDS, answers, strict=True):
            assert tuple(answer) == python(*choice, operand), (choice, operand)


def test_every_choice_of_the_costs_shows_what_python_says(explore):
    """On a page that is opened as a file."""
    keys = "network", "devices", "how", "kind"
    questions = [dict(zip(keys, map(str, choice), strict=True)) for choice in CHOSEN]
    questions = [{k: v for k, v in each.items() if v} for each in questions]
    walk = ["costs", questions, {"result": ".result"}]
    found = explore("costs", base=FILES).evaluate(WALK, walk)
    for choice, state in zip(CHOSEN, found, strict=True):
        expected = python(*choice, 2**20)
        assert read_price(state["price"]) == expected
        assert f"{expected.steps} steps" in state["result"][0]


def test_the_bytes_are_chosen_by_a_slider_and_by_a_field(explore):
    place = explore("costs")
    slider, field = place.locator("[type=range]"), place.locator("[type=number]")

    def check(words, power, operand):
        assert (field.input_value(), slider.input_value()) == (words, str(power))
        price = place.locator(".price").evaluate("price => ({...price.dataset})")
        choice = "TPU v5p", 64, "", "all-reduce", operand
        assert read_price(price) == python(*choice)

    thumb = slider.element_handle()
    for power in 0, 11, 40:
        slider.fill(str(power))
        assert thumb.evaluate("slider => slider.isConnected")  # and is drawn along
        check(str(2**power), power, 2**power)
    for operand, power in (0, 0), (3_000, 12), (2_000_000_000, 31):
        field.fill(str(operand))
        check(str(operand), power, operand)
    assert slider.get_attribute("aria-valuetext") == "1.86 GiB"
    for words in "-5", "0.5", "", str(2**41):  # change nothing
        field.fill(words)
        check(words, 31, 2_000_000_000)


def test_the_answer_states_the_least_the_formula_and_its_sources(explore):
    answer = explore("costs").locator(".answer")
    text = answer.inner_text()
    far, needed = least("all-reduce", networks()["TPU v5p"].axes[64])
    assert f"the farthest device is {far} steps away" in text
    assert f"must get {int(needed * 1024)} KiB over each of its links" in text
    assert "= 12 \u00d7 1 µs + 344,064 B / 90 GB/s" in text
    assert "= 12 µs + 3.82 µs = 15.8 µs" in text
    links = answer.locator(".versions a").evaluate_all("all => all.map(a => a.href)")
    assert links == [*networks()["TPU v5p"].sources]
