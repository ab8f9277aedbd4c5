"""`minder job restart`: for a job whose controller is heard, once, with a reason."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from minder.act.controller.lease import Leadership
from minder.record.incidents import Ledger, kinds

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run_on_ledger: Run) -> Run:
    return functools.partial(run_on_ledger, "job")


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setenv("MINDER_STATE_DIR", str(tmp_path / "state"))
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.append(kinds.JOB_REGISTERED, {"machines": ["m1", "m2"]}, job="llm")
    return ledger


def test_a_job_whose_controller_beats_is_ordered_once(run: Run, ledger: Ledger) -> None:
    leadership = Leadership(ledger.location, "llm", beat_s=0.2)
    assert leadership.lead(threading.Event(), lambda text: None)
    try:
        status, out, _ = run("restart", "llm", "--reason", "a loader is stuck")
        assert status == 0 and "starts it again in place at its next tick" in out
        status, out, _ = run("restart", "llm", "--reason", "still stuck")
        assert status == 0 and "the controller is at it" in out
    finally:
        leadership.close()
    (event,) = ledger.events(kinds=[kinds.RESTART_ASKED])
    assert event.payload["reason"] == "a loader is stuck" and event.payload["by"]


def test_a_controller_without_a_lease_is_heard_by_its_status(run: Run, ledger: Ledger, tmp_path: Path) -> None:
    """`minder run -- script` on this machine."""
    folder = tmp_path / "state" / "jobs" / "llm"
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps({"job": "llm", "now_s": time.time()}))
    assert run("restart", "llm", "--reason", "stuck")[0] == 0


@pytest.mark.parametrize(("words", "expected"), [
    (("llm", "--reason", "stuck"), "no controller of llm is heard"), (("llm",), "--reason is missing"),
    (("none", "--reason", "stuck"), 'no job "none" runs'),
])  # fmt: skip
def test_what_cannot_be_is_one_line_and_nothing_is_written(run: Run, ledger: Ledger, words: tuple[str, ...], expected: str) -> None:
    status, _, err = run("restart", *words)
    assert status == 2 and expected in err and err.count("\n") == 1
    assert ledger.events(kinds=[kinds.RESTART_ASKED]) == []
