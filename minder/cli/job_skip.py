"""`minder job skip` and `skips`: batches that a job leaves out from now on."""

from __future__ import annotations

from typing import Annotated

import typer

from minder.cli.job_update import say_order
from minder.cli.options import LedgerOption, OrderNote, TableFormat

__all__ = ["list_skips", "skip"]


def skip(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    batches: Annotated[str | None, typer.Argument(help="Global batches, from 0: 120 or 120-123.", show_default=False)] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Train on them again; without batches, on those of the last order.")] = False,
    note: OrderNote = "",
    wait: Annotated[float, typer.Option(min=0.0, help="Wait so many seconds for the generation that does it.")] = 60.0,
    ledger: LedgerOption = None,
) -> None:
    """Leave batches out of a running job: it goes back to its newest checkpoint from before them, and on without them. Its data loader has
    to ask minder.skipped_batches(). Exit status 1: not applied within --wait.

    Example: minder job skip llm-70b 120-123 --note "the loss spikes there"
    """
    from minder.cli.remote import demand_note, open_ledger
    from minder.cli.tables import operator_name
    from minder.record.incidents import Ledger
    from minder.record.incidents.orders import await_order
    from minder.record.incidents.skips import SKIP_KINDS, fold_skips, order_skip, order_words

    with open_ledger(ledger) as opened:
        if isinstance(opened, Ledger):
            operation_id = order_skip(opened, name, batches, undo, note, operator_name()).operation_id
        else:
            said = demand_note(note, "--note")
            operation_id = opened.client.skip_batches(name, said, batches=batches, undo=undo).detail.split(":")[0]
        found = await_order(lambda: fold_skips(opened.events(job=name, kinds=SKIP_KINDS)).orders, operation_id, wait)
    say_order(found.state, found.detail, order_words(found, name))


def list_skips(
    name: Annotated[str, typer.Argument(help="The job's name.")],
    format_: TableFormat = "table",
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
