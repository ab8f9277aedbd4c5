"""Streaming alignment: push what became known, pop the grid rows that are complete.

Shape legend: T rows, M machines, D devices, K metrics.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from minder.ingest.windows.clocks import ClockOffsets
from minder.ingest.windows.devices import reduce_devices
from minder.ingest.windows.grid import MEMORY, first_row, learn_interval
from minder.ingest.windows.series import Series
from minder.ingest.windows.units import UnitCheck
from minder.model.metrics import CATALOGUE, find_metric, is_spoken
from minder.model.telemetry import Sample, Window

__all__ = ["Aligner", "Losses"]

_HISTORY_ROWS = 120  # at most so many rows are made up after a pause of the caller; older ones are skipped


@dataclass(slots=True)
class Losses:
    """What was not used, since the start: a caller that wants to know why a machine is absent looks here."""

    late: int = 0  # duplicates, and samples older than one that already stood at a row
    foreign: int = 0  # of machines that are not watched
    unknown: int = 0  # values of metrics that the catalogue does not have
    out_of_range: int = 0
    skipped_rows: int = 0


class Aligner:
    """Samples of unsynchronised machines as rows of one grid; gaps are NaN.

    machines: which to watch, in the order of the window; None watches every machine that has samples.
    interval_s: the grid step, usually the job's sample interval; None learns it from the first samples.
    metrics: the window's metrics; by default the whole catalogue, so that windows do not change shape.
    lateness_s: a row is complete so long after its time.
    """

    def __init__(
        self,
        machines: Sequence[str] | None = None,
        interval_s: float | None = 1.0,
        metrics: Sequence[str] | None = None,
        lateness_s: float = 0.25,
    ) -> None:
        self.losses = Losses()
        self.metrics = tuple(metrics) if metrics is not None else tuple(metric.name for metric in CATALOGUE if not metric.spoken)
        self._column = {name: index for index, name in enumerate(self.metrics)}
        self._open = machines is None
        self._machines = list(machines or ())
        self._step_s = interval_s
        self._lateness_s = lateness_s
        self._series: dict[str, dict[tuple[int, int], Series]] = {}
        self._presence: dict[str, Series] = {}
        self._devices: dict[str, int] = {}
        self._next_row: int | None = None
        self._started = False  # a row was handed out: nothing before it can come
        self._early: list[Sample] = []  # kept until the step is learned
        self._clocks = ClockOffsets()
        self._units = UnitCheck()

    @property
    def interval_s(self) -> float | None:
        """The grid step; None until it is learned."""
        return self._step_s

    def set_machines(self, machines: Sequence[str]) -> None:
        """Watch these from now on. What is known of machines that stay is kept, that of others is forgotten."""
        self._open = False
        self._machines = list(machines)
        for name in [name for name in self._series if name not in set(machines)]:
            del self._series[name]
            self._presence.pop(name, None)

    def notes(self) -> tuple[str, ...]:
        """Lines for the ledger that are new since the last call: metrics dropped for their unit, clocks that are off."""
        return self._units.take_notes() + self._clocks.take_notes()

    def push(self, samples: Iterable[Sample], arrived_s: float | None = None) -> None:
        """Take samples in any order. arrived_s: when they became known, by the caller's clock; only a source that passes on
        the machines' own timestamps needs it: a machine whose clock is seconds off is then moved to its peers."""
        batch = list(samples)
        if arrived_s is not None:
            self._clocks.learn(batch, arrived_s)
        if self._step_s is None:
            batch = self._learn_step(batch)
        for sample in batch:
            self._take(sample)

    def pop(self, now_s: float) -> Window | None:
        """The rows that became complete since the last call, or None. Rows before the first sample do not exist."""
        if self._step_s is None or self._next_row is None:
            return None
        last = math.floor((now_s - self._lateness_s) / self._step_s + 1e-6)
        if last < self._next_row:
            return None
        first = max(self._next_row, last - _HISTORY_ROWS + 1)
        self.losses.skipped_rows += first - self._next_row
        self._next_row = last + 1
        return self._window(range(first, last + 1), self._step_s)

    def _learn_step(self, batch: list[Sample]) -> list[Sample]:
        """Hold samples back until one machine has shown enough gaps; then hand all of them out."""
        self._early.extend(batch)
        times: dict[str, set[float]] = {}
        for sample in self._early:
            times.setdefault(sample.machine, set()).add(sample.time_s)
        best = max(times.values(), key=len, default=set())
        if len(best) <= MEMORY:
            return []
        ordered = sorted(best)
        gaps = [later - earlier for earlier, later in itertools.pairwise(ordered)][:MEMORY]
        self._step_s = max(round(learn_interval(gaps, 1.0), 1), 0.1)
        held, self._early = self._early, []
        return held

    def _take(self, sample: Sample) -> None:
        """Into the series of its machine, at the time of its peers' clocks."""
        assert self._step_s is not None
        if sample.machine not in self._series:
            if not self._open and sample.machine not in self._machines:
                self.losses.foreign += 1
                return
            self._series[sample.machine] = {}
            self._presence[sample.machine] = Series(self._step_s, None)
            if self._open:
                self._machines.append(sample.machine)
        time_s = sample.time_s + self._clocks.correction_s(sample.machine)
        row = first_row(time_s, self._step_s)
        if self._next_row is None or (row < self._next_row and not self._started):
            self._next_row = row
        if sample.values and all(is_spoken(name) for name in sample.values):
            return  # a Prometheus says of its own scrape that it failed: nothing was heard of the machine
        self._presence[sample.machine].push(time_s, 0.0)
        slot = 0 if sample.device is None else self._devices.setdefault(sample.device, len(self._devices)) + 1
        self._take_values(self._series[sample.machine], slot, time_s, sample.values)

    def _take_values(self, table: dict[tuple[int, int], Series], slot: int, time_s: float, values: Mapping[str, float]) -> None:
        columns, units, losses = self._column, self._units, self.losses
        for name, value in values.items():
            column = columns.get(name)
            if column is None:
                losses.unknown += not is_spoken(name)
            elif value != value:  # NaN: this exporter said nothing
                continue
            elif not units.accepts(name, value):
                losses.out_of_range += 1
            else:
                series = table.get((slot, column))
                if series is None:
                    assert self._step_s is not None
                    series = table[slot, column] = Series(self._step_s, find_metric(name))
                if not series.push(time_s, value):
                    losses.late += 1

    def _window(self, rows: range, step_s: float) -> Window:
        """These rows as arrays; a machine is present in a row where any of its series was heard."""
        self._started = True
        slots = len(self._devices) + 1
        cells_TMKD = np.full((len(rows), len(self._machines), len(self.metrics), slots), np.nan)
        present_TM = np.zeros((len(rows), len(self._machines)), dtype=bool)
        for m, machine in enumerate(self._machines):
            presence = self._presence.get(machine)
            if presence is None:
                continue
            for t, row in enumerate(rows):
                heard = presence.stand_at(row)[0]
                for (slot, column), series in self._series[machine].items():
                    held, cells_TMKD[t, m, column, slot] = series.stand_at(row)
                    heard = heard or held
                present_TM[t, m] = heard
        device_TMK = low_TMK = high_TMK = None
        values_TMK = cells_TMKD[..., 0]
        if slots > 1:
            values_TMK, device_TMK, low_TMK, high_TMK = reduce_devices(cells_TMKD[..., 0], cells_TMKD[..., 1:])
        return Window(
            times_T=np.arange(rows.start, rows.stop) * step_s,
            machines=tuple(self._machines),
            metrics=self.metrics,
            values_TMK=values_TMK,
            present_TM=present_TM,
            device_TMK=device_TMK,
            devices=tuple(self._devices),
            low_TMK=low_TMK,
            high_TMK=high_TMK,
        )
