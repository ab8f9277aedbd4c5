"""What is usual in the data: healthy rows of recordings, and the range of each metric in them.

Legend: T rows, M machines, K metrics, N values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from minder.ingest.sources.recording import read_recording
from minder.ingest.windows import align_columns
from minder.model.metrics import find_metric
from minder.model.telemetry import Window
from minder.offline.evaluation.labels import Labelled

__all__ = ["find_ranges", "healthy_windows"]

_BEFORE_ONSET_S = 30.0  # an onset is when the fault was noticed
_TAIL = 0.001
_WIDER = 0.1  # of the span, to both sides
_MOST = 200_000  # values kept of one recording and metric


def healthy_windows(labelled: Iterable[Labelled]) -> Iterator[Window]:
    """Each recording's aligned rows before anything was wrong."""
    for item in labelled:
        recording = read_recording(item.path)
        if not len(recording.frames.times_N):
            continue
        frames = recording.frames
        if item.truth.onset_s is not None:
            frames = frames.until(item.truth.onset_s - _BEFORE_ONSET_S)
        if len(frames.times_N):
            yield align_columns(frames, recording.interval_s)


def find_ranges(windows: Iterable[Window]) -> dict[str, tuple[float, float]]:
    """Of each metric that is a quantity (no total, no bit mask): from the 0.1st to the 99.9th percentile of all machines, and a tenth
    of that span wider on both sides, within what is possible."""
    kept: dict[str, list[np.ndarray]] = {}
    for window in windows:
        for k, name in enumerate(window.metrics):
            values_N = window.values_TMK[:, :, k]
            values_N = values_N[np.isfinite(values_N)]
            if len(values_N):
                kept.setdefault(name, []).append(values_N[:: max(1, len(values_N) // _MOST)])
    return {name: bounds for name, parts in sorted(kept.items()) if (bounds := _range(name, parts)) is not None}


def _range(name: str, parts: Sequence[np.ndarray]) -> tuple[float, float] | None:
    metric = find_metric(name)
    if metric is None or metric.counter or metric.unit == "bit mask":
        return None
    low, high = (float(value) for value in np.quantile(np.concatenate(parts), [_TAIL, 1.0 - _TAIL]))
    margin = _WIDER * max(high - low, 0.02 * max(abs(low), abs(high)))
    return max(metric.low, low - margin), min(metric.high, high + margin)
