"""Whoever is woken at night: a fault in the lab appears on the pages of a real service, is approved in a real browser, and recovers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.record.incidents import kinds
from minder.record.store.tokens import TokenRecord, TokenStore, new_id

BROWSER = Path("/usr/bin/chromium")
pytestmark = [
    pytest.mark.lab,
    pytest.mark.server,
    pytest.mark.timeout(420),
    pytest.mark.skipif(not BROWSER.exists(), reason="needs Debian's chromium"),
]


@pytest.fixture
def tab(tab: Any) -> Any:
    """One that may talk to this machine only."""
    tab.on("console", lambda message: tab.troubles.append(message.text) if message.type == "error" else None)
    tab.on("request", lambda sent: None if sent.url.startswith("http://127.0.0.1:") else tab.troubles.append(sent.url))
    return tab


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Path], str]]:
    """serve(ledger) -> the address of a real service on it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(ledger: Path) -> str:
        log = tmp_path / "serve.log"
        with log.open("w") as output:
            started.append(
                subprocess.Popen(
                    [sys.executable, "-m", "minder", "serve", "--listen", "127.0.0.1:0", "--ledger", str(ledger)], stderr=output
                )
            )
        ends_s = time.monotonic() + 120.0
        while time.monotonic() < ends_s and started[-1].poll() is None:
            if found := [word for word in log.read_text().split() if word.startswith("http://127.0.0.1:")]:
                return found[0].removesuffix(",").removesuffix("/v1")
            time.sleep(0.1)
        raise AssertionError(log.read_text())

    yield start
    for process in started:
        process.terminate()
        assert process.wait(60) == 0


def operator(ledger: Path) -> str:
    store = TokenStore(str(ledger))
    token = store.create(TokenRecord(new_id(), "alice", "operator", time.time(), "root"))
    store.close()
    return token


def is_on_the_first_screen(tab: Any) -> bool:
    """What one is woken to read and to do fits a screen of 1280 by 900, without a turn of the wheel; the rest is for the morning."""
    tab.set_viewport_size({"width": 1280, "height": 900})
    tab.evaluate("scrollTo(0, 0)")
    found = [tab.locator("dl.brief dt").get_by_text(name, exact=True) for name in ("Now", "In the morning", "Undo")]
    found += [tab.get_by_role("heading", name=name, exact=True) for name in ("Which machine", "Evidence for", "What happens next")]
    boxes = {str(item): item.bounding_box() for item in found}
    assert all(box["y"] + box["height"] <= 900 for box in boxes.values()), boxes
    return True


def test_a_fault_is_seen_approved_and_over(drama: Callable[..., Any], same_losses: Any, serve: Callable[[Path], str], tab: Any) -> None:
    run = drama()
    config = run.stage.folder / "job.toml"
    config.write_text(config.read_text().replace("[policy]", '[policy]\napproval = "required"\napproval_timeout_s = 300.0'))
    run.start()
    run.reach(12)
    address = serve(run.stage.ledger_path)
    tab.goto(address)
    tab.fill("#token", operator(run.stage.ledger_path))
    tab.get_by_role("button", name="Sign in").click()
    tab.get_by_role("heading", name="Fleet").wait_for()
    assert tab.get_by_role("link", name=run.stage.job, exact=True).first.is_visible()

    run.stage.inject("hang", 1)
    faulty = run.name(1)
    tab.get_by_text(f"Evict {faulty}?").wait_for()  # the page asks for news by itself
    assert run.events(kinds.INTENT) == []
    tab.get_by_role("link", name="Look and answer").click()
    tab.get_by_role("heading", name=f"May {faulty} be evicted?").wait_for()
    assert tab.get_by_role("heading", level=1).inner_text().startswith(faulty)
    assert is_on_the_first_screen(tab)
    tab.get_by_role("textbox", name="Why").fill("its rank is silent while all others wait")
    tab.get_by_role("button", name="Approve the eviction").click()

    assert run.finish() == "finished"
    assert run.evicted() == [faulty]
    assert [placed[1] for placed in run.generations()] == [faulty, run.name(4)]
    (settled,) = run.events(kinds.APPROVAL_SETTLED)
    assert settled.payload["by"] == "alice"
    tab.get_by_text(f"machine return {faulty}").first.wait_for()  # what undoes it
    assert is_on_the_first_screen(tab)
    assert "its rank is silent while all others wait" in tab.content()
    assert same_losses(run)
    assert tab.troubles == []
