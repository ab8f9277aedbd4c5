"""A tick that takes long makes no queue: the next begins after a short pause, and everyone is shown how long it took."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from minder.act.controller.reporting.status import read_status
from serve.pages.fleet import _troubles


class Waits:
    """Stands for the event that wakes the loop: notes how long it would have waited, and ends the loop after some."""

    def __init__(self, stopping: threading.Event, most: int) -> None:
        self.waits: list[float] = []
        self._stopping, self._most = stopping, most

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        if len(self.waits) >= self._most:
            self._stopping.set()
        return False

    def clear(self) -> None: ...


@pytest.mark.parametrize(("took_s", "wait_s"), [(0.0, 1.0), (0.25, 0.75), (0.95, 0.1), (4.0, 0.1)])
def test_ticks_begin_at_the_interval_as_far_as_they_can(world: Any, monkeypatch: pytest.MonkeyPatch, took_s: float, wait_s: float) -> None:
    app = world.app()
    app.begin()
    stopping = threading.Event()
    waits = Waits(stopping, 2)
    monkeypatch.setattr(app.controller, "step", lambda now_s: world.clock.sleep(took_s))
    app.controller.run(waits, stopping, 1.0)
    assert waits.waits == pytest.approx([wait_s, wait_s])
    app.controller.write_status(world.clock.now_s())
    status = read_status(world.folder / "status.json") or {}
    assert status["tick"] == {"planned_s": 1.0, "took_s": pytest.approx(took_s)}
    assert [line for line in _troubles(status) if "a tick takes" in line] == (
        ["a tick takes 4.0 s and not 1: verdicts come so much later, give the controller a core of its own"] if took_s > 2 else []
    )
    app.close()
