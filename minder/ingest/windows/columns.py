"""A whole recording aligned at once: the values of `Aligner`, without a loop over samples.

Shape legend: N samples (rows of the recording), S series (machine x device), T grid rows, M machines, D devices, K metrics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from minder.ingest.windows.devices import reduce_devices
from minder.ingest.windows.frozen import can_freeze, find_frozen_N
from minder.ingest.windows.grid import first_row_N, hold_s_N, learn_interval_N
from minder.model.metrics import find_metric, is_spoken
from minder.model.telemetry import Window

__all__ = ["Columns", "align_columns", "align_recording"]


_HOLE_S = 600.0  # so long after the last sample of anybody rows still come; after that, not before the next sample


class Columns(Protocol):
    """Samples as columns, in any order. machine_N indexes `machines`; device_N indexes `devices`, -1 is the whole machine.
    values_NK is NaN where a metric was not exported."""

    @property
    def times_N(self) -> np.ndarray: ...
    @property
    def machine_N(self) -> np.ndarray: ...
    @property
    def device_N(self) -> np.ndarray: ...
    @property
    def values_NK(self) -> np.ndarray: ...
    @property
    def machines(self) -> tuple[str, ...]: ...
    @property
    def devices(self) -> tuple[str, ...]: ...
    @property
    def metrics(self) -> tuple[str, ...]: ...


class Recorded(Protocol):
    """What `align_recording` needs of a recording."""

    @property
    def frames(self) -> Columns: ...
    @property
    def interval_s(self) -> float: ...
    @property
    def machines(self) -> tuple[str, ...]: ...


def align_recording(recording: Recorded, interval_s: float | None = None, machines: Sequence[str] | None = None) -> Window:
    """All rows of a recording. Row t depends on no sample later than t.

    interval_s: the grid step, by default the recording's own. machines: which, in which order; by default those that job.toml
    names as the job's: a caller that follows membership passes the standbys too. No telemetry gives a window of no rows.
    """
    return align_columns(recording.frames, interval_s or recording.interval_s, recording.machines if machines is None else machines)


def align_columns(columns: Columns, interval_s: float, machines: Sequence[str] | None = None, *, end_s: float = -np.inf) -> Window:
    """`align_recording` for bare columns. end_s: the clock had come this far, even if the newest sample is older."""
    columns = _compared(columns)
    chosen = tuple(columns.machines if machines is None else machines)
    place = {name: index for index, name in enumerate(chosen)}
    machine_N = np.array([place.get(name, -1) for name in columns.machines] or [-1], dtype=np.int64)[columns.machine_N]
    order_N = np.lexsort((columns.times_N, columns.device_N, machine_N))
    order_N = order_N[machine_N[order_N] >= 0]
    return _Alignment(columns, order_N, machine_N[order_N], interval_s, chosen, end_s).window()


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Columns without the metrics that windows do not hold."""

    times_N: np.ndarray
    machine_N: np.ndarray
    device_N: np.ndarray
    values_NK: np.ndarray
    machines: tuple[str, ...]
    devices: tuple[str, ...]
    metrics: tuple[str, ...]


def _compared(columns: Columns) -> Columns:
    """Without metrics that speak as signals, and without the rows that hold nothing else: nothing was heard of the machine there."""
    kept = [k for k, name in enumerate(columns.metrics) if not is_spoken(name)]
    if len(kept) == len(columns.metrics):
        return columns
    spoken = [k for k in range(len(columns.metrics)) if k not in kept]
    only_N = np.isnan(columns.values_NK[:, kept]).all(axis=1) & ~np.isnan(columns.values_NK[:, spoken]).all(axis=1)
    return _Chosen(
        columns.times_N[~only_N],
        columns.machine_N[~only_N],
        columns.device_N[~only_N],
        columns.values_NK[~only_N][:, kept],
        columns.machines,
        columns.devices,
        tuple(columns.metrics[k] for k in kept),
    )


def _rows(row_N: np.ndarray, last: int, hole: int) -> np.ndarray:
    """The rows from the first sample to the last, less long holes: a clock that is years off must not cost years of rows."""
    if not len(row_N):
        return np.zeros(0, dtype=np.int64)
    heard_R = np.unique(row_N)
    heard_R = heard_R[heard_R <= last]
    if not len(heard_R):
        return np.zeros(0, dtype=np.int64)
    until_R = np.minimum(np.append(heard_R[1:], last + 1), heard_R + hole + 1)
    if until_R[-1] <= last:
        until_R[-1] = last + 1  # the clock itself has come so far
    length_R = until_R - heard_R
    start_R = np.cumsum(length_R) - length_R
    return np.asarray(np.repeat(heard_R - start_R, length_R) + np.arange(int(length_R.sum())))


