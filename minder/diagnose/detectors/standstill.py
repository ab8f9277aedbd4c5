"""Who differs while the training stands.

Usual sizes and standing offsets are those of iterations. With long steps and few scrapes they are large and hardly known, and hide a
machine that differs from all others by a factor once everybody waits: then peers hardly differ, and how much they do is seen at once.
K metrics, M machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.baseline import BaselineState
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.peers import Ordered, has_gaps
from minder.diagnose.detectors.phases import Phase
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.traits import TraitTable

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Standstill"]


@dataclass(frozen=True, slots=True)
class StandstillNumbers:
    """Section [standstill] of detector.toml: what each number is stands there."""

    left_out: float
    fewest: int
    plain: float
    z_limit: float
    floors: float


_N = numbers("standstill", StandstillNumbers)


class Standstill(Stage):
    """How far machines differ while the training stands: `row.standstill_KM`."""

    baseline: BaselineState

    def update(self, row: Row) -> None:
        row.standstill_KM = self.standstill_z(row.traits, row.phase)

    def standstill_z(self, traits: TraitTable, phase: Phase) -> np.ndarray | None:
        """(K, M): distance from the peers in sizes of what the farthest healthy machines differ now; None unless the training
        stands and there are machines enough to tell.

        The smaller of two distances counts, with the machine's standing offset taken away and without: of other hardware the first is
        small, where an offset was learned wrong the second. What is far from a plain change counts nothing.
        """
        if not phase.stalled or phase.sustained <= 0.0 or phase.idle or phase.moving or phase.grace:
            return None
        less_KM = self.baseline.all_quick.smooth_KM
        if less_KM.shape[1] < _N.fewest:
            return None
        with_KM = less_KM + self.baseline.baseline_KM
        with_KM = with_KM - Ordered(with_KM).median_K()[:, None]
        farthest_K, count_K = _farthest(np.abs(with_KM))
        unit_K1 = np.maximum(farthest_K[:, None], _N.floors * traits.floor_K1)
        with np.errstate(invalid="ignore"):
            nearer_KM = np.where(np.abs(less_KM) < np.abs(with_KM), less_KM, with_KM)
            plain_KM = (less_KM * with_KM > 0.0) & (np.abs(nearer_KM) > _N.plain * traits.reach_K1) & (count_K >= _N.fewest)[:, None]
            return np.clip(np.where(plain_KM, phase.sustained * nearer_KM / unit_K1, 0.0), -_N.z_limit, _N.z_limit)


def _farthest(size_KM: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(K,): the largest size of those that are not left out, and how many machines have data."""
    metrics, machines = size_KM.shape
    whole = bool(machines) and not has_gaps(size_KM)
    count_K = np.full(metrics, machines) if whole else np.count_nonzero(~np.isnan(size_KM), axis=1)
    place_K = np.maximum(count_K - 1 - np.maximum(1, np.ceil(_N.left_out * count_K).astype(int)), 0)
    if whole:
        return np.partition(size_KM, place_K[0], axis=1)[:, place_K[0]], count_K
    return np.sort(size_KM, axis=1)[np.arange(metrics), place_K], count_K
