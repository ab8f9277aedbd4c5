"""`minder stacks`: who is to blame, by the stacks of a hung job (formats.md section 3)."""

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
    from minder.stacks import analyse_captures, find_job_file, place_ranks, read_captures, to_document, to_rows
    from minder.telemetry.jobfile import read_job, read_ranks

    check_choice("--format", output, ("json", "table"))
    captures = read_captures(folder)
    job_file = find_job_file(folder)
    topology, pid_ranks = None, {}
    if job_file is not None:
        job = read_job(job_file)
        places = read_ranks(job_file.with_name("ranks.json"), job)
        topology = job.topology({place.rank: place.machine for place in places})
        pid_ranks = {(place.machine, place.pid): place.rank for place in places if place.pid is not None}
    finding = analyse_captures(place_ranks(captures, topology, pid_ranks), topology)
    if output == "json":
        typer.echo(json.dumps(to_document(finding), indent=1))
        return
    rows, lines = to_rows(finding)
    print_table(rows)
    for line in lines:
        typer.echo(line)
