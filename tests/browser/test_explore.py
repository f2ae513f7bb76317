"""An explorer shows each answer that is kept, by mouse, by keys and from an address.

Without script, and on paper, its tables stand there. The pages are built here, with
the styles of the book on a bare page; the site is looked at by test_site.py.
"""

import re
from pathlib import Path
from urllib.parse import urlparse

import explorer_sends
import explorer_specs
import explorers
import pytest
from built_site import AXE
from tiny_site import Site

STATIC = Path(__file__).resolve().parents[2] / "docs/_static"
ADDRESS = "http://book.example/"
THEME = """<style>:root { --pst-color-border: #ccc; --pst-color-text-muted: #555;
  --pst-color-surface: #f4f4f4; --pst-color-text-base: #222; color: #222;
  --pst-color-background: #fff; --pst-color-primary: #005f94 }
  body { margin: 1rem; min-width: 0 }
  @media (prefers-color-scheme: dark) { :root { --pst-color-border: #555;
  --pst-color-text-muted: #bbb; --pst-color-surface: #222; --pst-color-text-base: #eee;
  --pst-color-background: #111; --pst-color-primary: #8cf; color: #eee }
  body { background: #111 } }</style><link rel="icon" href="data:,">"""
BARE = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<title>Explorers</title><link rel="stylesheet" href="_static/explore.css">
<script defer src="_static/player.js"></script>
<script defer src="_static/explore.js"></script>{theme}</head>
<body><main class="bd-article">{main}</main></body></html>"""
DIRECTIVES = {
    "sends": "```{explorer} sends\n```",
    "door": "```{explorer} sends\n:class: door\n:few:\n```",
    "specs": "```{explorer} specs\n```",
    "exercise": "```{explorer} specs\n:exercise: two-by-four\n```",
}
each_explorer = pytest.mark.parametrize("name", ["sends", "specs"])


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with a page for each explorer, and one for an exercise."""
    pages = {f"{name}.md": f"# {name}\n\n{text}\n" for name, text in DIRECTIVES.items()}
    pages["index.md"] = "# Book\n\n```{toctree}\n:glob:\n*\n```\n"
    site = Site(
        tmp_path_factory.mktemp("explorers"),
        pages,
        extensions=["myst_nb", "explorers"],
        nb_execution_mode="off",
        html_static_path=[str(STATIC)],
    )
    for name in DIRECTIVES:
        found = re.search(r"<section.*</section>", site(f"{name}.html"), re.DOTALL)
        page = BARE.format(theme=THEME, main=found[0])
        (site.out / f"{name}.html").write_text(page)
    return site.out


@pytest.fixture
def open_page(visit, folder):
    """Return a function that opens a page as a file; nothing goes wrong on it."""
    visits = []

    def make(name, query="", **options):
        visits.append(visit(folder.as_uri() + "/", **options))
        screen = visits[-1].open(f"{name}.html{query}")
        if options.get("java_script_enabled", True):
            screen.wait_for_selector(".explorer form")
        return screen

    yield make
    for tab in visits:  # a file may not change its address
        assert [fault for fault in tab.faults if "replaceState" not in fault] == []


@pytest.fixture
def open_served(visit, folder):
    """Return a function that opens a page at an address, as of a server."""

    def make(path, **options):
        tab = visit(ADDRESS, **options)
        tab.page.route(
            f"{ADDRESS}**",
            lambda route: route.fulfill(
                path=folder / urlparse(route.request.url).path[1:]
            ),
        )
        screen = tab.open(path)
        screen.wait_for_selector(".explorer form")
        return screen

    return make


def tables(name):
    """Count the rows of an explorer's tables."""
    return sum(map(len, explorers.load(name).tables().values()))


# ------------------------------------------------------------------ every explorer


@each_explorer
def test_without_script_the_tables_stand_there(open_page, name):
    screen = open_page(name, java_script_enabled=False)
    assert screen.locator("tr:visible").count() == tables(name)
    assert screen.locator("form").count() == 0


