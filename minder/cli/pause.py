"""`minder pause` and `minder unpause`: actions stop for a while, alarms go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from minder.cli.options import LedgerOption
from minder.model.log import say

if TYPE_CHECKING:
    from minder.model.history import LedgerEvent

__all__ = ["command", "unpause"]


def command(
    job: Annotated[str | None, typer.Option(help="Only for this job.")] = None,
    rack: Annotated[str | None, typer.Option(help="Only for machines of this rack.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="For everything.")] = False,
    for_: Annotated[str | None, typer.Option("--for", help="How long: 30m, 2h. It ends by itself.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why; the next person reads it.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the pauses that hold now.")] = False,
    ledger: LedgerOption = None,
) -> None:
    """Stop evictions and restarts, never alarms, for a while.

    Example: minder pause --all --for 2h --reason "switch firmware upgrade"
    """
    import time

    from minder.cli.remote import open_ledger
    from minder.cli.tables import operator_name
    from minder.model.clock import format_time
    from minder.model.errors import BadInputError
    from minder.record.incidents import Ledger, kinds
    from minder.record.incidents.spans import parse_span

    if list_:
        _list_pauses(ledger)
        return
    scope, target = _scope(job, rack, all_)
    if for_ is None:
        raise BadInputError("--for is missing: say how long, such as --for 2h")
    if reason is None or not reason.strip():
        raise BadInputError('--reason is missing: say why, such as --reason "switch firmware upgrade"')
    length_s = parse_span(for_, "--for")
    until_s = time.time() + length_s
    with open_ledger(ledger) as opened:
        _warn_unknown(scope, target, _known_names(opened.events(kinds=[kinds.JOB_REGISTERED]), scope))
        payload = {"scope": scope, "target": target, "until_s": until_s, "reason": reason.strip(), "by": operator_name()}
        if isinstance(opened, Ledger):
            opened.append(kinds.PAUSE, payload, job=target if scope == "job" else None)
        else:
            opened.client.pause(scope, target, length_s, reason.strip())
    typer.echo(f"actions are paused for {_called(scope, target)} until {format_time(until_s)[:19]}Z; alarms go on")


def unpause(
    job: Annotated[str | None, typer.Option(help="Only this job's pause.")] = None,
    rack: Annotated[str | None, typer.Option(help="Only this rack's pause.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every pause; the same as no option.")] = False,
    ledger: LedgerOption = None,
) -> None:
    """Lift pauses before they end by themselves: all of them, or one.

    Example: minder unpause
    """
    import time

    from minder.cli.remote import open_ledger
    from minder.cli.tables import operator_name
    from minder.model.errors import BadInputError
    from minder.record.incidents import Ledger, kinds
    from minder.record.incidents.history import active_pauses

    scope, target = _scope(job, rack, all_ or not (job or rack))
    with open_ledger(ledger) as opened:
        holding = active_pauses(opened.events(kinds=[kinds.PAUSE, kinds.UNPAUSE]), time.time())
        lifted = [pause for pause in holding if scope == "all" or (pause.scope, pause.target) == (scope, target)]
        if not lifted:
            where = "" if scope == "all" else f" for {_called(scope, target)}"
            raise BadInputError(f"no pause holds{where}: `minder pause --list` shows those that do")
        payload = {"scope": "everything" if scope == "all" else scope, "target": target, "by": operator_name()}
        if isinstance(opened, Ledger):
            opened.append(kinds.UNPAUSE, payload, job=target if scope == "job" else None)
        else:
            opened.client.end_pause(scope, target, "minder unpause")
    for pause in lifted:
        typer.echo(f"minder may act again for {_called(pause.scope, pause.target)} (was paused: {pause.reason})")


def _scope(job: str | None, rack: str | None, all_: bool) -> tuple[str, str | None]:
    from minder.model.errors import BadInputError

    if (job is not None) + (rack is not None) + all_ != 1:
        raise BadInputError("give one of --job NAME, --rack NAME or --all")
    return ("all", None) if all_ else ("job", job) if job is not None else ("rack", rack)


def _called(scope: str, target: str | None) -> str:
    return "every job" if scope == "all" else f"{scope} {target}"


def _known_names(events: Sequence[LedgerEvent], scope: str) -> set[str]:
    """Jobs, or racks, that ever registered."""
    if scope == "job":
        return {event.job for event in events if event.job}
    domains = [domain for event in events for domain in (event.payload.get("domains") or {}).values()]
    return {str(domain["rack"]) for domain in domains if "rack" in domain}


def _warn_unknown(scope: str, target: str | None, known: set[str]) -> None:
    """A misspelt name would pause nothing and say nothing."""
    if target is not None and target not in known:
        names = ", ".join(sorted(known)) or "none"
        say(f'note: this ledger has not seen {scope} "{target}" yet (it knows: {names}); the pause is recorded')


def _list_pauses(ledger: str | None) -> None:
    import time

    from minder.cli.remote import open_ledger
    from minder.cli.tables import print_table
    from minder.model.clock import format_time
    from minder.record.incidents import kinds
    from minder.record.incidents.history import active_pauses

    with open_ledger(ledger) as opened:
        holding = active_pauses(opened.events(kinds=[kinds.PAUSE, kinds.UNPAUSE]), time.time())
    if not holding:
        typer.echo("nothing is paused")
        return
    rows = [("paused", "until", "reason")]
    rows += [(_called(pause.scope, pause.target), format_time(pause.until_s)[:19] + "Z", pause.reason) for pause in holding]
    print_table(rows)
