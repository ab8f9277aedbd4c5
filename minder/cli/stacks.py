"""`minder stacks`: who is to blame, by the stacks of a hung job (docs/stacks.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    folder: Annotated[
        Path, typer.Argument(help="Folder of dumps: one file per process, or one sub-folder per capture.", show_default=False)
    ],
    output: Annotated[str, typer.Option("--format", help="json: one document; table: for reading.")] = "json",
) -> None:
    """Group the stack dumps of a job (py-spy, faulthandler, gdb) and name who holds it up. Takes no action.

    Example: minder stacks datasets/stacks/stopped_rank --format table
    """
    import json

    from minder.cli.tables import check_choice, print_table
    from minder.diagnose.stacks import to_document, to_rows
    from minder.offline.evaluation.stacks import find_in_stacks

    check_choice("--format", output, ("json", "table"))
    finding = find_in_stacks(folder)
    if output == "json":
        typer.echo(json.dumps(to_document(finding), indent=1))
        return
    rows, lines = to_rows(finding)
    for line in lines:
        typer.echo(line)
    typer.echo("")
    print_table(rows)
