"""What a controller counts. Counting never fails and never blocks. docs/metrics.md lists the names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram

from minder.act.controller.reading.signal_count import WHYS
from minder.model.decision import ActionResult, Decision, Reason
from minder.model.evidence import Verdict
from minder.model.telemetry import Sample, Window

__all__ = ["Measures"]

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)


class Measures:
    """Counters of one controller. `shown`: the fields of the last status (`write_status`), empty before the first."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.shown: Mapping[str, Any] = {}
        self.shown_s: float | None = None
        self.parts: tuple[str, ...] = ()  # the verdict rules, by the names of their parts: their counters are there from 0 on
        self.newest_sample_s: dict[str, float] = {}
        self.telemetry_s: float | None = None  # by the monotonic clock: when a row of a window last held any machine
        self.clock_set_s: float | None = None  # by the same: when the wall clock was last set
        self._verdicts = self._counter("verdicts", "Verdicts concluded, those that close an episode too.", "kind", "tier", "cause")
        self._decisions = self._counter("decisions", "Decisions of the policy, by what they do and why.", "action", "reason")
        self._actions = self._counter("actions", "Evictions that were carried out, by what became of them.", "outcome")
        self.signals = self._counter("signals", "Signals of machines and of other systems, by what became of them.", "outcome")
        for outcome in ("judged", *WHYS):
            self.signals.labels(outcome)
        for reason in get_args(Reason):  # a counter that appears with its first event shows no increase
            self._decisions.labels("page", reason)
        for action in ("evict", "trial", "diagnose", "replay", "restart"):
            self._decisions.labels(action, "act")
        for outcome in ("done", "already_done", "failed", "ambiguous", "dry_run"):
            self._actions.labels(outcome)
        self._seconds = Histogram(
            "minder_controller_stage_seconds", "Time that a stage of a tick took.", ["stage"], registry=self.registry, buckets=_SECONDS
        )
        self._by_stage: dict[str, Histogram] = {}  # to find one by its label takes longer than to count in it

    def ran(self, stage: str, seconds: float) -> None:
        """A stage of a tick is over, whether it failed or not."""
        shown = self._by_stage.get(stage)
        if shown is None:
            shown = self._by_stage[stage] = self._seconds.labels(stage)
        shown.observe(seconds)

    def sampled(self, samples: Iterable[Sample]) -> None:
        newest = self.newest_sample_s
        for sample in samples:
            newest[sample.machine] = max(sample.time_s, newest.get(sample.machine, sample.time_s))

    def aligned(self, window: Window | None, monotonic_s: float) -> None:
        """What the detector will see: samples whose stamps are far from our clock reach no window."""
        if window is not None and window.present_TM.any():
            self.telemetry_s = monotonic_s

    def move(self, by_s: float, monotonic_s: float) -> None:
        """The wall clock was set forward by so much."""
        self.newest_sample_s = {machine: time_s + by_s for machine, time_s in self.newest_sample_s.items()}
        self.clock_set_s = monotonic_s

    def concluded(self, verdicts: Iterable[Verdict]) -> None:
        for verdict in verdicts:
            self._verdicts.labels(verdict.kind, verdict.tier, verdict.cause).inc()

    def decided(self, decision: Decision) -> None:
        self._decisions.labels(decision.action, decision.reason).inc()

    def acted(self, result: ActionResult) -> None:
        self._actions.labels(result.outcome).inc()

    def show(self, now_s: float, extra: Mapping[str, Any]) -> None:
        self.shown, self.shown_s = extra, now_s

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"minder_controller_{name}", about, labels, registry=self.registry)
