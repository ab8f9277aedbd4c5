"""`minder policy`: the ladder, the climb of an incident, what another ladder would have done, and the rules that earn their evictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minder.cli.options import LedgerOption, TableFormat
from minder.model.log import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minder.act.policy.config import PolicyConfig
    from minder.offline.adoption.rehearsal import Rehearsal

__all__ = ["app", "explain", "restore", "rules", "test"]

app = typer.Typer(help="The ladder: print it, explain a climb, try it on the past; and what became of each rule.", no_args_is_help=True)

ConfigOption = Annotated[Path | None, typer.Option("--config", help="A job.toml, whose [policy] holds. [default: the defaults]")]


@app.command("explain")
def explain(
    incident: Annotated[str | None, typer.Argument(metavar="[INCIDENT]", help="Its climb, out of the ledger.", show_default=False)] = None,
    config: ConfigOption = None,
    format_: TableFormat = "table",
    ledger: LedgerOption = None,
) -> None:
    """The ladder of a configuration, rung by rung; or the climb of an incident: what was tried, passed over and why, and what came of it.

    Example: minder policy explain
    """
    from minder.act.policy.describe import ladder_json, ladder_rows
    from minder.cli.tables import check_choice

    check_choice("--format", format_, ("table", "json"))
    if incident is not None:
        _explain_incident(incident, format_, ledger)
        return
    policy = _policy(config)
    _print(ladder_json(policy), ladder_rows(policy), format_)


def _explain_incident(incident: str, format_: str, ledger: str | None) -> None:
    from dataclasses import asdict

    from minder.cli.remote import open_ledger
    from minder.model.clock import format_time
    from minder.record.incidents.ascent import ASCENT_KINDS, fold_ascent

    with open_ledger(ledger) as opened:
        opened.incident(incident)  # raises where there is none
        steps = fold_ascent(opened.events(incident=incident, kinds=ASCENT_KINDS))
    document = {"incident": incident, "climb": [{**asdict(step), "time": format_time(step.time_s)} for step in steps]}
    rows = [
        (format_time(step.time_s)[:19] + "Z", step.rung, step.state, ", ".join(step.machines) or "-", step.why or step.reason, step.outcome)
        for step in steps
    ]
    _print(document, [("time", "rung", "state", "machines", "why", "outcome"), *rows], format_)


@app.command("test")
def test(
    recordings: Annotated[list[Path] | None, typer.Argument(help="Recordings, or folders of them.", show_default=False)] = None,
    config: ConfigOption = None,
    job: Annotated[str | None, typer.Option(help="Of a ledger: only this job's decisions.")] = None,
    format_: TableFormat = "table",
    ledger: LedgerOption = None,
) -> int:
    """What this ladder would have done over the past, and what that would have cost: evictions, restarts, pages, machine-minutes. Of
    recordings, or of a ledger. Nothing is acted on or written.

    Example: minder policy test recordings/
    """

    from minder.cli.tables import check_choice, print_table
    from minder.model.errors import BadInputError
    from minder.offline.adoption.rehearsal_words import rehearsal_json, rehearsal_lines, rehearsal_rows

    check_choice("--format", format_, ("table", "json"))
    if recordings and ledger is not None:
        raise BadInputError("give recordings or --ledger: the past is one of them")
    policy = _policy(config)
    found, problems = _of_recordings(recordings, policy, _is_launched(config)) if recordings else (_of_ledger(policy, job, ledger), [])
    if format_ == "json":
        _print(rehearsal_json(found), [], format_)
    else:
        if found.items:
            print_table(rehearsal_rows(found))
        for line in rehearsal_lines(found):
            typer.echo(line)
    for line in problems:
        say(f"minder: {line}")
    return 2 if problems else 0


def _of_ledger(policy: PolicyConfig, job: str | None, ledger: str | None) -> Rehearsal:
    from minder.cli.remote import open_ledger
    from minder.offline.adoption.redecide import DRY_RUN_KINDS
    from minder.offline.adoption.rehearsal import rehearse_ledger
    from minder.record.incidents import kinds

    with open_ledger(ledger) as opened:
        return rehearse_ledger(opened.events(kinds=(*DRY_RUN_KINDS, kinds.NOTE)), policy, job)


def _of_recordings(paths: Sequence[Path], policy: PolicyConfig, launched: bool) -> tuple[Rehearsal, list[str]]:
    """With one line for each that cannot be read."""
    from minder.ingest.sources.jobfile import read_job
    from minder.model.errors import BadInputError, RuleFailedError
    from minder.offline.adoption.rehearsal import RehearsedJob, rehearse_recordings, rehearse_verdicts
    from minder.offline.evaluation.apart import replay_apart
    from minder.offline.evaluation.labels import recordings_in

    each = [path for named in paths for path in recordings_in(named)]
    items, problems = [], list[str]()
    for path, verdicts in zip(each, replay_apart(each, None), strict=True):
        try:
            recorded = read_job(path / "job.toml")
            topology = recorded.topology()
            size = len(recorded.machines) * recorded.gpus_per_machine
            ranks, domains = dict(topology.rank_machine), topology.domains
            job = RehearsedJob(recorded.name, recorded.machines, recorded.standbys, size, ranks, domains, launched)
            items += rehearse_verdicts(job, verdicts, policy, path.resolve().name)
        except (BadInputError, RuleFailedError) as error:
            problems.append(" ".join(str(error).split()))
    return rehearse_recordings(items, policy, launched), problems


@app.command("rules")
def rules(config: ConfigOption = None, format_: TableFormat = "table", ledger: LedgerOption = None) -> None:
    """What tests and repairs found of the machines that each rule named, how often it is right, and whether it may still evict.

    Example: minder policy rules
    """
    from minder.act.policy.describe import rule_json, rule_rows
    from minder.cli.remote import open_ledger
    from minder.cli.tables import check_choice
    from minder.record.incidents.rules import RULE_KINDS, RuleFold

    check_choice("--format", format_, ("table", "json"))
    policy, fold = _policy(config), RuleFold()
    with open_ledger(ledger) as opened:
        for event in opened.events(kinds=RULE_KINDS):
            fold.add(event)
    records = fold.records()
    if not records and format_ == "table":
        typer.echo("no rule has evicted a machine yet, and no outcome is known: `minder machine outcome` records one")
        return
    _print({"rules": rule_json(records, policy)}, rule_rows(records, policy), format_)


@app.command("restore")
def restore(
    rule: Annotated[str, typer.Argument(help="As `minder policy rules` prints it.")],
    reason: Annotated[str, typer.Option(help="Why it may evict again; the next person reads it.")],
    ledger: LedgerOption = None,
) -> None:
    """Let a rule that was demoted evict again: from now on it is counted anew.

    Example: minder policy restore slowdown --reason "the three machines were swapped back untested"
    """
    from minder.cli.remote import demand_note, open_ledger
    from minder.cli.tables import operator_name
    from minder.model.errors import BadInputError
    from minder.record.incidents import Ledger, kinds
    from minder.record.incidents.rules import RULE_KINDS, RuleFold

    said = demand_note(reason, "--reason")
    with open_ledger(ledger) as opened:
        if not isinstance(opened, Ledger):
            raise BadInputError("`minder policy restore` works on a ledger: leave --server out and give --ledger")
        fold = RuleFold()
        for event in opened.events(kinds=RULE_KINDS):
            fold.add(event)
        known = sorted({record.rule for record in fold.records()})
        if rule not in known:
            raise BadInputError(f'no rule "{rule}" has a record: {", ".join(known) or "none has one yet"}')
        opened.append(kinds.RULE_RESTORED, {"rule": rule, "tier": "evict", "reason": said, "by": operator_name()})
    typer.echo(f"{rule} may evict again: it is counted anew from now on")


def _policy(path: Path | None) -> PolicyConfig:
    """Of a configuration as it stands: its token files are another machine's business."""
    from minder.act.policy.config import PolicyConfig
    from minder.config import read_config
    from minder.model.errors import BadInputError, ConfigError

    if path is None:
        return PolicyConfig()
    try:
        return read_config(path).policy_config(act=True)
    except ConfigError:
        raise
    except BadInputError as error:
        raise ConfigError(f"{path}: {error}") from error


def _is_launched(path: Path | None) -> bool:
    """Whether launchers of this configuration run its job, so that its machines can be tested while it stands."""
    from minder.config import read_config

    machines = () if path is None else read_config(path).machines
    return bool(machines) and all(machine.launcher is not None for machine in machines)


def _print(document: dict[str, Any], rows: list[tuple[str, ...]], format_: str) -> None:
    import json

    from minder.cli.tables import print_table

    if format_ == "json":
        typer.echo(json.dumps(document, indent=1))
    else:
        print_table(rows)
