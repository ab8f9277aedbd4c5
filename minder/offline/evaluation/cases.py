"""One evaluated recording: its judgement, who was named when, and what a report groups it by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minder.model.evidence import Verdict
from minder.offline.evaluation.scoring import Judged, accusations, judge_recording

if TYPE_CHECKING:
    from minder.ingest.sources.events import Truth
    from minder.ingest.sources.recording import Recording

__all__ = ["Accusation", "Case", "Facts", "case_of", "facts_of", "size_of"]

_SIZES = ((4, "up to 4"), (16, "5 to 16"), (64, "17 to 64"), (256, "65 to 256"), (1024, "257 to 1024"))


@dataclass(frozen=True, slots=True)
class Facts:
    """What an evaluation must know of a recording besides its truth. metrics: how many have a column."""

    machines: int
    start_s: float
    end_s: float
    interval_s: float
    metrics: int


@dataclass(frozen=True, slots=True)
class Accusation:
    """One line that accuses. after_s: seconds since the fault's onset, None in a healthy recording."""

    time_s: float
    machines: tuple[str, ...]
    tier: str
    cause: str
    confidence: float
    after_s: float | None


@dataclass(frozen=True, slots=True)
class Case:
    """One recording, evaluated. healthy_s: how long it ran before anything was wrong; early: accusations in that time."""

    judged: Judged
    facts: Facts
    culprits: tuple[str, ...]
    onset_s: float | None
    accusations: tuple[Accusation, ...]
    path: str

    @property
    def kind(self) -> str:
        return self.judged.fault or "healthy"

    @property
    def size(self) -> str:
        return size_of(self.facts.machines)

    @property
    def healthy_machine_days(self) -> float:
        end_s = self.facts.end_s if self.onset_s is None else min(self.onset_s, self.facts.end_s)
        return max(0.0, end_s - self.facts.start_s) * self.facts.machines / 86400.0

    @property
    def false_alarms(self) -> int:
        """Accusations while nothing was wrong yet."""
        return sum(self.onset_s is None or item.time_s < self.onset_s for item in self.accusations)


def size_of(machines: int) -> str:
    """The group of job sizes that a report shows it in.

    >>> size_of(4), size_of(96), size_of(4000)
    ('up to 4', '65 to 256', 'over 1024')
    """
    return next((name for limit, name in _SIZES if machines <= limit), f"over {_SIZES[-1][0]}")


def facts_of(recording: Recording) -> Facts:
    start_s, end_s = recording.start_s or 0.0, recording.end_s or 0.0
    return Facts(len(recording.machines), start_s, end_s, recording.interval_s, len(recording.frames.metrics))


def case_of(truth: Truth, facts: Facts, verdicts: Sequence[Verdict], path: str) -> Case:
    """Judge the verdicts of one recording by the rule of `scoring`."""
    onset_s = truth.onset_s if truth.fault is not None else None
    named = tuple(
        Accusation(item.time_s, item.machines, item.tier, item.cause, item.confidence, None if onset_s is None else item.time_s - onset_s)
        for item in accusations(verdicts)
    )
    culprits = tuple(dict.fromkeys([*([truth.machine] if truth.machine else []), *truth.machines]))
    return Case(judge_recording(truth, verdicts), facts, culprits, onset_s, named, path)
