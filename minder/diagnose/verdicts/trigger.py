"""Mycroft's trigger on a live job (SOSP'25, arXiv 2509.03018, Algorithm 1): of at most ten ranks, does each complete as often as it did,
and does its machine move as many bytes? An alarm names no machine. It opens the sampling of connections every 100 ms and is recorded.

Where a machine's agent reads the files of NCCL's Inspector (minder.edge.agent.nccl), what completes are NCCL's operations, with the bytes
of their messages: closer than steps. Else it is a step, as the launcher's heartbeat reports it; bytes are the machine's RDMA ports, or its
network interfaces where it has none. The window is 10 s, longer where the job's own steps, or its pauses between operations, are too far
apart for that. It lies within one generation, and its clock stands in declared phases, so that a restart or a checkpoint raises no alarm.

Unlike the paper's, what is normal is learned one window late, so that half of a fall does not hide the rest of it, and anew where a
straggler alarm has lasted a minute: else a burst of other traffic, once taken for normal, would be missed for ever.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from minder.diagnose.job_mode.tracker import JobTracker
from minder.edge.signals.completions import WINDOW_S, Alarm, Completion, Normal, check_window
from minder.model.observation import MachineView, Observation, RuleResult
from minder.model.telemetry import Window

__all__ = ["MOST_KEPT", "Completions", "Operations", "TriggerRule"]

MOST_KEPT = 1000
_ROWS = 300  # of telemetry


class Completions:
    """`learn` what a quiet window showed; `completions` are noted by those that know what completes."""

    def __init__(self) -> None:
        self.completions: deque[Completion] = deque(maxlen=MOST_KEPT)
        self.traffic: deque[tuple[float, float]] = deque(maxlen=_ROWS)  # (time, bytes per second)
        self.normal: Normal | None = None
        self._next: tuple[float, Normal] | None = None  # when it was seen; normal after one quiet window more

    def throughput(self, since_s: float) -> float:
        """Mean bytes per second from then on; NaN where telemetry has none of it."""
        values = [value for time_s, value in self.traffic if time_s > since_s]
        return sum(values) / len(values) if values else math.nan

    def learn(self, seen: Normal | None, now_s: float, window_s: float) -> None:
        """Once a window, and one window late: what is half of a fall must not hide the rest of it. seen: None where it alarms."""
        if seen is None or self._next is None:
            self._next = None if seen is None else (now_s, seen)
        elif now_s - self._next[0] >= window_s:
            self.normal, self._next = self._next[1], (now_s, seen)


_GAPS = 100  # looks at which something had completed
_TIMES = 3.0  # the longest gap of late: a job that talks once in a step is silent in between


class Operations(Completions):
    """Feed it every row of telemetry. Times are those of the trigger's clock."""

    def __init__(self) -> None:
        super().__init__()
        self._total = math.nan
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        self._begun_s = math.nan

    def note(self, total: float, bytes_per_s: float, watched_s: float) -> None:
        """total: operations so far; a fall is an agent that began anew. bytes_per_s: of their messages, NaN if unknown."""
        grown, self._total = total - self._total, total
        if math.isnan(self._begun_s):
            self._begun_s = watched_s
        if math.isfinite(bytes_per_s):
            self.traffic.append((watched_s, bytes_per_s))
        if grown > 0:  # not NaN
            if self.completions:
                self._gaps.append(watched_s - self.completions[-1].time_s)
            self.completions.append(Completion(watched_s, 0, int(grown)))

    def window_s(self) -> float:
        return max(WINDOW_S, _TIMES * max(self._gaps, default=0.0))

    def newest_s(self) -> float:
        """When the last operation was counted; -inf before the first."""
        return self.completions[-1].time_s if self.completions else -math.inf

    def check(self, watched_s: float) -> Alarm | None:
        """Worth nothing before `normal` is known: a machine whose records never came, or came once, says nothing."""
        window_s = self.window_s()
        if not self.completions or watched_s - self._begun_s < window_s:
            return None
        alarm, seen = check_window(self.completions, watched_s, True, self.normal, window_s, self.throughput(watched_s - window_s))
        self.learn(None if alarm else seen, watched_s, window_s)
        return alarm


