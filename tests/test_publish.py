"""A published edition stays; the newest takes the root; every page finds both."""

import json

import publish
import pytest


@pytest.fixture
def branch(tmp_path):
    """A checkout of a branch on which nothing is published yet."""
    (tmp_path / "branch/.git").mkdir(parents=True)
    (tmp_path / "branch/.git/HEAD").write_text("ref")
    return tmp_path / "branch"


@pytest.fixture
def site(tmp_path):
    """Make a site of these pages."""

    def make(*names):
        folder = tmp_path / f"site{len([*tmp_path.iterdir()])}"
        for name in ("index", "_static/frame", *names):
            file = folder / f"{name}.html"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{name} of {names}")
        (folder / "editions.json").write_text("{}")
        return folder

    return make


def listed(folder):
    return json.loads((folder / "editions.json").read_text())


def test_editions_stay_when_the_newest_changes(branch, site):
    publish.publish(site("a/old"), branch)
    publish.publish(site("a/old", "b"), branch, "2026.9")
    publish.publish(site("b"), branch, "2026.11")
    before = {f: f.read_text() for f in branch.rglob("20*/**/*") if f.is_file()}
    publish.publish(site("c"), branch)
    assert all(file.read_text() == text for file, text in before.items())
    assert (branch / "c.html").exists()
    assert not (branch / "a").exists()
    assert (branch / ".git/HEAD").read_text() == "ref"
    assert [*listed(branch)["editions"].items()] == [
        ("", ["c.html", "index.html"]),
        ("2026.11/", ["b.html", "index.html"]),
        ("2026.9/", ["a/old.html", "b.html", "index.html"]),
    ]
    assert listed(branch / "2026.9") == {"up": ".."}


def test_an_edition_is_never_published_twice(branch, site):
    publish.publish(site(), branch, "2026.11")
    with pytest.raises(ValueError, match=r"2026\.11 is published, and stays"):
        publish.publish(site("a"), branch, "2026.11")


def test_a_name_that_is_no_edition_is_refused(branch, site):
    with pytest.raises(ValueError, match="not 'v1'"):
        publish.publish(site(), branch, "v1")


def test_a_site_does_not_write_over_an_edition(branch, site):
    publish.publish(site(), branch, "2026.11")
    with pytest.raises(ValueError, match=r"belongs to the branch: \['2026\.11'\]"):
        publish.publish(site("2026.11/a"), branch)


def test_a_tag_must_be_the_edition(branch, site):
    with pytest.raises(SystemExit, match=r"the tag 1999\.1 is not the edition"):
        publish.main([str(site()), str(branch), "1999.1"])
    publish.main([str(site()), str(branch), ""])
    assert [*listed(branch)["editions"]] == [""]
