"""Whether a job's controller is heard: without one, an order or an approval is written down and nothing happens."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

from minder.act.controller.lease import PATIENCE_S
from minder.act.controller.reporting.status import status_age_s
from minder.model.clock import Clock
from minder.record.store.leases import Lease, LeaseStore

__all__ = ["HEARD_S", "Heard", "Listening"]

HEARD_S = 10.0
_MOST_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class Heard:
    """state: "heard" now, "silent", or "unknown": it cannot be known yet. last_s: unix seconds of the last sign, None where
    there was none."""

    state: Literal["heard", "silent", "unknown"]
    last_s: float | None = None


@dataclass(slots=True)
class _Watched:
    lease: Lease
    since_s: float  # since when its beats stand at that number, by the monotonic clock
    moved_s: float | None = None  # unix seconds at which they were seen to move


@dataclass(slots=True)
class Listening:
    """Beats of leases, as this service sees them from one question to the next; safe for several threads."""

    store: LeaseStore
    clock: Clock
    _seen: dict[str, _Watched] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def heard(self, job: str, status_s: float | None) -> Heard:
        """By the job's newest status (unix seconds of it; None: this service sees none) and by its lease. Raises LedgerError."""
        now_s = self.clock.now_s()
        if status_s is not None and status_age_s({"now_s": status_s}, now_s) < HEARD_S:
            return Heard("heard", status_s)
        leases = {name: self.store.read(name) for name in (job, f"watch of {job}")}
        with self._lock:
            watched = [found for name, lease in leases.items() if (found := self._note(name, lease, now_s)) is not None]
            last_s = max((at_s for at_s in (status_s, *(item.moved_s for item in watched)) if at_s is not None), default=None)
            stands = [self.clock.monotonic_s() - item.since_s for item in watched]
            moved = any(item.moved_s is not None and stood < PATIENCE_S for item, stood in zip(watched, stands, strict=True))
        if moved:
            return Heard("heard", last_s)
        return Heard("unknown" if any(stood < PATIENCE_S for stood in stands) else "silent", last_s)

    def _note(self, name: str, lease: Lease | None, now_s: float) -> _Watched | None:
        """None where the lease is free."""
        if lease is None or lease.released:
            self._seen.pop(name, None)
            return None
        known = self._seen.get(name)
        if known is None or known.lease != lease:
            if known is None and len(self._seen) >= _MOST_JOBS:
                self._seen.clear()
            known = self._seen[name] = _Watched(lease, self.clock.monotonic_s(), None if known is None else now_s)
        return known

    def close(self) -> None:
        self.store.close()
