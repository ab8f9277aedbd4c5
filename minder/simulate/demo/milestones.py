"""The moments of one demo, in the order in which they came (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds

__all__ = ["LABELS", "Milestone", "find_milestones"]

LABELS = {
    "injected": "fault injected",
    "detected": "detected",
    "decided": "decided",
    "captured": "evidence captured",
    "evicted": "evicted",
    "restarted": "restarted",
    "first_step": "first new step",
}


@dataclass(frozen=True, slots=True)
class Milestone:
    """One moment, unix seconds; `key` is one of LABELS."""

    key: str
    time_s: float

    @property
    def label(self) -> str:
        return LABELS[self.key]


def find_milestones(fault_s: float | None, events: Sequence[LedgerEvent]) -> tuple[Milestone, ...]:
    """The first moment of each kind since the fault, oldest first. Without a fault time: since the first verdict."""
    first: dict[str, float] = {} if fault_s is None else {"injected": fault_s}
    for event in events:
        if event.incident is None or (fault_s is not None and event.time_s < fault_s - 1.0):
            continue
        key = _key(event.kind, event.payload)
        if key is not None:
            first.setdefault(key, event.time_s)
    return tuple(Milestone(key, time_s) for key, time_s in sorted(first.items(), key=lambda item: item[1]))


def _key(kind: str, payload: Any) -> str | None:
    if kind == kinds.VERDICT:
        return None if payload.get("kind") == "recovered" or payload.get("tier") == "watch" else "detected"
    if kind == kinds.DECISION:
        return "decided" if payload.get("action") in kinds.ACTS else None
    if kind == kinds.RECOVERY_PHASE and payload.get("state") == "end":
        return {"capture": "captured", "restart": "restarted"}.get(str(payload.get("phase")))
    return {kinds.BARRED: "evicted", kinds.FIRST_STEP: "first_step"}.get(kind)
