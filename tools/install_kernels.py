"""Make the environments in which pages are played."""

import kept
from book import play  # lies in docs/_ext, which `kept` adds to the path

if __name__ == "__main__":
    for needs in sorted({tuple(page.needs) for page in kept.named([])}):
        play.kernel_for(needs, kept.DOCS / "_build/kernels")
