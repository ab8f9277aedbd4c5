"""ETTR in a sliding hour (pure). Time in which the job does not run is cut out, so that an hour is always an hour of the job.

Shape legend: E edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minder.offline.reliability.stretches import Span, Stretch, sum_spans

__all__ = ["HOUR_S", "SlidingHour", "slide_hour"]

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class SlidingHour:
    """ETTR of the hour that ends at each edge; between two edges it is a straight line. times_E: unix seconds."""

    times_E: np.ndarray
    ettr_E: np.ndarray

    @property
    def worst(self) -> tuple[float, float] | None:
        """(ETTR, unix seconds of its end) of the worst hour; None where the job ran for less than an hour."""
        if not len(self.ettr_E):
            return None
        at = int(np.argmin(self.ettr_E))
        return float(self.ettr_E[at]), float(self.times_E[at])

    @property
    def last(self) -> float | None:
        """ETTR of the newest hour."""
        return float(self.ettr_E[-1]) if len(self.ettr_E) else None


def slide_hour(running: Sequence[Span], lost: Sequence[Stretch], hour_s: float = HOUR_S) -> SlidingHour:
    """running, lost: in order, each without overlaps, lost within running."""
    whole_s = sum_spans(running)
    if whole_s < hour_s:
        return SlidingHour(np.empty(0), np.empty(0))
    real_E = np.array([edge for span in running for edge in span])
    ran_E = np.concatenate([[0.0], np.cumsum(np.diff(real_E) * (np.arange(len(real_E) - 1) % 2 == 0))])
    edges_L = np.interp([edge for item in lost for edge in (item.begin_s, item.end_s)], real_E, ran_E)
    sums_L = np.concatenate([[0.0], np.cumsum(np.diff(edges_L) * (np.arange(len(edges_L) - 1) % 2 == 0))]) if len(edges_L) else edges_L
    ends_E = np.unique(np.clip(np.concatenate([edges_L, edges_L + hour_s, ran_E, ran_E + hour_s]), hour_s, whole_s))

    def lost_until(ran: np.ndarray) -> np.ndarray:
        return np.interp(ran, edges_L, sums_L) if len(edges_L) else np.zeros_like(ran)

    ettr_E = 1.0 - (lost_until(ends_E) - lost_until(ends_E - hour_s)) / hour_s
    # of two moments at which the job had run equally long (a pause between them) the earlier one is shown
    first = np.concatenate([[True], np.diff(ran_E) > 0])
    return SlidingHour(np.interp(ends_E, ran_E[first], real_E[first]), np.clip(ettr_E, 0.0, 1.0))
