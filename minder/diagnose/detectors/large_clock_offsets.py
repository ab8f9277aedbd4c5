"""Clocks that are farther off than seconds: by up to two minutes.

As `clocks`, in means over 8 s instead of rows: each machine's activity is compared with the common one at every offset. What is known so
coarsely is compared with the peers within a stretch of its offset; what is odd then is odd at any of these times. Live, the time at which
samples arrive has corrected most of them before (`minder.ingest.windows.clocks`). L offsets or past stretches, M machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.clocks import ClockState, Timing
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.peers import median_known
from minder.diagnose.detectors.state import per

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["LargeClockOffsetState", "LargeClockOffsets"]


@dataclass(frozen=True, slots=True)
class LargeClockOffsetsNumbers:
    """Section [large_clock_offsets] of detector.toml: what each number is stands there."""

    stretch_s: float
    far: int
    off_s: float
    fits: float
    still_fits: float


_N = numbers("large_clock_offsets", LargeClockOffsetsNumbers)


@dataclass(slots=True)
class LargeClockOffsetState(ClockState):
    """Of stretches instead of rows."""

    sum_M: np.ndarray = per("M")  # of its level in this stretch
    heard_M: np.ndarray = per("M")  # in so many rows
    waited_s: float = 0.0
    rows: float = 0.0  # in this stretch
    stretch_rows: float = 1.0  # in a whole one


class LargeClockOffsets(Timing):
    """Clocks that are off by more; whose are: `row.far_off`."""

    state: LargeClockOffsetState
    patient = False  # within four minutes there is always a move

    def update(self, row: Row) -> None:
        if row.level_M is not None:
            self.observe_levels(row.level_M, row.status.gap_s)
        row.far_off = self.align(row.distances, row.scaled_KM)

    def observe_levels(self, level_M: np.ndarray, gap_s: float) -> None:
        """One row of each machine's activity."""
        state, heard_M = self.state, ~np.isnan(level_M)
        state.sum_M = state.sum_M + np.where(heard_M, level_M, 0.0)
        state.heard_M = state.heard_M + heard_M
        waited_s = state.waited_s + gap_s
        state.waited_s = waited_s
        state.rows += 1.0
        if waited_s < _N.stretch_s:
            return
        with np.errstate(invalid="ignore", divide="ignore"):
            mean_M = state.sum_M / state.heard_M
        state.stretch_rows = state.rows
        state.forget("sum_M", "heard_M", "waited_s", "rows")
        self._follow_row(mean_M, median_known(mean_M), waited_s)

    def _off(self) -> dict[str, tuple[int, int]]:
        rows = int(self.state.stretch_rows)
        return {name: (m, late * rows) for name, (m, late) in super()._off().items() if abs(late) >= _N.far}

    def _bounds(self) -> tuple[float, float, float]:
        return _N.off_s, _N.fits, _N.still_fits

    def _blur(self) -> int:
        return int(self.state.stretch_rows)
