"""Where the built site lies, and axe-core; `$SITE` and `$AXE` say otherwise."""

import os
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "docs/_build"
SITE = Path(os.environ.get("SITE", BUILD / "html"))
AXE = Path(os.environ.get("AXE", BUILD / "npm/node_modules/axe-core/axe.min.js"))
