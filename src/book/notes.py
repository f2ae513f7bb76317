"""Find notes of the programs that each page measures, by page and key.

They lie beside its outputs: with outputs that are still in the cache they come back.
"""

from pathlib import Path

from book import marks

CURRENT = marks.ROOT / "docs/_build/programs"  # the key of each page, as it is now


def notes_folder(page, key="") -> Path:
    """Return the folder for notes of a page by this key, or by its current one."""
    file = CURRENT / page.replace("/", "-")
    if key:
        CURRENT.mkdir(parents=True, exist_ok=True)
        file.write_text(key)
    key = file.read_text() if file.exists() else "none"
    return (marks.cache_folder() or CURRENT.parent) / "notes" / file.name / key


def note_files(page) -> list[Path]:
    """Return the notes of a page by its current key, a file for each program."""
    return sorted(notes_folder(page).glob("*.json"))
