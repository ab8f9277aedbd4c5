"""Signals that the service took for a job, out of the ledger: a monitor of the site saw something of a machine."""

from __future__ import annotations

import math
from collections.abc import Callable

from minder.model.errors import WireError
from minder.model.evidence import Signal
from minder.record.incidents import Ledger, kinds
from minder.wire.codec import from_json

__all__ = ["Inbox"]

_KINDS = frozenset({"xid", "link", "kernel", "report", "order"})
_FRESH_S = 600.0
_MOST = 2000


class Inbox:
    """`take` once per tick: every signal is handed out once, by one controller; what lies further back than ten minutes is the past."""

    def __init__(self, ledger: Ledger, job: str, spoken: Callable[[], list[Signal]] = list) -> None:
        """spoken: what telemetry said outright since it was last asked (telemetry/spoken.py)."""
        self._ledger, self._job, self._spoken = ledger, job, spoken
        self._since_id = 0
        self._begun_s = math.inf

    def take(self, now_s: float) -> list[Signal]:
        """Raises LedgerError; then the next call hands out the same."""
        self._begun_s = min(self._begun_s, now_s)
        events = self._ledger.events(since_id=self._since_id, job=self._job, kinds=(kinds.SIGNAL,), limit=_MOST)
        found = []
        for event in events:
            if event.time_s < self._begun_s - _FRESH_S:
                continue
            try:
                signal = from_json(Signal, event.payload.get("signal"))
            except WireError:  # written by a version that knows more than this one
                continue
            if signal.kind in _KINDS and signal.machine is not None:
                found.append(signal)
        self._since_id = events[-1].id if events else self._since_id
        return [*found, *self._spoken()]
