"""Options that several verbs have, each with one name, one meaning and one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["LedgerOption", "MachineTokenFile", "MetricsTokenFile", "OrderNote", "TableFormat", "TlsCertificate", "TlsClientCa", "TlsKey"]

LedgerOption = Annotated[str | None, typer.Option("--ledger", help="Ledger file or URL. [default: $MINDER_LEDGER or the state folder's]")]
OrderNote = Annotated[str, typer.Option("--note", help="Why; it stands in the ledger and on the job's page.", show_default=False)]
TableFormat = Annotated[str, typer.Option("--format", help="table or json.")]

# What answers on a port: agent, launcher, cache.
MachineTokenFile = Annotated[
    Path | None, typer.Option(help="File with this machine's token, read again when it changes; needed on any but a loopback address.")
]
MetricsTokenFile = Annotated[Path | None, typer.Option(help="File with a token that reads /metrics and nothing else.")]
TlsCertificate = Annotated[Path | None, typer.Option(help="Certificate chain (PEM): answer over TLS only.")]
TlsKey = Annotated[Path | None, typer.Option(help="Its private key (PEM).")]
TlsClientCa = Annotated[Path | None, typer.Option(help="Who signs the certificates of those that may call (PEM); others are not answered.")]
