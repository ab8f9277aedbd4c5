"""A table of telemetry in memory through the online pipeline: what a registered model answers (models/scorer.py).

The table's rows are one job in one pipeline stage, since a table names none; a recording's job.toml does.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from minder.diagnose.load_detector import load_detector
from minder.model.errors import BadInputError

__all__ = ["COLUMNS", "judge_table"]

COLUMNS = ("time", "kind", "tier", "machines", "cause", "confidence")


def judge_table(table: Any, detector: str = "default", interval_s: float = 0.0) -> list[dict[str, Any]]:
    """Verdicts of a pandas table of (timestamp, machine[, device], metrics), as rows of COLUMNS; machines joined by commas.

    Raises BadInputError for a table that is no telemetry.
    """
    import polars as pl

    from minder.offline.evaluation.lines import verdict_line
    from minder.offline.evaluation.replay import replay

    try:
        frame = pl.DataFrame({str(name): table[name].to_list() for name in table.columns})
        machines = sorted(frame["machine"].unique().drop_nulls().to_list())
    except (pl.exceptions.PolarsError, TypeError) as error:
        raise BadInputError(f"this is no table of telemetry ({error}): give columns timestamp, machine and metrics") from error
    if not machines:
        raise BadInputError("the table names no machine: give columns timestamp, machine and metrics")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "table"
        folder.mkdir()
        interval = f"sample_interval_seconds = {interval_s}\n" if interval_s > 0 else ""
        layout = f"[parallelism]\ntensor = 1\npipeline = 1\ndata = {len(machines)}\n"
        (folder / "job.toml").write_text(f'name = "table"\nmachines = {json.dumps(machines)}\ngpus_per_machine = 1\n{interval}{layout}')
        frame.write_parquet(folder / "telemetry.parquet")
        lines = [verdict_line("table", verdict) for verdict in replay(folder, None, load_detector(str(detector)))]
    return [{name: ",".join(line[name]) if name == "machines" else line[name] for name in COLUMNS} for line in lines]
