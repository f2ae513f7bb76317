"""Each module has a page with its picture; the list has the ids that lead there."""

import re

import pytest
from built_site import SITE

from book.module_reference import files, objects, old_names
from book.page import PAGES_OF_MODULES

ROOT = SITE.parents[2]
IDS = {*re.findall(r'id="([^"]+)"', (SITE / f"{PAGES_OF_MODULES}.html").read_text())}
PICTURE = re.compile(r'class="module-picture.*?(?=<section)', re.S)


@pytest.mark.parametrize("file", files(ROOT / "src/examples"), ids=lambda f: f.stem)
def test_a_module_has_its_picture_and_file_and_old_ids_lead_to_it(file):
    page = SITE / PAGES_OF_MODULES / file.stem
    html = page.with_suffix(".html").read_text()
    shown = PICTURE.search(html)[0]
    assert re.search(r"<(svg|table|pre|img)\b", shown)
    assert re.search(r'href="\.\./[^"]*#cell-', shown)
    assert "<cite>" not in html  # what reStructuredText makes of `code`
    link = f'<a class="module-file" href="../../modules/{file.name}" download>'
    assert link in html
    assert "## The whole file\n\n```python\n#" in page.with_suffix(".md").read_text()
    assert {*objects(file), *old_names(ROOT / "docs", file)} <= IDS
