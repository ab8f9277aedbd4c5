"""`minder job skip` and `skips`: batches that a job leaves out from now on."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["list_skips", "skip"]

LedgerOption = Annotated[str | None, typer.Option("--ledger", help="Ledger file or URL. [default: $MINDER_LEDGER or the state folder's]")]


def skip(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    batches: Annotated[str | None, typer.Argument(help="Global batches, from 0: 120 or 120-123.", show_default=False)] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Train on them again; without batches, on those of the last order.")] = False,
    note: Annotated[str, typer.Option(help="Why; it stands in the ledger and on the job's page.", show_default=False)] = "",
    wait: Annotated[float, typer.Option(min=0.0, help="Wait so many seconds for the generation that does it.")] = 60.0,
    ledger: LedgerOption = None,
) -> None:
    """Leave batches out of a running job: it goes back to its newest checkpoint from before them, and on without them. Its data loader has
    to ask minder.skipped_batches(). Exit status 1: not applied within --wait.

    Example: minder job skip llm-70b 120-123 --note "the loss spikes there"
    """
    from minder.cli.remote import demand_note, open_ledger
    from minder.cli.tables import operator_name
    from minder.model.errors import BadInputError
    from minder.record.incidents import Ledger
    from minder.record.incidents.skips import order_skip, order_words, wait_for_skip

    with open_ledger(ledger) as opened:
        if isinstance(opened, Ledger):
            operation_id = order_skip(opened, name, batches, undo, note, operator_name()).operation_id
        else:
            said = demand_note(note, "--note")
            operation_id = opened.client.skip_batches(name, said, batches=batches, undo=undo).detail.split(":")[0]
        found = wait_for_skip(opened.events, name, operation_id, wait)
    if found.state == "failed":
        raise BadInputError(found.detail)
    typer.echo(order_words(found, name))
    if found.state == "asked":
        raise typer.Exit(1)


def list_skips(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    format_: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
    ledger: LedgerOption = None,
) -> None:
    """What a job leaves out now, and every order: who gave it, why, and what came of it.

    Example: minder job skips llm-70b
    """
    import json

    from minder.cli.remote import open_ledger
    from minder.cli.tables import check_choice, print_table
    from minder.model.batch_ranges import format_ranges
    from minder.record.incidents.skips import SKIP_KINDS, fold_skips, skip_rows, skip_table

    check_choice("--format", format_, ("table", "json"))
    with open_ledger(ledger) as opened:
        found = fold_skips(opened.events(job=name, kinds=SKIP_KINDS))
    if format_ == "json":
        typer.echo(json.dumps({"batches": format_ranges(found.running), "orders": skip_rows(found)}, indent=1))
    else:
        typer.echo(f"{name} leaves out: {format_ranges(found.running) or 'no batch'}")
        print_table(skip_table(found))
