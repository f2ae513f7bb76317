"""What a page brings along, beside what every visit of it weighs: see `built_site`."""

import re
import zlib

from built_site import SITE, loaded_files, weight
from test_site import PAGES

EXPLORER = 150 * 1024  # bytes of an explorer's script and data
ICON = re.compile(r'<i class="fa\w?(?:-solid)? fa-([\w-]+)')


def test_each_page_has_its_icons_and_the_new_script():
    """The script by its content, or a browser would go on with an old one."""
    script = zlib.crc32((SITE / "_static/bundle.js").read_bytes())
    icons = {*re.findall(r"\.fa-([\w-]+)", (SITE / "_static/bundle.css").read_text())}
    for page in PAGES:
        text = (SITE / page).read_text()
        assert {*ICON.findall(text)} <= icons, page
        assert f'bundle.js?v={script:08x}"' in text.partition("</main>")[2], page
        scripts = re.findall(r"<script\b[^>]*\bsrc=[^>]*>", text)
        assert all("defer" in script for script in scripts), page


def test_an_explorer_is_light_and_loads_late(visit):
    files = {f"_static/explorers/{file}.js" for file in ("sends", "specs", "costs")}
    assert max(weight([file]) for file in files) <= EXPLORER
    screen = visit(height=200).open("global-view/cost.html")
    assert not loaded_files(screen) & files
    place = screen.locator(".explorer-costs")
    place.scroll_into_view_if_needed()
    place.locator("form").wait_for()
    assert loaded_files(screen) & files == {"_static/explorers/costs.js"}
