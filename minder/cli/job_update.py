"""`minder job update`, `updates` and `rollback`: another version of a job's code, and the one before it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minder.cli.options import LedgerOption, OrderNote, TableFormat

if TYPE_CHECKING:
    from minder.record.client.ledger import RemoteLedger
    from minder.record.incidents import Ledger

__all__ = ["list_updates", "rollback", "say_order", "update"]

Wait = Annotated[float, typer.Option(min=0.0, help="Wait so many seconds for the job's launchers to have it.")]


def update(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    code: Annotated[Path | None, typer.Option(help="Folder that holds the job's script; its files replace the script's.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the ranks; may be repeated.")] = None,
    args: Annotated[str | None, typer.Option(help="Arguments of the script in one string; they replace its arguments.")] = None,
    urgent: Annotated[bool, typer.Option("--urgent", help="Start the job again for it now, not with its next restart.")] = False,
    note: OrderNote = "",
    wait: Wait = 30.0,
    ledger: LedgerOption = None,
) -> None:
    """Give a running job another version of its code, arguments or variables. It comes with the job's next restart, after a day at the
    latest; its machines stay. Launchers take it if they were started with --allow-updates. Exit status 1: not ready within --wait.

    Example: minder job update llm-70b --code ./project --note "clip the gradient"
    """
    import shlex

    from minder.cli.remote import demand_note, open_ledger
    from minder.cli.tables import operator_name
    from minder.edge.launcher.settings import parse_environment
    from minder.model.errors import BadInputError
    from minder.record.incidents import Ledger
    from minder.record.incidents.updates import order_update, store_code, update_payload

    variables = parse_environment(env or [])
    try:
        words = None if args is None else shlex.split(args)
    except ValueError as error:
        raise BadInputError(f"--args {args!r}: {error}; close the quotation") from error
    update_payload("x" if code is not None else "", (0, 0), variables, words, urgent, note)  # before anything is stored or sent
    with open_ledger(ledger) as opened:
        if isinstance(opened, Ledger):
            digest, about = ("", (0, 0)) if code is None else store_code(opened, name, code)
            operation_id = order_update(
                opened, name, update_payload(digest, about, variables, words, urgent, note), operator_name()
            ).operation_id
        else:
            said = demand_note(note, "--note")
            digest = "" if code is None else opened.client.send_code(name, code)
            operation_id = opened.client.update_job(name, said, code=digest, env=variables, args=words, urgent=urgent).detail.split(":")[0]
        _await_ready(opened, name, operation_id, wait)


def rollback(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    number: Annotated[int | None, typer.Argument(min=0, help="The version. [default: the one before the last update]")] = None,
    lazy: Annotated[bool, typer.Option("--lazy", help="With the job's next restart, not now.")] = False,
    note: OrderNote = "",
    wait: Wait = 30.0,
    ledger: LedgerOption = None,
) -> None:
    """Take the last update of a job back, or go back to version N; 0 is what its launchers were started with. It takes the same path as an
    update, and the job is started again for it now.

    Example: minder job rollback llm-70b --note "loss is worse"
    """
    from minder.cli.remote import demand_note, open_ledger
    from minder.cli.tables import operator_name
    from minder.record.incidents import Ledger
    from minder.record.incidents.updates import order_rollback

    with open_ledger(ledger) as opened:
        if isinstance(opened, Ledger):
            operation_id = order_rollback(opened, name, number, not lazy, note, operator_name()).operation_id
        else:
            operation_id = opened.client.roll_back_job(name, demand_note(note, "--note"), to=number, urgent=not lazy).detail.split(":")[0]
        _await_ready(opened, name, operation_id, wait)


def list_updates(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    format_: TableFormat = "table",
    ledger: LedgerOption = None,
) -> None:
    """Every version of a job's code: which one runs, which one waits, who ordered it and why.

    Example: minder job updates llm-70b
    """
    import json

    from minder.cli.remote import open_ledger
    from minder.cli.tables import check_choice, print_table
    from minder.record.incidents.updates import UPDATE_KINDS, fold_updates, version_rows, version_table

    check_choice("--format", format_, ("table", "json"))
    with open_ledger(ledger) as opened:
        rows = version_rows(fold_updates(opened.events(job=name, kinds=UPDATE_KINDS)))
    if format_ == "json":
        typer.echo(json.dumps(rows, indent=1))
    else:
        print_table(version_table(rows))


def _await_ready(opened: Ledger | RemoteLedger, name: str, operation_id: str, wait_s: float) -> None:
    from minder.record.incidents.orders import await_order
    from minder.record.incidents.updates import UPDATE_KINDS, fold_updates, order_words

    found = await_order(lambda: fold_updates(opened.events(job=name, kinds=UPDATE_KINDS)).orders, operation_id, wait_s)
    say_order(found.state, found.detail, order_words(found, name))


def say_order(state: str, detail: str, words: str) -> None:
    """How an order stands: one that failed is an error (BadInputError), one that still waits is exit status 1."""
    from minder.model.errors import BadInputError

    if state == "failed":
        raise BadInputError(detail)
    typer.echo(words)
    if state == "asked":
        raise typer.Exit(1)
