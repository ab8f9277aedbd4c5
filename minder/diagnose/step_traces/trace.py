"""A step trace as dense arrays: one cell for every operation, step and data-parallel rank.

Shape legend: N operations of one pipeline (all stages), T traced steps, D data-parallel ranks, P pipeline stages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from minder.diagnose.step_traces.meta import JobLayout
from minder.diagnose.step_traces.schema import ALIASES, COLUMNS, KINDS
from minder.model.errors import TraceError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Operation", "StepTrace", "build_trace", "read_trace"]

_WHOLE = ("dp_rank", "stage", "rank", "step", "seq_id", "mc", "mb_id", "gmc")


class Operation(NamedTuple):
    """One operation of one pipeline; it recurs in every step and on every data-parallel rank."""

    stage: int
    kind: str
    seq: int
    chunk: int  # model chunk within the stage (mc), -1 for transfers between stages
    microbatch: int  # -1 where it has no meaning
    model_chunk: int  # model chunk within the whole model (gmc), -1 for transfers between stages

    def __str__(self) -> str:
        return f"{self.kind} {self.seq} of stage {self.stage}"


@dataclass(frozen=True, slots=True)
class StepTrace:
    """start_NTD: seconds since the step's first start; duration_NTD: seconds, waiting for peers included; rank_PD: global ranks.

    ignored: operation types that the schema does not know, left out; cut_off: a last step that is not whole, left out.
    """

    layout: JobLayout
    operations: tuple[Operation, ...]
    steps: tuple[int, ...]
    start_NTD: np.ndarray
    duration_NTD: np.ndarray
    rank_PD: np.ndarray
    ignored: tuple[str, ...] = ()
    cut_off: int | None = None


def read_trace(path: Path, layout: JobLayout) -> StepTrace:
    """Read one parquet file. Raises TraceError."""
    import polars as pl

    try:
        names = pl.read_parquet_schema(path)
        _require_columns(path, list(names))
        frame = pl.read_parquet(path, columns=list(COLUMNS))
    except OSError as error:
        raise TraceError(f"trace {path} cannot be read: {error.strerror or error}: give the path of a parquet file") from error
    except pl.exceptions.PolarsError as error:
        raise TraceError(f"trace {path} is no readable parquet file (cut off?): copy it again") from error
    return build_trace(frame, layout, str(path))


def build_trace(frame: pl.DataFrame, layout: JobLayout, name: str) -> StepTrace:
    """Dense arrays from rows of the public schema, in any order. Raises TraceError, naming the first row or cell that is wrong."""
    _require_columns(name, frame.columns)
    _require_types(frame, name)
    frame, ignored = _known_kinds(frame, name)
    frame, cut_off = _without_cut_step(frame)
    columns = {column: frame[column].to_numpy().astype(np.int64) for column in _WHOLE}
    columns["kind"] = frame["kind"].to_numpy()
    start_R = frame["start_ts"].to_numpy().astype(np.float64)
    duration_R = frame["duration"].to_numpy().astype(np.float64)
    _require_times(columns, start_R, duration_R, name)
    _require_layout(columns, layout, name)
    return replace(_dense(columns, start_R, duration_R, (layout, name)), ignored=ignored, cut_off=cut_off)


def _require_columns(name: object, found: list[str]) -> None:
    missing = [column for column in COLUMNS if column not in found]
    if missing:
        raise TraceError(f"trace {name} lacks the column{'s' * (len(missing) > 1)} {', '.join(missing)}: the schema needs all eleven")


def _require_types(frame: pl.DataFrame, name: str) -> None:
    if frame.height == 0:
        raise TraceError(f"trace {name} has no rows: nothing was traced")
    for column in (*_WHOLE, "start_ts", "duration"):
        values = frame[column]
        if not (values.dtype.is_integer() or (values.dtype.is_float() and column not in _WHOLE)):
            wanted = "whole numbers" if column in _WHOLE else "seconds"
            raise TraceError(f"trace {name}: column {column} holds {values.dtype}, it should hold {wanted}")
    for column in COLUMNS:
        if frame[column].null_count():
            row = int(frame[column].is_null().arg_max() or 0)
            raise TraceError(f"trace {name}: row {row} has no {column}: every row needs all eleven columns")


def _known_kinds(frame: pl.DataFrame, name: str) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Add `kind`, the index into KINDS; rows of unknown operation types are left out."""
    import polars as pl

    present = frame["optype"].unique().cast(pl.String).to_list()
    places = {word: KINDS.index(ALIASES.get(word, word)) for word in present if ALIASES.get(word, word) in KINDS}
    ignored = tuple(sorted(set(present) - set(places)))
    kind = frame["optype"].cast(pl.String).replace_strict(places, default=None, return_dtype=pl.Int64).alias("kind")
    frame = frame.with_columns(kind)
    if ignored:
        frame = frame.filter(pl.col("kind").is_not_null())
    for needed in ("forward-compute", "backward-compute"):
        if needed not in places:
            raise TraceError(f"trace {name} has no {needed} rows: optype should be {', '.join(KINDS[:3])} and so on")
    return frame, ignored


def _without_cut_step(frame: pl.DataFrame) -> tuple[pl.DataFrame, int | None]:
    """A trace that ended in the middle of a step has fewer rows of its last one than of any other: that step is left out. Rows that
    are missing elsewhere were lost, and nothing says what else was."""
    import polars as pl

    count_T = frame.group_by("step").len().sort("step")
    if count_T.height < 2 or count_T["len"][-1] >= count_T["len"][:-1].min():
        return frame, None
    last = int(count_T["step"][-1])
    return frame.filter(pl.col("step") != last), last


