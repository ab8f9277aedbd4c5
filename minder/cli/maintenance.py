"""`minder maintenance`: planned windows in which nothing is done to some machines, racks or jobs; alarms go on."""

from __future__ import annotations

from typing import Annotated

import typer

from minder.cli.options import LedgerOption, TableFormat

__all__ = ["add", "app", "end", "list_windows"]

app = typer.Typer(help="Planned windows in which minder does not act: add, list, end.", no_args_is_help=True)


@app.command("add")
def add(
    machine: Annotated[list[str] | None, typer.Option(help="A machine; may stand several times.")] = None,
    rack: Annotated[list[str] | None, typer.Option(help="A rack; may stand several times.")] = None,
    job: Annotated[list[str] | None, typer.Option(help="A job; may stand several times.")] = None,
    from_: Annotated[str, typer.Option("--from", help="When it begins: now, or a time like 2026-03-02T06:00:00Z.")] = "now",
    for_: Annotated[str, typer.Option("--for", help="How long: 30m, 2h. It ends by itself.", show_default=False)] = "",
    reason: Annotated[str, typer.Option(help="Why; the next person reads it.", show_default=False)] = "",
    ledger: LedgerOption = None,
) -> None:
    """Plan a window: no eviction or restart that touches these, no standby out of them. Alarms go on.

    Example: minder maintenance add --rack r12 --from 2026-03-02T06:00:00Z --for 4h --reason "switch firmware"
    """
    import time

    from minder.cli.remote import open_ledger
    from minder.cli.tables import operator_name
    from minder.model.clock import format_time, parse_time
    from minder.model.errors import BadInputError
    from minder.record.api.maintenance import MaintenanceRequest
    from minder.record.incidents import Ledger, kinds
    from minder.record.incidents.spans import parse_span

    if not reason.strip():
        raise BadInputError('--reason is missing: say why, such as --reason "switch firmware"')
    length_s = parse_span(for_, "--for")
    try:
        from_s = time.time() if from_ == "now" else parse_time(from_)
    except (ValueError, OverflowError) as error:
        raise BadInputError(f'--from "{from_}" is no time: write now, or one like 2026-03-02T06:00:00Z') from error
    if from_s + length_s <= time.time():
        raise BadInputError("the window is over already: mend --from or --for")
    machines, racks, jobs = tuple(machine or ()), tuple(rack or ()), tuple(job or ())
    if not (machines or racks or jobs):
        raise BadInputError("name something: --machine, --rack or --job; to stop everything, use `minder pause --all`")
    with open_ledger(ledger) as opened:
        if isinstance(opened, Ledger):
            from minder.record.store.tokens import new_id

            name = f"window-{new_id()[:8]}"
            scope = {"machines": machines, "racks": racks, "jobs": jobs}
            window = {"id": name, "from_s": from_s, "until_s": from_s + length_s, **scope, "reason": reason.strip(), "by": operator_name()}
            opened.append(kinds.MAINTENANCE, window, job=jobs[0] if len(jobs) == 1 and not (machines or racks) else None)
        else:
            begin = None if from_ == "now" else format_time(from_s)
            body = MaintenanceRequest(begin=begin, seconds=length_s, machines=machines, racks=racks, jobs=jobs, reason=reason.strip())
            name = opened.client.add_maintenance(body).detail.split(":")[0]
    typer.echo(f"{name}: from {format_time(from_s)[:19]}Z until {format_time(from_s + length_s)[:19]}Z; alarms go on")


@app.command("list")
def list_windows(
    format_: TableFormat = "table",
    ledger: LedgerOption = None,
) -> None:
    """Windows that hold now or are still to come.

    Example: minder maintenance list
    """
    import json
    import time

    from minder.cli.remote import open_ledger
    from minder.cli.tables import check_choice, print_table
    from minder.model.clock import format_time
    from minder.record.incidents import kinds
    from minder.record.incidents.maintenance import fold_maintenance
    from minder.wire.codec import to_json

    check_choice("--format", format_, ("table", "json"))
    now_s = time.time()
    with open_ledger(ledger) as opened:
        windows = fold_maintenance(opened.events(kinds=[kinds.MAINTENANCE, kinds.MAINTENANCE_ENDED]), now_s)
    if format_ == "json":
        typer.echo(json.dumps(to_json(windows), indent=1))
        return
    if not windows:
        typer.echo("no maintenance is planned")
        return
    rows = [("window", "of", "from", "until", "state", "by", "reason")]
    for item in windows:
        what = [*item.machines, *(f"rack {name}" for name in item.racks), *(f"job {name}" for name in item.jobs)]
        state = "holds" if item.from_s <= now_s else "planned"
        begin, until = format_time(item.from_s)[:19] + "Z", format_time(item.until_s)[:19] + "Z"
        rows.append((item.id, ", ".join(what), begin, until, state, item.by, item.reason))
    print_table(rows)


@app.command("end")
def end(
    window: Annotated[str, typer.Argument(help="Its id, as `minder maintenance list` prints it.")],
    reason: Annotated[str, typer.Option(help="Why.", show_default=False)] = "",
    ledger: LedgerOption = None,
) -> None:
    """End a window before its time, or take back one that is still to come.

    Example: minder maintenance end window-3f0a9c41 --reason "done early"
    """
    import time

    from minder.cli.remote import open_ledger
    from minder.cli.tables import operator_name
    from minder.model.errors import BadInputError
    from minder.record.incidents import Ledger, kinds
    from minder.record.incidents.maintenance import fold_maintenance

    if not reason.strip():
        raise BadInputError('--reason is missing: say why, such as --reason "done early"')
    with open_ledger(ledger) as opened:
        held = fold_maintenance(opened.events(kinds=[kinds.MAINTENANCE, kinds.MAINTENANCE_ENDED]), time.time())
        if window not in {item.id for item in held}:
            raise BadInputError(f'no window "{window}" holds or is planned: `minder maintenance list` shows those that do')
        if isinstance(opened, Ledger):
            opened.append(kinds.MAINTENANCE_ENDED, {"id": window, "reason": reason.strip(), "by": operator_name()})
        else:
            opened.client.end_maintenance(window, reason.strip())
    typer.echo(f"{window} is ended: minder may act again")
