"""Say where the time went, beside what it may be: `tools/seconds.py STEP=SECONDS ...`.

The steps are those of `.ci/run`. Of each page this prints how long the site's kernel
ran it (MyST-NB keeps that), and how long it took as a reader's notebook, with all
answers. More than allowed is a warning and no failure: machines differ.
"""

import json
import os
import sys
from pathlib import Path

from jupyter_cache import get_cache

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = 52  # when the limits were set, on two quiet cores
SITE, ALL = 4 * 60, 25 * 60  # seconds for `docs` from nothing, and for all of CI
EACH = {"docs": 4, "all": 10}  # seconds that each later page may add
SLOWEST = 12  # pages that are named


def of_pages() -> dict[str, list[float]]:
    """Return the seconds of each page: as the site ran it, and as a notebook."""
    file, found = DOCS / "_build/played.json", {}
    played = json.loads(file.read_text()) if file.exists() else {}
    records = get_cache(str(DOCS / "_build/cache")).list_cache_records()
    for record in sorted(records, key=lambda record: record.created):
        name = Path(record.uri).with_suffix("").relative_to(DOCS).as_posix()
        seconds = played.get(name, {}).get("seconds", 0.0)
        found[name] = [record.data.get("execution_seconds", 0.0), seconds]
    return found


def report(steps, pages) -> list[str]:
    """Return the lines to print, for seconds of steps and of pages."""
    more = max(len(pages) - PAGES, 0)
    allowed = {"docs": SITE + EACH["docs"] * more, "all": ALL + EACH["all"] * more}
    lines = ["seconds  of each step"]
    for name, seconds in steps.items():
        limit = allowed.get(name, seconds)
        over = f"  more than {limit}, see CONTRIBUTING" if seconds > limit else ""
        lines.append(f"{seconds:7.0f}  {name}{over}")
    lines.append(f"   site  notebook  of {len(pages)} pages, on {os.cpu_count()} cores")
    slowest = sorted(pages.items(), key=lambda each: -sum(each[1]))[:SLOWEST]
    totals = [sum(seconds) for seconds in zip(*pages.values(), strict=True)]
    for name, (site, notebook) in [("all", totals or [0, 0]), *slowest]:
        lines.append(f"{site:7.1f}   {notebook:7.1f}  {name}")
    return lines


if __name__ == "__main__":
    pairs = (step.split("=") for step in sys.argv[1:])
    steps = {name: float(seconds) for name, seconds in pairs}
    print(*report(steps, of_pages()), sep="\n")
