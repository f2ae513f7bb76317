"""What was published stays; what is new is kept when it is asked for."""

import anchors
import pytest

PAGE = """<div id="sidebar"></div><article><section id="old"><h1>A</h1>
    <span class="target" id="label"></span><dl><dt id="f.x"></dt></dl>
    <p id="codecell0"></p><div id="cell-00ffab-2"></div></section></article>"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    (tmp_path / "anchors.txt").touch()
    monkeypatch.setattr(anchors, "PUBLISHED", tmp_path / "anchors.txt")
    site = tmp_path / "site"
    (site / "part").mkdir(parents=True)
    (site / "part/two.html").write_text(PAGE)
    (site / "llms.txt").write_text("- [Two](part/two.html): [w](https://a.example/b)\n")
    return site


def gone(site, capsys):
    """Return what the tool says; it fails if something is gone."""
    code = anchors.main(folder=site)
    *lines, count = capsys.readouterr().out.split("\n")[:-1]
    assert count == f"{len(lines)} addresses are gone"
    assert code == bool(lines)
    return lines


def test_what_was_published_must_stay(site, capsys):
    anchors.main("--keep", folder=site)
    names = ["part/two.html#f.x", "part/two.html#label", "part/two.html#old"]
    assert anchors.PUBLISHED.read_text().split() == names
    capsys.readouterr()
    assert gone(site, capsys) == []
    page = site / "part/two.html"
    page.write_text(PAGE.replace('"old"', '"new"'))
    assert gone(site, capsys) == ["BROKEN part/two.html#old was published, and is gone"]
    anchors.main("--keep", folder=site)
    capsys.readouterr()
    assert anchors.PUBLISHED.read_text().split()[1:3] == [names[1], "part/two.html#new"]
    page.write_text(PAGE.replace("<section", '<i id="old"></i><section'))
    assert gone(site, capsys) == ["BROKEN part/two.html#new was published, and is gone"]


def test_what_llms_txt_leads_to_must_be_there(site, capsys):
    (site / "llms.txt").write_text("- [Two](two.md): two\n")
    assert gone(site, capsys) == ["BROKEN llms.txt has a link to two.md"]


def test_a_page_that_was_published_must_stay(site, capsys):
    anchors.PUBLISHED.write_text("part/gone.html#x\n")
    assert gone(site, capsys) == ["BROKEN part/gone.html#x was published, and is gone"]
