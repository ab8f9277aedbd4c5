"""`minder evaluate`: a detector over labelled recordings, as a report (docs/training.md)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from minder.model.errors import BadInputError

_FORMATS = ("table", "json")


def command(
    recordings: Annotated[list[Path], typer.Argument(help="Recording folders, or folders of recordings.", show_default=False)],
    truth: Annotated[Path | None, typer.Option(help="truth.json; else the one inside or beside each recording.")] = None,
    detector: Annotated[str, typer.Option(help="A detector's name, or a model's URI, like models:/minder-detector@champion.")] = "default",
    out: Annotated[Path | None, typer.Option(help="Also write report.json, report.html and figures to this folder.")] = None,
    output: Annotated[str, typer.Option("--format", help="table: for reading; json: the whole report, one document.")] = "table",
    jobs: Annotated[int, typer.Option(help="Processes to evaluate with.", min=1)] = 1,
) -> int:
    """Replay labelled recordings and report how often, how soon and how surely the faulty machine was named.

    Example: minder evaluate recordings/ --out report/
    """
    if output not in _FORMATS:
        raise BadInputError(f'--format is "{output}": use {" or ".join(_FORMATS)}')
    from minder.offline.evaluation.evaluate import evaluate
    from minder.offline.evaluation.report import build_report, evaluation_table

    found = evaluate(recordings, detector, truth, jobs, _progress if sys.stderr.isatty() else lambda done, of: None)
    report = build_report(found)
    if out is not None:
        from minder.offline.evaluation.page import write_report

        write_report(report, out)
    if output == "json":
        print(json.dumps(report))
    elif found.cases:
        print(evaluation_table(report))
    for line in found.problems:
        print(f"minder: {' '.join(line.split())}", file=sys.stderr)
    return 2 if found.problems or not found.cases else 0


def _progress(done: int, of: int) -> None:
    sys.stderr.write(f"\r{done} of {of} recordings{chr(10) if done == of else ''}")
    sys.stderr.flush()
