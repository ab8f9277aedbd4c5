"""Does the telemetry show the fault at all? By the world's twin without the fault, and by nothing of any detector.

A culprit is true only if one of its metrics departs from the twin, beyond what the job's median machine departs, by more than the metric's
own fluctuation over windows, for 30 s; or if its samples stop for so long while those of the median machine go on. Of a group,
half of the machines must be. A machine that only one of the two has, such as a spare that comes in an exchange, is not compared.
Legend: W windows of time, M machines, K metrics.
"""

from __future__ import annotations

import warnings

import numpy as np

from minder.model.telemetry import Window

__all__ = ["LEAST_S", "is_shown"]

LEAST_S = 30.0
_TIMES = 3.0  # a departure counts from so many fluctuations on
_FLOOR = 0.02  # of the metric's level: what rounding does


def is_shown(faulty: Window, twin: Window, culprits: tuple[str, ...], onset_s: float, end_s: float | None = None) -> bool:
    """Whether half of the culprits or more can be known from the telemetry between onset and end.

    faulty, twin: the same world with and without its fault, on the same grid. Times in UTC seconds.
    """
    faulty, twin = _of_both(faulty, twin), _of_both(twin, faulty)
    width = max(1, round(LEAST_S / _step_s(faulty)))
    until_s = np.inf if end_s is None else end_s + LEAST_S
    first, last = np.searchsorted(faulty.times_T, [onset_s, until_s])
    length = min(len(faulty.times_T), len(twin.times_T), int(last))
    if length - first < width:
        return False
    one_WMK, other_WMK = (_means(window, int(first), length, width) for window in (faulty, twin))
    own_MK = _fluctuation(twin, width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # windows without any data
        level_MK = np.nanmedian(np.abs(other_WMK), axis=0)
        depart_WMK = np.abs(one_WMK - other_WMK)
        typical_WK = np.nanmedian(depart_WMK, axis=1)
        beyond_WMK = depart_WMK > typical_WK[:, None] + np.maximum(_TIMES * own_MK, _FLOOR * level_MK)
    silent_WM = _gone(faulty, twin, int(first), length, width)
    shown_M = beyond_WMK.any(axis=(0, 2)) | silent_WM.any(axis=0)
    places = [faulty.machines.index(name) for name in culprits if name in faulty.machines]
    return bool(places) and bool(shown_M[places].mean() >= 0.5)


def _of_both(window: Window, other: Window) -> Window:
    """Machines and metrics that the other has too, in one order."""
    machines, metrics = (
        tuple(sorted(set(mine) & set(its))) for mine, its in ((window.machines, other.machines), (window.metrics, other.metrics))
    )
    at_M, at_K = [window.machines.index(name) for name in machines], [window.metrics.index(name) for name in metrics]
    values_TMK, present_TM = window.values_TMK[:, at_M][:, :, at_K], window.present_TM[:, at_M]
    return Window(window.times_T, machines, metrics, values_TMK, present_TM)


def _step_s(window: Window) -> float:
    return float(np.median(np.diff(window.times_T))) if len(window.times_T) > 1 else 1.0


def _means(window: Window, first: int, last: int, width: int) -> np.ndarray:
    """(W, M, K): the mean of each whole stretch of `width` rows."""
    count = (last - first) // width
    part_TMK = window.values_TMK[first : first + count * width]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmean(part_TMK.reshape(count, width, *part_TMK.shape[1:]), axis=1))


def _fluctuation(twin: Window, width: int) -> np.ndarray:
    """(M, K): how much neighbouring windows of the healthy twin differ (median, over sqrt 2, as a standard deviation)."""
    means_WMK = _means(twin, 0, len(twin.times_T), width)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nan_to_num(np.nanmedian(np.abs(np.diff(means_WMK, axis=0)), axis=0) * 1.4826 / np.sqrt(2.0)))


def _gone(faulty: Window, twin: Window, first: int, last: int, width: int) -> np.ndarray:
    """(W, M): not heard for a whole window, while its twin is and most machines are."""
    count = (last - first) // width
    shape = (count, width, len(faulty.machines))
    heard_WM = faulty.present_TM[first : first + count * width].reshape(shape).any(axis=1)
    usual_WM = twin.present_TM[first : first + count * width].reshape(shape).any(axis=1)
    return np.asarray(~heard_WM & usual_WM & (heard_WM.mean(axis=1, keepdims=True) > 0.5))
