"""`minder incidents`: what happened, out of the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minder.cli.options import LedgerOption, TableFormat

__all__ = ["app", "bundle", "list_incidents", "show", "stats"]

app = typer.Typer(help="What happened: list incidents, show one, what they cost.", no_args_is_help=True)


@app.command("list")
def list_incidents(
    job: Annotated[str | None, typer.Option(help="Only this job's.")] = None,
    since: Annotated[str, typer.Option(help="How far back: 12h, 7d.")] = "7d",
    state: Annotated[str | None, typer.Option(help="open or closed.")] = None,
    format_: TableFormat = "table",
    ledger: LedgerOption = None,
) -> None:
    """Incidents, newest first.

    Example: minder incidents list --since 7d
    """
    import json
    import time

    from minder.cli.remote import open_ledger
    from minder.cli.tables import check_choice, print_table
    from minder.record.incidents.report import incident_json, incident_rows
    from minder.record.incidents.spans import parse_span

    check_choice("--format", format_, ("table", "json"))
    if state is not None:
        check_choice("--state", state, ("open", "closed"))
    since_s = time.time() - parse_span(since, "--since")
    with open_ledger(ledger) as opened:
        found = opened.incidents(job=job, since_s=since_s, state=state)
    if format_ == "json":
        newest_first = sorted(found, key=lambda incident: incident.opened_s, reverse=True)
        typer.echo(json.dumps([incident_json(incident) for incident in newest_first], indent=1))
    elif found:
        print_table(incident_rows(found))
    else:
        typer.echo(f"no incidents in the last {since}")


@app.command("show")
def show(
    incident: Annotated[str, typer.Argument(help="The incident's id, as `minder incidents list` prints it.")],
    captures: Annotated[bool, typer.Option("--captures", help="Print also what was captured: stacks, sockets, last log lines.")] = False,
    stages: Annotated[bool, typer.Option("--stages", help="Print also what the policy asked before it decided.")] = False,
    format_: TableFormat = "table",
    ledger: LedgerOption = None,
) -> None:
    """One incident: now, in the morning, how to undo it; then who, why, what was done, when.

    Example: minder incidents show llm-70b-1
    """
    import json

    from minder.cli.remote import command_place, open_ledger
    from minder.cli.tables import check_choice
    from minder.record.incidents.report import incident_json, incident_report

    check_choice("--format", format_, ("table", "json"))
    with open_ledger(ledger) as opened:
        found = opened.incident(incident)
        asked = [item for item in opened.approvals(found.job) if incident in item.incidents]
        evidence = opened.captures(incident) if captures else []
    if format_ == "json":
        document = incident_json(found)
        if captures:
            document["captures"] = [dict(event.payload) for event in evidence]
        typer.echo(json.dumps(document, indent=1))
        return
    typer.echo(incident_report(found, stages=stages, approvals=asked, place=command_place(ledger)), nl=False)
    for event in evidence:
        typer.echo(f"\nCaptured: {event.payload.get('what', 'data')} of {event.payload.get('machine', 'the job')}")
        typer.echo(json.dumps(event.payload.get("data"), indent=1))


@app.command("bundle")
def bundle(
    incident: Annotated[str, typer.Argument(help="The incident's id, as `minder incidents list` prints it.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The ZIP file to write.")],
    ledger: LedgerOption = None,
) -> None:
    """Evidence for the vendor: the accused machines only, without the job, other machines, addresses, paths and secrets.

    Example: minder incidents bundle llm-70b-1 -o vendor.zip
    """
    from minder.cli.remote import open_ledger
    from minder.model.errors import BadInputError
    from minder.model.private import open_private
    from minder.offline.plots.excerpt import draw_excerpt
    from minder.record.incidents import Ledger
    from minder.record.incidents.bundle import vendor_bundle

    with open_ledger(ledger) as opened:
        if isinstance(opened, Ledger):
            opened.incident(incident)  # says it where there is none
            events = opened.events(incident=incident)
            job = next((event.job for event in events if event.job), None)
            content = vendor_bundle(events, opened.events(job=job, kinds=["job_registered"]), draw=draw_excerpt)
        else:
            content = opened.vendor_bundle(incident)
    try:
        with open_private(output, "wb") as file:  # last log lines and stacks of a job
            file.write(content)
    except OSError as error:
        raise BadInputError(f"--output {output} cannot be written: {error.strerror}; name a file in a folder that is there") from error
    typer.echo(f"wrote {output}")


@app.command("stats")
def stats(
    job: Annotated[str | None, typer.Option(help="Only this job's.")] = None,
    since: Annotated[str, typer.Option(help="How far back: 12h, 7d.")] = "7d",
    until: Annotated[str, typer.Option(help="now, newest (the ledger's newest event), or a time like 2026-03-02T06:00:00Z.")] = "now",
    format_: TableFormat = "table",
    ledger: LedgerOption = None,
) -> None:
    """ETTR, and where the other time went: by phase, by cause, by incident (docs/reliability.md).

    Example: minder incidents stats --since 7d
    """
    import json

    from minder.cli.remote import open_ledger
    from minder.cli.tables import check_choice, print_table
    from minder.offline.reliability.account import ACCOUNT_KINDS
    from minder.offline.reliability.reading import account_events
    from minder.offline.reliability.tables import account_json, account_text
    from minder.record.incidents.spans import parse_span

    check_choice("--format", format_, ("table", "json"))
    length_s = parse_span(since, "--since")
    with open_ledger(ledger) as opened:
        events = opened.events(kinds=ACCOUNT_KINDS)
    account = account_events(events, length_s, until, job)
    if format_ == "json":
        typer.echo(json.dumps(account_json(account), indent=1))
        return
    if not account.jobs:
        typer.echo(f"nothing is recorded of {'any job' if job is None else f'job {job}'} in this time: that is no data, not health")
        return
    for part in account_text(account):
        if isinstance(part, str):
            typer.echo(part)
        else:
            print_table(part)
