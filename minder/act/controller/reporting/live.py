"""`live.json`: the last ten minutes of telemetry for people who look, as the peers' band and the machines that stand out of it; beside it
`scores.jsonl` (score_history.py).

It lies on the way of the windows and changes nothing of them. Shape legend: T rows, M machines, K metrics.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from minder.act.controller.reporting.score_history import ScoreHistory
from minder.model.evidence import Scores
from minder.model.private import replace_private
from minder.model.telemetry import Sample, Window

__all__ = ["LiveWindows"]

_ROW_S = 5.0
_ROWS = 120
_MOST_LINES = 5
_FEW = 64  # machines up to which the band leaves out who stands out; of more, the outermost twentieths are no part of it


class _Windows(Protocol):
    def push(self, samples: Sequence[Sample]) -> None: ...

    def pop(self, now_s: float) -> Window | None: ...

    def notes(self) -> Sequence[str]: ...

    def set_machines(self, machines: Sequence[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class _Row:
    time_s: float
    metrics: tuple[str, ...]
    values_MK: np.ndarray  # float32, mean over the row's grid rows, NaN without data
    band_3K: np.ndarray | None  # low, middle, high


class LiveWindows:
    """Windows that are remembered on their way, and written every five seconds. scores: the detector's newest, or None.

    `accused`: whom verdicts name now, whatever rule it was; they have lines of their own too.
    """

    def __init__(self, inner: _Windows, path: Path, scores: Callable[[], Scores | None]) -> None:
        self._inner, self._path, self._scores = inner, path, scores
        self._history = ScoreHistory(path.with_name("scores.jsonl"))
        self._rows: deque[_Row] = deque(maxlen=_ROWS)
        self._machines: tuple[str, ...] = ()
        self._pending: list[np.ndarray] = []
        self._metrics: tuple[str, ...] = ()
        self._next_s = -math.inf
        self.accused: Callable[[], Sequence[str]] = tuple

    def push(self, samples: Sequence[Sample]) -> None:
        self._inner.push(samples)

    def notes(self) -> Sequence[str]:
        return self._inner.notes()

    def watch(self, machines: Sequence[str]) -> None:
        """These from now on; what is known of those that stay is kept."""
        self._inner.set_machines(machines)

    def restart(self, inner: _Windows) -> None:
        """Begin anew with other windows: the clock was set, and no row may stand beside one of before."""
        self._inner = inner
        self._rows.clear()
        self._pending.clear()
        self._next_s = -math.inf

    def pop(self, now_s: float) -> Window | None:
        window = self._inner.pop(now_s)
        if window is not None and len(window.times_T):
            self._remember(window)
        if now_s >= self._next_s:
            self._next_s = now_s + _ROW_S
            self._close_row(now_s)
            self._write(now_s)
            self._history.note(now_s, self._shares())
        return window

    def _remember(self, window: Window) -> None:
        if window.machines != self._machines:
            self._rows.clear()
        if window.machines != self._machines or window.metrics != self._metrics:
            self._pending.clear()
        self._machines, self._metrics = window.machines, window.metrics
        self._pending.append(window.values_TMK)

    def _close_row(self, now_s: float) -> None:
        if not self._pending:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a column without any data
            values_MK = np.nanmean(np.concatenate(self._pending), axis=0).astype(np.float32)
            band = np.nanpercentile(values_MK, (5.0, 50.0, 95.0), axis=0) if len(self._machines) > _FEW else None
        self._pending.clear()
        self._rows.append(_Row(now_s, self._metrics, values_MK, band))

    def _write(self, now_s: float) -> None:
        if not self._rows:
            return
        try:
            replace_private(self._path, json.dumps(self._document(now_s), allow_nan=False, separators=(",", ":")))
        except OSError:  # a full disk, say: people see that it grows old
            return

    def _document(self, now_s: float) -> dict[str, Any]:
        outside = self._standouts()
        columns = [self._machines.index(name) for name in outside]
        metrics = self._rows[-1].metrics
        found = {metric: self._panel(metric, outside, columns) for metric in metrics}
        return {
            "now_s": now_s,
            "machines": len(self._machines),
            "standouts": outside,
            "times": [round(row.time_s, 3) for row in self._rows],
            "metrics": {metric: panel for metric, panel in found.items() if any(value is not None for value in panel["middle"])},
        }

    def _standouts(self) -> list[str]:
        shares = self._shares()
        high = sorted((name for name, share in shares.items() if share >= 0.5), key=lambda name: -shares[name])
        return [name for name in dict.fromkeys((*self.accused(), *high)) if name in self._machines][:_MOST_LINES]

    def _shares(self) -> dict[str, float]:
        """Machine to score, 1 is the threshold."""
        scores = self._scores()
        if scores is None or not scores.threshold:
            return {}
        return {name: float(score) / scores.threshold for name, score in zip(scores.machines, scores.score_M, strict=True)}

    def _panel(self, metric: str, outside: Sequence[str], columns: Sequence[int]) -> dict[str, Any]:
        band_T3 = np.full((len(self._rows), 3), np.nan)
        lines_TN = np.full((len(self._rows), len(columns)), np.nan)
        peers = np.setdiff1d(np.arange(len(self._machines)), columns)
        few = [place for place, row in enumerate(self._rows) if row.band_3K is None and metric in row.metrics]
        for place, row in enumerate(self._rows):
            if metric not in row.metrics:
                continue
            column = row.metrics.index(metric)
            lines_TN[place] = row.values_MK[columns, column]
            if row.band_3K is not None:
                band_T3[place] = row.band_3K[:, column]
        if few and len(peers):
            rows = [self._rows[place] for place in few]
            band_T3[few] = _band(np.stack([row.values_MK[peers, row.metrics.index(metric)] for row in rows]))
        low, middle, high = (_plain(band_T3[:, index]) for index in range(3))
        lines = {name: _plain(lines_TN[:, index]) for index, name in enumerate(outside)}
        return {"low": low, "middle": middle, "high": high, "lines": lines}


def _band(values_TM: np.ndarray) -> np.ndarray:
    """(T, 3): smallest, median and largest of each row's numbers, NaN where it has none; all rows at once, as this is done often."""
    sorted_TM = np.sort(np.where(np.isfinite(values_TM), values_TM, np.nan).astype(float), axis=1)  # NaN last
    known_T = np.isfinite(sorted_TM).sum(axis=1)
    rows = np.arange(len(values_TM))
    last_T = np.maximum(known_T - 1, 0)
    middle_T = (sorted_TM[rows, last_T // 2] + sorted_TM[rows, (last_T + 1) // 2]) / 2
    return np.stack([sorted_TM[:, 0], middle_T, sorted_TM[rows, last_T]], axis=1)


def _plain(values: np.ndarray) -> list[float | None]:
    """Five digits are enough to look at; no data stays no data."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]
