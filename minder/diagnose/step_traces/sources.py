"""Where a trace comes from: one parquet file of the public schema, or a folder with what each rank's tracer wrote.

A folder holds `*.jsonl` files of `minder.trace_step` (one row of the schema a line), or `*.json` and `*.json.gz` of torch.profiler.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minder.diagnose.step_traces.kineto import read_kineto
from minder.diagnose.step_traces.meta import JobLayout
from minder.diagnose.step_traces.schema import COLUMNS
from minder.diagnose.step_traces.trace import StepTrace, build_trace, read_trace
from minder.model.errors import TraceError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["merge_folder", "read_source"]

Row = dict[str, Any]
_TIMES = ("start_ts", "duration")


def read_source(path: Path, layout: JobLayout) -> StepTrace:
    """Raises TraceError."""
    if path.is_dir():
        return build_trace(merge_folder(path), layout, str(path))
    return read_trace(path, layout)


def merge_folder(folder: Path) -> pl.DataFrame:
    """All ranks' rows in the public schema: one rank of each worker, steps that all of them traced whole. Raises TraceError.

    The frame's `write_parquet` gives a file that any reader of the schema takes.
    """
    rows = [row for path in sorted(folder.iterdir()) for row in _rows(path)]
    if not rows:
        raise TraceError(f"folder {folder} has no rows of a step trace: minder.trace_step writes *.jsonl, torch.profiler *.json")
    kept = _one_rank_each(rows)
    return _frame(_numbered(_whole_steps(kept)))


def _rows(path: Path) -> Iterator[Row]:
    if path.name.endswith((".json", ".json.gz")):
        yield from read_kineto(path)
    elif path.suffix == ".jsonl":
        yield from _traced_rows(path)


def _traced_rows(path: Path) -> Iterator[Row]:
    """A last line that was cut off belongs to a rank that died: it is left out, the rest counts."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            cell = {
                name: (float if name in _TIMES else str if name == "optype" else int)(row[name]) for name in COLUMNS if name != "seq_id"
            }
        except (ValueError, TypeError, KeyError) as error:
            if number == len(lines):
                return
            raise TraceError(f"{path} line {number} is no row of a step trace ({error}): remove the line") from error
        yield cell


def _one_rank_each(rows: list[Row]) -> list[Row]:
    """Tensor-parallel ranks of one worker do the same: the lowest of them stands for all."""
    lowest: dict[tuple[int, int], int] = {}
    for row in rows:
        worker = (row["dp_rank"], row["stage"])
        lowest[worker] = min(lowest.get(worker, row["rank"]), row["rank"])
    return [row for row in rows if row["rank"] == lowest[row["dp_rank"], row["stage"]]]


def _whole_steps(rows: list[Row]) -> list[Row]:
    """Only steps that every worker has: the last one is often cut off, and a restarted rank may have missed some."""
    workers_of: dict[int, set[tuple[int, int]]] = {}
    for row in rows:
        workers_of.setdefault(row["step"], set()).add((row["dp_rank"], row["stage"]))
    everybody = set().union(*workers_of.values())
    whole = {step for step, workers in workers_of.items() if workers == everybody}
    if not whole:
        raise TraceError("no step was traced by every worker: trace the same steps on all ranks (the same sample everywhere)")
    return [row for row in rows if row["step"] in whole]


def _numbered(rows: list[Row]) -> list[Row]:
    """Add seq_id: the place among the operations of one kind on one worker in one step, by start."""
    count: dict[tuple[int, int, int, str], int] = {}
    ordered = sorted(rows, key=lambda row: row["start_ts"])
    for row in ordered:
        place = (row["dp_rank"], row["stage"], row["step"], row["optype"])
        row["seq_id"] = count.get(place, 0)
        count[place] = row["seq_id"] + 1
    return ordered


def _frame(rows: list[Row]) -> pl.DataFrame:
    """Starts count from the first start of their step, as in the public traces: so they fit 32 bits, too."""
    import polars as pl

    frame = pl.DataFrame(rows).select(COLUMNS)
    since = pl.col("start_ts") - pl.col("start_ts").min().over("step")
    counted = pl.col("optype").str.ends_with("-compute") & (pl.col("gmc") < 0)  # the usual order: chunk by chunk over the stages
    model_chunk = pl.when(counted).then(pl.col("mc") * (pl.col("stage").max() + 1) + pl.col("stage")).otherwise(pl.col("gmc")).alias("gmc")
    return frame.with_columns(since, model_chunk, pl.col("optype").cast(pl.Categorical)).sort("step", "dp_rank", "stage", "start_ts")
