"""The contents of the book: its parts, their pages, and the files to copy beside them.

`index.md` decides: each of its toctrees is a part. The README's table is made of it.
"""

from pathlib import Path

from book.page import Page

FOLDERS = "src/examples", "launch"  # what there is to copy
# directives: only the site has the list
LISTS = {"api-index", "exercise-index", "module-reference"}


def parts(docs) -> list[tuple[str, list[Page]]]:
    """Return the caption of each part, and its pages, in order."""
    index = Page(docs / "index.md", docs)
    trees = [block for block in index.blocks if block.name == "toctree"]
    return [
        (
            tree.options.get("caption", ""),
            [Page(docs / f"{name}.md", docs) for name in tree.content.split()],
        )
        for tree in trees
    ]


def pages(docs) -> list[Page]:
    """Return all pages in the order of the contents, without `index.md`."""
    return [page for _, found in parts(docs) for page in found]


def to_copy(docs) -> dict[str, list[Path]]:
    """Return the files to copy, by the name of the page on which each is explained.

    That is the page of a module's name, or else the first that names the file.
    """
    found, order = {}, pages(docs)
    for folder in FOLDERS:
        for file in sorted((docs.parent / folder).glob("[!_]*.*")):
            named = [page for page in order if f"{folder}/{file.name}" in page.text]
            own = [page for page in order if page.file.stem == file.stem]
            for page in [*own, *named][:1]:
                found.setdefault(page.name, []).append(file)
    return found


def table(docs) -> str:
    """Return the README's table of all pages and of all files to copy."""
    files = to_copy(docs)
    lines = ["| part | to read | to copy |", "|---|---|---|"]
    for caption, found in parts(docs):
        shown = [page for page in found if not LISTS & {b.name for b in page.blocks}]
        for page in shown:
            beside = ", ".join(link(each, docs) for each in files.get(page.name, []))
            part = caption if page is shown[0] else ""
            cells = part, f"[{page.title}](docs/{page.name}.md)", beside
            lines.append(f"| {' | '.join(cells)} |".replace("|  ", "| "))
    return "\n".join(lines)


def link(file, docs) -> str:
    """Return a link to a file, from the README."""
    return f"[{file.name}]({file.relative_to(docs.parent).as_posix()})"
