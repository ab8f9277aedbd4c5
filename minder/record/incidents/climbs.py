"""What of the ladder a job has climbed, out of its events: the state of a climb is in the ledger, so a controller that takes over goes on
where the last one stopped. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from minder.model.decision import Climb
from minder.model.errors import WireError
from minder.model.evidence import Failure
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.wire.codec import from_json

__all__ = ["ClimbFold", "rung_of"]

_RUNG_OF = {"evict": "evict", "trial": "trial", "restart": "reattempt"}  # of what a version without a ladder decided
_MOST = 1000  # of one job in a day
_MOST_FAILURES = 8  # of one climb: a thousand ranks may raise the same, and every later decision shows the climbs before it


class ClimbFold:
    """Feed it one job's events in ledger order; events of other kinds change nothing."""

    def __init__(self) -> None:
        self._climbs: dict[str, Climb] = {}

    def add(self, event: LedgerEvent) -> None:
        name = event.operation_id
        if event.kind == kinds.INTENT and name is not None and isinstance(event.payload.get("decision"), Mapping):
            self._begin(name, event)
        elif event.kind == kinds.RESULT and name in self._climbs:
            if event.payload.get("outcome") == "dry_run":
                del self._climbs[name]
            else:
                found = str(event.payload.get("detail") or "") if self._climbs[name].rung in ("diagnose", "replay") else ""
                self._climbs[name] = replace(self._climbs[name], outcome=_word(str(event.payload.get("outcome"))), finding=found)
        elif event.kind == kinds.PROGRESS:
            self._climbs |= {key: replace(item, outcome="held") for key, item in self._climbs.items() if item.outcome == "done"}

    def climbs(self, since_s: float, until_s: float) -> tuple[Climb, ...]:
        """Begun in between, oldest first."""
        return tuple(item for item in self._climbs.values() if since_s <= item.time_s <= until_s)

    def _begin(self, name: str, event: LedgerEvent) -> None:
        decision: Mapping[str, Any] = event.payload["decision"]
        failures = tuple(replace(item, text="") for item in _failures(decision))[:_MOST_FAILURES]
        machines = tuple(map(str, event.payload.get("machines") or ()))
        trouble = str(decision.get("trouble") or "")
        rung = rung_of(decision)
        for key, old in self._climbs.items():
            if old.outcome in ("done", "held") and any(_is_again(one, other) for one in old.failures for other in failures):
                self._climbs[key] = replace(old, outcome="came back")
        suspects = _suspects(decision)
        self._climbs[name] = Climb(rung, event.time_s, name, machines, trouble, event.incident, "", failures, suspects=suspects)
        for key in list(self._climbs)[:-_MOST]:
            del self._climbs[key]


def rung_of(decision: Mapping[str, Any]) -> str:
    """Of a decision as JSON, of any version: its rung, else what its action stands for."""
    action = str(decision.get("action"))
    return str(decision.get("rung") or _RUNG_OF.get(action, action))


def _word(outcome: str) -> str:
    return "done" if outcome == "already_done" else outcome


def _failures(decision: Mapping[str, Any]) -> Iterable[Failure]:
    verdict = decision.get("verdict")
    for row in verdict.get("failures") or () if isinstance(verdict, Mapping) else ():
        try:
            yield from_json(Failure, row)
        except WireError:  # written by a version that knows more than this one
            continue


def _suspects(decision: Mapping[str, Any]) -> tuple[str, ...]:
    verdict = decision.get("verdict")
    return tuple(map(str, verdict.get("machines") or ())) if isinstance(verdict, Mapping) else ()


def _is_again(one: Failure, other: Failure) -> bool:
    return one.is_like(other) and (one.machine == other.machine or bool(set(one.ranks) & set(other.ranks)))