class _Alignment:
    """One pass over sorted columns."""

    def __init__(
        self, columns: Columns, order_N: np.ndarray, machine_N: np.ndarray, step_s: float, machines: tuple[str, ...], end_s: float
    ) -> None:  # fmt: skip
        self.step_s = step_s
        self.machines = machines
        self.columns = columns
        self.order_N = order_N
        self.times_N = columns.times_N[order_N].astype(np.float64)
        self.slots = len(columns.devices) + 1  # slot 0: the whole machine
        self.series_N = machine_N * self.slots + columns.device_N[order_N] + 1
        # The last row lies at or before the newest sample or the clock: a later one would look ahead.
        last = int(np.floor(max(self.times_N.max(), end_s) / step_s + 1e-6)) if len(self.times_N) else -1
        row_N = first_row_N(self.times_N, step_s)
        rows_T = _rows(row_N, last, max(math.ceil(_HOLE_S / step_s), 1))
        self.rows = len(rows_T)
        self.row_N = np.searchsorted(rows_T, row_N)
        self.times_T = rows_T * step_s

    def window(self) -> Window:
        shape = (self.rows, len(self.machines), len(self.columns.metrics))
        values_TMK = np.full(shape, np.nan)
        present_TM = self._presence()
        with_devices = self.slots > 1
        device_TMK = np.full(shape, -1, dtype=np.int16) if with_devices else None
        low_TMK, high_TMK = (np.full(shape, np.nan), np.full(shape, np.nan)) if with_devices else (None, None)
        for k, name in enumerate(self.columns.metrics):
            value_TMD, held_TMD = self._metric(k, name)
            present_TM |= held_TMD.any(axis=-1)
            if device_TMK is None or low_TMK is None or high_TMK is None:
                values_TMK[:, :, k] = value_TMD[:, :, 0]
                continue
            reduced = reduce_devices(value_TMD[:, :, 0], value_TMD[:, :, 1:])
            values_TMK[:, :, k], device_TMK[:, :, k], low_TMK[:, :, k], high_TMK[:, :, k] = reduced
        return Window(
            times_T=self.times_T,
            machines=self.machines,
            metrics=self.columns.metrics,
            values_TMK=values_TMK,
            present_TM=present_TM,
            device_TMK=device_TMK,
            devices=self.columns.devices,
            low_TMK=low_TMK,
            high_TMK=high_TMK,
        )

    def _metric(self, k: int, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(values, held) of shape (T, M, slots) for one metric."""
        value_N = self.columns.values_NK[self.order_N, k].astype(np.float64)
        known_N = np.flatnonzero(~np.isnan(value_N))
        known_N = known_N[self._distinct(self.series_N[known_N], self.times_N[known_N])]
        value_N = value_N[known_N]
        index_TS = self._newest(self.series_N[known_N], known_N, self.slots * len(self.machines))
        held_TS = index_TS >= 0
        metric = find_metric(name)
        if metric is not None and can_freeze(metric):
            value_N = np.where(find_frozen_N(value_N, self.series_N[known_N], metric), np.nan, value_N)
        padded_N = np.append(value_N, np.nan)
        shape = (self.rows, len(self.machines), self.slots)
        return padded_N[index_TS].reshape(shape), held_TS.reshape(shape)

    def _presence(self) -> np.ndarray:
        """(T, M): the machine was heard of at all, even if every value was missing."""
        machine_N = self.series_N // self.slots
        order_N = np.lexsort((self.times_N, machine_N))
        order_N = order_N[self._distinct(machine_N[order_N], self.times_N[order_N])]
        return self._newest(machine_N[order_N], order_N, len(self.machines)) >= 0

    def _newest(self, series_N: np.ndarray, chosen_N: np.ndarray, series: int) -> np.ndarray:
        """(T, S): index into `chosen_N` of the newest sample that stands at each row, -1 for none."""
        times_N = self.times_N[chosen_N]
        index_TS = np.full((self.rows + 1, series), -1, dtype=np.int64)
        row_N = np.minimum(self.row_N[chosen_N], self.rows)
        index_TS[row_N, series_N] = np.arange(len(chosen_N))  # of samples in one cell the last, newest one stays
        index_TS = np.maximum.accumulate(index_TS[:-1], axis=0)
        until_N = times_N + hold_s_N(learn_interval_N(times_N, series_N, self.step_s), self.step_s)
        stands_TS = self.times_T[:, None] < np.append(until_N, -np.inf)[index_TS]
        return np.where(stands_TS, index_TS, -1)

    @staticmethod
    def _distinct(series_N: np.ndarray, times_N: np.ndarray) -> np.ndarray:
        """Mask: of samples of one series at one time the first stays."""
        if len(times_N) == 0:
            return np.zeros(0, dtype=bool)
        same_N = (np.diff(series_N, prepend=-1) == 0) & (np.diff(times_N, prepend=np.nan) == 0)
        return np.asarray(~same_N)
