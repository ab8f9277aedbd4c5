"""When a machine turned odd, and whether it did so all by itself while the training stood.

A fault comes before the standstill that it causes. Weak evidence is heard late, as it must be smoothed for minutes first, and a link that
flaps is odd whenever the job moves. But a machine that stood with its peers while they had long been standing, and then plainly left them,
did not stop them. K metrics, M machines, X machines that stand out in a row.
"""

from __future__ import annotations

import numpy as np

from minder.diagnose.detectors.deviants import Deviants
from minder.diagnose.detectors.memory import Memory
from minder.diagnose.detectors.phases import Phase
from minder.diagnose.detectors.presence import Seen

__all__ = ["FIELDS", "turned_odd"]

FIELDS: dict[str, tuple[str, float]] = {"afterwards_M": ("M", 0.0)}  # 1: it turned odd while its peers had been standing for long
_SHARP = 0.5  # share of the newest distance that what is smoothed slowly had not yet reached
_LONG_S, _LONG_INTERVALS = 30.0, 3.0  # standing for so long is long: processes that crash take some seconds to end
_HEARD_INTERVALS = 2.5  # who was not heard for longer may have been odd all the while


def turned_odd(memory: Memory, deviants: Deviants, phase: Phase, seen: Seen, time_s: float) -> tuple[np.ndarray, np.ndarray]:
    """(X,): since when each machine has been odd, in seconds, and whether it turned so afterwards. To be asked once per row."""
    x = deviants.machines_X
    new_X = np.isnan(memory["since_M"][x])
    if new_X.any():
        long_s = _LONG_S + _LONG_INTERVALS * seen.interval_s
        stands = phase.stalled and not phase.idle and phase.since_move_s > long_s and time_s - phase.stands_since_s > long_s
        slow_KX = np.nan_to_num(memory["all_slow_smooth_KM"][:, x]) * np.sign(deviants.newest_KX)
        gradual_KX = (deviants.counted_KX > 0.0) & ~(slow_KX < _SHARP * np.abs(deviants.newest_KX))
        heard_X = seen.since_news_M[x] <= _HEARD_INTERVALS * seen.interval_s
        memory["afterwards_M"][x[new_X]] = (stands & heard_X & ~gradual_KX.any(axis=0))[new_X]
    return np.where(new_X, time_s, memory["since_M"][x]), memory["afterwards_M"][x] > 0.0
