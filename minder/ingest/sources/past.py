"""One machine's telemetry against its peers over a window of the past, out of a Prometheus or a recording.

Shape legend: B buckets of time, M machines, K metrics.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.mapping import MetricMapping
from minder.ingest.sources.parts import table_paths
from minder.ingest.sources.prometheus import PrometheusOptions, PrometheusSource
from minder.model.errors import RecordingError, SourceError
from minder.model.metrics import find_metric
from minder.model.telemetry import ExcerptPanel, Sample, TelemetryExcerpt

__all__ = ["PastWindow", "read_prometheus", "read_recorded"]

_BUCKETS = 240
_MOST_PEERS = 31
_MOST_UNNARROWED = 64  # machines of a job whose series cannot be picked by a label
_SCORE = "minder_controller_score_ratio"


@dataclass(frozen=True, slots=True)
class PastWindow:
    """What is asked for. machines: the job's, this one among them. begin_s, end_s: unix seconds."""

    machine: str
    machines: tuple[str, ...]
    begin_s: float
    end_s: float

    @property
    def group(self) -> tuple[str, ...]:
        """The machine and some peers, evenly out of the job's: as many as a picture needs."""
        peers = [name for name in self.machines if name != self.machine]
        step = max(1, math.ceil(len(peers) / _MOST_PEERS))
        return (self.machine, *peers[::step])

    def bucket_s(self, interval_s: float) -> float:
        """Two scrapes at least: one that comes a little late leaves no gap."""
        return max(2.0 * interval_s, (self.end_s - self.begin_s) / _BUCKETS)


class _PastSource(PrometheusSource):
    """One query for a whole window: of each step the last sample that was scraped in it, so that silence stays a gap."""

    def __init__(self, options: PrometheusOptions, machines: MachineMap, mapping: MetricMapping, window: PastWindow) -> None:
        super().__init__(options, machines, mapping)
        step_s = math.ceil(window.bucket_s(options.interval_s))
        self.span = f"[{math.ceil(window.end_s - window.begin_s)}s:{step_s}s] @ {window.end_s:.3f}"
        self.step = f"[{1000 * step_s - 1}ms]"  # without the end of the step before: its last sample would come again

    def query(self, now_s: float) -> str:
        return f"last_over_time({{{self._matchers}}}{self.step}){self.span}"

    def scores(self, machine: str) -> list[tuple[float, float]]:
        """Times and scores (1 is the threshold) as the controller exported them; empty where this Prometheus does not scrape it."""
        found = self._ask(f"max by (machine) (last_over_time({_SCORE}{{machine={json.dumps(machine)}}}{self.step})){self.span}")
        try:
            return [(float(time_s), float(value)) for item in found for time_s, value in item["values"]]
        except (KeyError, TypeError, ValueError) as error:
            raise SourceError(f"Prometheus answered a series without values ({type(error).__name__})") from error


def read_prometheus(
    options: PrometheusOptions, identity: MachineMap, mapping: MetricMapping, window: PastWindow
) -> tuple[TelemetryExcerpt, list[tuple[float, float]]]:
    """The window and the scores in it. Raises SourceError, IdentityError; SourceError too where the job is too large to be asked whole."""
    if identity.joins or identity.machines:  # no label picks a machine's series
        if len(window.machines) > _MOST_UNNARROWED:
            raise SourceError(
                f"the series of {len(window.machines)} machines are found by telemetry.join or machine_map, too many to ask for at once: "
                "name the machine by a label (telemetry.machine_label)"
            )
        narrowed = options
    else:
        names = "|".join(re.escape(name) for name in window.group)
        matcher = f"{identity.labels[0]}=~{json.dumps(f'(?:{names})(?:[.].*)?(?::[0-9]+)?')}"
        narrowed = replace(options, selector=", ".join(part for part in (options.selector, matcher) if part))
        if len(identity.labels) > 1 and len(window.machines) <= _MOST_UNNARROWED:
            narrowed = options
    source = _PastSource(replace(narrowed, timeout_s=20.0), replace(identity, known=window.group), mapping, window)
    try:
        samples = source.collect(window.end_s)
        return _excerpt(window, options.interval_s, samples), source.scores(window.machine)
    finally:
        source.close()


