"""Clocks that are farther off than seconds: by up to two minutes.

As `clocks`, in means over 8 s instead of rows: each machine's activity is compared with the common one at every offset. What is known so
coarsely is compared with the peers within a stretch of its offset; what is odd then is odd at any of these times. Live, the time at which
samples arrive has corrected most of them before (`minder.ingest.windows.clocks`). L offsets or past stretches, M machines.
"""

from __future__ import annotations

import numpy as np

from minder.diagnose.detectors.clocks import Clocks
from minder.diagnose.detectors.peers import median_known

__all__ = ["FIELDS", "FarClocks"]

FIELDS: dict[str, tuple[str, float]] = {
    "far_level_LM": ("LM", np.nan),
    "far_peers_LM": ("LM", np.nan),
    "far_common_L": ("L", np.nan),
    "far_at": ("", 0.0),
    "far_told": ("", 0.0),
    "far_misfit_LM": ("LM", 0.0),
    "far_falls": ("", 0.0),
    "far_rises": ("", 0.0),
    "far_news": ("", 0.0),
    "far_off_M": ("M", 0.0),  # stretches by which a machine is late
    "far_sum_M": ("M", 0.0),  # of its level in this stretch
    "far_heard_M": ("M", 0.0),  # in so many rows
    "far_waited_s": ("", 0.0),
    "far_rows": ("", 0.0),  # in this stretch
    "far_stretch_rows": ("", 1.0),  # in a whole one
}
_STRETCH_S = 8.0
_FAR = 2  # stretches: what is less far off is timed by the row
_OFF_S = 120.0


class FarClocks(Clocks):
    """Works on the detector's memory, as Clocks does."""

    prefix, off_s = "far", _OFF_S
    fits, still_fits = 0.5, 0.6
    patient = False  # within four minutes there is always a move

    def observe_levels(self, level_M: np.ndarray | None, gap_s: float) -> None:
        """One row, of what `Clocks.observe` gave."""
        if level_M is None:
            return
        memory, heard_M = self._memory, ~np.isnan(level_M)
        memory["far_sum_M"] = memory["far_sum_M"] + np.where(heard_M, level_M, 0.0)
        memory["far_heard_M"] = memory["far_heard_M"] + heard_M
        waited_s = memory.number("far_waited_s") + gap_s
        memory.set_number("far_waited_s", waited_s)
        memory.set_number("far_rows", memory.number("far_rows") + 1.0)
        if waited_s < _STRETCH_S:
            return
        with np.errstate(invalid="ignore", divide="ignore"):
            mean_M = memory["far_sum_M"] / memory["far_heard_M"]
        memory.set_number("far_stretch_rows", memory.number("far_rows"))
        memory.forget(("far_sum_M", "far_heard_M", "far_waited_s", "far_rows"))
        self._follow_row(mean_M, median_known(mean_M), waited_s)

    def _off(self) -> dict[str, tuple[int, int]]:
        rows = int(self._memory.number("far_stretch_rows"))
        return {name: (m, late * rows) for name, (m, late) in super()._off().items() if abs(late) >= _FAR}

    def _blur(self) -> int:
        return int(self._memory.number("far_stretch_rows"))
