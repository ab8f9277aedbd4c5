"""What minutes show and rows do not: means over half a minute each, remembered for twenty minutes or more.

- `slowed_since`: whether less gets done since a given time than before. The common level shows that at once where it is steady. A loss of
  a tenth, or a job that rests every minute, takes means over minutes, and how far such means usually lie apart.
- `leaks_M`: whose memory fills in even steps. A second tenant, or a cache that is filled anew, takes its share at once.

K metrics, M machines, L means, the newest last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.peers import Ordered
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Minutes", "MinutesState"]


@dataclass(frozen=True, slots=True)
class MinutesNumbers:
    """Section [minutes] of detector.toml: what each number is stands there."""

    mean_s: float
    unclear_s: float
    fewest_after: int
    most_after: int
    fewest_before: int
    least: float
    stands: float
    sizes: float
    at_once: float
    leaks: float
    even: float
    full_s: float


_N = numbers("minutes", MinutesNumbers)
_MEMORY = "memory_usage_ratio"


@dataclass(slots=True)
class MinutesState(State):
    began_L: np.ndarray = per("L", np.nan, 41, np.float64)  # when each mean began
    work_KL: np.ndarray = per("KL", np.nan, 41)  # of what the middle machine does, in base units
    memory_ML: np.ndarray = per("ML", np.nan, 6)  # of the share of its memory that each machine uses
    rows: float = 0.0  # in the newest mean


class Minutes(Stage):
    """Remembers what the job has got done, and how full memories were."""

    state: MinutesState

    def __init__(self) -> None:
        self._leaks: tuple[np.ndarray, np.ndarray] | None = None  # means that were asked, and what they said

    def update(self, row: Row) -> None:
        state, traits = self.state, row.traits
        if row.status.outage or not len(row.raw_KM):
            return
        if not row.time_s - state.began_L[-1] < max(_N.mean_s, row.status.interval_s):
            state.began_L, state.rows = np.append(state.began_L[1:], row.time_s), 0.0
            state.work_KL, state.memory_ML = _shifted(state.work_KL), _shifted(state.memory_ML)
        state.rows += 1.0
        offset_K, log_K = traits.offset_K1[:, 0], traits.is_log_K1[:, 0]
        done_K = np.where(log_K, np.exp(np.where(log_K, row.center_K, 0.0)) - offset_K, row.center_K * offset_K)
        _average(state.work_KL, done_K, state.rows)
        if _MEMORY in traits.place:
            used_M = row.raw_KM[traits.place[_MEMORY]]
            _average(state.memory_ML, np.where((used_M >= 0.0) & (used_M <= 1.0), used_M, np.nan), state.rows)

    def slowed_since(self, row: Row, since_s: float) -> bool:
        """Whether less gets done since then, plainly, and more than shortly before. Where a job stands or rests it says nothing."""
        began_L, works_K = self.state.began_L, row.traits.works_K1[:, 0]
        before_L, after_L = began_L < since_s - _N.unclear_s, began_L >= since_s
        after_L[-1] = False  # it is not over yet
        if np.count_nonzero(after_L) < _N.fewest_after or np.count_nonzero(before_L) < _N.fewest_before or not works_K.any():
            return False
        work_KL = self.state.work_KL[works_K]
        known_KL = ~np.isnan(work_KL) & before_L
        usual_K = np.where(known_KL, work_KL, 0.0).sum(axis=1) / np.maximum(known_KL.sum(axis=1), 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            share_L = Ordered(np.where(usual_K > 0.0, work_KL.T / usual_K, np.nan)).median_K()
            share_L[~(share_L > _N.stands)] = np.nan
        past_L, now_L = _known(share_L[before_L]), _known(share_L[after_L])[-_N.most_after :]
        if len(now_L) < _N.fewest_after or len(past_L) < _N.fewest_before:
            return False
        windows = np.lib.stride_tricks.sliding_window_view(past_L, len(now_L))
        return any(_is_less(np.asarray(middle(windows, axis=1)), float(middle(now_L))) for middle in (np.median, np.mean))

    def leaks_M(self) -> np.ndarray:
        """Mask (M,): the one machine whose memory fills fast and in even steps, so that it is full within minutes."""
        if self._leaks is not None and self._leaks[0] is self.state.memory_ML:
            return self._leaks[1]  # the newest mean, which changes with every row, is not asked
        full_ML = self.state.memory_ML[:, :-1]
        with np.errstate(invalid="ignore"):
            step_ML = np.diff(full_ML, axis=1)
            step_ML = step_ML - Ordered(step_ML.T).median_K()  # what all take up, as after a restart, none leaks
            pace_M = np.minimum(step_ML.mean(axis=1), np.median(step_ML, axis=1))  # a single jump is no leak
            minute = 60.0 / max(_N.mean_s, float(self.state.began_L[-1] - self.state.began_L[-2]))
            found_M = (pace_M * minute > _N.leaks) & (full_ML[:, -1] + pace_M * minute * _N.full_s / 60.0 >= 1.0)
            found_M &= (step_ML.min(axis=1) > _N.even * pace_M) & (_N.even * step_ML.max(axis=1) < pace_M)
        found_M &= np.count_nonzero(found_M) == 1
        self._leaks = self.state.memory_ML, np.asarray(found_M)
        return self._leaks[1]


def _shifted(means: np.ndarray) -> np.ndarray:
    return np.concatenate([means[:, 1:], np.full_like(means[:, :1], np.nan)], axis=1)


def _average(means: np.ndarray, new: np.ndarray, rows: float) -> None:
    """Takes what is known of `new` into the newest mean."""
    mean = means[:, -1]
    step = (new - mean) / rows
    means[:, -1] = np.where(np.isfinite(step), mean + step, np.where(np.isnan(mean), new, mean))


def _known(values_L: np.ndarray) -> np.ndarray:
    return np.asarray(values_L[~np.isnan(values_L)])


def _is_less(past_N: np.ndarray, now: float) -> bool:
    """Whether less gets done now than in windows of the past of the same length, of which the last one is right before."""
    usual = float(np.median(past_N))
    lost, lost_before = usual - now, usual - float(past_N[-1])
    return lost > max(_N.least * usual, _N.sizes * float(past_N.std())) and lost_before < _N.at_once * lost
