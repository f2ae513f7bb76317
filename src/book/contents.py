"""Read the contents of the book from `index.md`: each toctree is a part."""

from book.page import Page, read_page


def parts(docs) -> list[tuple[str, list[Page]]]:
    """Return the caption of each part, and its pages, in order."""
    blocks = read_page(docs / "index.md", docs).blocks
    return [
        (
            tree.options.get("caption", ""),
            [read_page(docs / f"{name}.md", docs) for name in tree.content.split()],
        )
        for tree in blocks
        if tree.name == "toctree"
    ]


def pages(docs) -> list[Page]:
    """Return all pages in the order of the contents, without `index.md`."""
    return [page for _, found in parts(docs) for page in found]
