"""What was published stays; what is new is kept when it is asked for."""

import anchors
import pytest

PAGE = """<div id="sidebar"></div><article><section id="old"><h1>A</h1>
    <span class="target" id="label"></span><dl><dt id="f.x"></dt></dl>
    <p id="codecell0"></p><div id="cell-00ffab-2"></div></section></article>"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setattr(anchors, "PUBLISHED", tmp_path / "anchors.txt")
    site = tmp_path / "site"
    (site / "part").mkdir(parents=True)
    (site / "part/two.html").write_text(PAGE)
    (site / "llms.txt").write_text("- [Two](part/two.html): [w](https://a.example/b)\n")
    (tmp_path / "anchors.txt").touch()
    anchors.main("--keep", folder=site)
    return site


def find_gone(site, capsys):
    """Return what the tool prints; it fails if something is gone."""
    capsys.readouterr()
    code = anchors.main(folder=site)
    *lines, count = capsys.readouterr().out.split("\n")[:-1]
    assert count == f"{len(lines)} addresses are gone"
    assert code == bool(lines)
    return lines


def test_what_was_published_must_stay(site, capsys):
    names = ["part/two.html#f.x", "part/two.html#label", "part/two.html#old"]
    assert anchors.PUBLISHED.read_text().split() == names
    assert find_gone(site, capsys) == []
    (site / "part/two.html").write_text(PAGE.replace('"old"', '"new"'))
    gone = ["BROKEN part/two.html#old was published, and is gone"]
    assert find_gone(site, capsys) == gone
    (site / "part/two.html").unlink()
    assert len(find_gone(site, capsys)) == len(names) + 1
    assert find_gone(site, capsys)[-1] == "BROKEN llms.txt has a link to part/two.html"
