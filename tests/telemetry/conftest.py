"""Shared by the tests of the sources: a small HTTP server whose answers a test decides, byte by byte."""

from __future__ import annotations

import http.server
import threading
from dataclasses import dataclass, field

import pytest


@dataclass
class Site:
    """`answer(request)` writes to request.wfile itself, or returns (status, body)."""

    url: str = ""
    answer: object = None
    requests: list = field(default_factory=list)


@pytest.fixture
def site():
    made = Site()

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            made.requests.append((self.path, dict(self.headers)))
            found = made.answer(self)
            if found is None:
                self.close_connection = True
                return
            status, body = found
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    made.url = f"http://127.0.0.1:{server.server_port}"
    yield made
    server.shutdown()
    server.server_close()
