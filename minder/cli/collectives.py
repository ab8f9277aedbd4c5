"""`minder collectives`: Flight Recorder dumps to the ranks that hold a job up (docs/collectives.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from minder.cli.tables import check_choice, print_table
from minder.model.log import say


def command(
    folder: Annotated[Path, typer.Argument(help="A folder with one Flight Recorder dump per rank, pickles or JSON.", show_default=False)],
    output: Annotated[str, typer.Option("--format", help="json: one document; table: for reading.")] = "json",
) -> int:
    """Name the ranks that hold a job up in its collectives, from PyTorch Flight Recorder dumps. Runs nothing that a dump contains.

    Example: minder collectives tests/collectives/data/nccl/lock_gil_1st --format table
    """
    check_choice("--format", output, ("json", "table"))
    from minder.diagnose.flight_recorder.report import as_rows
    from minder.offline.evaluation.collectives import collectives_document

    document = collectives_document(folder)
    if output == "json":
        typer.echo(json.dumps(document))
        return 0
    for rank, reason in document["missing_reasons"].items():
        say(f"minder: rank {rank} is missing: {reason}")
    typer.echo(f"{document['cause']} (confidence {document['confidence']:.2f}): {document['detail']}")
    if document["order"]:
        print_table(as_rows(document))
    for item in document["mismatches"]:
        typer.echo(f"group {item['process_group']}, sequence {item['sequence']}: ranks differ in {item['field']}")
    return 0
