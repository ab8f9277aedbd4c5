"""What a probe measured on one machine, and what was concluded from it: records of agents, launchers, the ledger and the judgement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Better", "Judged", "Measurement", "MeasurementVerdict", "ProbeJudgement", "ProbeResult", "ProbeState"]

Better = Literal["higher", "lower", "same", "zero", "none"]
ProbeState = Literal["measured", "failed", "not_applicable", "not_judged"]
Judged = Literal["pass", "slow", "fail", "not_applicable", "not_judged"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One number with its unit. better: which way a deviation from equal machines is bad; "zero" is a count of errors, "none" is shown and
    never judged. device: "gpu0", "eth0"; None for the whole machine. tolerance: a difference up to this, in the same unit, is none (the
    uncertainty of the measurement). bad: what a deviation means."""

    name: str
    value: float
    unit: str
    better: Better = "none"
    device: str | None = None
    tolerance: float = 0.0
    bad: Literal["slow", "fail"] = "slow"


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One run of one probe. state: "measured" says that it ran to its end and is no verdict yet; "failed" that it saw a fault by itself (a
    wrong product, a full disk); "not_judged" that nothing is known (a crash, a time-out, no JSON). facts: what must be equal for two
    results to be compared: hardware, driver, library. sha256: of the probe's source file. seconds: how long it ran."""

    probe: str
    version: int
    state: ProbeState
    detail: str = ""
    measures: tuple[Measurement, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    sha256: str = ""
    started_s: float = 0.0
    seconds: float = 0.0
    data: Mapping[str, Any] = field(default_factory=dict)  # what a probe found that is no number: hashes, say

    @property
    def likeness(self) -> tuple[Any, ...]:
        """Results of equal likeness are comparable."""
        return (self.probe, self.version, *sorted(self.facts.items()))


@dataclass(frozen=True, slots=True)
class MeasurementVerdict:
    """One measurement against what it was compared with. expected: the median of `against`; limit: the value beyond which it deviates."""

    name: str
    device: str | None
    value: float
    unit: str
    verdict: Judged
    against: str = ""  # "7 equal machines", "5 earlier results"
    expected: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class ProbeJudgement:
    """The verdict on one probe of one machine, the reason as one line, and the numbers."""

    machine: str
    probe: str
    verdict: Judged
    reason: str
    measures: tuple[MeasurementVerdict, ...] = ()
