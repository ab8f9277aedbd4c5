"""What probes measured, in the ledger: by whose order, with the judgement of that time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from minder.model.errors import WireError
from minder.model.history import LedgerEvent
from minder.model.probes import ProbeJudgement, ProbeResult
from minder.record.incidents import kinds
from minder.wire.codec import from_json, to_json

__all__ = ["PAST_S", "ProbeRun", "fold_probes", "past_results", "probes_payload", "read_past"]

PAST_S = 90 * 86400.0  # an older result is of another summer, another driver, another firmware
_BAD = ("slow", "fail")
_MOST_CHARACTERS = 4000
_MOST_RUNS = 2000


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """Probes of one machine, run together. why: "test", "diagnose", "retest" or "standby"."""

    event_id: int
    time_s: float
    machine: str
    job: str | None
    by: str
    why: str
    results: tuple[ProbeResult, ...]
    judgements: tuple[ProbeJudgement, ...]

    def is_bad(self, probe: str) -> bool:
        """Whether the probe's result was called slow or faulty: such a one is no measure for later ones."""
        return any(item.probe == probe and item.verdict in _BAD for item in self.judgements)


def probes_payload(
    machine: str, results: Sequence[ProbeResult], judgements: Sequence[ProbeJudgement], *, by: str, why: str, note: str = ""
) -> dict[str, Any]:
    """Of a PROBES event. Long lists of a probe (hashes of tensors) are kept of a fault only."""
    said = {"note": note} if note else {}
    faulty = {item.probe for item in judgements if item.verdict == "fail"}
    kept = tuple(item if item.probe in faulty else replace(item, data=_short(item.data)) for item in results)
    return {"machine": machine, "by": by, "why": why, **said, "results": to_json(kept), "judgements": to_json(tuple(judgements))}


def _short(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if len(str(value)) <= _MOST_CHARACTERS}


def fold_probes(events: Iterable[LedgerEvent]) -> list[ProbeRun]:
    """From events of kind PROBES, in ledger order (pure). One that a newer version wrote otherwise is left out."""
    found = []
    for event in events:
        payload = event.payload
        try:
            results = from_json(tuple[ProbeResult, ...], payload.get("results") or ())
            judgements = from_json(tuple[ProbeJudgement, ...], payload.get("judgements") or ())
        except WireError:
            continue
        words = (str(payload.get("machine")), event.job, str(payload.get("by") or "?"), str(payload.get("why") or "?"))
        found.append(ProbeRun(event.id, event.time_s, *words, results, judgements))
    return found


def past_results(runs: Iterable[ProbeRun], probe: str) -> dict[str, list[ProbeResult]]:
    """Machine to its earlier results of a probe, oldest first, without those that were called slow or faulty."""
    found: dict[str, list[ProbeResult]] = {}
    for run in runs:
        for result in run.results:
            if result.probe == probe and result.state == "measured" and not run.is_bad(probe):
                found.setdefault(run.machine, []).append(result)
    return found


def read_past(read: Callable[..., Sequence[LedgerEvent]], now_s: float | None = None) -> list[ProbeRun]:
    """Of the last PAST_S, the newest 2,000 at most. read: the events of some kinds, as Ledger.events."""
    since_s = (time.time() if now_s is None else now_s) - PAST_S
    newest = read(kinds=[kinds.PROBES], newest_first=True, limit=_MOST_RUNS)
    return [run for run in fold_probes(reversed(newest)) if run.time_s >= since_s]
