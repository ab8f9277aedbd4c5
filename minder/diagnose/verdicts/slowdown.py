"""The job steps, but slowly: in a synchronous job the slow machine is the one that does not wait.

Two witnesses carry it, neither of which is a throttle counter: the share of instants at which a machine's training process was busy
(its peers sleep in the collective), and the round trips of its connections (its peers have at least one fast one). Both are
compared with the machine's own past first, then with its peers; and what the busy one gained must explain what the steps lost. The
processor's own signs (a queue for it, its use, a quota that ran out) confirm: any two of them may be a neighbour's doing, three are not.
Source: the straggler study (arXiv 2505.05713); that all slow together is no machine's fault is ours.

A restart, a stall and a standby's idling say nothing of how a machine behaves in a job that steps, so their rows are no past (`Past`). A
machine that stays through a restart keeps its past from before it. A job that was started again is judged once its pace has settled
(StepClock.has_settled): before that it is slow, and unevenly, without any machine's fault.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.flows import FlowFinding, data_flows, find_backlog, find_slow_paths, fuse_findings
from minder.model.evidence import Evidence, Suspect
from minder.model.observation import Observation, RuleResult
from minder.model.telemetry import Flow, Window

__all__ = ["Past", "SlowdownRule"]

_SURE, _VERY_SURE, _LEAD_S = 0.7, 0.9, 3.0
_EXPLAINED = 0.5  # at least this share of the time that a step lost must be time for which the leader was busy longer
_PAST_S, _NOW_S = 3.0, 2.0  # a past, and a present, are at least so many seconds of values
_DISTINCT = 3.0  # the leader's rise over the next one's: on a crowded host everybody is a bit busier
# metric: (least rise that counts, weight, in plain words)
_WITNESSES = {
    "job_busy_ratio": (0.15, 0.75, "its training process is busy while its peers wait"),
    "job_run_delay_ratio": (0.15, 0.4, "its training process waits for a processor"),
    "cpu_usage_ratio": (0.3, 0.4, "its processors are busy while its peers' rest"),
    "cpu_throttled_ratio": (0.3, 0.4, "its processor quota runs out"),
    "tcp_round_trip_seconds": (0.002, 0.5, "its connections have slow round trips"),
    "tcp_send_queue_bytes": (2000.0, 0.4, "its connections cannot send what they hold"),
}


class SlowdownRule:
    """Speaks when steps take `slow_times` their usual and stay so for `hold_s` (observation.Rule)."""

    name = "slowdown"

    def __init__(self, tracker: JobTracker, hold_s: float = 6.0) -> None:
        self._tracker = tracker
        self._hold_s = hold_s
        self._past = Past(tuple(_WITNESSES))
        self._flows: deque[Flow] = deque(maxlen=200_000)
        self._named = False
        self._leader: tuple[str, float] | None = None  # who, since when

    def observe(self, observation: Observation) -> RuleResult:
        paced = self._tracker.is_paced(observation)
        self._past.see(observation, stepping=paced)
        self._flows.extend(observation.flows)
        spell = self._tracker.slow_spell
        is_slow = spell.update(observation.now_s, paced)
        if spell.since_s is None:
            self._leader = None
            self._named = False
            self._flows.clear()
            return RuleResult()
        slow_s = observation.now_s - spell.since_s
        if self._named or not is_slow or slow_s < self._hold_s - _LEAD_S:
            return RuleResult((), frozenset() if self._named else frozenset({"flows"}))
        suspects = self._name(observation, spell.since_s)
        self._named = bool(suspects)
        return RuleResult(suspects, frozenset() if self._named else frozenset({"flows"}))

    def _name(self, observation: Observation, since_s: float) -> tuple[Suspect, ...]:
        findings = [item for metric in _WITNESSES if (item := self._deviator(metric, since_s, observation)) is not None]
        series = data_flows(flow for flow in self._flows if flow.time_s > observation.now_s - 6.0)
        findings += [*find_slow_paths(series), *find_backlog(series)]
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
        now_s, typical_s = self._recent_s(observation.now_s), self._tracker.slow_spell.usual_s(observation.now_s)
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
        """The one machine whose metric rose over its own past clearly more than any peer's did. A value that began before the steps
        were slow is of both sides and counts for neither; of a slow scrape one value is many seconds, and one is enough."""
        spacing_s = self._past.spacing_s(metric)
        before, after = self._past.before(metric, since_s - 1.0), self._past.after(metric, since_s + spacing_s)
        past_rows, now_rows = math.ceil(_PAST_S / spacing_s), math.ceil(_NOW_S / spacing_s)
        compared = [m for m in after if len(before.get(m, ())) >= past_rows and len(after[m]) >= now_rows]
        if observation.job is not None:
            compared = [machine for machine in compared if machine in observation.job.machines]
        if len(compared) < 3:
            return None
        past = {machine: float(np.median(before[machine])) for machine in compared}
        now = {machine: float(np.mean(after[machine])) for machine in compared}
        first, second, *_ = order = sorted(compared, key=lambda machine: past[machine] - now[machine])
        top = now[first] - past[first]
        least, weight, plain = _WITNESSES[metric]
        if top < least or top < _DISTINCT * max(now[second] - past[second], 0.0):
            return None
        if metric == "job_busy_ratio" and not self._explains(past[first], now[first], observation.now_s):
            return None
        expected = float(np.median([now[machine] for machine in order[1:]]))
        return FlowFinding(first, metric, weight, plain, now[first], expected)

    def _explains(self, past_ratio: float, now_ratio: float, now_s: float) -> bool:
        """Whether a machine that was busy for these shares of a step can be what the steps wait for."""
        usual_s, slow_s = self._tracker.slow_spell.usual_s(now_s), self._recent_s(now_s)
        return now_ratio * slow_s - past_ratio * usual_s >= _EXPLAINED * (slow_s - usual_s)

    def _recent_s(self, now_s: float) -> float:
        return self._tracker.steps.recent_s(now_s, self._tracker.limits.recent_s)

    @staticmethod
    def _evidence(item: FlowFinding, since_s: float) -> Evidence:
        metric = item.kind if item.kind in _WITNESSES else "tcp_round_trip_seconds"
        source = "telemetry" if item.kind in _WITNESSES else "flows"
        return Evidence(source, item.machine, item.message, metric, None, item.observed, item.expected, since_s)


_PAST_ROWS, _NOW_ROWS = 60, 20
_KEPT_ROWS = 600


class Past:
    """Rows of some metrics, one value per machine. Feed it every observation once. Times are unix seconds."""

    def __init__(self, metrics: Sequence[str]) -> None:
        self._rows: dict[str, deque[tuple[float, bool, dict[str, float]]]] = {name: deque(maxlen=_KEPT_ROWS) for name in metrics}
        self._joined_s: dict[str, float] = {}  # in the job without a break since

    def see(self, observation: Observation, stepping: bool) -> None:
        """stepping: the job takes its steps now, outside quiet phases, and its pace has settled."""
        job = observation.job
        if job is not None:
            stayed = {machine: since_s for machine, since_s in self._joined_s.items() if machine in job.machines}
            self._joined_s = dict.fromkeys(job.machines, job.generation_start_s) | stayed
        if observation.window is not None:
            self._remember(observation.window, stepping)

    def before(self, metric: str, since_s: float) -> dict[str, list[float]]:
        """Machine to its newest values from before `since_s`, while it was in the job and the job stepped."""
        found: dict[str, list[float]] = {}
        rows = [row for row in self._rows[metric] if row[1] and row[0] < since_s][-_PAST_ROWS:]
        for time_s, _, known in rows:
            for machine, value in known.items():
                if time_s > self._joined_s.get(machine, -math.inf):
                    found.setdefault(machine, []).append(value)
        return found

    def spacing_s(self, metric: str) -> float:
        """Seconds that one value stands for: rates and shares are means since the scrape before. At least 1."""
        times = [row[0] for row in self._rows[metric]]
        return max(1.0, float(np.median(np.diff(times)))) if len(times) > 1 else 1.0

    def after(self, metric: str, since_s: float) -> dict[str, list[float]]:
        """Machine to its newest values from after `since_s`."""
        found: dict[str, list[float]] = {}
        for _, _, known in [row for row in self._rows[metric] if row[0] > since_s][-_NOW_ROWS:]:
            for machine, value in known.items():
                found.setdefault(machine, []).append(value)
        return found

    def _remember(self, window: Window, stepping: bool) -> None:
        for metric, rows in self._rows.items():
            if metric not in window.metrics:
                continue
            values_TM = window.values_TMK[:, :, window.metrics.index(metric)]
            for row, time_s in enumerate(window.times_T):
                known = {m: float(v) for m, v in zip(window.machines, values_TM[row], strict=True) if np.isfinite(v)}
                if known:
                    rows.append((float(time_s), stepping, known))
