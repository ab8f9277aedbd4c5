"""The provider of identity_provider.py as a process, and how a person gets through it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx

SCRIPT = Path(__file__).parent / "identity_provider.py"
SECRET = "a secret with + and % in it"


class Site:
    """One process; `stop` it. secret: of a confidential client."""

    def __init__(self, secret: str | None) -> None:
        own = [] if secret is None else ["--secret", secret]
        command = [sys.executable, str(SCRIPT), "--client", "minder pages", *own]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.issuer = self.process.stdout.readline().strip()
        self.http = httpx.Client(base_url=self.issuer, trust_env=False)

    def tell(self, **told: object) -> None:
        assert self.http.post("/control", json=told).status_code == 200

    def asked(self) -> list[str]:
        return [path for path in self.http.get("/control").json()["asked"] if path != "/control"]

    def log_in(self, address: str, name: str = "alice") -> str:
        """What a browser does at the provider; returns where that sends it back to."""
        page = self.http.get(address)
        assert page.status_code == 200, page.text
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', page.text))
        back = self.http.post("/login", data=fields | {"name": name})
        assert back.status_code == 302
        return back.headers["location"]

    def stop(self) -> None:
        self.http.close()
        self.process.kill()  # as a child of tests that ignore SIGTERM it ignores it, too
        self.process.wait(30)
