"""What runs beside the champion on live data and never decides: a challenger's would-be verdicts, and drift. Both go to the ledger only.

Each is a rule that suspects no machine, so that it sees exactly what the other rules see, and is guarded, counted and reported as they
are (minder.diagnose.verdicts.judge).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from minder.diagnose.detectors.contract import Detector
from minder.diagnose.detectors.drift import DriftMonitor
from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import GatedRule, TelemetryRule
from minder.ingest.windows import keep_machines
from minder.model.observation import Observation, RuleResult
from minder.record.incidents import kinds
from minder.wire.codec import to_json

__all__ = ["Shadow", "ShadowRule", "watch_drift"]

Append = Callable[[str, Mapping[str, Any]], object]  # (kind, payload) to the ledger
Part = Callable[[Observation], list[tuple[str, dict[str, Any]]]]


class ShadowRule:
    """A rule without suspects (observation.Rule). part: what it has to say of an observation."""

    def __init__(self, name: str, append: Append, part: Part) -> None:
        self.name = name
        self._append = append
        self._part = part

    def observe(self, observation: Observation) -> RuleResult:
        for kind, payload in self._part(observation):
            self._append(kind, payload)
        return RuleResult()


class Shadow:
    """A challenger with a judge of its own: the verdicts that telemetry alone would have given."""

    def __init__(self, detector_name: str, detector: Detector, tracker: JobTracker) -> None:
        self._name = detector_name
        self._judge = Judge([GatedRule(TelemetryRule(detector), tracker)])

    def __call__(self, observation: Observation) -> list[tuple[str, dict[str, Any]]]:
        verdicts, _ = self._judge.judge(observation)
        return [(kinds.SHADOW, {"detector": self._name, "verdict": to_json(verdict)}) for verdict in verdicts]


def watch_drift(monitor: DriftMonitor) -> Part:
    """Drift of the job's own machines: a standby idles, and that is no drift."""

    def part(observation: Observation) -> list[tuple[str, dict[str, Any]]]:
        window = observation.window
        if window is None:
            return []
        if observation.job is not None:
            window = keep_machines(window, observation.job.machines)
        return [(kinds.DRIFT, asdict(drift)) for drift in monitor.observe(window)]

    return part
