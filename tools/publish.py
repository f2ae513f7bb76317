"""Put a built site into a checkout of the branch that is published.

    python tools/publish.py SITE CHECKOUT             the newest, at the root
    python tools/publish.py SITE CHECKOUT 2026.11     an edition, in its folder

What is at the root is replaced, but for the editions. An edition is never changed: its
folder must be new, and bear the name that pyproject.toml gives the edition. The file
`editions.json` tells every page which editions there are, and which pages each has.
Each site is published with an archive of itself (archive.py).
"""

import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "docs/_ext"))

import archive  # noqa: E402  (lies beside)
from book.facts import facts  # noqa: E402  (lies in docs/_ext)

EDITION = re.compile(r"\d{4}\.\d{1,2}")


def editions(checkout) -> list[Path]:
    """Return the folders of all editions, the newest first."""
    found = [file for file in checkout.iterdir() if EDITION.fullmatch(file.name)]
    return sorted(found, key=lambda file: [*map(int, file.name.split("."))])[::-1]


def put_newest(site, checkout):
    """Replace what is at the root, but for the editions."""
    stays = {".git", *(folder.name for folder in editions(checkout))}
    if clash := stays & {file.name for file in site.iterdir()}:
        raise ValueError(f"the site has what belongs to the branch: {sorted(clash)}")
    for file in checkout.iterdir():
        if file.is_dir() and file.name not in stays:
            shutil.rmtree(file)
        elif file.name not in stays:
            file.unlink()
    shutil.copytree(site, checkout, dirs_exist_ok=True)


def put_edition(site, checkout, edition):
    """Add the folder of an edition."""
    if not EDITION.fullmatch(edition):
        raise ValueError(f"an edition is a year and a month, not {edition!r}")
    if (checkout / edition).exists():
        raise ValueError(f"the edition {edition} is published, and stays as it is")
    shutil.copytree(site, checkout / edition)
    (checkout / edition / "editions.json").write_text('{"up": ".."}\n')
    (checkout / ".nojekyll").touch()  # GitHub would leave out folders such as _static


def pages(folder) -> list[str]:
    """Return the pages of an edition, from its own folder."""
    files = (file.relative_to(folder) for file in folder.rglob("*.html"))
    return sorted(file.as_posix() for file in files if not is_apart(file))


def is_apart(file) -> bool:
    """Tell whether a file lies in another edition, or where there are no pages."""
    first = file.parts[0]
    return bool(EDITION.fullmatch(first)) or first.startswith(("_", "."))


def publish(site, checkout, edition=""):
    """Put a site at the root or into an edition's folder, and list all editions."""
    if edition:
        put_edition(site, checkout, edition)
    else:
        put_newest(site, checkout)
    found = {f"{folder.name}/": pages(folder) for folder in editions(checkout)}
    listed = {"editions": {"": pages(checkout)} | found}
    (checkout / "editions.json").write_text(json.dumps(listed, indent=1) + "\n")


def main(arguments):
    """Publish what the command line names."""
    site, checkout, *edition = arguments
    if any(edition) and edition != [facts().edition]:
        sys.exit(f"the tag {edition[0]} is not the edition {facts().edition}")
    archive.write(Path(site))
    publish(Path(site), Path(checkout), *edition)


if __name__ == "__main__":
    main(sys.argv[1:])
