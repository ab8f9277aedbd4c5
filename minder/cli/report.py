"""`minder report`: a period as one HTML file (docs/reliability.md), and what a dry run would have done (docs/adoption.md)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from minder.act.policy.config import PolicyConfig
    from minder.offline.adoption.report import Adoption, WouldBe
    from minder.record.client.ledger import RemoteLedger
    from minder.record.incidents import Ledger


def command(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file to write. With --adoption: standard output if not given.")
    ] = None,
    since: Annotated[str, typer.Option(help="How far back: 12h, 7d.")] = "7d",
    until: Annotated[str, typer.Option(help="now, newest (the ledger's newest event), or a time like 2026-03-02T06:00:00Z.")] = "now",
    job: Annotated[str | None, typer.Option(help="Only this job's.")] = None,
    adoption: Annotated[
        bool,
        typer.Option("--adoption", help="Instead: whom a dry run would have evicted, on what evidence, and what that would have saved."),
    ] = False,
    yes: Annotated[list[str] | None, typer.Option("--yes", help="With --adoption: this incident's eviction would have been right.")] = None,
    no: Annotated[list[str] | None, typer.Option("--no", help="With --adoption: no fault was found; it would have been wrong.")] = None,
    ask: Annotated[bool, typer.Option("--ask", help="With --adoption: ask yes or no for each that is not answered.")] = False,
    config: Annotated[Path | None, typer.Option(help="With --adoption: a job.toml whose [policy] is tried on the past.")] = None,
    output: Annotated[str, typer.Option("--format", help="With --adoption: text or json.")] = "text",
    ledger: Annotated[str | None, typer.Option(help="Ledger file or URL. [default: $MINDER_LEDGER or the state folder's]")] = None,
) -> None:
    """ETTR, lost time, slow steps, incidents with their evidence, repeat offenders, false evictions and standby advice, out of the ledger.

    With --adoption: what a dry run would have done. A yes or no to each is written to the ledger, and the policy is tried again on it.

    Example: minder report --since 7d --out report.html
    """
    from minder.cli.remote import command_place, open_ledger
    from minder.cli.tables import check_choice
    from minder.model.errors import BadInputError
    from minder.offline.reliability.account import ACCOUNT_KINDS
    from minder.offline.reliability.page import write_report
    from minder.offline.reliability.reading import account_events
    from minder.record.incidents.spans import parse_span

    check_choice("--format", output, ("text", "json"))
    length_s = parse_span(since, "--since")
    if adoption:
        policies = _policies(config)
        with open_ledger(ledger) as opened:
            found = _judged(opened, (length_s, until, job), policies, (yes or [], no or []), ask)
        _write(found, out, output, command_place(ledger))
        return
    if yes or no or ask or config or output != "text":
        raise BadInputError("--yes, --no, --ask, --config and --format go with --adoption")
    if out is None:
        raise BadInputError("--out says where the report goes: minder report --out report.html")
    with open_ledger(ledger) as opened:
        events = opened.events(kinds=ACCOUNT_KINDS)
    account = account_events(events, length_s, until, job)
    write_report(account, out)
    typer.echo(f"{out}: jobs: {len(account.jobs)}, incidents: {len(account.incidents)}")


def _policies(path: Path | None) -> dict[str, PolicyConfig]:
    from minder.config import load_config

    if path is None:
        return {}
    config = load_config(path, only_watch=True)
    return {config.name: config.policy_config(act=True)}


def _judged(
    opened: Ledger | RemoteLedger,
    period: tuple[float, str, str | None],
    policies: dict[str, PolicyConfig],
    named: tuple[list[str], list[str]],
    ask: bool,
) -> Adoption:
    """The report, after the answers that are given now are in the ledger."""
    from minder.offline.adoption.answers import find_answered, outcomes_of
    from minder.offline.adoption.reading import read_adoption
    from minder.record.incidents.spans import LONGEST_S

    found = read_adoption(opened.events, *period, policies)
    everything = read_adoption(opened.events, LONGEST_S, *period[1:], {}) if any(named) else found  # an incident's name needs no period
    answers = find_answered(everything, *named)
    if ask:
        answers += [(item, answer) for item in (*found.would, *found.held) if not item.answer and (answer := _asked(item))]
    for item, answer in answers:
        for machine, outcome in outcomes_of(item, answer):
            _record(opened, item, machine, outcome)
    return read_adoption(opened.events, *period, policies) if answers else found


def _asked(item: WouldBe) -> str:
    """Standard error, so that the report alone is on standard output."""
    from minder.model.clock import format_time

    typer.echo(f"{item.incident}: {', '.join(item.machines)} of {item.job} at {format_time(item.time_s)}, {item.cause}", err=True)
    for line in item.evidence:
        typer.echo(f"    {line}", err=True)
    said = typer.prompt("would the eviction have been right? yes, no, or skip", default="skip", err=True).strip().lower()
    return {"yes": "yes", "y": "yes", "no": "no", "n": "no"}.get(said, "")


def _record(opened: Ledger | RemoteLedger, item: WouldBe, machine: str, outcome: str) -> None:
    from minder.cli.tables import operator_name
    from minder.record.incidents import Ledger, kinds

    note = "adoption report: what a dry run would have evicted"
    if isinstance(opened, Ledger):
        payload = {"machine": machine, "outcome": outcome, "note": note, "by": operator_name()}
        opened.append(kinds.OUTCOME, payload, job=item.job, incident=item.incident)
    else:
        opened.client.tell_outcome(machine, outcome, note, item.incident)


def _write(found: Adoption, out: Path | None, output: str, place: Callable[[str], str]) -> None:
    import json

    from minder.offline.adoption.words import adoption_json, adoption_text

    text = json.dumps(adoption_json(found), indent=2) + "\n" if output == "json" else adoption_text(found, place)
    if out is None:
        typer.echo(text, nl=False)
        return
    out.write_text(text)
    typer.echo(f"{out}: would have evicted in {len(found.would)} incidents, {found.answered('')} of them not answered right or wrong")
