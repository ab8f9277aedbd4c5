"""`minder doctor`: what a site's set-up lacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minder.cli.options import TableFormat

if TYPE_CHECKING:
    from minder.doctor.finding import Finding

__all__ = ["command"]


def command(
    config: Annotated[Path | None, typer.Option(help="job.toml: look at everything that it names, too.")] = None,
    prometheus: Annotated[
        str | None, typer.Option(help="Instead: a Prometheus of any origin; propose how to read it.", metavar="URL")
    ] = None,
    draft: Annotated[
        Path | None, typer.Option(help="With --prometheus: write a first job.toml that `minder watch` takes as it is.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="With --draft: the job's name. [default: of its folder]")] = None,
    machines: Annotated[int | None, typer.Option(min=1, help="With --prometheus: machines that the job has; else it is not fine.")] = None,
    selector: Annotated[str, typer.Option(help='With --prometheus: only series with these labels, such as cluster="a".')] = "",
    header: Annotated[list[str] | None, typer.Option(help="With --prometheus: 'Name: value' for each request; may be repeated.")] = None,
    user: Annotated[str, typer.Option(help="With --prometheus: its password is in MINDER_PROMETHEUS_PASSWORD or a file.")] = "",
    password_file: Annotated[Path | None, typer.Option(help="With --user: a file with the password.")] = None,
    bearer_token_file: Annotated[
        Path | None, typer.Option(help="With --prometheus: a file with a bearer token; or MINDER_PROMETHEUS_TOKEN.")
    ] = None,
    tenant: Annotated[str, typer.Option(help="With --prometheus: sent as X-Scope-OrgID.")] = "",
    ca_file: Annotated[Path | None, typer.Option(help="With --prometheus: PEM file of who signs its certificate.")] = None,
    cert_file: Annotated[Path | None, typer.Option(help="With --prometheus: PEM file of our own certificate.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="With --cert-file: its key.")] = None,
    run_dir: Annotated[Path | None, typer.Option(help="Where this machine's launcher keeps its registry (default: as the agent).")] = None,
    format_: TableFormat = "table",
) -> None:
    """Say what is missing for minder to work here, and how to mend it. Exit status 0: all fine; 1: something is missing.

    Without options it looks at this machine (what an agent needs); with --config also at the job: tokens, ledger, disks,
    agents, launchers, clocks, telemetry. The only thing that it writes is a note in that job's ledger.

    Example: minder doctor --prometheus http://127.0.0.1:9090 --draft job.toml
    """
    from minder.cli.extras import demand_controller
    from minder.cli.tables import check_choice
    from minder.model.errors import BadInputError

    check_choice("--format", format_, ("table", "json"))
    if config is not None and prometheus is not None:
        raise BadInputError("--config looks at a job, --prometheus at a server that no job.toml names yet: give one of them")
    files = (password_file, bearer_token_file, ca_file, cert_file, key_file)
    if prometheus is None and any((draft, name, machines, selector, header, user, tenant, *files)):
        raise BadInputError("--draft, --name, --machines, --selector, --header and what is needed to sign in go with --prometheus URL")
    if config is not None or prometheus is not None:
        demand_controller()
    if prometheus is not None:
        paths = dict(zip(("password_file", "bearer_token_file", "ca_file", "cert_file", "key_file"), files, strict=True))
        _foreign(prometheus, draft, name, machines, selector, header or [], format_, user, tenant, **paths)
        return
    found = _here(config, run_dir)
    _print(found, format_)
    raise typer.Exit(_status(found))


def _here(config: Path | None, run_dir: Path | None) -> list[Finding]:
    from minder.doctor.machine import look_at_machine
    from minder.edge.worker.pulse import default_run_dir

    found: list[Finding] = _local_steps() if config is None else _job(config)
    found += look_at_machine(run_dir or default_run_dir())  # of an agent that may never run here
    return found if config is None else sorted(found, key=lambda item: item.status != "missing")


def _local_steps() -> list[Finding]:
    from minder.doctor.steps import look_at_local_steps
    from minder.model.resources import default_state_dir

    return look_at_local_steps(default_state_dir())


def _job(config: Path) -> list[Finding]:
    from minder.config import load_config
    from minder.doctor.job import look_at_job, look_at_tokens

    found = look_at_tokens(config)
    if all(item.status == "ok" for item in found):  # else job.toml cannot be read whole
        found += look_at_job(load_config(config))
    return found


def _foreign(
    url: str,
    draft: Path | None,
    name: str | None,
    machines: int | None,
    selector: str,
    headers: list[str],
    format_: str,
    user: str,
    tenant: str,
    **files: Path | None,
) -> None:
    from minder.config import check_url
    from minder.doctor.contact import look_at_prometheus
    from minder.model.errors import BadInputError

    check_url("--prometheus", url)
    pairs = [text.partition(":") for text in headers]
    if not all(key.strip() and colon for key, colon, _ in pairs):
        raise BadInputError("--header: give 'Name: value', for example 'X-Site: north'; a token goes into --bearer-token-file")
    sent = {key.strip(): value.strip() for key, _, value in pairs}
    paths = {key: None if path is None else str(path.absolute()) for key, path in files.items()}
    contact = look_at_prometheus(
        {"url": url, "selector": selector, "headers": sent, "username": user, "tenant": tenant, **paths}, draft, name, machines
    )
    _print(contact.findings, format_, contact.table, contact.written)
    if contact.next and format_ == "table":
        for line in contact.next:
            typer.echo(f"next     {line}")
    raise typer.Exit(_status(contact.findings))


def _status(found: list[Finding]) -> int:
    return 0 if all(item.status != "missing" for item in found) else 1


def _print(found: list[Finding], format_: str, table: list[dict[str, Any]] | None = None, files: list[str] | None = None) -> None:
    import json

    from minder.doctor.finding import as_json, is_fine

    if format_ == "json":
        summary = {"fine": is_fine(found), "findings": as_json(found), "written": files or []}
        typer.echo(json.dumps(summary | ({"identity": table} if table is not None else {}), indent=1))
        return
    for item in found:
        typer.echo(f"{item.status:8} {item.check}: {item.seen}")
        if item.mend and item.status != "ok":
            typer.echo(f"         -> {item.mend}")
    if table:
        table = [{**row, "job": row["job"] or "(no job)"} for row in table]
        typer.echo("\nwhat could name the machines:")
        widths = [max(len(str(row[key])) for row in table) for key in ("job", "way", "machines")]
        for row in table:
            cells = (f"{row[key]!s:{width}}" for key, width in zip(("job", "way", "machines"), widths, strict=True))
            typer.echo(f"  {'  '.join(cells)}  {row['verdict']}{', like ' + row['example'] if row['example'] else ''}")
        typer.echo("")
    for file in files or []:
        typer.echo(f"written  {file}")
