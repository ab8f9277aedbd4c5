"""Which metrics a picture of an incident shows: those that the verdict names, then those that set the suspect apart (pure).

Shape legend: T grid rows (time), M machines.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from minder.model.telemetry import Window

__all__ = ["PREFERRED", "choose_metrics", "departure"]

PREFERRED = (
    "steps_total",
    "job_cpu_ratio",
    "tcp_receive_queue_bytes",
    "tcp_throughput_bytes_per_second",
    "job_busy_ratio",
    "tcp_send_queue_bytes",
    "step_seconds",
    "job_run_delay_ratio",
    "job_alive_age_seconds",
    "tcp_round_trip_seconds",
    "job_processes",
    "cpu_throttled_ratio",
)
_MOST, _LEAST = 4, 3
_CLEAR = 0.1  # a smaller departure is noise
_ALWAYS = 2  # the first of PREFERRED are always shown: a reader knows steps and processor time


def choose_metrics(window: Window, suspects: Sequence[str], named: Sequence[str], since_s: float, until_s: float) -> tuple[str, ...]:
    """Three or four of the window's metrics, none without data.

    named: what the verdict's evidence names; they come first. Then steps and processor time, then those in which the suspects
    depart clearly from the others from `since_s` to `until_s`.
    """
    able = [name for name in dict.fromkeys((*named, *PREFERRED)) if name in window.metrics and _has_data(window, name)]
    first = [name for name in able if name in named] + [name for name in able if name in PREFERRED[:_ALWAYS]]
    rest = [name for name in able if name not in first]
    apart = {name: departure(window, name, suspects, since_s, until_s) for name in rest}
    separating = sorted((name for name in rest if apart[name] >= _CLEAR), key=lambda name: -apart[name])
    others = [name for name in rest if name not in separating]
    chosen = tuple(dict.fromkeys((*first, *separating)))[:_MOST]
    return chosen + tuple(others[: max(0, _LEAST - len(chosen))])


def departure(window: Window, metric: str, suspects: Sequence[str], since_s: float, until_s: float) -> float:
    """How much farther the suspects are from the others in that time than they were before it, as a share of all that the metric did."""
    values_TM = window.values_TMK[:, :, window.metrics.index(metric)]
    mine_M = np.array([machine in suspects for machine in window.machines])
    if not mine_M.any() or mine_M.all():
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows in which no machine has data
        distance_T = np.abs(np.nanmedian(values_TM[:, mine_M], axis=1) - np.nanmedian(values_TM[:, ~mine_M], axis=1))
        span = float(np.nanmax(values_TM) - np.nanmin(values_TM))
        during = float(np.nanmean(distance_T[(window.times_T >= since_s) & (window.times_T <= until_s)]))
        before = float(np.nanmean(distance_T[window.times_T < since_s]))
    grown = during - (before if np.isfinite(before) else 0.0)
    return grown / span if np.isfinite(grown) and span > 0 else 0.0


def _has_data(window: Window, metric: str) -> bool:
    values_TM = window.values_TMK[:, :, window.metrics.index(metric)]
    return bool(np.isfinite(values_TM).sum() >= 2)
