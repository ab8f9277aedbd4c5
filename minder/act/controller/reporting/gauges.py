"""What a controller is like when its metrics are asked for. docs/metrics.md lists the names.

What is not known is absent, or an age without an end (+Inf) where a machine was never heard of: never a comfortable zero.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from minder.act.controller.reporting.measures import Measures
from minder.act.controller.state import JobState, Phase
from minder.act.policy.config import PolicyConfig
from minder.act.policy.headroom import Headroom, headroom
from minder.model.clock import Clock
from minder.model.errors import LedgerError
from minder.model.evidence import Scores
from minder.model.history import History
from minder.model.observation import MachineView

__all__ = ["Gauges", "Sight"]

_READ_AGAIN_S = 5.0
# shown from 0 on: see Measures
_STAGES = (
    "alarm", "capture", "clock", "end", "engine", "excerpts", "finished", "first_step", "fleet", "growth", "inbox", "judge",
    "ledger", "observe", "policy", "pool_size", "progress", "recording", "requests", "retests", "scoring", "signals", "standbys",
    "status", "telemetry", "windows", "work",
)  # fmt: skip
_CLOCK_TOLD_S = 120.0  # a step lasts no time: shown for long enough that a scrape and an alert see it


@dataclass(frozen=True, slots=True)
class Sight:
    """Where the values come from. history: raises LedgerError. silent_s: a job none of whose machines was sampled for so long
    has no telemetry. agents: machines that have one, by the configuration. watches: the job is started by others.
    largest_group: as in PolicyContext."""

    state: JobState
    measures: Measures
    views: Callable[[], Mapping[str, MachineView]]
    refusals: Callable[[], Mapping[str, str]]
    history: Callable[[float], History]
    policy: PolicyConfig
    clock: Clock
    agents: Collection[str] = ()
    silent_s: float = 30.0
    watches: bool = False
    largest_group: int = 1
    version: str = ""


class Gauges:
    """A collector for prometheus_client. The ledger is read at most every five seconds, however often it is asked."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self._left: Headroom | None = None
        self._pauses: collections.Counter[str] = collections.Counter()
        self._asked = 0
        self._read_s = -math.inf

    def collect(self) -> Iterator[Metric]:
        now_s = self._sight.clock.now_s()
        self._read_ledger(now_s)
        yield from self._about()
        yield from self._job()
        yield from self._machines(now_s)
        yield from self._limits()
        yield from self._trouble(now_s)

    def _read_ledger(self, now_s: float) -> None:
        sight = self._sight
        if 0 <= now_s - self._read_s < _READ_AGAIN_S:
            return
        try:
            history = sight.history(now_s)
        except LedgerError:
            self._left, self._read_s = None, -math.inf
            return
        job = sight.state.name
        self._left = headroom(sight.policy, history, sight.state.view(()), now_s, sight.largest_group)
        self._pauses = collections.Counter(pause.scope for pause in history.pauses if pause.scope != "job" or pause.target == job)
        self._asked = sum(item.state == "waiting" and item.job == job for item in history.approvals)
        self._read_s = now_s

    def _about(self) -> Iterator[Metric]:
        sight = self._sight
        mode = "watch" if sight.watches else "run"
        yield _one("info", "What runs here; always 1.", {"version": sight.version, "mode": mode}, 1.0)
        yield _gauge("dry_run", "1: evictions are only written down.", float(sight.policy.dry_run))
        if sight.measures.shown_s is not None:
            yield _gauge("last_tick_timestamp_seconds", "When the loop last gave a sign of life.", sight.measures.shown_s)

    def _job(self) -> Iterator[Metric]:
        state, shown = self._sight.state, self._sight.measures.shown
        yield _many("phase", "1 for the phase that the job is in.", "phase", {name: float(name == state.phase) for name in get_args(Phase)})
        yield _gauge("generation", "The job's generation; one more with every restart.", state.generation)
        step, typical_s = shown.get("step"), shown.get("typical_step_s")
        if isinstance(step, (int, float)) and math.isfinite(step):
            yield _gauge("step", "The newest step of the job.", step)
        if isinstance(typical_s, (int, float)) and math.isfinite(typical_s):
            yield _gauge("typical_step_seconds", "How long a step of this job usually takes.", typical_s)
        work = shown.get("work")
        if work is not None and work["relative"] is not None:
            yield _gauge("relative_mfu_ratio", "Work a second by the best ten minutes of the same code.", work["relative"])

    def _machines(self, now_s: float) -> Iterator[Metric]:
        state, shown, views = self._sight.state, self._sight.measures.shown, self._sight.views()
        in_job = set(state.rank_machine.values())
        standbys = set(shown.get("standbys", ()))
        roles = collections.Counter({"training": 0, "standby": 0, "evicted": 0, "spare": 0})
        for name in views:
            role = "evicted" if name in state.barred else "training" if name in in_job else "standby" if name in standbys else "spare"
            roles[role] += 1
        yield _many("machines", "Machines by what they are to the job now.", "role", roles)
        size, pool = shown.get("size"), shown.get("pool")
        if size is not None:
            yield _gauge("machines_full", "Machines that the job has at full size.", size["full"])
        if pool is not None:
            yield _gauge("standbys_wanted", "Standbys that cover a percentile of a day's failures.", pool["wanted"])
            yield _gauge("standbys_short", "Standbys that are missing from that.", pool["short"])
        if proven := shown.get("proven"):
            proofs = collections.Counter({"passed": 0, "unknown": 0, "slow": 0, "failed": 0})
            proofs.update(proof.state for proof in proven.values())
            yield _many("standby_proofs", "Machines outside the job by what their probes prove.", "state", proofs)
        ages = {name: _age(view.agent_age_s) for name, view in views.items() if name in self._sight.agents}
        yield _many("agent_age_seconds", "Since the agent last answered.", "machine", ages)
        if not self._sight.watches:
            ages = {name: _age(view.launcher_age_s) for name, view in views.items()}
            yield _many("launcher_age_seconds", "Since the launcher last answered.", "machine", ages)
        newest_s = self._sight.measures.newest_sample_s
        ages = {name: max(0.0, now_s - newest_s[name]) if name in newest_s else math.inf for name in views}
        yield _many("sample_age_seconds", "Age of the machine's newest telemetry sample.", "machine", ages)
        scores = shown.get("scores")
        if isinstance(scores, Scores):
            ratios = {name: float(score) / scores.threshold for name, score in zip(scores.machines, scores.score_M, strict=True)}
            yield _many("score_ratio", "The detector's score by its threshold: from 1 on it is suspicious.", "machine", ratios)

    def _limits(self) -> Iterator[Metric]:
        if self._left is None:
            return  # the ledger cannot be read: what is left is not known
        yield _many(
            "evictions_left",
            "What may still be evicted, by limit: evictions (job, day, hour), machines (machines, breaker).",
            "limit",
            self._left.evictions,
        )
        yield _gauge("restarts_left", "Restarts that are left in this run.", self._left.restarts)
        yield _gauge("breaker_open", "1: so many were evicted lately that no more may be.", self._left.breaker_is_open)
        yield _gauge("approvals_waiting", "Evictions that wait for an operator's answer.", self._asked)
        pauses = {scope: self._pauses[scope] for scope in ("all", "job", "rack")}
        yield _many("pauses", "Pauses in force that concern this job, by scope.", "scope", pauses)

    def _trouble(self, now_s: float) -> Iterator[Metric]:
        measures = self._sight.measures
        errors = CounterMetricFamily("minder_controller_errors", "Errors that a stage was stopped by; the loop goes on.", labels=["stage"])
        for stage, count in sorted({**dict.fromkeys((*_STAGES, *measures.parts), 0), **measures.shown.get("errors", {})}.items()):
            errors.add_metric([stage], count)
        yield errors
        waiting = int(measures.shown.get("undecided", 0))
        yield _gauge(
            "alarm", "1: the job's pace fell out of its usual range, and its connections are looked at.", bool(measures.shown.get("alarm"))
        )
        took_s = float(measures.shown.get("tick", {}).get("took_s", 0.0))
        yield _gauge(
            "tick_seconds", "What the last tick took; what takes longer than its interval makes every verdict so much later.", took_s
        )
        yield _gauge("undecided", "Conclusions that wait for a decision or for the ledger.", waiting)
        newest_s = max(measures.newest_sample_s.values(), default=-math.inf)
        monotonic_s = self._sight.clock.monotonic_s()
        unseen = measures.telemetry_s is not None and monotonic_s - measures.telemetry_s > self._sight.silent_s
        failing = set(measures.shown.get("failing", ()))
        degraded = {
            **{part: part in failing for part in (*_STAGES, *measures.parts, *failing)},
            "clock": measures.clock_set_s is not None and monotonic_s - measures.clock_set_s < _CLOCK_TOLD_S,
            "ledger": self._left is None or bool(measures.shown.get("unwritten")),
            "telemetry": measures.shown_s is not None and (unseen or now_s - newest_s > self._sight.silent_s),
            "refused": bool(self._sight.refusals()),
            "scoring": bool(measures.shown.get("unscored")),
            "backlog": waiting > 0,
        }
        yield _many("degraded", "1: this part does not do its work now; nothing is concluded from its silence.", "what", degraded)


def _age(age_s: float | None) -> float:
    return math.inf if age_s is None else age_s


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"minder_controller_{name}", about, value=float(value))


def _one(name: str, about: str, labels: Mapping[str, str], value: float) -> Metric:
    family = GaugeMetricFamily(f"minder_controller_{name}", about, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _many(name: str, about: str, label: str, values: Mapping[str, float] | Iterable[tuple[str, float]]) -> Metric:
    family = GaugeMetricFamily(f"minder_controller_{name}", about, labels=[label])
    for key, value in dict(values).items():
        family.add_metric([key], float(value))
    return family
