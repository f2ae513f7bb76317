"""What the book is made with, in plain Python; `docs/_ext` builds the site with it.

`page` reads a page, `contents` the order of all. `guards` compares the outputs of a
cell with its options; `play` runs a page as a notebook, in a kernel of its own, and
`exercises` tries answers. `export` and `plain_markdown` write a page as a notebook and
as Markdown; `error_index`, `exercise_list` and `module_reference` write lists. `marks`
are proofs that need no repetition, and `facts` reads pyproject.toml.
"""
