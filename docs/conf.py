"""Sphinx settings. Every page with a kernel runs while the site is built."""

import os
from pathlib import Path

import execution

from book import play, program_table

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent

# The one place for the published address: with it, pages offer Colab.
published = ""  # such as "https://shardbook.example.org"
repository = ""  # such as "https://github.com/OWNER/shardbook"

# What every kernel sees, beside what a reader has.
KERNEL = {
    "JAX_PLATFORMS": "cpu",
    "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0",  # no temporary paths in compiled text
    "MATPLOTLIBRC": str(DOCS / "matplotlibrc"),
    "OPENBLAS_NUM_THREADS": "1",  # else LAPACK's threads fight with the devices
    "PYTHONHASHSEED": "0",
    "SOURCE_DATE_EPOCH": "1767225600",  # Matplotlib writes the date into SVG
    "XLA_FLAGS": play.XLA_FLAGS,
}
os.environ |= KERNEL | {"JAX_NUM_CPU_DEVICES": "8"}

project = "Shardbook"
author = "the Shardbook authors"
html_title = project
extensions = [
    "bundle",
    "cells",
    "downloads",
    "error_directives",
    "explorers",
    "markup",
    "module_pictures",
    "myst_nb",
    "plots",
    "reference_pages",
    "search_index",
    "sidebar",
    "sphinx.ext.githubpages",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_design",
    "svgmath",
    "texts",
    *["sphinxext.opengraph"] * bool(published),  # what a shared link shows
]
ogp_site_url, ogp_enable_meta_description = f"{published}/", False
nitpick_ignore = [  # names that the inventories do not have
    ("py:class", "_queue.SimpleQueue"),
    ("py:class", "fractions.Fraction"),
    ("py:class", "multiprocessing.connection.Connection"),
    ("py:class", "orbax.checkpoint.checkpoint_manager.CheckpointManager"),
    ("py:class", "selectors.BaseSelector"),
]
intersphinx_mapping = {  # kept here, so that no build asks for them
    "jax": ("https://docs.jax.dev/en/latest", "_inventories/jax.inv"),
    "numpy": ("https://numpy.org/doc/stable", "_inventories/numpy.inv"),
    "python": ("https://docs.python.org/3", "_inventories/python.inv"),
}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

running = DOCS / "matplotlibrc", ROOT / "requirements.lock", play.HOOK
running += Path(play.__file__), Path(program_table.__file__)
execution_environment = execution.digest_environment(KERNEL, running)
execution_kernels = str(DOCS / "_build/kernels")
execution_variables = KERNEL
execution_modules = str(ROOT / "src/examples")
nb_execution_mode = "cache"  # of outputs: _ext/execution.py plays the pages
nb_merge_streams = True
nb_output_stderr = "remove-warn"  # no log line is published unseen

add_module_names = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True  # as they are written: a function has no other name
autodoc_typehints = "signature"
copybutton_exclude = ".linenos, .gp, .go"
copybutton_selector = "div.highlight pre:not(.cell_output *)"

html_theme = "sphinx_book_theme"
html_logo = html_favicon = "_static/logo.svg"
html_math_renderer = "svg"
html_static_path = ["_static"]
html_css_files = ["site.css", "figures.css", "explore.css", "filter.css"]
html_js_files = ["player.js", "cells.js", "predict.js", "explore.js"]
html_js_files += ["find.js", "filter.js"]
html_additional_pages = {"search": "search.html"}  # of results
html_context = {"default_mode": "auto"}
html_copy_source = False
html_domain_indices = html_use_index = False
html_show_sphinx = False
html_last_updated_fmt = None
toc_object_entries = False
templates_path = ["_templates", "_templates/bundled"]
html_sidebars = {
    "index": [],  # the front page shows the parts itself
    "**": ["home.html", "find.html", "contents.html"],
}
html_theme_options = {
    "article_header_end": ["menus.html"],
    "article_header_start": ["front.html"],
    "disable_search": True,  # of the theme: _ext/search_index.py has another
    "logo": {"text": project},
    "navbar_persistent": [],  # the theme would show a second, empty header
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": False,  # menus.html offers more
    "use_fullscreen_button": False,
}
