"""An explorer shows each answer that is stored, by mouse, by keys and from an address.

Without script, and on paper, its tables stand there. The pages are those of the site.
"""

import re
from html import unescape

import explorer_costs
import explorer_sends
import explorers
import pytest
from built_site import FILES, OVERFLOW, audit

from examples.ring_cost import least, network_cost

PLACES = {
    "sends": ("reference/sends.html", ".explorer-sends"),
    "door": ("index.html", ".explorer-sends"),
    "specs": ("arrays/meshes.html", ".explorer-specs:not([class*=answers])"),
    "two-by-four": ("arrays/picture_to_spec.html", ".answers-two-by-four"),
    "costs": ("global-view/cost.html", ".explorer-costs"),
}
ASKED = {  # the names of what is chosen, in the order of an answer's key
    "operation": ("ask", "spec", "line", "machine"),
    "product": ("ask", "x", "w", "to", "machine"),
    "reshard": ("ask", "from", "into", "machine"),
    "specs": ("mesh", "shape", "axis0", "axis1", "axis2"),
    "costs": ("kind", "network", "devices", "how"),
}
# Choose what each question says; return what then stands there, and if it is too wide.
WALK = """(place, questions) => {
    history.replaceState = () => {};  // a browser does not bear so many
    const form = place.querySelector("form");
    return questions.map(question => {
        for (const [name, value] of question) {
            const at = `[name="${name}"][value="${CSS.escape(value)}"]`;
            if (!form.querySelector(at).checked) form.querySelector(at).click();
        }
        return [form.querySelector(".gets").textContent.replace(/\\s/g, ""), %s];
    });
}"""
THEME = "document.documentElement.dataset.theme"
SMALL = "all => all.filter(e => e.getBoundingClientRect().height < 40).length"


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


# ------------------------------------------------------------------ every state


def text_of(html):
    """Return what HTML shows, without spaces."""
    return "".join(unescape(re.sub(r"<[^>]*>", "", html)).split())


def stored_states(name, variant=""):
    """Yield all that can be chosen, and what then stands there; machines take turns."""
    data = explorers.load(name).data()
    own = data | data["variants"].get(variant, {})
    for number, (key, (cards, *answers)) in enumerate(own["answers"].items()):
        values, card = key.split("|"), number % len(answers)
        names = ASKED.get(values[0], ASKED["specs"])
        html = re.sub(
            r"\{(\d+)\}",
            lambda number: data["pictures"][int(number[1])],
            cards + answers[card] + own["source"],
        )
        values += [str(card)] * (len(answers) > 1)
        yield [*zip(names, values, strict=False)], text_of(html)


def door_states():
    """Yield the states of the front page, which has a few lines and one question."""
    few = explorer_sends.FRONT_PAGE
    for question, text in stored_states("sends"):
        (_, ask), (_, spec), (_, line), *_ = question
        if ask == "operation" and spec in few["specs"] and line in few["lines"]:
            yield question[1:], text


def costs_states():
    """Yield all choices, and what they cost for a mebibyte."""
    for key, axes in explorer_costs.choices():
        alpha, beta, *_ = explorer_costs.networks()[key[1]]
        cost, (far, _) = (
            network_cost(key[0], 2**20, axes, alpha, beta),
            least(key[0], axes),
        )
        time = explorer_costs.format_time(cost.seconds)
        text = f"{time} for a.*: {cost.steps} steps.*farthest device is {far} step"
        yield [*zip(ASKED["costs"], key, strict=False)], re.sub(r"\s", "", text)


STATES = {
    "sends": stored_states("sends"),
    "door": door_states(),
    "specs": stored_states("specs"),
    "two-by-four": stored_states("specs", "answers-two-by-four"),
    "costs": costs_states(),
}


