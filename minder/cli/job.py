"""`minder job`: have a service watch jobs that somebody else runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app", "end", "list_jobs", "register"]

app = typer.Typer(help="Jobs that a service watches: register, list, end. Needs --server.", no_args_is_help=True)


@app.command("register")
def register(
    job: Annotated[Path, typer.Argument(help="job.toml: its name and its machines' agents.")],
    reason: Annotated[str, typer.Option(help="Why; it stands in the audit trail.", show_default=False)] = "",
) -> None:
    """Have the service watch a job. It is in dry run unless the service's own settings say otherwise.

    Example: minder --server https://minder.example.org job register job.toml --reason "new run"
    """
    from minder.cli.remote import demand_note, open_client
    from minder.errors import BadInputError

    said = demand_note(reason, "--reason")
    try:
        content = job.read_bytes()
    except OSError as error:
        raise BadInputError(f"{job}: {error.strerror}") from error
    with open_client() as client:
        typer.echo(client.register_job(content, said).detail)


@app.command("list")
def list_jobs(
    format_: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
) -> None:
    """Every job that the service knows, and which it watches.

    Example: minder --server https://minder.example.org job list
    """
    import json

    from minder.cli.remote import open_client
    from minder.cli.tables import check_choice, print_table

    check_choice("--format", format_, ("table", "json"))
    with open_client() as client:
        found = list(client.jobs())
    if format_ == "json":
        typer.echo(json.dumps([item.model_dump(mode="json") for item in found], indent=1))
        return
    if not found:
        typer.echo("no job is known")
        return
    rows = [("job", "phase", "machines", "watched by", "open incidents")]
    for item in found:
        by = "the service" if item.watched else "its controller"
        rows.append((item.name, item.phase, str(len(item.machines)), by, ", ".join(item.open_incidents) or "-"))
    print_table(rows)


@app.command("end")
def end(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    reason: Annotated[str, typer.Option(help="Why; it stands in the audit trail.", show_default=False)] = "",
) -> None:
    """Watch a registered job no longer. The job is not touched, its incidents stay.

    Example: minder --server https://minder.example.org job end llm-70b --reason "the run is over"
    """
    from minder.cli.remote import demand_note, open_client

    said = demand_note(reason, "--reason")
    with open_client() as client:
        typer.echo(client.end_job(name, said).detail)
