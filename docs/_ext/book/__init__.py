"""The site's own code: `page` reads a page; the others use what it returns.

`guards` compares the outputs of a cell with its options; `cells` judges all cells while
the site is built. `execution` decides when a page runs again, `play` runs it,
`exercises` tries answers, and `kernels` prepares the kernel.
`plain_markdown` and `export` write a page as Markdown and as a notebook.
`exercise_index`, `error_index` and `module_reference` generate lists, `reading_map` the
map of the front page, and `downloads` the files beside each page. `contents` knows the
order of all pages, `facts` what pyproject.toml states.
"""


def setup(app):
    """Register all extensions of the package."""
    for name in (
        "api_index",
        "build_line",
        "cell_links",
        "cells",
        "downloads",
        "error_index",
        "exercise_index",
        "module_reference",
        "reading_map",
    ):
        app.setup_extension(f"book.{name}")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
