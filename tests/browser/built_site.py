"""Where the built site and axe-core lie (`$SITE`, `$AXE` say otherwise); a server."""

import functools
import os
import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "docs/_build"
SITE = Path(os.environ.get("SITE", BUILD / "html"))
LIMIT = 300_000  # milliseconds, which only end a hang
AXE = Path(os.environ.get("AXE", BUILD / "npm/node_modules/axe-core/axe.min.js"))


@contextmanager
def serve(handler):
    """Serve the built site on the loopback; give its address."""
    handler = functools.partial(handler, directory=SITE)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()
