"""What an earlier generation of the same process left in the recorder's ring.

Counters of a group only grow. Where they go back, its groups were made anew: what stands before belongs to a job that has ended, and
an operation that was open then is open for ever.

Shape legend: E entries in the order of their record ids, C the columns of an entry (minder.diagnose.flight_recorder.dumpfile).
"""

from __future__ import annotations

import numpy as np

__all__ = ["drop_earlier_life"]

_NAME, _SEQUENCE, _P2P, _KIND = 0, 1, 2, 8
_LEAST_FALL = 3  # threads that launch at once may swap neighbours


def drop_earlier_life(rows_EC: np.ndarray) -> np.ndarray:
    """The entries of the last generation. Columns used: 0 group, 1 and 2 the two sequence ids, 8 the kind (0: a collective)."""
    keep_E, begins = np.ones(len(rows_EC), bool), []
    for name in np.unique(rows_EC[:, _NAME]).tolist():
        for is_collective, column in ((True, _SEQUENCE), (False, _P2P)):
            at = np.flatnonzero((rows_EC[:, _NAME] == name) & ((rows_EC[:, _KIND] == 0) == is_collective))
            ids = rows_EC[at, column]
            falls = np.flatnonzero(np.maximum.accumulate(ids)[:-1] - ids[1:] >= _LEAST_FALL) if len(ids) > 1 else ids[:0]
            falls = falls[ids[falls + 1] < ids[falls]]  # the fall itself, not all that follows it
            if len(falls):
                first = int(at[falls[-1] + 1])
                begins.append(first)
                keep_E[at[at < first]] = False
    if begins:
        keep_E[: min(begins)] = False
    return rows_EC[keep_E]