@each_explorer
def test_with_script_a_form_stands_there_and_tables_on_paper(open_page, name):
    screen = open_page(name)
    assert screen.locator("tr:visible").count() == 0
    assert screen.locator("form").is_visible()
    screen.emulate_media(media="print")
    assert screen.locator("tr:visible").count() == tables(name)
    assert not screen.locator("form").is_visible()


@each_explorer
def test_where_its_data_are_missing_the_tables_stand_there(visit, folder, name):
    tab = visit(folder.as_uri() + "/")
    tab.page.route("**/explorers/*.js", lambda route: route.abort())
    screen = tab.open(f"{name}.html")
    screen.wait_for_selector("tr:visible")
    assert screen.locator("tr:visible").count() == tables(name)


@pytest.mark.parametrize("name", DIRECTIVES)
def test_an_arrow_key_chooses_the_next_and_keeps_the_focus(open_page, name):
    screen = open_page(name)
    first = screen.locator("fieldset").first.locator("input")
    first.first.check()
    first.first.focus()
    screen.keyboard.press("ArrowRight")
    at = screen.evaluate(
        "[document.activeElement.value, document.activeElement.checked]"
    )
    assert at == [first.nth(1).get_attribute("value"), True]
    screen.keyboard.press("ArrowLeft")
    assert first.first.is_checked()
    assert screen.evaluate("document.activeElement.value") == first.first.input_value()


