"""Make the environments in which pages are played."""

import site_cells

from book import play

if __name__ == "__main__":
    for needs in sorted({tuple(page.needs) for page in site_cells.find_pages([])}):
        play.make_kernel(needs, site_cells.DOCS / "_build/kernels")
