"""How far the job has come, and how fast: its newest step, per machine and as a whole, within one generation.

Progress is the newest step that any rank reported, from telemetry (`steps_total`) or from the launchers' view of the heartbeat pages: a
hang with progress in any rank is not a hang.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import median

import numpy as np

from minder.diagnose.job_mode.thresholds import THRESHOLDS, Thresholds
from minder.model.observation import Observation

__all__ = ["StepClock"]

_RISES = 2  # ranks of one step are at most that far apart


class _StepTimes:
    """(at, seconds) of the newest steps. What is usual of them is asked for many times between two steps, and worked out once."""

    def __init__(self, kept: int) -> None:
        self._items: deque[tuple[float, float]] = deque(maxlen=kept)
        self._quantiles: dict[float, float] = {}

    def __len__(self) -> int:
        return len(self._items)

    def add(self, at_s: float, seconds: float) -> None:
        self._items.append((at_s, seconds))
        self._quantiles.clear()

    def keep(self, items: list[tuple[float, float]]) -> None:
        self._items.clear()
        self._items.extend(items)
        self._quantiles.clear()

    def forget(self, since_s: float) -> None:
        self.keep([item for item in self._items if item[0] < since_s])

    def move(self, by_s: float) -> None:
        self.keep([(at_s + by_s, seconds) for at_s, seconds in self._items])

    def after(self, at_s: float) -> list[float]:
        return [seconds for time_s, seconds in self._items if time_s > at_s]

    def quantile(self, share: float) -> float:
        if share not in self._quantiles:
            seconds = [seconds for _, seconds in self._items]
            self._quantiles[share] = median(seconds) if share == 0.5 else _quantile(sorted(seconds), share)
        return self._quantiles[share]


def _quantile(ordered: Sequence[float], share: float) -> float:
    """As numpy.quantile, to the last bit, without its overhead, which is most of its time for so few numbers: every step asks."""
    place = (len(ordered) - 1) * share
    low, part = int(place), place % 1.0
    below, above = ordered[low], ordered[min(low + 1, len(ordered) - 1)]
    return above - (above - below) * (1.0 - part) if part >= 0.5 else below + (above - below) * part


class StepClock:
    """Steps of the running generation. Times are unix seconds, durations seconds per step, NaN while unknown."""

    def __init__(self, limits: Thresholds = THRESHOLDS) -> None:
        self._limits = limits
        self.step: float = -math.inf
        self.advanced_s: float = math.nan  # when the newest step was made; later where a phase excuses silence
        self.generation = -1
        self.steps_in_generation = 0
        self.by_machine: dict[str, float] = {}
        self.first: tuple[float, float] | None = None  # (step, time) of the generation's first step
        self._first_step: float = math.nan
        self._lower: list[float] = []  # steps below the newest, each more than the one before
        self._went_back_s = -math.inf
        kept = limits.kept_steps
        self._durations = _StepTimes(kept)  # seconds per step, healthy steps only
        self._recent = _StepTimes(kept)
        self._gaps = _StepTimes(kept)  # seconds since the step before: a log may report every tenth
        self._inherited_s: float = math.nan  # seconds per step in the generation before; NaN: there was none, or it has settled since
        self._timed_from_s: float = math.nan  # the generation's first step past its warm-up

    def update(self, observation: Observation) -> None:
        """Note the newest step of an observation."""
        newest, at_s = self._newest(observation)
        if newest > self.step:
            self._advance(newest, at_s)
            self._lower = []
        elif newest < self.step and at_s > self._went_back_s:
            self._look_back(newest, at_s)

    @property
    def typical_s(self) -> float:
        """Median step time while the job was well, NaN before there are five."""
        return self._durations.quantile(0.5) if self.is_timed else math.nan

    @property
    def p99_s(self) -> float:
        """The 99th percentile of the same."""
        return self._durations.quantile(0.99) if self.is_timed else math.nan

    @property
    def reads_steps(self) -> bool:
        """Whether the generation's steps are known, past its warm-up."""
        return self.steps_in_generation > self._limits.warm_up_steps

    def recent_s(self, now_s: float, horizon_s: float) -> float:
        """Median step time over the last `horizon_s`; a step that is still open counts with its age. NaN without any."""
        seconds = self._recent.after(now_s - horizon_s)
        if self._recent and now_s - self.advanced_s > max([self.typical_s, self._usual_gap_s(), *seconds]):
            seconds.append(now_s - self.advanced_s)
        return median(seconds) if seconds else math.nan

    def is_slower(self, times: float, now_s: float, horizon_s: float) -> bool:
        """Whether steps took `times` their usual over the last `horizon_s`; False where either is unknown."""
        return self.recent_s(now_s, horizon_s) > times * self.typical_s

    def has_settled(self, now_s: float) -> bool:
        """Whether this generation's pace may be held against the one before it. A restarted job is slow for a while, and unevenly: files
        and caches are cold, and spare processes load beside it. It has settled once it stepped at its usual pace for `settle_s`, or after
        `settle_most_s` at whatever pace it has; then what was slow so far is not what is usual."""
        limits = self._limits
        if math.isnan(self._inherited_s):
            return True
        for_s = now_s - self._timed_from_s  # NaN before the first timed step
        own = self._recent.after(self._timed_from_s)
        if not for_s >= limits.settle_s or len(own) < limits.fewest_timed_steps:
            return False
        slow_s = limits.slow_times * self._inherited_s + limits.slow_least_s
        if median(self._recent.after(now_s - limits.settle_s) or own) > slow_s and for_s < limits.settle_most_s:
            return False
        if max(own) > slow_s:
            self.forget_slow(self._timed_from_s)
        self._inherited_s = math.nan
        return True

    def stall_limit_s(self) -> float:
        """Silence longer than this is a stall: three times the job's own P99 step, and at least `min_stall_s`. A job whose log
        reports every tenth step is silent in between."""
        limits, p99_s = self._limits, self.p99_s
        if math.isnan(p99_s):
            return limits.min_stall_s
        return max(limits.min_stall_s, limits.stall_times * p99_s, limits.reported_gap_times * self._usual_gap_s())

    def standing_s(self, now_s: float) -> float:
        """Seconds since the newest step, whatever phase is declared; 0 before the first."""
        return 0.0 if math.isnan(self.advanced_s) else max(0.0, now_s - self.advanced_s)

    def forget_slow(self, since_s: float) -> None:
        """Do not learn from what was just called anomalous: drop step times from `since_s` on."""
        for times in (self._durations, self._gaps):
            times.forget(since_s)

    def excuse(self, until_s: float) -> None:
        """Silence up to then means nothing."""
        self.advanced_s = max(self.advanced_s, until_s) if self.advanced_s == self.advanced_s else math.nan

    def count_from(self, now_s: float) -> None:
        """A pause has just ended: silence counts from here."""
        self.advanced_s = now_s

    def restart(self, generation: int) -> None:
        """Another generation begins; usual step times stay."""
        self.generation = generation
        self.step = -math.inf
        self.advanced_s = math.nan
        self.steps_in_generation = 0
        self.by_machine = {}
        self.first = None
        self._first_step = math.nan
        self._inherited_s = self.typical_s if math.isnan(self._inherited_s) else self._inherited_s
        self._timed_from_s = math.nan
        self._lower = []
        self._went_back_s = -math.inf
        self._recent.keep([])

    def move(self, by_s: float) -> None:
        """The wall clock was set forward by so much."""
        self.advanced_s += by_s
        self._timed_from_s += by_s
        self._went_back_s += by_s
        self.first = None if self.first is None else (self.first[0], self.first[1] + by_s)
        for times in (self._durations, self._recent, self._gaps):
            times.move(by_s)

    @property
    def is_timed(self) -> bool:
        """Whether it is known how long a step usually takes."""
        return len(self._durations) >= self._limits.fewest_timed_steps

    def _usual_gap_s(self) -> float:
        """How long it mostly takes until a newer step is reported; 0 before there are five."""
        known = len(self._gaps) >= self._limits.fewest_timed_steps
        return self._gaps.quantile(0.95) if known else 0.0

    def _newest(self, observation: Observation) -> tuple[float, float]:
        newest, at_s = -math.inf, math.nan
        for machine, view in observation.fleet.items():
            for worker in view.workers:
                current = worker.generation == self.generation or observation.job is None
                if worker.step is not None and worker.state == "running" and current:
                    self._note_first(worker.first_step, worker.first_step_time_s)
                    self.by_machine[machine] = max(self.by_machine.get(machine, -math.inf), float(worker.step))
                    if worker.step > newest:
                        newest, at_s = float(worker.step), worker.step_time_s or observation.now_s
        window = observation.window
        if window is not None and "steps_total" in window.metrics and not observation.fleet:
            values_TM = window.values_TMK[:, :, window.metrics.index("steps_total")]
            for row, time_s in enumerate(window.times_T):
                if not np.isfinite(values_TM[row]).any() or time_s <= self._went_back_s:
                    continue
                here = float(np.nanmax(values_TM[row]))
                if here > newest or newest <= self.step:  # nothing new in the rows before: what it stands at now
                    newest, at_s = here, float(time_s)
        return newest, at_s

    def _note_first(self, step: int | None, time_s: float | None) -> None:
        """A page holds the last 64 steps: what it calls the first is that only at the first look."""
        if self.first is None and step is not None and time_s is not None:
            self.first = (float(step), time_s)

    def _look_back(self, step: float, at_s: float) -> None:
        """Every rank reports less than before. Where that rises again the script went back to a checkpoint of its own, in the same
        processes, and that is progress; a single lower number is a rank whose faster peer is no longer heard."""
        if self._lower and step <= self._lower[-1]:
            self._lower = self._lower if step == self._lower[-1] else [step]
            return
        self._lower.append(step)
        if len(self._lower) > 1:
            self.advanced_s = max(self.advanced_s, at_s)
        if len(self._lower) > _RISES:
            self._first_step -= self.step - step  # the generation's steps until here were made
            self.step, self.by_machine, self._lower, self._went_back_s = step, {}, [], at_s

    def _advance(self, step: float, at_s: float) -> None:
        if math.isfinite(self.step) and not math.isnan(self.advanced_s) and at_s > self.advanced_s:
            seconds = (at_s - self.advanced_s) / (step - self.step)
            if step - self._first_step > self._limits.warm_up_steps:
                self._timed_from_s = self.advanced_s if math.isnan(self._timed_from_s) else self._timed_from_s
                self._recent.add(at_s, seconds)
                self._durations.add(at_s, seconds)
                self._gaps.add(at_s, at_s - self.advanced_s)
        else:
            self._first_step = self.first[0] if self.first is not None else step
        self.steps_in_generation = int(step - self._first_step) + 1
        self.step = step
        self.advanced_s = at_s
