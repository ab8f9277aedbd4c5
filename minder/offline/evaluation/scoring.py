"""How good verdicts are, by the rule that docs/recordings.md gives: a recording with a fault is found if its accusations (tier evict or
page, kind machine or group) name the right machine, none before the onset, the first within seven minutes of it, and no other;
a healthy recording is right without any accusation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from minder.model.evidence import Verdict

if TYPE_CHECKING:
    from minder.ingest.sources.events import Truth

__all__ = ["LIMIT_S", "Judged", "Summary", "accusations", "judge_recording", "summarise"]

LIMIT_S = 420.0


@dataclass(frozen=True, slots=True)
class Judged:
    """One recording. outcome: found, missed, wrong (an accusation that should not be), quiet (healthy and silent)."""

    recording: str
    fault: str | None
    outcome: str
    delay_s: float | None = None
    named: tuple[str, ...] = ()
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """precision: found / recordings with an accusation; recall: found / recordings with a fault. NaN where nothing divides."""

    precision: float
    recall: float
    f1: float
    median_delay_s: float
    found: int
    wrong: int
    missed: int
    quiet: int


def accusations(verdicts: Iterable[Verdict]) -> list[Verdict]:
    return [item for item in verdicts if item.kind in ("machine", "group") and item.tier in ("evict", "page")]


def judge_recording(truth: Truth, verdicts: Sequence[Verdict]) -> Judged:
    """The outcome of one recording."""
    accused = accusations(verdicts)
    named = tuple(dict.fromkeys(name for item in accused for name in item.machines))
    if not accused:
        return Judged(truth.recording, truth.fault, "missed" if truth.fault else "quiet")
    right = set(truth.machines) | ({truth.machine} if truth.machine else set())
    delay_s = accused[0].time_s - truth.onset_s if truth.onset_s is not None else None
    good = bool(truth.fault) and set(named) <= right and delay_s is not None and 0.0 <= delay_s <= LIMIT_S
    return Judged(truth.recording, truth.fault, "found" if good else "wrong", delay_s, named, accused[0].confidence)


def summarise(judged: Sequence[Judged]) -> Summary:
    """Precision, recall, F1 and the median delay of the found."""
    count = {name: sum(item.outcome == name for item in judged) for name in ("found", "wrong", "missed", "quiet")}
    faults = sum(item.fault is not None for item in judged)
    precision = _share(count["found"], count["found"] + count["wrong"])
    recall = _share(count["found"], faults)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall > 0 else float("nan")
    delays = [item.delay_s for item in judged if item.outcome == "found" and item.delay_s is not None]
    return Summary(
        precision, recall, f1, median(delays) if delays else float("nan"), count["found"], count["wrong"], count["missed"], count["quiet"]
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
