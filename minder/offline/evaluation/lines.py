"""Verdicts as `minder replay` and `minder watch` print them (docs/recordings.md): one per line, one line per episode."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from minder.model.clock import format_time
from minder.model.evidence import Evidence, Verdict

__all__ = ["Episodes", "format_verdict", "verdict_line", "verdict_row", "verdict_sentence"]


_ASKS = {"watch": "may be faulty, which is noted", "evict": "should be evicted"}
_JOB_ASKS = {"watch": "noted"}


class Episodes:
    """Which verdicts open or close an episode: a page that grows into an evict is not shown again."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, ...], Verdict] = {}

    def is_news(self, verdict: Verdict) -> bool:
        if verdict.kind == "recovered":
            self._open.pop(verdict.machines, None)
            return True
        return self._open.setdefault(verdict.machines, verdict) is verdict

    def close(self, time_s: float) -> list[Verdict]:
        """The job was started again: every open episode ends here, with its line."""
        closed = [
            replace(verdict, time_s=time_s, kind="recovered", tier="watch", evidence=(), against=()) for verdict in self._open.values()
        ]
        self._open.clear()
        return closed


def format_verdict(recording: str, verdict: Verdict, output: str) -> str:
    """output: "jsonl" or "table". `recording` is the recording's or the job's name."""
    return json.dumps(verdict_line(recording, verdict)) if output == "jsonl" else verdict_row(recording, verdict)


def verdict_line(recording: str, verdict: Verdict) -> dict[str, Any]:
    """A verdict as docs/recordings.md writes it."""
    return {
        "recording": recording,
        "time": format_time(verdict.time_s),
        "kind": verdict.kind,
        "tier": verdict.tier,
        "machines": list(verdict.machines),
        "confidence": round(verdict.confidence, 3),
        "cause": verdict.cause,
        "evidence": [_evidence(item) for item in verdict.evidence],
        "against": [_evidence(item) for item in verdict.against],
    }


def verdict_row(recording: str, verdict: Verdict) -> str:
    """The same for reading, with the first three pieces of evidence."""
    why = ", ".join(_short(item) for item in verdict.evidence[:3])
    who = f"{verdict.kind:<9} {verdict.tier:<5} {','.join(verdict.machines) or '-':<20}"
    return f"{recording:<16} {format_time(verdict.time_s)}  {who} {verdict.confidence:4.2f}  {verdict.cause:<9} {why}"


def verdict_sentence(verdict: Verdict) -> str:
    """For people who watch: who, what is asked for, what it is, since when, how sure, and the first three pieces of evidence."""
    since = f"{verdict.cause} since {format_time(verdict.since_s)[11:19]} UTC, confidence {verdict.confidence:.2f}"
    who = ", ".join(verdict.machines)
    if verdict.kind == "recovered":
        return f"{who} is as its peers again" if who else f"the job is well again ({verdict.cause})"
    words = _ASKS.get(verdict.tier, "may be faulty, and a person should look")
    asks = _JOB_ASKS.get(verdict.tier, "a person should look")
    said = f"{who} {words}" if who else f"the whole job is affected and no machine is to blame ({asks})"
    why = "; ".join(text for item in verdict.evidence[:3] if (text := _short(item)))
    return f"{said}: {since}" + (f"; because {why}" if why else "")


def _evidence(item: Evidence) -> dict[str, Any]:
    found: dict[str, Any] = {
        "source": item.source,
        "metric": item.metric,
        "machine": item.machine,
        "device": item.device,
        "observed": _finite(item.observed),
        "expected": _finite(item.expected),
        "since": None if item.since_s is None else format_time(item.since_s),
    }
    return found | ({"message": item.message} if item.message else {})


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _short(item: Evidence) -> str:
    if item.metric is None or item.observed is None or item.expected is None:
        return item.message
    return f"{item.metric} {item.observed:.4g} (expected {item.expected:.4g})"
