"""Everything that the gate leaves out runs by parts, and goes on where it was cut."""

import os
import sys
from pathlib import Path

import gate
import pytest
import weekly
from gate import Step

NOX = """
import sys
name = sys.argv[1]
open("ran", "a").write(name)
sys.exit(name == "b")
"""
PARTS = Step("a", "a", "never"), Step("b", "b", "never"), Step("c", "c", "never")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Make an empty folder with notes of no run, and a nox that fails for b."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", {**os.environ})
    monkeypatch.setattr(gate, "NOX", (sys.executable, "nox.py"))
    monkeypatch.setattr(weekly, "find_commit", lambda: "1234567")
    Path("nox.py").write_text(NOX)
    weekly.LAST_GREEN.parent.mkdir()
    weekly.LAST_GREEN.write_text("part,commit,day\nc,1234567,2026-11-26\n")
    return tmp_path


def test_what_is_green_does_not_run_again_at_its_commit(folder, monkeypatch):
    assert weekly.main([], PARTS) == 1
    assert Path("ran").read_text() == "ab"
    commits = {name: note["commit"] for name, note in weekly.read_notes().items()}
    assert commits == {"a": "1234567", "c": "1234567"}
    assert weekly.main(["a", "c"], PARTS) == 0
    assert weekly.main([], PARTS) == 1
    assert Path("ran").read_text() == "abb"
    monkeypatch.setattr(weekly, "find_commit", lambda: "7654321")
    assert weekly.main(["a", "c"], PARTS) == 0
    assert Path("ran").read_text() == "abbac"


def test_notes_name_parts_that_there_are():
    assert weekly.read_notes().keys() <= {part.name for part in weekly.PARTS}
