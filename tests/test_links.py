"""A broken link inside the site is found; links to other hosts never fail offline."""

import links
import pytest

GOOD = {
    "index.html": """<h1 id="top-of-it">A</h1><a href="#top-of-it">a</a>
        <a href="part/one.html">b</a><a href="part/one.html#here%20too">c</a>
        <img src="_static/a.svg?v=1"><script src="_static/a.js"></script>
        <a href="#">d</a><a href="https://jax.example/page.html#x">e</a>
        <a href="mailto:a@b.example">f</a><img src="data:image/png;base64,AAAA">""",
    "part/one.html": '<p id="here too">A</p><a href="../index.html">a</a>',
    "_static/a.svg": "<svg/>",
    "_static/a.js": "",
    "_static/macros.html": '<script src="{{ a theme has templates here }}"></script>',
    "404.html": '<a href="/part/one.html">a</a>',
    "llms.txt": "- [One](part/one.html): one\n",
}
BAD = {
    "file": ('<a href="two.html">a</a>', "two.html has no target"),
    "anchor": ('<a href="part/one.html#there">a</a>', "#there has no such anchor"),
    "own anchor": ('<a href="#nowhere">a</a>', "#nowhere has no such anchor"),
    "picture": ('<img src="_static/b.svg">', "_static/b.svg has no target"),
    "script": ('<script src="a.js"></script>', "a.js has no target"),
    "folder": ('<a href="part/">a</a>', "part/ leads to a folder"),
    "root": ('<a href="/index.html">a</a>', "leads nowhere in the file system"),
}


@pytest.fixture
def site(tmp_path):
    for path, text in GOOD.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


@pytest.fixture
def offline(monkeypatch, tmp_path_factory):
    monkeypatch.setattr(links, "answer", lambda address: None)
    nothing = tmp_path_factory.mktemp("published") / "anchors.txt"
    nothing.write_text("")
    monkeypatch.setattr(links, "PUBLISHED", nothing)


@pytest.mark.usefixtures("offline")
def test_a_sound_site_passes_and_says_what_was_not_tried(site, capsys):
    assert links.main(site) == 0
    words = capsys.readouterr().out
    assert "0 broken links" in words
    assert "https://jax.example/page.html" in words
    assert "1 external pages (above) were not tried" in words


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(("html", "words"), BAD.values(), ids=BAD)
def test_a_broken_link_is_named(site, capsys, html, words):
    (site / "bad.html").write_text(html)
    assert links.main(site) == 1
    assert words in capsys.readouterr().out
    assert links.broken(site)[0].startswith("bad.html: ")


@pytest.mark.usefixtures("offline")
def test_a_dead_line_of_llms_txt_is_found(site):
    (site / "llms.txt").write_text("- [Two](two.md): two\n")
    assert links.broken(site) == ["llms.txt: two.md has no target"]


PAGE = """<div id="sidebar"></div><article><section id="old"><h1>A</h1>
    <span id="label"></span><dl><dt id="f.x"></dt></dl><p id="codecell0"></p>
    </section></article><div id="footer"></div>"""


@pytest.mark.usefixtures("offline")
def test_what_was_published_must_stay(site, capsys):
    (site / "part/two.html").write_text(PAGE)
    links.keep(site)
    anchors = ["part/two.html#f.x", "part/two.html#label", "part/two.html#old"]
    assert links.PUBLISHED.read_text().split() == anchors
    assert links.main(site) == 0
    (site / "part/two.html").write_text(PAGE.replace('"old"', '"new"'))
    assert links.main(site) == 1
    told = capsys.readouterr().out
    assert "part/two.html#old was published, and is no anchor any more" in told
    links.keep(site)
    assert links.PUBLISHED.read_text().split() == sorted(
        [*anchors, "part/two.html#new"]
    )
    target = '<span id="old"></span><section id="new">'
    (site / "part/two.html").write_text(PAGE.replace('<section id="old">', target))
    assert links.main(site) == 0


def test_the_link_of_a_cell_goes_when_the_cell_changes(site):
    """It is a digest of its code, so that no new text keeps it."""
    text = PAGE.replace('"old"', '"cell-00ffab-2"')
    (site / "part/two.html").write_text(text)
    assert "part/two.html#label" in links.published(site)
    assert not [each for each in links.published(site) if "cell-" in each]


@pytest.mark.usefixtures("offline")
def test_a_page_that_was_published_must_stay(site, capsys):
    links.PUBLISHED.write_text("part/gone.html#x\n")
    assert links.main(site) == 1
    assert "part/gone.html#x was published, and the page is gone" in (
        capsys.readouterr().out
    )


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    "case",
    [
        ('<p id="x">', 0, "0 worth a look"),
        ("<p>", 0, "no anchor   https://jax.example/page.html x"),
        (404, 1, "GONE 404  https://jax.example/page.html"),
        (403, 0, "refused 403"),
    ],
)
def test_with_a_network_a_page_that_is_gone_fails(site, capsys, monkeypatch, case):
    page, status, words = case
    monkeypatch.setattr(links, "answer", lambda address: page)
    assert links.main(site) == status
    assert words in capsys.readouterr().out
