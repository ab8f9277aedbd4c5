"""telemetry.parquet (docs/recordings.md) as columns: read, checked, ready for `windows.align_recording`.

Shape legend: N rows, K metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from minder.ingest.sources.blank import BLANK_FLOOR, BLANK_RANGES
from minder.model.errors import RecordingError
from minder.model.metrics import CATALOGUE, Metric, find_metric

__all__ = ["Frames", "load_frames", "no_frames", "why_impossible"]

_log = logging.getLogger(__name__)
_FIXED = ("timestamp", "machine", "device")
_ROUNDING = 1e-6  # a ratio of 1 in 32 bits may read as a little more
_TOLERATED_SHARE = 0.01  # of a metric's values outside its range


@dataclass(frozen=True, slots=True)
class Frames:
    """Samples as columns, sorted by time. machine_N indexes `machines`, device_N `devices` (-1: the whole machine);
    values_NK is NaN where there is no data; times in unix seconds."""

    times_N: np.ndarray
    machine_N: np.ndarray
    device_N: np.ndarray
    values_NK: np.ndarray
    machines: tuple[str, ...]
    devices: tuple[str, ...]
    metrics: tuple[str, ...]

    def until(self, time_s: float) -> Frames:
        """The samples at or before a time: a recording cut there."""
        count = int(np.searchsorted(self.times_N, time_s, side="right"))
        cut = slice(0, count)
        return Frames(
            self.times_N[cut], self.machine_N[cut], self.device_N[cut], self.values_NK[cut], self.machines, self.devices, self.metrics
        )


def no_frames(machines: Sequence[str]) -> Frames:
    """What a recording without telemetry.parquet has: no data."""
    none = np.zeros(0, dtype=np.int64)
    return Frames(np.zeros(0), none, none, np.zeros((0, 0), dtype=np.float64), tuple(machines), (), ())


def load_frames(paths: Sequence[Path], machines: Sequence[str]) -> Frames:
    """Read and check telemetry files for these machines; rows of other machines are left out with one warning.

    Raises RecordingError for a missing column, a wrong type, no row of a known machine, or a metric with more than 1 % of
    its values outside the catalogue's range (fewer become gaps, with one warning).
    """
    where = str(paths[0]) if len(paths) == 1 else f"{paths[0].parent}/"
    table = pl.concat([_read(path) for path in paths], how="diagonal_relaxed")
    metrics = _check_columns(table, where)
    table = table.with_row_index("row")
    table = _keep_machines(table, tuple(machines), where).sort("time_ms", maintain_order=True)
    values_NK = np.empty((table.height, len(metrics)), dtype=np.float64)
    for k, metric in enumerate(metrics):
        values_NK[:, k] = _checked_values(table, metric, where)
    devices: tuple[str, ...] = ()
    device_N = np.full(table.height, -1, dtype=np.int64)
    if "device" in table.columns:
        devices = tuple(sorted(table["device"].drop_nulls().unique().to_list()))
        device_N = _index(table["device"], devices)
    return Frames(
        times_N=table["time_ms"].to_numpy().astype(np.float64) / 1000.0,
        machine_N=_index(table["machine"], tuple(machines)),
        device_N=device_N,
        values_NK=values_NK,
        machines=tuple(machines),
        devices=devices,
        metrics=tuple(metric.name for metric in metrics),
    )


def _read(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:  # a damaged page can make the reader panic
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise RecordingError(f"{path} is no readable parquet file ({reason}): write it again") from error


def _check_columns(table: pl.DataFrame, where: str) -> list[Metric]:
    """The known metrics of a table, in its order of columns."""
    for name in ("timestamp", "machine"):
        if name not in table.columns:
            raise RecordingError(f'{where} has no column "{name}": docs/recordings.md says what it holds')
    if not isinstance(table.schema["timestamp"], pl.Datetime):
        raise RecordingError(f"{where}: column timestamp is {table.schema['timestamp']}: make it a datetime in UTC")
    for name in ("machine", "device"):
        if name in table.columns and table.schema[name] not in (pl.String, pl.Categorical, pl.Null):
            raise RecordingError(f"{where}: column {name} is {table.schema[name]}: make it a string")
    unknown = [name for name in table.columns if name not in _FIXED and find_metric(name) is None]
    if unknown:
        _log.warning("%s: unknown columns ignored: %s", where, ", ".join(unknown))
    metrics = [metric for name in table.columns if (metric := find_metric(name)) is not None]
    for metric in metrics:
        kind = table.schema[metric.name]
        if not (kind.is_numeric() or kind == pl.Null):
            raise RecordingError(f"{where}: column {metric.name} is {kind}: make it a float in {metric.unit}")
    if not metrics:
        _log.warning("%s has no column of the catalogue (such as %s): no data", where, CATALOGUE[0].name)
    return metrics


def _keep_machines(table: pl.DataFrame, machines: tuple[str, ...], where: str) -> pl.DataFrame:
    table = table.with_columns(
        pl.col("machine").cast(pl.String), pl.col("timestamp").dt.cast_time_unit("ms").dt.epoch("ms").alias("time_ms")
    )
    if "device" in table.columns:
        table = table.with_columns(pl.col("device").cast(pl.String))
    if table["time_ms"].null_count():
        row = table.filter(pl.col("time_ms").is_null())["row"][0]
        raise RecordingError(f"{where}: row {row + 1} has no timestamp: remove or mend it")
    kept = table.filter(pl.col("machine").is_in(list(machines)))
    strangers = sorted(set(table["machine"].unique().to_list()) - set(machines) - {None})
    if not kept.height:
        found = f"it names {', '.join(strangers[:3])}" if strangers else "its column machine is empty"
        raise RecordingError(f"{where} has no row of a machine of job.toml; {found}: mend the names")
    if strangers or kept.height < table.height - table.filter(pl.col("machine").is_in(strangers)).height:
        names = ", ".join(strangers[:3]) or "no name"
        _log.warning("%s: rows of machines that job.toml does not name are ignored (%s)", where, names)
    return kept


def _index(column: pl.Series, names: tuple[str, ...]) -> np.ndarray:
    """Position of each value in `names`, -1 for null."""
    if not names:
        return np.full(len(column), -1, dtype=np.int64)
    codes = column.replace_strict(list(names), list(range(len(names))), default=-1, return_dtype=pl.Int64)
    return codes.fill_null(-1).to_numpy()


def _checked_values(table: pl.DataFrame, metric: Metric, where: str) -> np.ndarray:
    """One metric's values; blanks and the odd impossible value are NaN."""
    values_N = table[metric.name].cast(pl.Float64, strict=False).to_numpy().copy()
    blank_N = np.abs(values_N) >= BLANK_FLOOR
    for low, high in BLANK_RANGES:
        blank_N |= (values_N >= low) & (values_N <= high)
    values_N[blank_N] = np.nan
    known = int(np.count_nonzero(~np.isnan(values_N)))
    low, high = (bound + sign * _ROUNDING * max(1.0, abs(bound)) for sign, bound in ((-1, metric.low), (1, metric.high)))
    outside_N = (values_N < low) | (values_N > high)
    outside = int(np.count_nonzero(outside_N))
    if not outside:
        return values_N
    at = int(np.argmax(outside_N))
    row = int(table["row"][at]) + 1
    if outside > _TOLERATED_SHARE * known:
        raise RecordingError(f"{where}: {metric.name} is {values_N[at]:g} in row {row}: {_advice(metric, float(values_N[at]))}")
    _log.warning("%s: %d values of %s lie outside its range (first in row %d) and count as gaps", where, outside, metric.name, row)
    values_N[outside_N] = np.nan
    return values_N


def why_impossible(name: str, value: float) -> str | None:
    """What to mend where a metric of the catalogue cannot have this value; None where it can, where it is a driver's word for "no value",
    and for a name that is not in the catalogue.

    >>> why_impossible("gpu_power_draw_watts", -500.0), why_impossible("gpu_power_draw_watts", 500.0)
    ('it runs from 0 to 5000 W; mend its unit', None)
    """
    metric = find_metric(name)
    blank = abs(value) >= BLANK_FLOOR or any(low <= value <= high for low, high in BLANK_RANGES)
    if metric is None or blank:
        return None
    low, high = (bound + sign * _ROUNDING * max(1.0, abs(bound)) for sign, bound in ((-1, metric.low), (1, metric.high)))
    return None if low <= value <= high else _advice(metric, value)


def _advice(metric: Metric, value: float) -> str:
    if metric.unit == "ratio":
        return "ratios run from 0 to 1; " + ("divide by 100" if 1.0 < value <= 100.0 else "mend the export")
    return f"it runs from {metric.low:g} to {metric.high:g} {metric.unit}; mend its unit"
