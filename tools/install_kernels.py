"""Make the environments in which pages are played."""

import shutil

from book import play
from book.facts import ROOT
from book.page import pages

KERNELS = ROOT / "docs/_build/kernels"

if __name__ == "__main__":
    needs = {tuple(page.needs) for page in pages(ROOT / "docs") if page.is_notebook}
    for each in sorted(needs):
        play.make_kernel(each, KERNELS)
    shutil.copy(ROOT / "requirements.lock", KERNELS)  # noxfile.py compares it
