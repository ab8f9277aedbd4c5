"""The last rows of every machine and metric: scaled by the metric's limits, gaps filled with the nearest sample (section 3.3).

Legend: T new rows, S = width - 1 + T rows, K metrics, M machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minder.diagnose.detectors.state import Named, State, per
from minder.model.telemetry import Window

__all__ = ["RecentRows", "Stretch"]

_LOWEST, _HIGHEST = -1.0, 4.0  # scaled values stay between: a surge past its metric's limit is a surge, not an overflow


@dataclass(frozen=True, slots=True)
class Stretch:
    """New rows with the ones before them. Window t covers rows t .. t + width - 1 of rows_KSM, so T windows in all.

    rows_KSM: scaled, float32, without gaps. known_KTM: the machine has ever had the metric. fresh_KT: some machine has new data.
    gap_T: seconds since the row before. times_T: of the new rows.
    """

    metrics: tuple[str, ...]
    rows_KSM: np.ndarray
    known_KTM: np.ndarray
    fresh_KT: np.ndarray
    gap_T: np.ndarray
    times_T: np.ndarray

    def due_T(self, every_s: float) -> np.ndarray:
        """Rows at which a scorer that looks every so often looks again: a matter of the rows' times, not of how they are cut."""
        if every_s <= 0:
            return np.ones(len(self.times_T), dtype=bool)
        return np.asarray(np.floor(self.times_T / every_s) != np.floor((self.times_T - self.gap_T) / every_s))


@dataclass(slots=True)
class _RowState(State):
    rows_LKM: np.ndarray = per("LKM", np.nan)  # the oldest first
    time_s: float = np.nan  # of the newest


class RecentRows:
    """Constant memory: width - 1 rows. `limits`: metric to (low, high); metrics without limits are not looked at."""

    def __init__(self, width_rows: int, limits: Mapping[str, tuple[float, float]]) -> None:
        self._limits = dict(limits)
        self._state = _RowState(np.full((width_rows - 1, 0, 0), np.nan, dtype=np.float32))
        self._named = Named(self._state)

    def extend(self, window: Window, metrics: Sequence[str]) -> Stretch:
        """The window's rows of these metrics (those that it has and that have limits), after the ones remembered."""
        place = {name: k for k, name in enumerate(window.metrics)}
        chosen = tuple(name for name in metrics if name in place and name in self._limits)
        self._named.follow(window.machines, chosen)
        new_KTM = self._scale(window.values_TMK[:, :, [place[name] for name in chosen]], chosen)
        before_LKM = self._state.rows_LKM
        rows_KSM = np.concatenate([before_LKM.swapaxes(0, 1), new_KTM], axis=1)
        fill_forward(rows_KSM)
        known_KTM = ~np.isnan(rows_KSM[:, len(before_LKM) :])
        last_s = self._state.time_s  # the very first row comes after none: it makes no time pass
        gap_T = np.diff(window.times_T, prepend=window.times_T[0] if np.isnan(last_s) else last_s)
        self._remember(rows_KSM, window)  # with its gaps: who had no sample yet must not be known by a 0 from the next row on
        fill_backward(rows_KSM)
        return Stretch(chosen, rows_KSM, known_KTM, ~np.isnan(new_KTM).all(axis=2), gap_T, window.times_T)

    def in_units(self, metric: str, scaled: float) -> float:
        low, high = self._limits[metric]
        return low + scaled * (high - low)

    def state(self) -> dict[str, Any]:
        return self._named.record()

    def load(self, state: Mapping[str, Any]) -> None:
        self._named.load(state)

    def _remember(self, rows_KSM: np.ndarray, window: Window) -> None:
        kept = len(self._state.rows_LKM)
        self._state.rows_LKM = rows_KSM[:, rows_KSM.shape[1] - kept :].swapaxes(0, 1).copy()
        self._state.time_s = float(window.times_T[-1])

    def _scale(self, values_TMK: np.ndarray, metrics: Sequence[str]) -> np.ndarray:
        low_K = np.array([self._limits[name][0] for name in metrics])
        span_K = np.maximum(np.array([self._limits[name][1] for name in metrics]) - low_K, 1e-12)
        scaled_TMK = np.clip((values_TMK - low_K) / span_K, _LOWEST, _HIGHEST)
        scaled_TMK[~np.isfinite(values_TMK)] = np.nan
        return np.ascontiguousarray(np.transpose(scaled_TMK, (2, 0, 1)), dtype=np.float32)


def fill_forward(rows_KSM: np.ndarray) -> None:
    """Gaps take the value before them, in place."""
    for s in range(1, rows_KSM.shape[1]):
        gap_KM = np.isnan(rows_KSM[:, s])
        if gap_KM.any():
            rows_KSM[:, s][gap_KM] = rows_KSM[:, s - 1][gap_KM]


def fill_backward(rows_KSM: np.ndarray) -> None:
    """What lies before a machine's first sample takes its value, in place; a machine without any data becomes 0."""
    for s in range(rows_KSM.shape[1] - 2, -1, -1):
        gap_KM = np.isnan(rows_KSM[:, s])
        if gap_KM.any():
            rows_KSM[:, s][gap_KM] = rows_KSM[:, s + 1][gap_KM]
    np.nan_to_num(rows_KSM, copy=False)
