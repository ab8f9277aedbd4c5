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
_NAMED = 3  # machines in one line


def not_judged(recording: Recording) -> list[str]:
    """Why the default detector could not compare these machines, in a line each; empty where it could."""
    frames = recording.frames
    times_N, values_NK = np.asarray(frames.times_N, dtype=float), frames.values_NK
    if not len(times_N):
        return ["there is no telemetry: no machine was compared with its peers"]
    with_value_N = ~np.isnan(values_NK).all(axis=1)
    if not with_value_N.any():
        return ["telemetry holds no value of a known metric: no machine was compared with its peers"]
    said = []
    heard = {frames.machines[at] for at in np.unique(frames.machine_N[with_value_N])}
    if unheard := [machine for machine in recording.machines if machine not in heard]:
        names = ", ".join(unheard[:_NAMED]) + (", ..." if len(unheard) > _NAMED else "")
        said.append(
            f"{len(unheard)} of {len(recording.machines)} machines without a value in telemetry ({names}): nothing is known of them"
        )
    span_s, interval_s = float(np.ptp(times_N)), recording.job.interval_s or 1.0
    needed_s = max(DefaultConfig().warmup_s, 4.0 * interval_s)
    if span_s < needed_s:
        said.append(f"the samples span {span_s:.0f} s: a machine is compared after {math.ceil(needed_s)} s")
    if len(recording.machines) < _FEWEST and recording.machines:
        said.append(f"{recording.machines[0]} is the only machine: it has no peers to be compared with")
    return said
