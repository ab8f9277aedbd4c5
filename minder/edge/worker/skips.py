"""What a job's data loader asks before it deals out batches: which of them this run leaves out.

The question is an answer too: the launcher learns that this process honours what it is given. minder leaves no batch out of a job in
which a rank did not ask: it would go back to an older step and meet the same batch again.
"""

from __future__ import annotations

import os

from minder.edge.worker.control import current
from minder.model.batch_ranges import SKIP_BATCHES, format_ranges, parse_ranges

__all__ = ["skipped_batches"]


def skipped_batches() -> tuple[range, ...]:
    """Global batches that are not to be trained on in this generation, sorted: for `minder.model.batch_ranges.batch_of_step`.

    Call it in every rank and every generation, and deal out `batch_of_step(step, skipped)` at step 1, 2, ...: a loader that asks and does
    not leave them out meets the same batch again. Steps are those of `heartbeat` and `Checkpointer.save`. Raises BatchRangesError.
    """
    found = parse_ranges(os.environ.get(SKIP_BATCHES, ""))
    control = current()
    if control is not None:
        control.send("skips", batches=format_ranges(found))
    return found
