"""`minder replay`: recordings through the online pipeline (formats.md sections 2 and 7)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minder.clock import parse_time
from minder.errors import BadInputError

if TYPE_CHECKING:
    from minder.types import Verdict

_FORMATS = ("jsonl", "table")


def command(
    recordings: Annotated[list[Path], typer.Argument(help="Recording folders (each has a job.toml).", show_default=False)],
    output: Annotated[str, typer.Option("--format", help="jsonl: one verdict per line; table: for reading.")] = "jsonl",
    until: Annotated[str | None, typer.Option(help="Only what was known at this time (ISO 8601, inclusive).")] = None,
) -> int:
    """Feed recordings to the online pipeline, as if they were live, and print what it would have concluded. Takes no action.

    Example: minder replay datasets/samples/*
    """
    if output not in _FORMATS:
        raise BadInputError(f'--format is "{output}": use {" or ".join(_FORMATS)}')
    until_s = _read_until(until)
    from minder.evaluation.replay import replay

    failed = False
    for path in recordings:
        try:
            _print(path.resolve().name, replay(path, until_s), output)
        except BadInputError as error:
            failed = True
            print(f"minder: {' '.join(str(error).split())}", file=sys.stderr)
    return 2 if failed else 0


def _read_until(until: str | None) -> float | None:
    if until is None:
        return None
    try:
        return parse_time(until)
    except ValueError:
        raise BadInputError(f'--until is "{until}": give ISO 8601, like 2026-03-02T06:12:31Z') from None


def _print(name: str, verdicts: Iterable[Verdict], output: str) -> None:
    from minder.evaluation.lines import format_verdict

    for verdict in verdicts:
        sys.stdout.write(format_verdict(name, verdict, output) + "\n")
        sys.stdout.flush()
