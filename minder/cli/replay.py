"""`minder replay`: recordings through the online pipeline (formats.md sections 2 and 7)."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minder.clock import format_time, parse_time
from minder.errors import BadInputError

if TYPE_CHECKING:
    from minder.types import Evidence, Verdict

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
    for verdict in verdicts:
        line = json.dumps(verdict_line(name, verdict)) if output == "jsonl" else _table_row(name, verdict)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def verdict_line(recording: str, verdict: Verdict) -> dict[str, Any]:
    """A verdict as formats.md section 2 writes it."""
    return {
        "recording": recording,
        "time": format_time(verdict.time_s),
        "kind": verdict.kind,
        "tier": verdict.tier,
        "machines": list(verdict.machines),
        "confidence": round(verdict.confidence, 3),
        "cause": verdict.cause,
        "evidence": [_evidence(item) for item in verdict.evidence],
        "against": [_evidence(item) for item in verdict.against],
    }


def _evidence(item: Evidence) -> dict[str, Any]:
    found: dict[str, Any] = {
        "source": item.source,
        "metric": item.metric,
        "machine": item.machine,
        "device": item.device,
        "observed": _finite(item.observed),
        "expected": _finite(item.expected),
        "since": None if item.since_s is None else format_time(item.since_s),
    }
    return found | ({"message": item.message} if item.message else {})


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _table_row(name: str, verdict: Verdict) -> str:
    why = ", ".join(_short(item) for item in verdict.evidence[:3])
    who = f"{verdict.kind:<9} {verdict.tier:<5} {','.join(verdict.machines) or '-':<20}"
    return f"{name:<16} {format_time(verdict.time_s)}  {who} {verdict.confidence:4.2f}  {verdict.cause:<9} {why}"


def _short(item: Evidence) -> str:
    if item.metric is None or item.observed is None or item.expected is None:
        return item.message
    return f"{item.metric} {item.observed:.4g} (expected {item.expected:.4g})"
