"""Notes of the programs that pages measure: which each page has, and what it lowered.

They lie beside the outputs of the pages, by page and key: with outputs that are still
in the cache, their notes come back.
"""

from pathlib import Path

from book import marks

CURRENT = marks.ROOT / "docs/_build/programs"  # the key of each page, as it is now


def notes_folder() -> Path:
    """Return the folder of the notes of all pages."""
    return (marks.cache_folder() or marks.ROOT / "docs/_build") / "notes"


def begin_notes(page, key) -> Path:
    """Return the folder for notes of a page's programs, its own from now on."""
    file = CURRENT / page.replace("/", "-")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(key)
    return notes_folder() / file.name / key


def note_files(page) -> list[Path]:
    """Return the notes of a page's programs, as it is now; a program names its file."""
    file = CURRENT / page.replace("/", "-")
    if not file.exists():
        return []
    return sorted((notes_folder() / file.name / file.read_text()).glob("*.json"))
