"""What a running demo shows of itself: the controller's status and the ledger, read a few times a second and cheaply."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from minder.act.controller.reporting.status import read_status
from minder.model.errors import MinderError
from minder.model.history import LedgerEvent
from minder.record.incidents import Ledger, kinds
from minder.simulate.demo.milestones import Milestone, find_milestones
from minder.simulate.demo.options import DemoOptions

__all__ = ["Feed", "Watched"]

_POINTS = 400


class Watched(Protocol):
    """What the feed needs of a stage."""

    @property
    def status_path(self) -> Path: ...
    @property
    def ledger_path(self) -> Path: ...
    @property
    def job(self) -> str: ...
    @property
    def telemetry(self) -> str: ...
    @property
    def lab_mode(self) -> str: ...
    @property
    def injected(self) -> Any: ...  # InjectionRecord, None before


class Feed:
    """Everything that a display shows. `update` reads what is new; the rest are plain fields.

    losses: (step, loss) as seen, newest last. fault_detail: what the injector did, in its own words.
    """

    def __init__(self, options: DemoOptions, now_s: Callable[[], float] = time.time) -> None:
        self.options = options
        self._now_s = now_s
        self.started_s = now_s()
        self.message = ""
        self.job = ""
        self.lab_mode = ""
        self.telemetry = ""
        self.status: Mapping[str, Any] = {}
        self.events: list[LedgerEvent] = []
        self.losses: deque[tuple[int, float]] = deque(maxlen=_POINTS)
        self.fault_s: float | None = None
        self.fault_detail = ""
        self._ledger: Ledger | None = None
        self._status_stamp = 0

    @property
    def elapsed_s(self) -> float:
        return self._now_s() - self.started_s

    @property
    def milestones(self) -> tuple[Milestone, ...]:
        return find_milestones(self.fault_s, self.events)

    @property
    def step(self) -> int | None:
        step = self.status.get("step")
        return None if step is None else int(step)

    def short(self, machine: str) -> str:
        """A machine's name without the lab's: m2 for lab-86b2-m2."""
        return machine.removeprefix(f"{self.job}-")

    def shortened(self, text: str) -> str:
        """A text with every machine's name made short."""
        return text.replace(f"{self.job}-", "") if self.job else text

    def update(self, stage: Watched, message: str) -> list[LedgerEvent]:
        """Read what is new; returns the new events of the ledger."""
        self.message = message
        self.job, self.lab_mode, self.telemetry = stage.job, stage.lab_mode, stage.telemetry
        self._read_status(stage.status_path)
        self._find_fault(stage)
        new = self._read_ledger(stage.ledger_path)
        self.events += new
        return new

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    def _read_status(self, path: Path) -> None:
        try:
            stamp = path.stat().st_mtime_ns
        except OSError:
            return
        if stamp == self._status_stamp:
            return
        status = read_status(path)
        if status is None:
            return
        self._status_stamp, self.status = stamp, status
        step, loss = self.step, status.get("loss")
        if step is not None and loss is not None and (not self.losses or self.losses[-1][0] != step):
            self.losses.append((step, float(loss)))

    def _find_fault(self, stage: Watched) -> None:
        if self.fault_s is not None or self.options.fault == "none":
            return
        if stage.injected is not None:
            self.fault_s, self.fault_detail = stage.injected.time_s, stage.injected.detail
            return
        marker = self.options.out.absolute() / "train" / f"fault-{self.options.fault}"
        try:
            self.fault_s = marker.stat().st_mtime
        except OSError:
            return
        self.fault_detail = "by the training script itself"

    def _read_ledger(self, path: Path) -> list[LedgerEvent]:
        """New events, captured evidence without its data: it may be large and is never shown."""
        if not self._status_stamp:  # the controller writes its status after it has made the ledger
            return []
        since = self.events[-1].id if self.events else 0
        try:
            self._ledger = self._ledger or Ledger(path, create=False, busy_timeout_s=0.2)
            found = self._ledger.events(since_id=since)
        except MinderError:
            return []  # busy: the next look sees it
        return [_light(event) for event in found]


def _light(event: LedgerEvent) -> LedgerEvent:
    if event.kind != kinds.EVIDENCE:
        return event
    payload = {key: value for key, value in event.payload.items() if key != "data"}
    return LedgerEvent(event.id, event.time_s, event.kind, event.job, event.incident, event.operation_id, payload)
