"""`minder replay`: recordings through the online pipeline (docs/recordings.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minder.model.clock import parse_time
from minder.model.errors import BadInputError, RuleFailedError
from minder.model.log import say

if TYPE_CHECKING:
    from minder.diagnose.scoring.config import ScoringConfig
    from minder.model.evidence import Verdict

_FORMATS = ("jsonl", "table")


def command(
    recordings: Annotated[list[Path], typer.Argument(help="Recordings (folders with a job.toml), or folders of them.", show_default=False)],
    output: Annotated[str, typer.Option("--format", help="jsonl: one verdict per line; table: for reading.")] = "jsonl",
    until: Annotated[str | None, typer.Option(help="Only what was known at this time (ISO 8601, inclusive).")] = None,
    engine: Annotated[str | None, typer.Option(help="Where they are scored: process (default), or ray, an actor per recording.")] = None,
    ray_address: Annotated[str | None, typer.Option(help="With --engine ray: the Ray head, like 10.0.0.7:6379.")] = None,
) -> int:
    """Feed recordings to the online pipeline, as if they were live, and print what it would have concluded. Takes no action.

    Example: minder replay datasets/samples/*
    """
    if output not in _FORMATS:
        raise BadInputError(f'--format is "{output}": use {" or ".join(_FORMATS)}')
    until_s = _read_until(until)
    from minder.diagnose.scoring.config import ScoringConfig, scoring_of
    from minder.offline.evaluation.labels import recordings_in

    scoring = scoring_of(ScoringConfig(), engine, ray_address)
    status = 0
    each = [path for named in recordings for path in recordings_in(named)]
    for path, found in _replayed(each, until_s, scoring):
        try:
            _print(path.resolve().name, found, output)
        except (BadInputError, RuleFailedError) as error:
            status = max(status, error.exit_code)
            say(f"minder: {error}")
    return status


def _replayed(recordings: list[Path], until_s: float | None, config: ScoringConfig) -> Iterator[tuple[Path, Iterable[Verdict]]]:
    """Each recording with its verdicts, in the given order. Who takes them meets what went wrong."""
    if config.engine != "ray":
        from minder.offline.evaluation.apart import replay_apart

        yield from zip(recordings, replay_apart(recordings, until_s), strict=True)
        return
    from minder.diagnose.scoring.ray_scoring import open_scoring
    from minder.offline.evaluation.elsewhere import replay_elsewhere

    scoring = open_scoring(config, waits=True)
    assert scoring is not None
    with closing(scoring):
        yield from zip(recordings, replay_elsewhere(recordings, until_s, scoring), strict=True)


def _read_until(until: str | None) -> float | None:
    if until is None:
        return None
    try:
        return parse_time(until)
    except ValueError:
        raise BadInputError(f'--until is "{until}": give ISO 8601, like 2026-03-02T06:12:31Z') from None


def _print(name: str, verdicts: Iterable[Verdict], output: str) -> None:
    from minder.offline.evaluation.lines import format_verdict

    quiet = True
    for verdict in verdicts:
        quiet = False
        sys.stdout.write(format_verdict(name, verdict, output) + "\n")
        sys.stdout.flush()
    if quiet and output == "table":
        sys.stdout.write(f"{name:<16} no verdict\n")
