"""`minder cache`: keep the checkpoints of one machine's ranks in its memory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minder.cli.options import MachineTokenFile

__all__ = ["command"]


def command(
    job: Annotated[str, typer.Option(help="Name of the job.")],
    machine: Annotated[str, typer.Option(help="Name of this machine, as the controller knows it.")],
    max_bytes: Annotated[str, typer.Option(help="Memory that records may take, such as 64G.")],
    listen: Annotated[str, typer.Option(help="ADDRESS:PORT for the caches of the job's other machines.")] = "127.0.0.1:0",
    token_file: MachineTokenFile = None,
    folder: Annotated[Path | None, typer.Option(help="Where records lie (default: /dev/shm/minder-UID/JOB/MACHINE).")] = None,
    rate: Annotated[str, typer.Option(help="Bytes a second at which backups are fetched, such as 1G; 0: no limit.")] = "0",
    linger: Annotated[float, typer.Option(min=0.0, help="Seconds from the end of its last rank until the records are removed.")] = 60.0,
    max_age: Annotated[float, typer.Option(min=1.0, help="Seconds without a sign of any rank until the records are removed.")] = 3600.0,
) -> None:
    """Hold every step's state of this machine's ranks, and backups of other machines' ranks, until the job is over.

    Example: minder cache --job demo --machine m1 --max-bytes 64M --linger 1 --max-age 2
    """
    from minder.edge.cache.serve import serve
    from minder.edge.cache.settings import CacheSettings, default_folder, parse_bytes
    from minder.wire.addresses import parse_address
    from minder.wire.own_token import own_token

    host, port = parse_address(listen, "--listen", "127.0.0.1:0")
    token = own_token(token_file, machine) if token_file is not None else None
    where = folder.absolute() if folder is not None else default_folder(job, machine)
    sizes = parse_bytes(max_bytes), parse_bytes(rate, "--rate")
    serve(CacheSettings(job, machine, host, port, where, sizes[0], token, sizes[1], linger, max_age))
