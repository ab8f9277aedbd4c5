"""`minder report`: the reliability of a period as one HTML file that opens offline (docs/reliability.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def command(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.", show_default=False)],
    since: Annotated[str, typer.Option(help="How far back: 12h, 7d.")] = "7d",
    until: Annotated[str, typer.Option(help="now, newest (the ledger's newest event), or a time like 2026-03-02T06:00:00Z.")] = "now",
    job: Annotated[str | None, typer.Option(help="Only this job's.")] = None,
    ledger: Annotated[str | None, typer.Option(help="Ledger file or URL. [default: $MINDER_LEDGER or the state folder's]")] = None,
) -> None:
    """ETTR, lost time, incidents with their evidence, repeat offenders, false evictions and standby advice, out of the ledger.

    Example: minder report --since 7d --out report.html
    """
    from minder.cli.remote import open_ledger
    from minder.offline.reliability.account import ACCOUNT_KINDS
    from minder.offline.reliability.page import write_report
    from minder.offline.reliability.reading import account_events
    from minder.record.incidents.spans import parse_span

    length_s = parse_span(since, "--since")
    with open_ledger(ledger) as opened:
        events = opened.events(kinds=ACCOUNT_KINDS)
    account = account_events(events, length_s, until, job)
    write_report(account, out)
    typer.echo(f"{out}: jobs: {len(account.jobs)}, incidents: {len(account.incidents)}")
