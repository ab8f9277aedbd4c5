"""The disk of the ledger is full: it is seen before there is anything to write, nothing is done, and all is done once there is room."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.lease import Leadership
from minder.act.controller.reporting.status import read_status
from minder.model.errors import LedgerError
from minder.record.incidents import kinds

PATIENCE_S = 20.0


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s, "waited too long"
        time.sleep(0.05)


def fill(small: Path, job: Any) -> Path:
    """Nothing more fits: neither a file nor, in what SQLite has reserved already, an event."""
    ballast = small / "ballast"
    with pytest.raises(OSError, match="No space"), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with pytest.raises(LedgerError, match="free some space"):
        while True:
            job.ledger.append(kinds.NOTE, {"text": "x" * 500})
    return ballast


@pytest.mark.root
def test_a_full_disk_is_seen_stops_every_action_and_loses_no_conclusion(
    paper: Callable[..., Any], small_disk: Callable[[str], Path]
) -> None:
    small = small_disk("1m")
    job = paper(small / "ledger.db")
    leadership = Leadership(str(small / "ledger.db"), "llm", beat_s=0.1)
    try:
        job.ledger.fence(leadership.lead(threading.Event(), print))
        leadership.on_beat = job.ledger.note_beat
        job.tick(2)
        assert job.degraded() == set()
        ballast = fill(small, job)
        until(lambda: bool(job.ledger.beat_error))
        job.tick(1)
        assert job.degraded() == {"ledger"}
        assert "free some space" in (read_status(job.folder / "status.json") or {})["unwritten"]
        job.hit("m2", "slow")
        job.tick(90)
        assert job.degraded() >= {"ledger", "backlog"} and job.app.state.generation == 1 and job.app.state.phase == "running"
        assert job.told(kinds.VERDICT, kinds.DECISION, kinds.INTENT) == []
        ballast.unlink()
        until(lambda: not job.ledger.beat_error)
        job.tick(30)
        assert [len(job.told(kind)) for kind in (kinds.VERDICT, kinds.INTENT, kinds.RESULT, kinds.BARRED)] == [1, 1, 1, 1]
        assert job.app.state.generation == 2 and job.app.state.phase == "running" and job.degraded() == set()
    finally:
        leadership.close()
