"""What was published stays, or lychee says that it is gone."""

import subprocess

import anchors
import pytest

PAGE = """<div id="sidebar"></div><article><section id="old"><h1>A</h1>
    <span class="target" id="label"></span><dl><dt id="f.x"></dt></dl>
    <p id="codecell0"></p><div id="cell-00ffab-2"></div></section></article>"""
FOLLOW = "lychee", "--offline", "--include-fragments", "--no-progress"


@pytest.mark.parametrize("gone", ["two.html#old", None])
def test_what_was_published_must_stay(tmp_path, gone):
    page, published = tmp_path / "html/two.html", tmp_path / "anchors.txt"
    page.parent.mkdir()
    page.write_text(PAGE)
    published.touch()
    (tmp_path / "html/llms.txt").write_text("- [Two](two.html): [w](https://a.b/c)\n")
    anchors.main(tmp_path / "html", published, keep=True)
    names = ["two.html#f.x", "two.html#label", "two.html#old"]
    assert published.read_text().split() == names
    if gone:
        page.write_text(PAGE.replace('"old"', '"new"'))
    anchors.main(tmp_path / "html", published)
    command = *FOLLOW, tmp_path / "published.html"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == bool(gone)
    assert str(gone or "0 Errors") in done.stdout
