"""What directives know of the sources of pages, and what they leave on a page."""

from pathlib import Path

from book.page import Page, read_page


def page_of(env, name="") -> Page:
    """Return a page by its name in the site; without a name, the one that is read."""
    file, address = Path(env.doc2path(name or env.docname)), env.config.published
    return read_page(file, Path(env.srcdir), address)


def make_text(env, make, *arguments) -> str:
    """Return `make(page, *arguments)`; where it changes, the page is read again."""
    text = make(page_of(env), *arguments)
    made = env.metadata[env.docname].setdefault("made", [])
    made.append((make, arguments, text))
    return text


def outdated_pages(app, env, *changes):
    """Handle `env-get-outdated`: yield the pages that would have another text."""
    for name in env.found_docs & env.metadata.keys():
        for make, arguments, text in env.metadata[name].get("made", ()):
            try:
                if make(page_of(env, name), *arguments) != text:
                    yield name
            except ValueError:  # its directive says what is wrong
                yield name


def load_files(env, *names):
    """Let the page that is read load scripts and styles, which only some pages need."""
    env.metadata[env.docname].setdefault("files", []).extend(names)


def add_files(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: add the files that the page loads."""
    for name in dict.fromkeys(app.env.metadata.get(pagename, {}).get("files", ())):
        if name.endswith(".js"):
            app.add_js_file(name, loading_method="defer")
        else:
            app.add_css_file(name)


def setup(app):
    """Register the addresses of the site and its repository, and the handlers."""
    for name in "published", "repository":
        app.add_config_value(name, "", "env", str)
    app.connect("env-get-outdated", outdated_pages)
    app.connect("html-page-context", add_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
