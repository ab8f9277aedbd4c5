"""Whether a recording says enough to be judged: no verdict about too little is not the same as no fault."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.default import DefaultConfig

if TYPE_CHECKING:
    from minder.ingest.sources.recording import Recording

__all__ = ["not_judged"]

_FEWEST = 2


def not_judged(recording: Recording) -> list[str]:
    """Why the default detector could not compare these machines, in a line each; empty where it could."""
    times_N = np.asarray(recording.frames.times_N, dtype=float)
    if not len(times_N):
        return ["there is no telemetry: no machine was compared with its peers"]
    said = []
    span_s, interval_s = float(np.ptp(times_N)), recording.job.interval_s or 1.0
    needed_s = max(DefaultConfig().warmup_s, 4.0 * interval_s)
    if span_s < needed_s:
        said.append(f"the samples span {span_s:.0f} s: a machine is compared after {math.ceil(needed_s)} s")
    if len(recording.machines) < _FEWEST and recording.machines:
        said.append(f"{recording.machines[0]} is the only machine: it has no peers to be compared with")
    return said