_MOST_RANKS = 10
_HEARD_S = 5.0  # a launcher that was not heard for longer says nothing of what its ranks complete
_RELEARN_S = 60.0
_LAG_S = 3.0  # by which a step may be reported sooner than the operations in it
_ASKS_S = 60.0  # of one alarm; a hang that lasts is the stall rule's to look into
_PORTS = ("rdma_throughput_bytes_per_second", "tcp_throughput_bytes_per_second")  # the first one that a machine has
_OPERATIONS, _OPERATION_BYTES = "nccl_operations_total", "nccl_throughput_bytes_per_second"
_READ = frozenset({*_PORTS, _OPERATIONS, _OPERATION_BYTES})


class _Rank(Completions):
    """One sampled rank, by its steps."""

    def __init__(self) -> None:
        super().__init__()
        self._step: tuple[int, float] | None = None

    @property
    def steps(self) -> bool:
        """Whether any step of it was ever reported."""
        return self._step is not None

    def note(self, step: int, watched_s: float, age_s: float, counts: bool) -> None:
        """The newest step, `age_s` old. Steps between two looks are taken as evenly spaced; those of a quiet phase do not count."""
        before = self._step
        if before is not None and step == before[0] and counts:
            return
        time_s = watched_s if before is None else max(before[1], watched_s - max(0.0, age_s))
        if before is not None and step > before[0] and counts:
            count = min(step - before[0], MOST_KEPT)
            self.completions.extend(Completion(before[1] + (time_s - before[1]) * k / count, 0) for k in range(1, count + 1))
        self._step = (step, time_s if counts else watched_s)

    def stepped(self, since_s: float) -> bool:
        return bool(self.completions) and self.completions[-1].time_s > since_s


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one sampled rank shows; `what`: of which completions."""

    alarm: Alarm | None
    what: str
    window_s: float


class TriggerRule:
    """Asks for connections while it alarms; no suspects, ever (observation.Rule). tracker: shared, and updated before every observation."""

    name = "trigger"

    def __init__(self, tracker: JobTracker) -> None:
        self._tracker = tracker
        self._ranks: dict[tuple[str, int], _Rank] = {}
        self._ports: dict[str, Completions] = {}  # machine to what its ports move
        self._operations: dict[str, Operations] = {}  # machine to what NCCL completes there, where its agent reads the Inspector's files
        self._generation: int | None = None
        self._watched_s = self._begun_s = 0.0  # seconds of this clock, which stands in quiet phases; and where the generation began
        self._tick_s: float | None = None  # of the wall clock, when the job was last watched; None: it is in a phase
        self._alarmed_s = math.inf
        self.alarm = ""  # what is unusual now, in words; "": nothing

    def observe(self, observation: Observation) -> RuleResult:
        now_s, job = observation.now_s, observation.job
        generation = None if job is None else job.generation
        if generation != self._generation:
            self._generation, self._ranks, self._begun_s, self._tick_s = generation, {}, self._watched_s, None
            self._ports, self._operations = {}, {}
        watches = self._tracker.watches(observation)
        counts = watches and self._tick_s is not None
        self._watched_s += max(0.0, now_s - self._tick_s) if watches and self._tick_s is not None else 0.0
        self._tick_s = now_s if watches else None
        self._note_steps(observation, counts)
        if observation.window is not None and counts:
            self._note_telemetry(observation.window)
        window_s = max(WINDOW_S, self._tracker.steps.stall_limit_s())
        found = self._check(observation, window_s) if counts else []
        alarms = Counter(seen.alarm for seen in found)
        kinds: tuple[Alarm, Alarm] = ("failure", "straggler")
        kind = next((name for name in kinds if 2 * alarms[name] > len(found)), None)
        self._alarmed_s = math.inf if kind is None else min(self._alarmed_s, now_s)
        if kind == "straggler" and now_s - self._alarmed_s > _RELEARN_S:
            for known in (*self._ranks.values(), *self._operations.values()):
                known.normal = None
        self.alarm = "" if kind is None else _words([seen for seen in found if seen.alarm == kind], len(found))
        return RuleResult((), frozenset({"flows"}) if now_s - self._alarmed_s <= _ASKS_S and kind else frozenset())

    def _check(self, observation: Observation, window_s: float) -> list[_Seen]:
        """Each sampled rank by what NCCL completes on its machine, else by its steps."""
        found: list[_Seen] = []
        nccl = {machine: known.check(self._watched_s) for machine, known in self._operations.items()}
        timed = not math.isnan(self._tracker.steps.p99_s)
        ready = timed and self._watched_s - self._begun_s >= window_s
        for (machine, _), rank in self._ranks.items():
            if not _is_heard(observation.fleet.get(machine)):
                continue
            known, alarm = self._operations.get(machine), nccl.get(machine)
            if known is not None and known.normal is not None and not rank.stepped(known.newest_s() + _LAG_S):
                found.append(_Seen(alarm, "NCCL operation", known.window_s()))
            elif ready and rank.steps:  # also where a step came after all records: they have ended, not the job
                found.append(_Seen(self._check_steps(machine, rank, window_s), "step", window_s))
        return found

    def _check_steps(self, machine: str, rank: _Rank, window_s: float) -> Alarm | None:
        traffic = self._ports[machine].throughput(self._watched_s - window_s) if machine in self._ports else math.nan
        alarm, now = check_window(rank.completions, self._watched_s, True, rank.normal, window_s, traffic)
        rank.learn(None if alarm else now, self._watched_s, window_s)
        return alarm

    def _note_steps(self, observation: Observation, counts: bool) -> None:
        members = observation.fleet if observation.job is None else observation.job.machines
        for machine in sorted(members):
            view = observation.fleet.get(machine)
            for worker in view.workers if view is not None else ():
                has_step = worker.step is not None and worker.step_time_s is not None
                if worker.state != "running" or not (has_step or machine in self._operations):
                    continue
                if self._generation is not None and worker.generation != self._generation:
                    continue
                place = (machine, worker.slot)
                if place in self._ranks or len(self._ranks) < _MOST_RANKS:
                    rank = self._ranks.setdefault(place, _Rank())
                    if worker.step is not None and worker.step_time_s is not None:
                        rank.note(worker.step, self._watched_s, observation.now_s - worker.step_time_s, counts)

    def _note_telemetry(self, window: Window) -> None:
        places = [(name, k) for k, name in enumerate(window.metrics) if name in _READ]
        sampled = {machine for machine, _ in self._ranks}
        for row in range(len(window.times_T)):
            for index, machine in enumerate(window.machines):
                if machine in sampled or (_OPERATIONS in window.metrics and len(self._operations) < _MOST_RANKS):
                    values_K = window.values_TMK[row, index]
                    self._note_row(machine, {name: float(values_K[k]) for name, k in places if np.isfinite(values_K[k])})

    def _note_row(self, machine: str, values: Mapping[str, float]) -> None:
        port = next((values[name] for name in _PORTS if name in values), None)
        if port is not None:
            self._ports.setdefault(machine, Completions()).traffic.append((self._watched_s, port))
        if _OPERATIONS in values:
            known = self._operations.setdefault(machine, Operations())
            known.note(values[_OPERATIONS], values.get(_OPERATION_BYTES, math.nan), self._watched_s)


def _is_heard(view: MachineView | None) -> bool:
    age_s = None if view is None else view.agent_age_s if view.launcher_age_s is None else view.launcher_age_s
    return age_s is not None and age_s < _HEARD_S


def _words(alarms: Sequence[_Seen], sampled: int) -> str:
    """alarms: at least one, all of one kind."""
    first = alarms[0]
    share = f"{len(alarms)} of {sampled} sampled ranks"
    if first.alarm == "failure":
        return f"failure alarm: no {first.what} completed in {first.window_s:.0f} s on {share}"
    return f"straggler alarm: {first.what}s twice as far apart, or half the traffic, over {first.window_s:.0f} s on {share}"
