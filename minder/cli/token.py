"""`minder token`: who may call the service, and the tokens of machines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minder.cli.options import LedgerOption, TableFormat
from minder.model.log import say

__all__ = ["app", "create", "list_tokens", "machine_tokens", "revoke"]

app = typer.Typer(help="Who may call the service: create, list and revoke tokens. And the tokens of machines.", no_args_is_help=True)


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="Whose it is: a person or a program. Its actions are recorded under this name.")],
    role: Annotated[str, typer.Option(help="viewer (reads), operator (acts), admin, agent, launcher, source (signals).")] = "viewer",
    job: Annotated[list[str] | None, typer.Option(help="Only for this job; may stand several times. Every job if not given.")] = None,
    machine: Annotated[str | None, typer.Option(help="The machine that a token of role agent or launcher speaks for.")] = None,
    for_: Annotated[str | None, typer.Option("--for", help="How long it is valid: 30d, 8h. For ever if not given.")] = None,
    ledger: LedgerOption = None,
) -> None:
    """Make a token. It is printed once; the ledger's database keeps its hash only.

    Example: minder token create alice --role operator --job llm-70b --for 90d
    """
    import time

    from minder.cli.tables import check_choice, operator_name
    from minder.record.api.access import ROLES
    from minder.record.incidents import find_ledger
    from minder.record.incidents.spans import parse_span
    from minder.record.store.tokens import TokenRecord, TokenStore, new_id

    check_choice("--role", role, ROLES)
    _check_names(name, job or (), machine, role)
    now_s = time.time()
    expires_s = None if for_ is None else now_s + parse_span(for_, "--for")
    jobs = tuple(dict.fromkeys(job)) if job else None
    wanted = TokenRecord(new_id(), name, role, now_s, operator_name(), jobs, machine, expires_s)
    store = TokenStore(find_ledger(ledger))
    try:
        token = store.create(wanted)
    finally:
        store.close()
    typer.echo(token)
    scope = "every job" if jobs is None else ", ".join(jobs)
    scope += "" if machine is None else f", speaks for {machine} only"
    say(f"minder: token {wanted.id} for {name}: {role}, {scope}; it is not shown again")


@app.command("machine")
def machine_tokens(
    names: Annotated[list[str] | None, typer.Argument(help="The machines, as the controller calls them.")] = None,
    from_: Annotated[Path | None, typer.Option("--from", help="Every machine that this job.toml names.")] = None,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Where they lie, a file each. [default: machine_token_dir of --from, else tokens]")
    ] = None,
    exchange: Annotated[
        bool, typer.Option("--exchange", help="Make a new one where there is one; the old one counts for --overlap.")
    ] = False,
    overlap: Annotated[str, typer.Option(help="How long the old one counts beside the new: 1d, 8h, 10m; 0: not at all.")] = "1d",
) -> None:
    """Make the token of each machine, that its agent and launcher accept and the controller shows them. Those that are there stay.

    Example: minder token machine node-0001 node-0002 --dir tokens
    """
    from minder.model.errors import BadInputError, MinderError
    from minder.record.incidents.spans import parse_span
    from minder.wire.machine_tokens import give_token

    config = None
    if from_ is not None:
        from minder.config import read_config

        config = read_config(from_)
    wanted = list(dict.fromkeys([*(names or ()), *(item.name for item in (config.machines if config is not None else ()))]))
    if not wanted:
        raise BadInputError("no machine: give names, or --from a job.toml that has [[machines]]")
    known = config.machine_token_dir if config is not None else None
    place = folder or Path(known or (from_.absolute().parent if from_ is not None else Path()) / "tokens")
    overlap_s = 0.0 if overlap.strip() == "0" else parse_span(overlap, "--overlap")
    for name in wanted:
        try:
            outcome = give_token(place, name, exchange=exchange, overlap_s=overlap_s)
        except OSError as error:
            raise MinderError(f"{place / name}: {error.strerror}; give another folder with --dir") from error
        typer.echo(f"{outcome}  {place / name}")
    if config is not None and known is None and folder is None:
        say(f'minder: add machine_token_dir = "tokens" to {from_}: the controller reads them there')


@app.command("list")
def list_tokens(
    format_: TableFormat = "table",
    ledger: LedgerOption = None,
) -> None:
    """Every token that was ever made, without its secret.

    Example: minder token list
    """
    import json
    import time

    from minder.cli.tables import check_choice, print_table
    from minder.model.clock import format_time
    from minder.record.incidents import find_ledger
    from minder.record.store.tokens import TokenStore
    from minder.wire.codec import to_json

    check_choice("--format", format_, ("table", "json"))
    store = TokenStore(find_ledger(ledger), create=False)
    try:
        records = store.list()
    finally:
        store.close()
    if format_ == "json":
        typer.echo(json.dumps(to_json(records), indent=1))
        return
    if not records:
        typer.echo("no token was ever made")
        return
    rows = [("token", "name", "role", "jobs", "machine", "made", "by", "state")]
    for item in records:
        ended = "revoked" if item.revoked_s is not None else "valid" if item.is_valid(time.time()) else "expired"
        until = "" if item.expires_s is None or ended != "valid" else f" until {format_time(item.expires_s)[:19]}Z"
        jobs = "every job" if item.jobs is None else ",".join(item.jobs)
        made = format_time(item.created_s)[:19] + "Z"
        rows.append((item.id, item.name, item.role, jobs, item.machine or "-", made, item.created_by, ended + until))
    print_table(rows)


@app.command("revoke")
def revoke(
    token: Annotated[str, typer.Argument(help="Its id or name, as `minder token list` prints it.")],
    reason: Annotated[str, typer.Option(help="Why.")] = "",
    ledger: LedgerOption = None,
) -> None:
    """End a token at once.

    Example: minder token revoke alice --reason "left the team"
    """
    import time

    from minder.cli.tables import operator_name
    from minder.record.incidents import find_ledger
    from minder.record.store.tokens import TokenStore

    store = TokenStore(find_ledger(ledger), create=False)
    try:
        ended = store.revoke(token, time.time(), operator_name(), reason)
    finally:
        store.close()
    typer.echo(f"token {ended.id} of {ended.name} is revoked")


def _check_names(name: str, jobs: list[str] | tuple[str, ...], machine: str | None, role: str) -> None:
    import re

    from minder.model.errors import BadInputError
    from minder.record.api.fields import NAME

    for option, value in (
        ("the name", name),
        *(("--job", job) for job in jobs),
        *((("--machine", machine),) if machine is not None else ()),
    ):
        if len(value) > 255 or not re.fullmatch(NAME, value):
            raise BadInputError(f'{option} "{value}": use letters, digits, and _ . : - behind the first')
    if (machine is None) == (role in ("agent", "launcher")):
        raise BadInputError("--machine goes with --role agent or launcher, which speak for one machine, and with no other role")
