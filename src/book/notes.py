"""Store notes of the programs that each page measures, as it lowered them.

They lie beside the outputs of the pages, by page and key: with outputs that are still
in the cache, their notes come back.
"""

from pathlib import Path

from book import marks

CURRENT = marks.ROOT / "docs/_build/programs"  # the key of each page, as it is now


def current_key(page) -> Path:
    """Return the file with a page's key."""
    return CURRENT / page.replace("/", "-")


def begin_notes(page, key):
    """Select the notes of a page by a key."""
    CURRENT.mkdir(parents=True, exist_ok=True)
    current_key(page).write_text(key)


def notes_of(page) -> Path:
    """Return the folder for notes of a page by its current key."""
    file = current_key(page)
    folder = marks.cache_folder() or marks.ROOT / "docs/_build"
    return folder / "notes" / file.name / file.read_text()


def note_files(page) -> list[Path]:
    """Return the notes of a page by its current key, a file for each program."""
    return sorted(notes_of(page).glob("*.json")) if current_key(page).exists() else []