@pytest.mark.parametrize("name", DIRECTIVES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(open_served, name, scheme):
    if not AXE.exists():
        pytest.skip("nox -s browser installs axe-core")
    screen = open_served(f"{name}.html", scheme=scheme)
    screen.evaluate(AXE.read_text())
    found = screen.evaluate("""axe.run(document).then(result => result.violations.map(
        rule => rule.id + ": " + rule.nodes.map(node => node.html)))""")
    assert found == []


@pytest.mark.parametrize("name", DIRECTIVES)
def test_on_a_phone_nothing_is_wider_than_the_window(open_page, name):
    screen = open_page(name, width=390)
    assert screen.evaluate("document.documentElement.scrollWidth") <= 390
    small = screen.locator("label > span, button").evaluate_all(
        "all => all.filter(e => e.getBoundingClientRect().height < 40).length"
    )
    assert small == 0


ON_A_PHONE = """() => {
  const box = (at) => document.querySelector(at).getBoundingClientRect();
  const choices = [...document.querySelectorAll("label > span")]
    .map((e) => e.getBoundingClientRect());
  const {top, bottom} = box(".foot");
  return {position: getComputedStyle(document.querySelector(".foot")).position,
    seen: bottom <= innerHeight + 1, end: innerHeight - bottom,
    covered: choices.filter((e) => e.bottom > top + 1 && e.top < bottom - 1).length}}"""


@pytest.mark.parametrize("name", ["sends", "door", "specs"])
def test_on_a_phone_the_answer_stays_in_sight_once_choices_are_made(open_page, name):
    screen = open_page(name, width=390)
    screen.evaluate("document.querySelector('main').style.paddingTop = '40rem'")
    screen.wait_for_selector("form:not(.begun)")
    first = screen.evaluate(ON_A_PHONE)
    assert first["covered"] == 0
    assert not first["seen"]
    screen.mouse.wheel(0, 500)
    screen.wait_for_selector("form.begun")
    begun = screen.evaluate(ON_A_PHONE)
    assert begun["seen"]
    assert abs(begun["end"]) <= 1
    assert screen.locator(".foot").inner_text() == answer_line(screen, name)
    screen.evaluate("document.querySelector('.gets').scrollIntoView()")
    assert screen.evaluate(ON_A_PHONE)["covered"] == 0


def answer_line(screen, name):
    """Return what the answer says in a line, as a wide window shows it."""
    if name != "specs":
        return screen.locator(".result").text_content()
    size = screen.locator("dd").first.text_content()
    return f"{screen.locator('.type').text_content()}: {size} bytes on a device"


def test_in_a_wide_window_there_is_one_line_of_the_answer(open_page):
    screen = open_page("sends")
    assert not screen.locator(".foot").is_visible()
    assert screen.locator(".result").bounding_box()["height"] > 10


# ------------------------------------------------------------------ sends

ASK = """([kind, questions, machines]) => {
  const form = document.querySelector(".explorer form");
  const pick = (key, value) => {
    const at = `input[name="sends-${key}"][value="${CSS.escape(value)}"]`;
    const found = form.querySelector(at);
    if (!found.checked) found.click();
  };
  const text = (at) => [...form.querySelectorAll(at)].map((each) => each.textContent);
  const keys = {operation: ["spec", "line"], product: ["x", "w", "to"],
    reshard: ["from", "into"]}[kind];
  if (form.querySelector("[name=sends-ask]")) pick("ask", kind);
  return machines.map((machine) => {
    pick("machine", machine);
    return questions.map((values) => {
      keys.forEach((key, n) => pick(key, values[n]));
      return {sends: text(".cards strong"), holds: text(".cards small"),
        result: text(".result").join(), steps: text(".step b"),
        drawn: text(".step svg").length,
        explicit: text(".answer > p:nth-of-type(2)").join(),
        lines: text(".lines code"), beside: text(".lines em")};
    });
  });
}"""
READ = {
    "[4096@(x,y), 8192]": "4096 cut in 8 over mesh axes x and y",
    "[2048@y, 4096@x]": "2048 cut in 4 over mesh axis y, 4096 cut in 2 over x",
    "[2048, 4096@(y,x)]": "4096 cut in 8 over mesh axes y and x",
    "[2050@x, 4098]": "2050 cut in 2 over mesh axis x",
    "[2048, 8192]": "whole on every device",
    "[]": "whole on every device",
}


def find_questions(kind):
    """Return the keys of a kind's answers, and what to choose for each of them."""
    line = {"product": explorer_sends.PRODUCT, "reshard": explorer_sends.RESHARD}
    keys = sorted({key[:3] for key in explorer_sends.rows()}, key=lambda key: key[1:])
    if kind == "operation":
        keys = [key for key in keys if key[0] not in line.values()]
        return keys, [[specs, name] for name, specs, _ in keys]
    keys = [key for key in keys if key[0] == line[kind]]
    return keys, [[*specs.split(), to] for _, specs, to in keys]


def says(state, key, number, read):
    """Check what stands there for a line, its specs and a machine against the table."""
    amount = explorer_sends.format_bytes

    def rows_of(*key):
        return [explorer_sends.rows()[*key, m] for m in explorer_sends.MACHINES]

    rows = rows_of(*key)
    row = rows[number]
    assert state["sends"] == [amount(each["sent"]) for each in rows]
    assert state["holds"] == [f"temporaries {amount(each['held'])}" for each in rows]
    start = f"Each of eight devices sends {amount(row['sent'])}. The result: "
    start += f"{row['output']}, "
    assert state["result"].startswith(start)
    read[row["output"]] = state["result"].removeprefix(start).removesuffix(".")
    kinds = re.findall(r"\d+ ([a-z-]+) of", row["collectives"])
    assert state["steps"] == kinds
    assert state["drawn"] <= len(kinds)
    assert explorer_sends.trim(rows[0]["explicit"]) in state["explicit"]
    for line, beside in zip(state["lines"], state["beside"], strict=True):
        sent = [amount(each["sent"]) for each in rows_of(line, key[1], "")]
        assert beside == sent[number] + " ≠" * (len({*sent}) > 1)


@pytest.mark.parametrize("kind", ["operation", "product", "reshard"])
def test_each_state_of_the_sends_says_what_is_kept(open_page, kind):
    screen, read = open_page("sends"), {}
    keys, questions = find_questions(kind)
    numbers = range(3) if kind == "operation" else [2]
    found = screen.evaluate(ASK, [kind, questions, [str(n) for n in numbers]])
    for number, states in zip(numbers, found, strict=True):
        for key, state in zip(keys, states, strict=True):
            says(state, key, number, read)
            assert bool(state["lines"]) == (kind == "operation")
    known = READ.keys() & read.keys()
    assert known
    assert {output: read[output] for output in known} == {
        output: READ[output] for output in known
    }


def test_the_front_page_says_what_is_kept(open_page):
    screen = open_page("door")
    door = explorer_sends.FRONT_PAGE
    assert screen.locator("[name=sends-ask]").count() == 0
    assert screen.locator(".lines code").all_inner_texts() == door["lines"]
    labels = screen.locator(".specs label").all_inner_texts()
    assert [each.split("\n")[-1] for each in labels] == [*door["specs"].values()]
    keys = [(line, spec, "") for spec in door["specs"] for line in door["lines"]]
    questions = [[spec, line] for line, spec, _ in keys]
    found = screen.evaluate(ASK, ["operation", questions, ["0", "1", "2"]])
    for number, states in enumerate(found):
        for key, state in zip(keys, states, strict=True):
            says(state, key, number, {})


# ------------------------------------------------------------------ specs

WALK = """([name, questions]) => {
  const form = document.querySelector(".explorer form");
  const pick = (key, value) => {
    const at = `input[name="${name}-${key}"][value="${value}"]`;
    form.querySelector(at).click();
  };
  const text = (at) => [...form.querySelectorAll(at)].map((each) => each.textContent);
  return questions.map(([mesh, shape, spec]) => {
    if (form.querySelector(`[name="${name}-mesh"]`)) pick("mesh", mesh);
    if (form.querySelector(`[name="${name}-shape"]`)) pick("shape", shape);
    spec.split(",").forEach((dim, n) => pick(`axis${n}`, dim));
    return {type: text(".type").join(), error: text(".refused").join(),
      facts: text("dd"), code: text("pre").join(), svgs: text("svg").length,
      says: [...text(".verdict strong"), ...text(".verdict li")]};
  });
}"""


def test_each_state_of_the_specs_says_what_is_kept(open_page):
    screen, rows = open_page("specs"), explorer_specs.rows()
    keys = [key for key in rows if not key[0]]
    found = screen.evaluate(WALK, ["specs", [key[1:] for key in keys]])
    for key, state in zip(keys, found, strict=True):
        row, (_, mesh, shape, spec) = rows[key], key
        assert state["type"] == row["type"]
        assert state["error"] == row["error"]
        facts = [row["bytes"], row["copies"], row["holds"]] if row["type"] else []
        assert state["facts"] == facts
        assert state["svgs"] == bool(row["type"])
        made = explorer_specs.MESHES[mesh]
        assert state["code"] == explorer_specs.code(made, shape, spec)


def test_each_answer_to_an_exercise_gets_the_words_of_the_judge(open_page):
    screen, rows = open_page("exercise"), explorer_specs.rows()
    assert screen.locator(".verdict").count() == 0
    assert screen.locator("input:checked").count() == 0
    keys = [key for key in rows if key[0] == "two-by-four"]
    found = screen.evaluate(WALK, ["two-by-four", [key[1:] for key in keys]])
    for key, state in zip(keys, found, strict=True):
        word, *lines = rows[key]["verdict"].splitlines()
        assert state["says"] == [word, *(line.removeprefix("- ") for line in lines)]
        assert state["svgs"] == 1 + bool(rows[key]["holds"])


def test_an_address_leads_to_a_state(open_served):
    screen = open_served("specs.html")
    screen.locator("input[value='2x2x2']").check()
    screen.locator("input[value='8,16,4']").check()
    screen.locator("input[name='specs-axis1'][value='z']").check()
    kind = screen.locator(".type").inner_text()
    assert kind == "float32[8@x,16@z,4]"
    again = open_served(screen.url.removeprefix(ADDRESS))
    assert again.locator(".type").inner_text() == kind
    assert again.locator("input[value='2x2x2']").is_checked()


@pytest.mark.parametrize("query", ["?specs=mesh%3D9%26axis0%3Dq", "?specs=%26%3D"])
def test_an_address_of_no_state_leads_to_another(open_page, query):
    screen = open_page("specs", query)
    assert screen.locator(".type").inner_text().startswith("float32[")


def test_the_code_is_copied(open_page):
    screen = open_page("specs")
    copy = screen.locator("button", has_text="Copy")
    copy.click()
    button = screen.locator("button[name=copy]")
    button.filter(has_text=re.compile("Copied|Selected")).wait_for()