def read_recorded(folder: Path, interval_s: float, window: PastWindow) -> TelemetryExcerpt:
    """The window out of a recording, one that is being written too. Raises RecordingError."""
    paths = table_paths(folder, "telemetry")
    if not paths:
        raise RecordingError(f"{folder} holds no telemetry yet")
    try:
        plan = pl.concat([pl.scan_parquet(path) for path in paths], how="diagonal_relaxed")
        inside = pl.col("timestamp").dt.epoch("ms").is_between(round(window.begin_s * 1000), round(window.end_s * 1000))
        table = plan.filter(pl.col("machine").is_in(list(window.group)) & inside).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise RecordingError(f"{folder} cannot be read: {(str(error).splitlines() or ['no reason given'])[0]}") from error
    known = [name for name in table.columns if find_metric(name) is not None]
    times = table["timestamp"].dt.epoch("ms").to_list()
    rows = zip(times, table["machine"].to_list(), table.select(known).rows(), strict=True)
    samples = (
        Sample(time_ms / 1000.0, machine, {name: value for name, value in zip(known, values, strict=True) if value is not None})
        for time_ms, machine, values in rows
    )
    return _excerpt(window, interval_s, samples)


def _excerpt(window: PastWindow, interval_s: float, samples: Iterable[Sample]) -> TelemetryExcerpt:
    """Means by bucket, metric and machine (over its devices), and of the peers the lowest, the median and the highest."""
    group, bucket_s = window.group, window.bucket_s(interval_s)
    count = max(1, math.ceil((window.end_s - window.begin_s) / bucket_s))
    place = {name: index for index, name in enumerate(group)}
    sums: dict[str, np.ndarray] = {}
    for sample in samples:
        at, machine = int((sample.time_s - window.begin_s) // bucket_s), place.get(sample.machine)
        if machine is None or not 0 <= at < count + 1:
            continue
        for metric, value in sample.values.items():
            if math.isfinite(value):
                cells = sums.setdefault(metric, np.zeros((2, count, len(group))))
                cells[:, min(at, count - 1), machine] += (value, 1.0)
    times = tuple(round(window.begin_s + (index + 0.5) * bucket_s, 3) for index in range(count))
    panels = {metric: _panel(cells) for metric, cells in sorted(sums.items())}
    shown = {metric: panel for metric, panel in panels.items() if any(value is not None for value in panel.line)}
    order = sorted(shown, key=lambda metric: -_distance(shown[metric]))
    return TelemetryExcerpt(window.machine, math.inf, math.inf, len(group) - 1, times, {metric: shown[metric] for metric in order})


def _panel(cells: np.ndarray) -> ExcerptPanel:
    values_BM = np.where(cells[1] > 0, cells[0] / np.maximum(cells[1], 1.0), np.nan)
    peers_BM = values_BM[:, 1:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a bucket without any data
        band = [
            part(peers_BM, axis=1) if peers_BM.shape[1] else np.full(len(values_BM), np.nan)
            for part in (np.nanmin, np.nanmedian, np.nanmax)
        ]
    low, middle, high = map(_plain, band)
    return ExcerptPanel(low, middle, high, _plain(values_BM[:, 0]))


def _plain(values: Sequence[float] | np.ndarray) -> tuple[float | None, ...]:
    return tuple(float(f"{value:.5g}") if math.isfinite(value) else None for value in np.asarray(values, dtype=float).tolist())


def _distance(panel: ExcerptPanel) -> float:
    """How far the machine is from its peers' median on average, by the width of their band."""
    found = [
        abs(own - middle) / max(high - low, 1e-3 * abs(middle), 1e-9)
        for own, low, middle, high in zip(panel.line, panel.low, panel.middle, panel.high, strict=True)
        if own is not None and low is not None and middle is not None and high is not None
    ]
    return sum(found) / len(found) if found else 0.0