def _require_times(columns: dict[str, np.ndarray], start_R: np.ndarray, duration_R: np.ndarray, name: str) -> None:
    for column, values_R, bad_R in (
        ("start_ts", start_R, ~np.isfinite(start_R)),
        ("duration", duration_R, ~(np.isfinite(duration_R) & (duration_R >= 0))),
    ):
        if bad_R.any():
            row = int(np.argmax(bad_R))
            raise TraceError(
                f"trace {name}: {column} is {values_R[row]:g} s in {_place(columns, row)} ({int(bad_R.sum())} such rows):"
                " trace the step again"
            )


def _place(columns: dict[str, np.ndarray], row: int) -> str:
    cell = {name: int(values[row]) for name, values in columns.items()}
    return f"{KINDS[cell['kind']]} {cell['seq_id']} of dp_rank {cell['dp_rank']}, stage {cell['stage']}, step {cell['step']}"


def _require_layout(columns: dict[str, np.ndarray], layout: JobLayout, name: str) -> None:
    for column, size_name, size in (("dp_rank", "dp_size", layout.dp_size), ("stage", "pp_size", layout.pp_size)):
        low, high = int(columns[column].min()), int(columns[column].max())
        if low < 0 or high != size - 1:
            raise TraceError(
                f"trace {name}: {column} runs from {low} to {high}, but the job file says {size_name} {size}: correct one of them"
            )
    compute_R = columns["kind"] <= KINDS.index("backward-compute")
    chunks = int(columns["mc"][compute_R].max()) + 1
    if chunks != layout.vpp_size:
        raise TraceError(
            f"trace {name}: {chunks} model chunks a stage (mc), but the job file says vpp_size {layout.vpp_size}: correct one of them"
        )


def _dense(columns: dict[str, np.ndarray], start_R: np.ndarray, duration_R: np.ndarray, about: tuple[JobLayout, str]) -> StepTrace:
    layout, name = about
    seq_R = columns["seq_id"] - columns["seq_id"].min()
    key_R = (columns["stage"] * len(KINDS) + columns["kind"]) * (int(seq_R.max()) + 1) + seq_R
    _, first_N, op_R = np.unique(key_R, return_index=True, return_inverse=True)
    steps_T, step_R = np.unique(columns["step"], return_inverse=True)
    shape = (len(first_N), len(steps_T), layout.dp_size)
    cell_R = (op_R * shape[1] + step_R) * shape[2] + columns["dp_rank"]
    _require_cells(columns, cell_R, (first_N, steps_T), (shape, name))
    operations = tuple(_operation(columns, int(row)) for row in first_N)
    for column in ("mc", "mb_id", "gmc"):
        _require_same(columns, column, columns[column][first_N][op_R], name)
    start_NTD, duration_NTD = np.empty(shape), np.empty(shape)
    start_NTD.flat[cell_R] = start_R
    duration_NTD.flat[cell_R] = duration_R
    start_NTD -= start_NTD.min(axis=(0, 2), keepdims=True)
    rank_PD = np.full((layout.pp_size, layout.dp_size), -1)
    rank_PD[columns["stage"], columns["dp_rank"]] = columns["rank"]
    return StepTrace(layout, operations, tuple(int(step) for step in steps_T), start_NTD, duration_NTD, rank_PD)


def _operation(columns: dict[str, np.ndarray], row: int) -> Operation:
    cell = {name: int(values[row]) for name, values in columns.items()}
    return Operation(cell["stage"], KINDS[cell["kind"]], cell["seq_id"], cell["mc"], cell["mb_id"], cell["gmc"])


def _require_cells(
    columns: dict[str, np.ndarray], cell_R: np.ndarray, rows: tuple[np.ndarray, np.ndarray], about: tuple[tuple[int, int, int], str]
) -> None:
    """Every operation once in every step on every data-parallel rank."""
    (first_N, steps_T), (shape, name) = rows, about
    if int(np.prod(shape)) > 4 * len(cell_R):
        raise TraceError(
            f"trace {name}: {shape[0]} different operations in {len(cell_R)} rows: seq_id should restart at 0 in every step of every worker"
        )
    count = np.bincount(cell_R, minlength=int(np.prod(shape)))
    if count.max() > 1:
        row = int(np.argmax(cell_R == np.argmax(count)))
        raise TraceError(
            f"trace {name}: {_place(columns, row)} is there {count.max()} times: remove duplicate rows,"
            " and keep one rank of each dp_rank and stage"
        )
    if count.min() == 0:
        op, step, dp_rank = np.unravel_index(int(np.argmin(count)), shape)
        operation = _operation(columns, int(first_N[op]))
        raise TraceError(
            f"trace {name}: {operation} is missing on dp_rank {dp_rank} in step {steps_T[step]} ({int((count == 0).sum())} cells are):"
            " leave incomplete steps out"
        )


def _require_same(columns: dict[str, np.ndarray], column: str, expected_R: np.ndarray, name: str) -> None:
    compute_R = columns["kind"] <= KINDS.index("backward-compute")
    differs_R = compute_R & (columns[column] != expected_R)
    if differs_R.any():
        row = int(np.argmax(differs_R))
        raise TraceError(
            f"trace {name}: {column} is {columns[column][row]} in {_place(columns, row)}, elsewhere {expected_R[row]}: order by start_ts"
        )
