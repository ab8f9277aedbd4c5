"""`minder decision`: evictions that wait for an operator: list them, approve, reject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from minder.cli.options import LedgerOption, TableFormat

if TYPE_CHECKING:
    from minder.model.history import Approval
    from minder.record.client.ledger import RemoteLedger

__all__ = ["app", "approve", "list_decisions", "reject"]

app = typer.Typer(help="Evictions that wait for an operator: list, approve, reject.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="ID", help="As `minder decision list` prints it.")]
ReasonOption = Annotated[str | None, typer.Option(help="Why; the next person reads it.")]


@app.command("list")
def list_decisions(
    all_: Annotated[bool, typer.Option("--all", help="Also those that were answered, carried out, or expired.")] = False,
    job: Annotated[str | None, typer.Option(help="Only of this job.")] = None,
    format_: TableFormat = "table",
    ledger: LedgerOption = None,
) -> None:
    """The evictions that an operator is asked about, and those approved that are not carried out yet.

    Example: minder decision list
    """
    import json
    import time

    from minder.cli.remote import open_ledger
    from minder.cli.tables import check_choice, print_table
    from minder.model.log import say
    from minder.record.incidents import Ledger
    from minder.record.incidents.approvals import refusal
    from minder.wire.codec import to_json

    check_choice("--format", format_, ("table", "json"))
    with open_ledger(ledger) as opened:
        shown = [item for item in opened.approvals(job) if all_ or refusal(item, time.time()) is None or _is_pending(item)]
        open_ = {item.job for item in shown if item.state == "waiting" or _is_pending(item)}
        silent = _unled(open_, ledger) if isinstance(opened, Ledger) else _unheard(open_, opened)
    if format_ == "json":
        typer.echo(json.dumps(to_json(shown), indent=1))
    elif not shown:
        typer.echo("no decision waits for an operator" if not all_ else "no decision was ever put to an operator")
    else:
        print_table([("id", "job", "incident", "would evict", "why", "state", "until", "then"), *map(_row, shown)])
        for name in sorted(silent):
            say(f"minder: no controller of {name} is heard: whatever is answered, nothing will happen until one runs")


def _unled(jobs: set[str], ledger: str | None) -> set[str]:
    """Jobs without a controller: an answer that no controller is there to carry out is worth nothing."""
    from minder.act.controller.lease import is_led
    from minder.record.incidents import find_ledger

    return {job for job in jobs if not is_led(find_ledger(ledger), job)}


def _unheard(jobs: set[str], remote: RemoteLedger) -> set[str]:
    """As `_unled`, by what the service hears."""
    return {item.job for item in remote.client.decisions() if item.job in jobs and item.controller == "silent"} if jobs else set()


def _is_pending(item: Approval) -> bool:
    return item.state == "approved" and not item.closed


def _row(item: Approval) -> tuple[str, ...]:
    from minder.model.clock import format_time

    decision, verdict = item.decision, item.decision.verdict
    word = "approved, not yet carried out," if _is_pending(item) else item.state.replace("_", " ")
    why = f"{verdict.cause} {verdict.confidence:.2f}"
    state = " ".join(word for word in (word, f"by {item.by}" if item.by else "", item.why) if word)
    until = format_time(item.until_s)[:19] + "Z"
    return (decision.operation_id, item.job, ", ".join(item.incidents), ", ".join(decision.machines), why, state, until, item.on_timeout)


@app.command("approve")
def approve(name: NameArgument, reason: ReasonOption = None, ledger: LedgerOption = None) -> None:
    """Let the controller carry an eviction out, if it still holds at its next tick.

    Example: minder decision approve evict-3f0a9c41d2be --reason "checked: GPU 3 is off the bus"
    """
    _answer(name, "approved", reason, ledger)


@app.command("reject")
def reject(name: NameArgument, reason: ReasonOption = None, ledger: LedgerOption = None) -> None:
    """Keep the machine in the job. The same trouble is not asked about again until the job's next restart.

    Example: minder decision reject evict-3f0a9c41d2be --reason "we are flashing its firmware"
    """
    _answer(name, "rejected", reason, ledger)


def _answer(name: str, answer: Literal["approved", "rejected"], reason: str | None, ledger: str | None) -> None:
    from minder.cli.remote import open_ledger
    from minder.cli.tables import operator_name
    from minder.model.errors import BadInputError
    from minder.record.incidents import Ledger

    if reason is None or not reason.strip():
        raise BadInputError('--reason is missing: say why, such as --reason "checked: GPU 3 is off the bus"')
    with open_ledger(ledger) as opened:
        if not isinstance(opened, Ledger):
            said = opened.client.approve(name, reason) if answer == "approved" else opened.client.reject(name, reason)
            typer.echo(said.detail)
            return
        found = opened.answer_approval(name, answer, by=operator_name(), reason=reason.strip())
    from minder.act.controller.lease import is_led
    from minder.record.incidents import find_ledger
    from minder.record.incidents.approvals import answer_words

    typer.echo(answer_words(found, answer, answer == "approved" and is_led(find_ledger(ledger), found.job)))
