"""Explorers have an answer for each question, and say what JAX and the judge say.

That a page shows what is stored, for each choice, is seen by browser/test_explore.py.
"""

import json
import random
import re

import explorer_specs
import explorers
import jax
import pytest
import specs
from tiny_site import Site

from book.page import Page, pages
from book.plain_markdown import to_markdown
from examples.cubes import cube
from examples.pictures import draw

DIRECTIVES = {
    "sends": "```{explorer} sends\n```",
    "few": "```{explorer} sends\n:few:\n```",
    "specs": "```{explorer} specs\n```",
    "exercise": "```{explorer} specs\n:exercise: two-halves\n```",
    "costs": "```{explorer} costs\n```",
    "wrong": "```{explorer} nothing\n```\n\n```{explorer} specs\n:exercise: none\n```",
}
FOUND = "type", "bytes", "copies", "holds", "error", "verdict"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build a page for each kind of explorer."""
    text = {f"{name}.md": f"# {name}\n\n{each}\n" for name, each in DIRECTIVES.items()}
    text["index.md"] = "# Book\n\n```{toctree}\n:glob:\n*\n```\n"
    how = {"extensions": ["myst_nb", "explorers"], "nb_execution_mode": "off"}
    return Site(tmp_path_factory.mktemp("explorers"), text, **how)


def markdown_of(site, name):
    """Return the lines of a page in a notebook."""
    page = Page(site.folder / f"docs/{name}.md", site.folder / "docs")
    return to_markdown(page.text, page).splitlines()


@pytest.mark.parametrize("name", ["sends", "specs", "costs", "few"])
def test_tables_stand_on_the_page_and_in_its_markdown(name, site):
    known = explorers.load("sends" if name == "few" else name)
    tables = known.few() if name == "few" else known.tables()
    html, lines = site(f"{name}.html"), markdown_of(site, name)
    assert html.count("<table") == len(tables)
    assert html.count("<tr") == sum(map(len, tables.values()))
    for title, rows in tables.items():
        assert f"**{title}**" in lines
        assert all(f"| {' | '.join(row)} |" in lines for row in rows)


def test_tables_tell_what_is_to_be_found(site):
    assert "12: 15.8 µs" in site("costs.html")  # an all-reduce on 4 x 4 x 4
    assert any("| `x.sum(0)` | 28 KiB |" in line for line in markdown_of(site, "few"))


def test_the_script_stands_beside_the_page(site):
    for name in "sends", "specs", "costs":
        assert "explore.js" in site(f"{name}.html")
        assert site(f"_static/explorers/{name}.js") == explorers.script(name)


def test_an_exercise_has_no_tables(site):
    assert "<table" not in site("exercise.html")
    assert "answers-two-halves" in site("exercise.html")
    assert markdown_of(site, "exercise") == ["# exercise"]


def test_what_is_unknown_is_an_error_where_it_stands(site):
    for line, words in {
        3: "no explorer nothing: pass one of",
        6: "no exercise none in explorer_specs.py",
    }.items():
        assert re.search(rf"docs/wrong\.md:{line}: .*{re.escape(words)}", site.warnings)
    assert site.warnings.count("docs/") == 2


class TestSpecs:
    """Which device holds what, and what the judge says of it."""

    def test_every_question_has_an_answer(self):
        rows = explorer_specs.rows()
        assert [*rows] == explorer_specs.questions()
        for (exercise, *_), row in rows.items():
            kinds = [bool(row[key]) for key in ("verdict", "type", "error")]
            assert sum(kinds) == 1
            assert kinds[0] == bool(exercise)

    def test_jax_says_the_same_of_some_states_today(self):
        questions = [each for each in explorer_specs.questions() if not each[0]]
        for question in random.sample(questions, 60):
            row, now = explorer_specs.rows()[question], specs.answer_row(*question)
            assert {k: row[k] for k in FOUND} == {k: str(now.get(k, "")) for k in FOUND}

    def test_the_code_of_a_state_is_a_program(self, run, tmp_path):
        key = "", "2x2x2", "8,16,4", "z,-,xy"
        code = explorer_specs.code(explorer_specs.MESHES["2x2x2"], *key[2:])
        (tmp_path / "state.py").write_text(code)
        output = run("state.py", devices=1, cwd=tmp_path)
        assert output.strip() == explorer_specs.rows()[key]["type"]

    def test_the_judge_says_the_same_of_every_answer_today(self):
        for question, row in explorer_specs.rows().items():
            if question[0]:
                now = specs.answer_row(*question)
                assert {k: row[k] for k in now} == now

    def test_each_exercise_that_asks_for_a_picture_can_be_answered(self):
        found = {
            (cell.tags[-1], page.name)
            for page in pages(explorer_specs.DOCS)
            for cell in page.code
            if "exercise" in cell.tags and explorer_specs.JUDGED.search(cell.source)
        }
        known = explorer_specs.EXERCISES.items()
        assert found == {(name, page) for name, (page, _) in known}
        for name, (page, _) in known:
            text = (explorer_specs.DOCS / f"{page}.md").read_text()
            _, _, rest = text.partition(f":tags: [exercise, {name}]")
            place = f"```{{explorer}} specs\n:exercise: {name}\n```"
            assert place in rest.partition("```{code-cell}")[0]

    @pytest.mark.parametrize("name", explorer_specs.EXERCISES)
    def test_what_is_accepted_is_a_solution(self, name):
        file, meshes = explorer_specs.EXERCISES[name]
        page = Page(explorer_specs.DOCS / f"{file}.md", explorer_specs.DOCS)
        cells = [c.source for c in page.code if {"solution", name} <= {*c.tags}]
        rows = [r for r in explorer_specs.rows().values() if r["exercise"] == name]
        accepted = [row for row in rows if row["verdict"] == "Accepted."]
        assert accepted
        for row in accepted:
            assert row["holds"] == explorer_specs.exercise(name).target
            code, mesh = explorer_specs.spec(row["spec"]), meshes[row["mesh"]]
            own = [cell for cell in cells if code in cell]
            assert any(f"({mesh})" in c or "make_mesh" not in c for c in own)

    def test_its_pictures_are_those_of_the_modules(self):
        text = explorers.script("specs").partition(" = ")[2]
        data = json.loads(text.removesuffix(";\n"))
        rows = [row for row in explorer_specs.rows().values() if row["type"]]
        for row in random.sample(rows, 40):
            found = data["states"][row["mesh"]][row["shape"]]
            for dim in row["spec"].split(","):
                found = found[data["choices"][row["mesh"]].index(dim)]
            made = eval(f"jax.make_mesh({explorer_specs.MESHES[row['mesh']]})")
            with jax.set_mesh(made):
                where = eval(explorer_specs.spec(row["spec"]))
                picture = draw(where, explorer_specs.sizes(row["shape"]))
            whole = (cube(picture) if picture.shape[2:] else picture).at(300)
            picture = draw_picture(data, data["answers"][found][-1])
            assert flatten(picture) == flatten(whole)


def draw_picture(data, number):
    """Return a picture as the script puts it together."""
    _, *parts = (part.split(":") for part in data["pictures"][number].split())
    shapes = (fill_form(data, data["forms"][int(form)], ids) for form, ids in parts)
    return "".join(shapes)


def fill_form(data, form, ids):
    """Return a form with these devices in it."""
    colours, numbers = iter(ids), iter(ids)
    form = re.sub(r"[A-Z]", lambda letter: data["short"][letter[0]], form)
    form = re.sub('"@"', lambda _: f'"{data["colours"][int(next(colours))]}"', form)
    return re.sub(">#<", lambda _: f">{next(numbers)}<", form)


def flatten(svg):
    """Return the shapes of a picture with three digits, without their titles."""
    svg = re.sub(r"<title>.*?</title>|^<svg[^>]*>|</svg>$", "", svg)
    svg = re.sub(r"\d+\.\d+", lambda found: f"{float(found[0]):.3g}", svg)
    return re.sub(r'<rect[^>]*opacity="0"/>', "", svg).replace(" >", ">")
