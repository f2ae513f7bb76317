"""Correct two faults of accessibility in the HTML of pages.

MyST-NB labels each collapsed cell "Toggle hidden content", whatever its text is, so
that voice control cannot press it by its text (WCAG 2.5.3). The box in which the theme
lets a wide table scroll takes no keyboard focus (2.1.1).
"""

CORRECTIONS = {
    '<summary aria-label="Toggle hidden content">': "<summary>",
    '<div class="pst-scrollable-table-container">': (
        '<div class="pst-scrollable-table-container" tabindex="0">'
    ),
}


def correct_page(app, pagename, templatename, context, doctree):
    """Handle `html-page-context`: correct the page's text."""
    for found, better in CORRECTIONS.items():
        context["body"] = context.get("body", "").replace(found, better)


def setup(app):
    """Register the handler."""
    app.connect("html-page-context", correct_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
