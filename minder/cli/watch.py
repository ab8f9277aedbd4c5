"""`minder watch`: verdicts on a job that somebody else started."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    job: Annotated[Path, typer.Option(help="job.toml with the machines' agents; no launchers needed.")],
    format: Annotated[str, typer.Option("--format", help="jsonl or table.")] = "jsonl",
    duration: Annotated[float | None, typer.Option(min=0.0, help="Stop after so many seconds.")] = None,
) -> None:
    """Attach to a running job through its machines' agents and print verdicts as they come. Takes no action.

    Example: minder watch --job job.toml
    """
    import signal
    import threading
    import time

    from minder.app import build
    from minder.config import load_config
    from minder.errors import BadInputError
    from minder.evaluation.lines import verdict_line

    if format not in ("jsonl", "table"):
        raise BadInputError(f"--format is {format!r}: jsonl or table")
    stopping = threading.Event()
    app = build(load_config(job).without_launchers(), act=False)
    app.controller.on_verdict = lambda verdict: typer.echo(verdict_line(verdict, app.config.name, format))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    if duration is not None:
        threading.Thread(target=lambda: (time.sleep(duration), stopping.set(), app.wake.set()), daemon=True).start()
    try:
        app.begin()
        app.run(stopping)
    finally:
        app.close()
