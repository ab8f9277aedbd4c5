"""`minder serve`: the service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minder.cli.options import LedgerOption, TlsKey

__all__ = ["command"]


def command(
    listen: Annotated[
        str, typer.Option(help="Address and port. Beyond this machine it needs a token, and TLS or --plain-http.")
    ] = "127.0.0.1:9400",
    config: Annotated[
        list[Path] | None, typer.Option(help="job.toml of a job whose policy and status to show; may stand several times.")
    ] = None,
    settings: Annotated[Path | None, typer.Option(help="service.toml: who gets a notice of verdicts (docs/service.md).")] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM).")] = None,
    tls_key: TlsKey = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="Authority (PEM) of machines' certificates: tokens of agents and launchers then need one.")
    ] = None,
    plain_http: Annotated[bool, typer.Option("--plain-http", help="Listen beyond this machine without TLS: a proxy ends it.")] = False,
    ledger: LedgerOption = None,
) -> None:
    """Serve the HTTP API: incidents, machines, jobs, pauses, events, and scoring of uploads.

    Example: minder serve --listen 127.0.0.1:9400
    """
    from minder.app.build import state_dir_of
    from minder.config import load_config
    from minder.record.incidents import find_ledger
    from minder.wire.addresses import parse_address
    from serve.run import Listening, run_service
    from serve.settings import Settings
    from serve.settings_file import ServiceFile, load_settings

    host, port = parse_address(listen, "--listen", "127.0.0.1:9400")
    jobs = {item.name: item for item in (load_config(path, only_watch=True) for path in config or ())}
    files = {name: state_dir_of(item) / "status.json" for name, item in jobs.items()}
    if ledger is not None and "://" not in ledger and not Path(ledger).exists():
        typer.echo(f"minder: there is no ledger {ledger} yet: an empty one begins there", err=True)
    chosen = ServiceFile() if settings is None else load_settings(settings)
    whole = Settings(find_ledger(ledger), jobs, files, certified_machines=tls_client_ca is not None, file=chosen, path=settings)
    certificate, key, authority = (None if path is None else str(path) for path in (tls_cert, tls_key, tls_client_ca))
    run_service(whole, Listening(host, port, certificate, key, plain_http, authority))
