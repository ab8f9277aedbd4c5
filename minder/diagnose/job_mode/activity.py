"""Does the job get on, as far as telemetry shows? For a job of which no step is read, and before anything is done to one that hangs.

The rules:

- Activity is bytes over the ranks' own connections, RDMA or NVLink, bytes read or written, a longer log, more or less memory, tensor
  or memory work of a GPU. Duty cycle, processor time, power and context switches are none: a rank that waits inside a collective spins,
  and so does one that polls for ever.
- A level is the mean of the last ten seconds. It counts from a tenth of what is usual for that machine and metric (the mean of the last
  minutes). So a heartbeat, a key of the store or a system monitor beside the script is no activity, also where it comes in small bursts;
  the bursts of a job with long steps are. Where no level is usual yet, any counts.
- Only what belongs to the job counts. The traffic of a machine's network interfaces counts where neither the job's own connections nor
  RDMA are reported: others use them too.
- The job is quiet while no machine of it shows any activity. A quiet stretch is too long from twice the longest that the job ever
  survived at work, and from `quiet_floor_s`. What a declared phase, a start or a restart held up does not count as survived.
- No data is neither activity nor quiet: the stretch ends with the newest row that says something.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from minder.diagnose.job_mode.thresholds import ACTIVITY_FLOORS, THRESHOLDS, Thresholds
from minder.model.telemetry import Window

__all__ = ["Activity"]

_MEMORY = "job_memory_bytes"
_OTHERS = "tcp_throughput_bytes_per_second"
_OWN = ("job_tcp_bytes_per_second", "rdma_throughput_bytes_per_second")
_METRICS = tuple(ACTIVITY_FLOORS)
_LEAST_K = np.array(list(ACTIVITY_FLOORS.values()))
_MEMORY_PLACE, _OTHERS_PLACE = _METRICS.index(_MEMORY), _METRICS.index(_OTHERS)
_OWN_PLACES = [_METRICS.index(name) for name in _OWN]
_WORK = [_METRICS.index(name) for name in _METRICS[:6]]  # what training moves, beside files and logs


@dataclass(slots=True)
class _Machine:
    """What is usual on one machine, by _METRICS."""

    usual_K: np.ndarray
    rows_K: np.ndarray
    recent: deque[tuple[float, np.ndarray]]
    memory: float = math.nan


class Activity:
    """Feed it every window once. Times are those of the rows (unix seconds)."""

    def __init__(self, limits: Thresholds = THRESHOLDS) -> None:
        self._limits = limits
        self.has_gpus = False  # any metric of a GPU was reported
        self.survived_s = 0.0  # the longest quiet stretch after which the job went on
        self.active_s = math.nan  # the newest row with activity
        self.newest_s = math.nan  # the newest row that says anything
        self._quiet_from_s = math.nan
        self._machines: dict[str, _Machine] = {}
        self._pending: deque[tuple[str, np.ndarray]] = deque(maxlen=limits.activity_pending_rows)
        self._any_s = self._work_s = 0.0  # seconds of activity, and of work, since the generation began

    def update(self, window: Window, machines: Collection[str]) -> None:
        """machines: the job's members; what others do is none of its activity."""
        members = [(m, name) for m, name in enumerate(window.machines) if name in machines]
        values_TMK = window.values_TMK[:, [m for m, _ in members]]
        if not self.has_gpus:
            gpu = [k for k, name in enumerate(window.metrics) if name.startswith("gpu_")]
            self.has_gpus = not bool(np.isnan(values_TMK[:, :, gpu]).all())
        activity_TMK = _by_metric(values_TMK, window.metrics)
        known_TM = ~np.isnan(activity_TMK).all(axis=2)
        for row, time_s in enumerate(window.times_T):
            self._note(float(time_s), {name: activity_TMK[row, m] for m, (_, name) in enumerate(members) if known_TM[row, m]})

    def quiet_s(self, now_s: float) -> float:
        """Seconds without any activity; 0 while there is some, or while nothing has been heard for a minute."""
        if math.isnan(self._quiet_from_s) or now_s - self.newest_s > self._limits.activity_heard_s:
            return 0.0
        return self.newest_s - self._quiet_from_s

    @property
    def quiet_since_s(self) -> float:
        """Where the present quiet stretch began; NaN without one."""
        return self._quiet_from_s

    def limit_s(self) -> float:
        """A longer quiet stretch than this is one that no healthy stretch of the job has shown."""
        return max(self._limits.quiet_floor_s, self._limits.quiet_times * self.survived_s)

    def is_known(self, now_s: float) -> bool:
        """Whether telemetry says anything of the job's activity now."""
        return now_s - self.newest_s <= self._limits.activity_heard_s

    @property
    def has_begun(self) -> bool:
        """Whether this generation has been at work for a while: then what stops it is no start."""
        return self._work_s >= self._limits.begun_work_s or self._any_s >= self._limits.begun_any_s

    def survive(self, now_s: float) -> None:
        """The job was seen to move although no metric shows it: the stretch was a healthy one, and a new one begins."""
        self.survived_s = max(self.survived_s, self.quiet_s(now_s))
        self._quiet_from_s = self._quiet_from_s if math.isnan(self._quiet_from_s) else self.newest_s

    def excuse(self) -> None:
        """A declared phase lasts, or the job is started again: silence means nothing, and nothing is learned from it."""
        self._quiet_from_s = math.nan
        self._pending.clear()

    def restart(self) -> None:
        """Another generation begins; what is usual stays."""
        self.excuse()
        self._any_s = self._work_s = 0.0
        self.active_s = math.nan

    def move(self, by_s: float) -> None:
        """The wall clock was set forward by so much."""
        self.active_s += by_s
        self.newest_s += by_s
        self._quiet_from_s += by_s

    def _note(self, time_s: float, rows: dict[str, np.ndarray]) -> None:
        if not rows:
            return
        active_K = np.any([self._active(name, time_s, row_K) for name, row_K in rows.items()], axis=0)
        passed_s = 0.0 if math.isnan(self.newest_s) else min(max(0.0, time_s - self.newest_s), self._limits.longest_row_s)
        before_s, self.newest_s = self.newest_s, time_s
        self._pending.extend(rows.items())
        if not active_K.any():
            if math.isnan(self._quiet_from_s):
                self._quiet_from_s = time_s if math.isnan(before_s) else before_s
            return
        if not math.isnan(self._quiet_from_s) and self.has_begun:
            self.survived_s = max(self.survived_s, before_s - self._quiet_from_s)
        self._quiet_from_s, self.active_s = math.nan, time_s
        self._any_s += passed_s
        self._work_s += passed_s if active_K[_WORK].any() else 0.0
        while self._pending:
            self._learn(*self._pending.popleft())

    def _active(self, name: str, time_s: float, row_K: np.ndarray) -> np.ndarray:
        limits = self._limits
        known = self._machines.setdefault(name, _Machine(np.zeros(len(_METRICS)), np.zeros(len(_METRICS)), deque()))
        known.recent.append((time_s, row_K))
        while known.recent[0][0] <= time_s - limits.level_s:
            known.recent.popleft()
        level_K = _mean([item for _, item in known.recent])
        raised_K = np.maximum(_LEAST_K, limits.active_share * known.usual_K)
        least_K = np.where(known.rows_K < limits.activity_fewest_rows, _LEAST_K, raised_K)
        active_K: np.ndarray = level_K > least_K
        memory, before = float(row_K[_MEMORY_PLACE]), known.memory
        active_K[_MEMORY_PLACE] = abs(memory - before) > limits.memory_share * before  # False for NaN
        known.memory = before if math.isnan(memory) else memory
        return active_K

    def _learn(self, name: str, row_K: np.ndarray) -> None:
        known = self._machines[name]
        finite_K = ~np.isnan(row_K)
        known.rows_K = np.minimum(known.rows_K + finite_K, self._limits.activity_usual_rows)
        weight_K = np.divide(1.0, known.rows_K, out=np.zeros_like(known.rows_K), where=finite_K & (known.rows_K > 0))
        known.usual_K += weight_K * np.where(finite_K, row_K - known.usual_K, 0.0)


def _mean(rows: list[np.ndarray]) -> np.ndarray:
    """Of each metric, where it is known; 0 where it never is."""
    values_RK = np.array(rows)
    finite_RK = ~np.isnan(values_RK)
    mean_K: np.ndarray = np.where(finite_RK, values_RK, 0.0).sum(axis=0) / np.maximum(finite_RK.sum(axis=0), 1)
    return mean_K


def _by_metric(values_TMK: np.ndarray, metrics: Sequence[str]) -> np.ndarray:
    """The last axis by _METRICS, NaN where nothing is known."""
    found_TMK = np.full((*values_TMK.shape[:2], len(_METRICS)), np.nan)
    for k, name in enumerate(_METRICS):
        if name in metrics:
            found_TMK[:, :, k] = values_TMK[:, :, metrics.index(name)]
    own_TM = ~np.isnan(found_TMK[:, :, _OWN_PLACES]).all(axis=2)
    found_TMK[own_TM, _OTHERS_PLACE] = np.nan
    return found_TMK
