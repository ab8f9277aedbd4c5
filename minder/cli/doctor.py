"""`minder doctor`: what a site's set-up lacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    name: Annotated[str, typer.Option(help="With --draft: the job's name.")] = "first-contact",
    selector: Annotated[str, typer.Option(help='With --prometheus: only series with these labels, such as cluster="a".')] = "",
    header: Annotated[list[str] | None, typer.Option(help="With --prometheus: 'Name: value' for each request; may be repeated.")] = None,
    run_dir: Annotated[Path | None, typer.Option(help="Where this machine's launcher keeps its registry (default: as the agent).")] = None,
    format_: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
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
    if prometheus is None and (draft is not None or selector or header):
        raise BadInputError("--draft, --selector and --header go with --prometheus URL")
    if config is not None or prometheus is not None:
        demand_controller()
    if prometheus is not None:
        found, files = _foreign(prometheus, draft, name, selector, header or [])
    else:
        found, files = _here(config, run_dir), []
    _print(found, files, format_)
    raise typer.Exit(0 if all(item.status != "missing" for item in found) else 1)


def _here(config: Path | None, run_dir: Path | None) -> list[Finding]:
    from minder.doctor.machine import look_at_machine
    from minder.edge.worker.pulse import default_run_dir

    found = look_at_machine(run_dir or default_run_dir())
    return found + (_local_steps() if config is None else _job(config))


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


def _foreign(url: str, draft: Path | None, name: str, selector: str, headers: list[str]) -> tuple[list[Finding], list[str]]:
    import time

    from minder.config import check_url
    from minder.doctor.draft import write_draft
    from minder.doctor.finding import Finding
    from minder.doctor.foreign import look_at_proposal
    from minder.doctor.proposal import propose
    from minder.doctor.series import Server
    from minder.model.errors import BadInputError, SourceError

    check_url("--prometheus", url)
    pairs = [text.partition(":") for text in headers]
    if not all(key.strip() and colon for key, colon, _ in pairs):
        raise BadInputError("--header: give 'Name: value', for example 'Authorization: Bearer TOKEN'")
    server = Server(url.rstrip("/"), selector, {key.strip(): value.strip() for key, _, value in pairs})
    try:
        proposal = propose(server, time.time())
    except SourceError as error:
        return [Finding("prometheus", "missing", str(error), "start it, mend the address, or open its port for this machine")], []
    found = look_at_proposal(url, proposal)
    if draft is None or proposal.identity is None or not proposal.used:
        return found, []
    return found, [str(file) for file in write_draft(draft, proposal, server, name)]


def _print(found: list[Finding], files: list[str], format_: str) -> None:
    import json

    from minder.doctor.finding import as_json, is_fine

    if format_ == "json":
        typer.echo(json.dumps({"fine": is_fine(found), "findings": as_json(found), "written": files}, indent=1))
        return
    for item in found:
        typer.echo(f"{item.status:8} {item.check}: {item.seen}")
        if item.mend and item.status != "ok":
            typer.echo(f"         -> {item.mend}")
    for file in files:
        typer.echo(f"written  {file}")
    if files:
        typer.echo(f"next     minder watch --job {files[0]}")
