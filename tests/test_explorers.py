"""Explorers have an answer for each question, and say what JAX and the judge say."""

import json
import random
import re
from functools import cache

import explorer_sends
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

KIB = 1024
PAGE = "# Book\n\n```{{explorer}} {}\n{}\n```\n"
each_explorer = pytest.mark.parametrize("name", ["sends", "specs"])
FOUND = "type", "bytes", "copies", "holds", "error", "verdict"


@cache
def read_data(name):
    """Return the data of an explorer as its script has them."""
    start, _, text = explorers.script(name).partition(" = ")
    assert start == f"(window.shardbook ??= {{}}).{name}"
    return json.loads(text.removesuffix(";\n"))


def build_site(folder, name, options="", **more):
    """Build a page with an explorer."""
    text = PAGE.format(name, options)
    return Site(
        folder,
        {"index.md": text},
        extensions=["myst_nb", "explorers"],
        nb_execution_mode="off",
        **more,
    )


@each_explorer
def test_the_data_of_an_explorer_are_loaded_in_a_moment(name):
    assert len(explorers.script(name).encode()) <= 150 * KIB


@each_explorer
def test_tables_stand_on_the_page_and_in_its_markdown(name, tmp_path):
    tables = explorers.load(name).tables()
    site = build_site(tmp_path, name)
    html = site("index.html")
    assert not site.warnings
    assert html.count("<table") == len(tables)
    assert html.count("<tr") == sum(map(len, tables.values()))
    assert "explore.js" in html
    assert site(f"_static/explorers/{name}.js") == explorers.script(name)
    page = Page(site.folder / "docs/index.md", site.folder / "docs")
    lines = to_markdown(page.text, page).splitlines()
    assert sum(line.startswith("| ") for line in lines) == html.count("<tr")
    for title, rows in tables.items():
        assert {len(row) for row in rows} == {len(rows[0])}
        assert f"**{title}**" in lines
        assert all(f"| {' | '.join(row)} |" in lines for row in rows)


def test_an_unknown_explorer_is_an_error_where_it_stands(tmp_path):
    site = build_site(tmp_path, "nothing")
    assert "docs/index.md:3: " in site.warnings
    assert "no explorer nothing: pass one of" in site.warnings


def test_an_unknown_exercise_is_an_error_where_it_stands(tmp_path):
    site = build_site(tmp_path, "specs", ":exercise: nothing")
    assert "docs/index.md:3: " in site.warnings
    assert "no exercise nothing in explorer_specs.py" in site.warnings


def test_content_stands_in_the_place_of_tables(tmp_path):
    site = build_site(tmp_path, "specs", "\nThe *tables* are elsewhere.")
    assert "<table" not in site("index.html")
    assert "The <em>tables</em> are elsewhere." in site("index.html")
    page = Page(site.folder / "docs/index.md", site.folder / "docs")
    assert to_markdown(page.text, page) == "# Book\n\nThe *tables* are elsewhere."


def test_the_front_page_has_a_table_of_what_it_asks(tmp_path):
    site = build_site(tmp_path, "sends", ":few:")
    (rows,) = explorer_sends.few().values()
    assert [row[0] for row in rows[1:]] == [
        f"`{x}`" for x in explorer_sends.FRONT_PAGE["lines"]
    ]
    assert site("index.html").count("<tr") == len(rows)
    page = Page(site.folder / "docs/index.md", site.folder / "docs")
    assert "| `x.sum(0)` | 28 KiB |" in to_markdown(page.text, page)


def test_an_exercise_has_no_tables(tmp_path):
    site = build_site(tmp_path, "specs", ":exercise: two-halves")
    assert "<table" not in site("index.html")
    assert "answers-two-halves" in site("index.html")
    page = Page(site.folder / "docs/index.md", site.folder / "docs")
    assert to_markdown(page.text, page) == "# Book"


class TestSpecs:
    """Which device holds what, and what the judge says of it."""

    def test_every_question_has_an_answer(self):
        rows = explorer_specs.rows()
        assert [*rows] == explorer_specs.questions()
        for (exercise, *_), row in rows.items():
            if exercise:
                assert row["verdict"]
                assert not row["type"]
            else:
                assert bool(row["error"]) != bool(row["type"])
                assert bool(row["type"]) == bool(row["holds"])

    def test_jax_says_the_same_of_some_states_today(self):
        questions = [each for each in explorer_specs.questions() if not each[0]]
        for question in random.sample(questions, 60):
            row, now = explorer_specs.rows()[question], specs.answer_row(*question)
            assert {k: row[k] for k in FOUND} == {k: str(now.get(k, "")) for k in FOUND}

    def test_a_state_leaves_the_mesh_as_it_was(self):
        mesh = jax.make_mesh((4, 2), ("a", "b"))
        with jax.set_mesh(mesh):
            specs.answer_row("", "2x4", "64", "x")
            specs.answer_row("", "8", "12,20", "x,x")
            assert jax.sharding.get_mesh() == mesh

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
        rows = explorer_specs.rows().values()
        accepted = [
            row
            for row in rows
            if row["exercise"] == name and row["verdict"] == "Accepted."
        ]
        assert accepted
        for row in accepted:
            assert row["holds"] == explorer_specs.exercise(name).target
            code, mesh = explorer_specs.spec(row["spec"]), meshes[row["mesh"]]
            assert any(
                code in cell
                and (f"make_mesh({mesh})" in cell or "make_mesh" not in cell)
                for cell in cells
            )

    def test_the_script_says_what_is_kept(self):
        data = read_data("specs")
        for (exercise, mesh, shape, spec), row in explorer_specs.rows().items():
            of = data["exercises"][exercise] if exercise else data
            assert of["meshes"][mesh]
            found = of["verdicts" if exercise else "states"][mesh]
            found = found if exercise else found[shape]
            for dim in spec.split(","):
                found = found[of["choices"][mesh].index(dim)]
            jax_spec = explorer_specs.as_jax(spec)
            words = [text.replace("{}", jax_spec) for text in data["words"]]
            if exercise:
                picture, *lines = data["verdicts"][found]
                assert "\n".join(words[n] for n in lines) == row["verdict"]
                assert (picture == -1) == (not row["holds"])
            elif row["error"]:
                assert words[data["answers"][found]] == row["error"]
            else:
                *facts, picture = data["answers"][found]
                columns = "type", "bytes", "copies", "holds"
                assert [str(fact) for fact in facts] == [row[k] for k in columns]

    def test_its_pictures_are_those_of_the_modules(self):
        data = read_data("specs")
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
