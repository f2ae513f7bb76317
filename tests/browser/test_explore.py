"""An explorer shows each answer that is stored, by mouse, by keys and from an address.

Without script, and on paper, its tables stand there. The pages are those of the site.
"""

import re
from html import unescape
from pathlib import Path

import explorer_costs
import explorers
import pytest
from built_site import FILES, audit
from test_site import mark_of

from book import marks
from examples import ring_cost

PLACES = {
    "sends": ("reference/sends.html", ".explorer-sends"),
    "specs": ("arrays/meshes.html", ".explorer-specs:not([class*=answers])"),
    "two-by-four": ("arrays/picture_to_spec.html", ".answers-two-by-four"),
    "costs": ("global-view/cost.html", ".explorer-costs"),
}
# Choose what each question says; return what then stands there, and if it is too wide.
# The layout of an explorer of fixed height leaves that of the page alone.
WALK = """(place, questions) => {
    history.replaceState = () => {};  // a browser does not bear so many
    place.style = "contain: size layout; height: 9999px";
    return questions.map(values => {
        for (const [n, value] of values.entries()) {
            const inputs = [...place.querySelectorAll("input[name]")];
            const name = [...new Set(inputs.map(each => each.name))][n];
            const input = inputs.find(e => e.name == name && e.value == value);
            if (!input.checked) input.click();
        }
        const text = place.querySelector(".gets").textContent.replace(/\\s/g, "");
        return [text, place.scrollWidth > place.clientWidth];
    });
}"""
SMALL = "all => all.filter(e => e.getBoundingClientRect().height < 40).length"


@pytest.fixture
def explore(visit):
    """Return a function that opens the page of an explorer; it returns its place."""

    def make(name, query="", **options):
        path, at = PLACES[name]
        place = visit(**options).open(path + query).locator(at)
        place.locator("form").wait_for()
        return place

    return make


# ------------------------------------------------------------------ every state


def text_of(*html):
    """Return what HTML shows, without spaces, as a pattern."""
    text = unescape(re.sub(r"<[^>]*>", "", "".join(html)))
    return re.escape("".join(text.split()))


def stored_states(name, variant=""):
    """Yield all that can be chosen, and what then stands there; machines take turns."""
    data = explorers.load(name).data()
    own = data | data["variants"].get(variant, {})
    if variant:  # nothing is chosen yet
        yield [], text_of(*own["missing"])
    for n, (key, (cards, *answers)) in enumerate(own["answers"].items()):
        card = n % len(answers)
        question = [*key.split("|"), *[str(card)][: len(answers) - 1]]
        yield question, text_of(cards, answers[card], own["source"])


def costs_states():
    """Yield all choices, and what they cost for a mebibyte."""
    for key, axes in explorer_costs.choices():
        alpha, beta, *_ = explorer_costs.NETWORKS[key[1]]
        cost = ring_cost.network_cost(key[0], 2**20, axes, alpha, beta)
        far, _ = ring_cost.least(key[0], axes)
        time = explorer_costs.format_time(cost.seconds)
        words = f".*{time} for a.*: {cost.steps} steps.*farthest device is {far} step.*"
        yield key, re.sub(r"\s", "", words)


STATES = {
    "sends": stored_states("sends"),
    "specs": stored_states("specs"),
    "two-by-four": stored_states("specs", "answers-two-by-four"),
    "costs": costs_states(),
}


@pytest.mark.parametrize("name", STATES)
def test_every_state_shows_what_is_stored_and_fits(explore, server, name):
    """The last one is audited; the calculator is on a page that is opened as a file."""
    programs = Path(explorers.__file__).parent.glob("explorer*.py")
    mark = mark_of(PLACES[name][0], __file__, ring_cost.__file__, *programs) + name
    if marks.read_mark(mark) is not None:
        pytest.skip("had passed")
    questions, texts = zip(*STATES[name], strict=True)
    base = FILES if name == "costs" else server
    for scheme, width in ("light", 1280), ("dark", 390):
        place = explore(name, base=base, scheme=scheme, width=width)
        shown, is_wide = zip(*place.evaluate(WALK, questions), strict=True)
        for question, text, words in zip(questions, texts, shown, strict=True):
            assert re.fullmatch(text, words), question
        assert not any(is_wide)
        assert audit(place.page, include=[[PLACES[name][1]]]) == []
        assert place.locator("label > span, button").evaluate_all(SMALL) == 0
    marks.write_mark(mark)


# ------------------------------------------------------------------ every explorer


def test_without_script_and_on_paper_the_tables_stand_there(visit, explore):
    path, at = PLACES["specs"]
    count = sum(map(len, explorers.load("specs").tables().values()))
    place = visit(java_script_enabled=False).open(path).locator(at)
    assert place.locator("tr:visible").count() == count
    place = explore("specs")
    assert place.locator("tr:visible").count() == 0
    place.page.emulate_media(media="print")
    assert place.locator("tr:visible").count() == count
    assert not place.locator("form").is_visible()


def test_an_address_leads_to_its_answer_and_a_wrong_one_to_the_first(explore):
    place = explore("costs")
    answer = place.locator(".answer")
    first = answer.inner_text()
    place.locator("[name=network][value='H100, NVLink']").check(force=True)
    kinds = place.locator("[name=kind]")
    kinds.first.check(force=True)
    kinds.first.press("ArrowRight")
    assert kinds.nth(1).evaluate("input => input == document.activeElement")
    place.locator("[type=number]").fill("3000")
    words = answer.inner_text()
    assert words != first
    again = explore("costs", f"?{place.page.url.partition('?')[2]}")
    assert again.locator(".answer").inner_text() == words
    wrong = explore("costs", "?costs=network%3DCray%26bytes%3D-3%26kind%3Dpsum")
    assert wrong.locator(".answer").inner_text() == first


def test_the_bytes_are_chosen_by_a_slider_and_by_a_field(explore):
    place = explore("costs")
    slider, field = place.locator("[type=range]"), place.locator("[type=number]")
    slider.fill("11")
    assert field.input_value() == "2048"
    assert slider.get_attribute("aria-valuetext") == "2 KiB"
    alpha, beta, shapes, _ = explorer_costs.NETWORKS["TPU v5p"]
    for given in 0, 2_000_000_000, 2**41:  # which is too much, and changes nothing
        field.fill(str(given))
        operand = min(given, 2_000_000_000)
        assert slider.input_value() == str(operand.bit_length())
        cost = ring_cost.network_cost("all-reduce", operand, shapes[64], alpha, beta)
        words = explorer_costs.format_time(cost.seconds)
        assert place.locator(".price strong").inner_text() == words
