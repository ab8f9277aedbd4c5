"""What an incident is, once its events are folded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from minder.model.decision import ActionResult, Decision
from minder.model.evidence import Evidence, Verdict
from minder.model.telemetry import TelemetryExcerpt

__all__ = ["Incident", "IncidentState", "Timings"]

IncidentState = Literal["open", "acting", "recovering", "closed"]


@dataclass(frozen=True, slots=True)
class Timings:
    """Unix seconds of each milestone; None: it did not happen (yet). The properties are durations in seconds."""

    fault_s: float | None = None  # since when, as the verdict says
    detected_s: float | None = None  # first verdict
    decided_s: float | None = None  # first decision to evict or restart, else the first decision
    captured_s: float | None = None  # evidence was in the ledger, or the capture phase ended
    acted_s: float | None = None  # intent of the eviction or restart
    evicted_s: float | None = None  # its result, or the end of phase "evict"
    restarted_s: float | None = None  # end of phase "restart", else the next generation's start
    first_step_s: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds of each recovery phase

    @property
    def time_to_detect_s(self) -> float | None:
        return _between(self.fault_s, self.detected_s)

    @property
    def time_to_decide_s(self) -> float | None:
        return _between(self.detected_s, self.decided_s)

    @property
    def capture_s(self) -> float | None:
        return self.phases.get("capture", _between(self.decided_s, self.captured_s))

    @property
    def evict_s(self) -> float | None:
        """From the intent, or from the end of the capture, which comes first and has a time of its own."""
        begun_s = self.acted_s
        if begun_s is not None and self.captured_s is not None and begun_s < self.captured_s <= (self.evicted_s or 0.0):
            begun_s = self.captured_s
        return self.phases.get("evict", _between(begun_s, self.evicted_s))

    @property
    def restart_s(self) -> float | None:
        return self.phases.get("restart", _between(self.evicted_s, self.restarted_s))

    @property
    def to_first_step_s(self) -> float | None:
        return _between(self.restarted_s, self.first_step_s)

    @property
    def downtime_s(self) -> float | None:
        """From the fault to the first new step."""
        return _between(self.fault_s, self.first_step_s)


def _between(begin_s: float | None, end_s: float | None) -> float | None:
    return None if begin_s is None or end_s is None else max(0.0, end_s - begin_s)


@dataclass(frozen=True, slots=True)
class Incident:
    """One trouble of one job, from its first verdict to the first new step (or to the operator who closed it).

    `gpu_seconds_lost`: GPUs of the job times (time without steps + steps done twice). A slowdown counts from the moment of
    acting, since the job still made steps before; None where the events do not say enough.
    """

    id: str
    job: str | None
    state: IncidentState
    opened_s: float
    closed_s: float | None
    closed_by: str
    verdict: Verdict | None
    machines: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    against: tuple[Evidence, ...] = ()
    decisions: tuple[Decision, ...] = ()
    decision: Decision | None = None  # the one acted on, else the last
    results: tuple[ActionResult, ...] = ()
    captured: tuple[str, ...] = ()  # "stacks of node-0002"
    excerpts: tuple[TelemetryExcerpt, ...] = ()  # one for each accused machine whose telemetry was kept
    evicted: tuple[str, ...] = ()
    replacements: tuple[str, ...] = ()
    timings: Timings = field(default_factory=Timings)
    step: int | None = None  # first new step
    steps_lost: int | None = None
    gpu_seconds_lost: float | None = None
    undo: tuple[str, ...] = ()
    outcomes: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    timeline: tuple[tuple[float, str], ...] = ()
