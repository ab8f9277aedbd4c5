"""What the default detector says of a world, row by row as live: its suspects, which a judge turns into verdicts. Costs seconds a world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minder.diagnose.detectors.contract import Detector
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.windows import rows_of
from minder.model.evidence import Suspect, Verdict
from minder.model.observation import Observation, RuleResult
from minder.model.telemetry import Window

__all__ = ["Said", "judge_said", "trace_detector"]


@dataclass(frozen=True, slots=True)
class Said:
    """One suspect of one row, without its evidence. time_s and since_s in UTC seconds."""

    time_s: float
    machines: tuple[str, ...]
    tier: str
    cause: str
    confidence: float
    since_s: float

    def record(self) -> list[Any]:
        return [self.time_s, list(self.machines), self.tier, self.cause, self.confidence, self.since_s]

    @classmethod
    def of(cls, record: Sequence[Any]) -> Said:
        return cls(record[0], tuple(record[1]), record[2], record[3], record[4], record[5])


def trace_detector(detector: Detector, window: Window) -> list[Said]:
    """The suspects of every row, in time order."""
    rule, found = TelemetryRule(detector), []
    for row in rows_of(window):
        for item in rule.observe(Observation(float(row.times_T[0]), row)).suspects:
            found.append(Said(item.time_s, item.machines, item.tier, item.cause, item.confidence, item.since_s))
    return found


def judge_said(times_s: Sequence[float], said: Sequence[Said]) -> list[Verdict]:
    """The verdicts of a judge that hears these suspects and no other rule. times_s: all moments at which it listens, in order."""
    rule = _Heard(said)
    judge = Judge([rule])
    return [verdict for now_s in times_s for verdict in judge.judge(Observation(float(now_s)))[0]]


class _Heard:
    """A rule that repeats what was said since the last moment (observation.Rule)."""

    name = "telemetry"

    def __init__(self, said: Sequence[Said]) -> None:
        self._said, self._next = said, 0

    def observe(self, observation: Observation) -> RuleResult:
        newest: dict[tuple[str, ...], Suspect] = {}
        while self._next < len(self._said) and self._said[self._next].time_s <= observation.now_s + 1e-6:
            item = self._said[self._next]
            kind: Any = "group" if len(item.machines) > 1 else "machine"
            cause: Any = item.cause
            tier: Any = item.tier
            newest[item.machines] = Suspect(
                item.time_s, "telemetry", kind, item.machines, cause, item.confidence, item.since_s, tier, (), ()
            )  # fmt: skip
            self._next += 1
        return RuleResult(tuple(newest.values()))
