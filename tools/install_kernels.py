"""Make the environments in which pages are played."""

import site_cells
from book import play  # lies in docs/_ext, which `kept` adds to the path

if __name__ == "__main__":
    for needs in sorted({tuple(page.needs) for page in site_cells.named([])}):
        play.kernel_for(needs, site_cells.DOCS / "_build/kernels")
