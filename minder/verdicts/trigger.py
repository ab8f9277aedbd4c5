"""Mycroft's trigger on a live job (seed-systems.md section 1.1): of at most ten ranks, does each complete its steps as often as it did,
and does its machine move as many bytes? An alarm names nobody. It opens the sampling of connections every 100 ms and is told.

What completes is a step, as the launcher's heartbeat tells it; bytes are the machine's RDMA ports, or its network interfaces where it has
none. The window is 10 s, longer where the job's own steps are too far apart for that. It lies within one generation, and its clock
stands in declared phases, so that a restart or a checkpoint alarms nobody.

Unlike the paper's, what is normal is learned one window late, so that half of a fall does not hide the rest of it, and anew where a
straggler alarm has lasted a minute: else a burst of other traffic, once taken for normal, would be missed for ever.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping

import numpy as np

from minder.collectives.trigger import WINDOW_S, Alarm, Completion, Normal, check_window
from minder.types import MachineView, Observation, RuleResult, Window
from minder.verdicts.progress import Progress

__all__ = ["TriggerRule"]

_MOST_RANKS = 10
_MOST_STEPS = 1000  # kept of a rank
_HEARD_S = 5.0  # a launcher that was not heard for longer says nothing of what its ranks complete
_RELEARN_S = 60.0
_ASKS_S = 60.0  # of one alarm; a hang that lasts is the stall rule's to look into
_PORTS = ("rdma_throughput_bytes_per_second", "tcp_throughput_bytes_per_second")  # the first one that a machine has


class _Rank:
    """One sampled rank: what it completed, and what is normal for it."""

    def __init__(self) -> None:
        self.completions: deque[Completion] = deque(maxlen=_MOST_STEPS)
        self.normal: Normal | None = None
        self._next: tuple[float, Normal] | None = None  # when it was seen; normal after one quiet window more
        self._step: tuple[int, float] | None = None

    def note(self, step: int, watched_s: float, age_s: float, counts: bool) -> None:
        """The newest step, `age_s` old. Steps between two looks are taken as evenly spaced; those of a quiet phase do not count."""
        before = self._step
        if before is not None and step == before[0] and counts:
            return
        time_s = watched_s if before is None else max(before[1], watched_s - max(0.0, age_s))
        if before is not None and step > before[0] and counts:
            count = min(step - before[0], _MOST_STEPS)
            self.completions.extend(Completion(before[1] + (time_s - before[1]) * k / count, 0) for k in range(1, count + 1))
        self._step = (step, time_s if counts else watched_s)

    def learn(self, seen: Normal | None, now_s: float, window_s: float) -> None:
        """Once a window, and one window late: what is half of a fall must not hide the rest of it. seen: None where it alarms."""
        if seen is None or self._next is None:
            self._next = None if seen is None else (now_s, seen)
        elif now_s - self._next[0] >= window_s:
            self.normal, self._next = self._next[1], (now_s, seen)


class TriggerRule:
    """Asks for connections while it alarms; no suspects, ever (types.Rule). progress: shared, and updated before every observation."""

    name = "trigger"

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._ranks: dict[tuple[str, int], _Rank] = {}
        self._traffic: dict[str, deque[tuple[float, float]]] = {}  # machine to (time, bytes per second)
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
            self._traffic.clear()
        watches = self._progress.watches(observation)
        counts = watches and self._tick_s is not None
        self._watched_s += max(0.0, now_s - self._tick_s) if watches and self._tick_s is not None else 0.0
        self._tick_s = now_s if watches else None
        self._note_steps(observation, counts)
        if observation.window is not None and counts:
            self._note_traffic(observation.window)
        window_s = max(WINDOW_S, self._progress.stall_limit_s())
        ready = counts and self._watched_s - self._begun_s >= window_s
        alarms = self._check(observation, window_s) if ready else Counter[Alarm | None]()
        kinds: tuple[Alarm, Alarm] = ("failure", "straggler")
        kind = next((name for name in kinds if 2 * alarms[name] > alarms.total()), None)
        self._alarmed_s = math.inf if kind is None else min(self._alarmed_s, now_s)
        if kind == "straggler" and now_s - self._alarmed_s > _RELEARN_S:
            for rank in self._ranks.values():
                rank.normal = None
        self.alarm = "" if kind is None else _words(kind, alarms, window_s)
        return RuleResult((), frozenset({"flows"}) if now_s - self._alarmed_s <= _ASKS_S and kind else frozenset())

    def _check(self, observation: Observation, window_s: float) -> Counter[Alarm | None]:
        found: Counter[Alarm | None] = Counter()
        for (machine, _), rank in self._ranks.items():
            if not _is_heard(observation.fleet.get(machine)):
                continue
            traffic = self._throughput(machine, window_s)
            alarm, now = check_window(rank.completions, self._watched_s, True, rank.normal, window_s, traffic)
            rank.learn(None if alarm else now, self._watched_s, window_s)
            found[alarm] += 1
        return found

    def _note_steps(self, observation: Observation, counts: bool) -> None:
        members = observation.fleet if observation.job is None else observation.job.machines
        for machine in sorted(members):
            view = observation.fleet.get(machine)
            for worker in view.workers if view is not None else ():
                if worker.state != "running" or worker.step is None or worker.step_time_s is None:
                    continue
                if self._generation is not None and worker.generation != self._generation:
                    continue
                place = (machine, worker.slot)
                if place in self._ranks or len(self._ranks) < _MOST_RANKS:
                    age_s = observation.now_s - worker.step_time_s
                    self._ranks.setdefault(place, _Rank()).note(worker.step, self._watched_s, age_s, counts)

    def _note_traffic(self, window: Window) -> None:
        places = [window.metrics.index(name) for name in _PORTS if name in window.metrics]
        sampled = {machine for machine, _ in self._ranks}
        members = [(index, machine) for index, machine in enumerate(window.machines) if machine in sampled]
        for row in range(len(window.times_T)):
            for index, machine in members:
                value = next((v for k in places if np.isfinite(v := window.values_TMK[row, index, k])), None)
                if value is not None:
                    self._traffic.setdefault(machine, deque(maxlen=300)).append((self._watched_s, float(value)))

    def _throughput(self, machine: str, window_s: float) -> float:
        """Mean bytes per second in the window; NaN where telemetry has none of it."""
        values = [value for time_s, value in self._traffic.get(machine, ()) if time_s > self._watched_s - window_s]
        return sum(values) / len(values) if values else math.nan


def _is_heard(view: MachineView | None) -> bool:
    age_s = None if view is None else view.agent_age_s if view.launcher_age_s is None else view.launcher_age_s
    return age_s is not None and age_s < _HEARD_S


def _words(kind: Alarm, alarms: Mapping[Alarm | None, int], window_s: float) -> str:
    share = f"{alarms[kind]} of {sum(alarms.values())} sampled ranks"
    if kind == "failure":
        return f"failure alarm: no step completed in {window_s:.0f} s on {share}"
    return f"straggler alarm: steps twice as far apart, or half the traffic, over {window_s:.0f} s on {share}"
