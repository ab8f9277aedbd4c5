"""The job steps, but slowly: in a synchronous job the slow machine is the one that does not wait.

Two witnesses, neither of which is a throttle counter: the share of instants at which a machine's training process was busy
(its peers sleep in the collective), and the round trips of its connections (its peers have at least one fast one). Both are
compared with the machine's own past first, then with its peers. Sources: seed-systems.md (stragglers); peers.md (f) 6 and 7:
all slow together is nobody's fault.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from minder.types import Evidence, Flow, Observation, RuleResult, Suspect, Window
from minder.verdicts import flows as flow_facts
from minder.verdicts.flows import FlowFinding
from minder.verdicts.progress import Progress
from minder.verdicts.stall import fuse_findings

__all__ = ["SlowdownRule"]

_SURE, _VERY_SURE, _LEAD_S = 0.7, 0.9, 3.0
_CALM_S = 4.0  # steps at their usual pace for so long end a slowness: a single quick one between slow ones does not
_RELEARN_S = 300.0  # so long the pace before the slowness stays the usual one; then the new one is
_PAST_ROWS, _NOW_ROWS = 60, 20
_DISTINCT = 3.0  # the leader's rise over the next one's: on a crowded host everybody is a bit busier
_METRICS = ("job_busy_ratio", "job_run_delay_ratio", "tcp_round_trip_seconds", "tcp_send_queue_bytes")
_MIN_EXCESS = {"job_busy_ratio": 0.15, "job_run_delay_ratio": 0.15, "tcp_round_trip_seconds": 0.002, "tcp_send_queue_bytes": 2000.0}
_WEIGHT = {"job_busy_ratio": 0.75, "job_run_delay_ratio": 0.4, "tcp_round_trip_seconds": 0.5, "tcp_send_queue_bytes": 0.4}
_PLAIN = {
    "job_busy_ratio": "its training process is busy while its peers wait",
    "job_run_delay_ratio": "its training process waits for a processor",
    "tcp_round_trip_seconds": "its connections have slow round trips",
    "tcp_send_queue_bytes": "its connections cannot send what they hold",
}


class SlowdownRule:
    """Speaks when steps take `factor` times their usual and stay so for `hold_s` (types.Rule)."""

    name = "slowdown"

    def __init__(self, progress: Progress, factor: float = 1.5, hold_s: float = 6.0) -> None:
        self._progress = progress
        self._factor = factor
        self._hold_s = hold_s
        self._rows: dict[str, deque[tuple[float, dict[str, float]]]] = {metric: deque(maxlen=600) for metric in _METRICS}
        self._flows: deque[Flow] = deque(maxlen=200_000)
        self._slow_since_s: float | None = None
        self._slow_at_s = -math.inf  # when steps were last seen slow
        self._usual_s = math.nan  # seconds per step before it became slow: what is slow is not learned
        self._told = False
        self._leader: tuple[str, float] | None = None  # who, since when

    def observe(self, observation: Observation) -> RuleResult:
        if observation.window is not None:
            self._remember(observation.window)
        self._flows.extend(observation.flows)
        is_slow = self._is_slow(observation)
        if is_slow:
            self._slow_at_s = observation.now_s
        elif self._slow_since_s is None or observation.now_s - self._slow_at_s > _CALM_S or not self._progress.watches(observation):
            self._slow_since_s = self._leader = None
            self._told = False
            self._flows.clear()
            return RuleResult()
        if self._slow_since_s is None:
            self._slow_since_s = observation.now_s - min(self._hold_s, 3.0)
            self._progress.forget_slow(self._slow_since_s)
            self._usual_s = self._progress.typical_s
        slow_s = observation.now_s - self._slow_since_s
        if self._told or not is_slow or slow_s < self._hold_s - _LEAD_S:
            return RuleResult((), frozenset() if self._told else frozenset({"flows"}))
        suspects = self._name(observation, self._slow_since_s)
        self._told = bool(suspects)
        return RuleResult(suspects, frozenset() if self._told else frozenset({"flows"}))

    def _is_slow(self, observation: Observation) -> bool:
        typical_s = self._usual(observation.now_s)
        recent_s = self._progress.recent_s(observation.now_s, 4.0)
        if not self._progress.watches(observation) or math.isnan(typical_s) or math.isnan(recent_s):
            return False
        return recent_s > self._factor * typical_s + 0.02

    def _usual(self, now_s: float) -> float:
        """Seconds per step while the job was well."""
        slow_since_s = self._slow_since_s
        kept = slow_since_s is not None and now_s - slow_since_s < _RELEARN_S and not math.isnan(self._usual_s)
        return self._usual_s if kept else self._progress.typical_s

    def _remember(self, window: Window) -> None:
        for metric in _METRICS:
            if metric not in window.metrics:
                continue
            values_TM = window.values_TMK[:, :, window.metrics.index(metric)]
            for row, time_s in enumerate(window.times_T):
                known = {m: float(v) for m, v in zip(window.machines, values_TM[row], strict=True) if np.isfinite(v)}
                if known:
                    self._rows[metric].append((float(time_s), known))

    def _name(self, observation: Observation, since_s: float) -> tuple[Suspect, ...]:
        findings = [item for metric in _METRICS if (item := self._deviator(metric, since_s, observation)) is not None]
        series = flow_facts.data_flows(flow for flow in self._flows if flow.time_s > observation.now_s - 6.0)
        findings += [*flow_facts.find_slow_paths(series), *flow_facts.find_backlog(series)]
        ranked = fuse_findings(findings)
        clear = bool(ranked) and (len(ranked) == 1 or (1 - ranked[0][1]) <= 0.5 * (1 - ranked[1][1]))
        if not clear or ranked[0][1] < _SURE:
            self._leader = None
            return ()
        machine, confidence = ranked[0]
        if self._leader is None or self._leader[0] != machine:
            self._leader = (machine, observation.now_s)
        patience_s = _LEAD_S if confidence >= _VERY_SURE else 2 * _LEAD_S  # one witness alone must say the same for longer
        if observation.now_s - self._leader[1] < patience_s:
            return ()
        now_s, typical_s = self._progress.recent_s(observation.now_s, 6.0), self._usual(observation.now_s)
        message = f"a step takes {now_s:.2f} s instead of {typical_s:.2f} s"
        evidence = [Evidence("steps", None, message, "step_seconds", None, now_s, typical_s, since_s)]
        evidence += [self._evidence(item, since_s) for item in findings if item.machine == machine]
        against = tuple(self._evidence(item, since_s) for item in findings if item.machine != machine)
        return (
            Suspect(
                observation.now_s, self.name, "machine", (machine,), "slowdown", min(confidence, 0.97), since_s, "evict",
                tuple(evidence), against,
            ),
        )  # fmt: skip

    def _deviator(self, metric: str, since_s: float, observation: Observation) -> FlowFinding | None:
        """The one machine whose metric rose over its own past clearly more than any peer's did."""
        rows = self._rows[metric]
        machines = observation.job.machines if observation.job is not None else tuple({m for _, row in rows for m in row})
        started_s = observation.job.generation_start_s if observation.job is not None else -math.inf  # a standby idled until then
        before = [row for time_s, row in rows if started_s < time_s < since_s - 1.0][-_PAST_ROWS:]
        after = [row for time_s, row in rows if time_s > since_s + 1.0][-_NOW_ROWS:]
        if len(before) < 3 or len(after) < 2:
            return None
        rises, now = {}, {}
        for machine in machines:
            past = [row[machine] for row in before if machine in row]
            recent = [row[machine] for row in after if machine in row]
            if len(past) >= 3 and len(recent) >= 2:
                now[machine] = float(np.mean(recent))
                rises[machine] = now[machine] - float(np.median(past))
        if len(rises) < 3:
            return None
        order = sorted(rises, key=lambda machine: -rises[machine])
        top, second = rises[order[0]], rises[order[1]]
        if top < _MIN_EXCESS[metric] or top < _DISTINCT * max(second, 0.0):
            return None
        expected = float(np.median([now[machine] for machine in order[1:]]))
        return FlowFinding(order[0], metric, _WEIGHT[metric], _PLAIN[metric], now[order[0]], expected)

    @staticmethod
    def _evidence(item: FlowFinding, since_s: float) -> Evidence:
        metric = item.kind if item.kind in _METRICS else "tcp_round_trip_seconds"
        source = "telemetry" if item.kind in _METRICS else "flows"
        return Evidence(source, item.machine, item.message, metric, None, item.observed, item.expected, since_s)
