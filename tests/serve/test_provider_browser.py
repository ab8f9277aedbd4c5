"""Signing in with an identity provider in a real browser: a real service, a provider on another site, strict cookies."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.record.incidents import Ledger, kinds
from tests.serve.provider_site import SECRET, Site

BROWSER = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.server,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not BROWSER.exists(), reason="needs Debian's chromium"),
]


@pytest.fixture
def provider() -> Iterator[Site]:
    site = Site(SECRET)
    yield site
    site.stop()


@pytest.fixture
def address(provider: Site, ledger: Ledger, tmp_path: Path) -> Iterator[str]:
    """A real service that the browser knows as localhost: for it, the provider on 127.0.0.1 is another site."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "client.secret").write_text(SECRET)
    (tmp_path / "client.secret").chmod(0o600)
    (tmp_path / "service.toml").write_text(
        f'public_url = "http://localhost:{port}"\n[oidc]\nissuer = "{provider.issuer}"\naudience = "minder"\nname_claim = "email"\n'
        '[oidc.roles]\nml-oncall = "operator"\n'
        '[oidc.sign_in]\nclient_id = "minder pages"\nclient_secret_file = "client.secret"\nlabel = "Example ID"\nsign_out_there = true\n'
    )
    command = [sys.executable, "-m", "minder", "serve", "--listen", f"127.0.0.1:{port}", "--ledger", str(ledger.location)]
    with (tmp_path / "serve.log").open("w") as log:
        process = subprocess.Popen([*command, "--settings", str(tmp_path / "service.toml")], stderr=log)
    ends_s = time.monotonic() + 120.0
    while not answers(port):
        assert process.poll() is None and time.monotonic() < ends_s, (tmp_path / "serve.log").read_text()
        time.sleep(0.1)
    yield f"http://localhost:{port}"
    process.terminate()
    assert process.wait(60) == 0


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/v1/health", timeout=5.0, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def test_a_person_goes_to_the_provider_and_comes_back(address: str, provider: Site, ledger: Ledger, tab: Any) -> None:
    tab.goto(f"{address}/incidents/llm-1")
    tab.get_by_role("link", name="Sign in with Example ID").click()
    tab.get_by_role("heading", name="Who are you?").wait_for()
    assert tab.url.startswith(provider.issuer)
    tab.get_by_label("Name").fill("alice")
    tab.get_by_role("button", name="Go on").click()
    tab.wait_for_url(f"{address}/incidents/llm-1")  # with the strict cookie, though the way here came from another site
    assert "m2" in tab.get_by_role("heading", level=1).inner_text() and tab.get_by_text("alice@example.org").first.is_visible()
    (event,) = ledger.events(kinds=[kinds.SIGNED_IN])
    assert (event.payload["subject"], event.payload["issuer"]) == ("u-alice", provider.issuer)
    assert all(cookie["httpOnly"] for cookie in tab.context.cookies(address))

    tab.get_by_role("button", name="Sign out").click()
    tab.get_by_role("link", name="Sign in with Example ID").wait_for()
    assert provider.http.get("/control").json()["out"] == ["u-alice"]  # there too, and back again
    tab.goto(f"{address}/incidents")
    assert "/sign-in" in tab.url

    provider.tell(lie="nonce")
    tab.get_by_role("link", name="Sign in with Example ID").click()
    tab.get_by_label("Name").fill("mallory")
    tab.get_by_role("button", name="Go on").click()
    tab.get_by_role("alert").get_by_text("Not signed in").wait_for()
    tab.goto(f"{address}/incidents")
    assert "/sign-in" in tab.url and tab.troubles == []