@pytest.mark.parametrize("name", STATES)
def test_every_state_shows_what_is_stored_at_two_widths(explore, server, name):
    """The calculator on a page that is opened as a file."""
    states = [*STATES[name]]
    for width in 1280, 390:
        base = FILES if name == "costs" else server
        place = explore(name, base=base, width=width)
        found = place.evaluate(WALK % OVERFLOW, [question for question, _ in states])
        for (question, text), (shown, is_wide) in zip(states, found, strict=True):
            assert shown == text or re.search(text, shown), question
            assert not is_wide, question


# ------------------------------------------------------------------ every explorer


@pytest.mark.parametrize("name", ["sends", "specs", "costs"])
def test_without_script_and_on_paper_the_tables_stand_there(visit, explore, name):
    path, at = PLACES[name]
    count = sum(map(len, explorers.load(name).tables().values()))
    place = visit(java_script_enabled=False).open(path).locator(at)
    assert place.locator("tr:visible").count() == count
    place = explore(name)
    assert place.locator("tr:visible").count() == 0
    place.page.emulate_media(media="print")
    assert place.locator("tr:visible").count() == count
    assert not place.locator("form").is_visible()


@pytest.mark.parametrize("name", PLACES)
def test_an_explorer_is_accessible(explore, name):
    place = explore(name)
    for scheme, width in ("light", 1280), ("dark", 390):
        place.page.emulate_media(color_scheme=scheme)
        place.page.set_viewport_size({"width": width, "height": 900})
        place.page.wait_for_function(f"{THEME} == '{scheme}'")
        assert audit(place.page, include=[[PLACES[name][1]]]) == []
    assert place.locator("label > span, button").evaluate_all(SMALL) == 0


def test_an_arrow_key_chooses_the_next_and_leaves_the_focus(explore):
    place = explore("costs")
    inputs = place.locator("fieldset").first.locator("input")
    inputs.first.check(force=True)
    inputs.first.focus()
    place.page.keyboard.press("ArrowRight")
    assert inputs.nth(1).is_checked()
    assert inputs.nth(1).evaluate("input => input == document.activeElement")


def test_an_address_leads_to_its_answer_and_a_wrong_one_to_the_first(explore):
    place = explore("costs")
    first = place.locator(".answer").inner_text()
    for name, value in ("network", "H100, NVLink"), ("how", "doubling"):
        place.locator(f"[name={name}][value='{value}']").check(force=True)
    words = place.locator(".answer").inner_text()
    assert words != first
    again = explore("costs", f"?{place.page.url.partition('?')[2]}")
    assert again.locator(".answer").inner_text() == words
    wrong = explore("costs", "?costs=network%3DCray%26bytes%3D-3%26kind%3Dpsum")
    assert wrong.locator(".answer").inner_text() == first


def test_nothing_is_chosen_in_an_exercise_at_first(explore):
    place = explore("two-by-four")
    assert place.locator("[name=mesh]:checked, [name^=axis]").count() == 0
    assert "Choose a mesh" in place.locator(".answer").inner_text()


def test_the_bytes_are_chosen_by_a_slider_and_by_a_field(explore):
    place = explore("costs")
    slider, field = place.locator("[type=range]"), place.locator("[type=number]")
    alpha, beta, shapes, _ = explorer_costs.networks()["TPU v5p"]

    def check(words, power, operand):
        assert (field.input_value(), slider.input_value()) == (words, str(power))
        cost = network_cost("all-reduce", operand, shapes[64], alpha, beta)
        words = explorer_costs.format_time(cost.seconds)
        assert place.locator(".price strong").inner_text() == words

    thumb = slider.element_handle()
    for power in 0, 11, 40:
        slider.fill(str(power))
        assert thumb.evaluate("slider => slider.isConnected")  # and is drawn along
        check(str(2**power), power, 2**power)
    for operand, power in (0, 0), (3_000, 12), (2_000_000_000, 31):
        field.fill(str(operand))
        check(str(operand), power, operand)
    assert slider.get_attribute("aria-valuetext") == "1.86 GiB"
    field.fill(str(2**41))  # changes nothing
    check(str(2**41), 31, 2_000_000_000)
