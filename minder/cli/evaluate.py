"""`minder evaluate`: a detector over labelled recordings, as a report (docs/training.md)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from minder.cli.tables import print_table
from minder.model.errors import BadInputError
from minder.model.log import say

_FORMATS = ("table", "json")


def command(
    recordings: Annotated[
        list[str] | None,
        typer.Argument(help="Recording folders, or folders of them; with --benchmark its parts (none: all).", show_default=False),
    ] = None,
    truth: Annotated[Path | None, typer.Option(help="truth.json; else the one inside or beside each recording.")] = None,
    detector: Annotated[str, typer.Option(help="A detector's name, or a model's URI, like models:/minder-detector@champion.")] = "default",
    out: Annotated[
        Path | None,
        typer.Option(help="Also write report.json, report.html and figures to this folder; of --benchmark: default benchmark-out."),
    ] = None,
    output: Annotated[str, typer.Option("--format", help="table: for reading; json: the whole report, one document.")] = "table",
    jobs: Annotated[int, typer.Option(help="Processes to evaluate with.", min=1)] = 1,
    benchmark: Annotated[bool, typer.Option("--benchmark", help="Run the public benchmark (docs/benchmark.md).")] = False,
    program: Annotated[
        str | None, typer.Option(help="With --benchmark: the program to judge, like 'python my.py'. Default: minder.")
    ] = None,
    judging: Annotated[
        Path | None, typer.Option(help="With --benchmark: the seed of a judging part; refused if it is not as committed.")
    ] = None,
    against: Annotated[Path | None, typer.Option(help="With --benchmark: another entry's result.json to compare with.")] = None,
) -> int:
    """Replay labelled recordings and report how often, how soon and how surely the faulty machine was named.

    With --benchmark: judge a program of yours by the public benchmark.

    Example: minder evaluate recordings/ --out report/
    """
    if output not in _FORMATS:
        raise BadInputError(f'--format is "{output}": use {" or ".join(_FORMATS)}')
    if benchmark:
        if truth is not None or detector != "default":
            raise BadInputError("--truth and --detector are of recordings: leave them out with --benchmark")
        return _benchmark(recordings or [], program, judging, against, out, output, jobs)
    if not recordings:
        raise BadInputError("no recording is named: give folders, or --benchmark")
    if program is not None or judging is not None or against is not None:
        raise BadInputError("--program, --judging and --against are of the benchmark: give --benchmark too")
    return _evaluate([Path(item) for item in recordings], truth, detector, out, output, jobs)


def _evaluate(recordings: list[Path], truth: Path | None, detector: str, out: Path | None, output: str, jobs: int) -> int:
    from minder.offline.evaluation.evaluate import evaluate
    from minder.offline.evaluation.report import build_report, evaluation_table

    found = evaluate(recordings, detector, truth, jobs, _progress if sys.stderr.isatty() else lambda done, of: None)
    report = build_report(found)
    if out is not None:
        from minder.offline.evaluation.page import write_report

        write_report(report, out)
    if output == "json":
        print(json.dumps(report))
    elif found.cases:
        print(evaluation_table(report))
    for line in found.problems:
        say(f"minder: {line}")
    return 2 if found.problems or not found.cases else 0


def _benchmark(
    parts: list[str], program: str | None, judging: Path | None, against: Path | None, out: Path | None, output: str, jobs: int
) -> int:
    from minder.offline.benchmark.card import read_card
    from minder.offline.benchmark.program import parse_program
    from minder.offline.benchmark.run import OWN, default_parts, read_result, run_benchmark
    from minder.offline.benchmark.seeds import read_secret
    from minder.offline.benchmark.table import compare, comparison_line, table

    card = read_card()
    secret = None if judging is None else read_secret(judging, card.judging.get(card.version), card.version)
    other = None if against is None else read_result(against, card.version)
    entry = OWN if program is None else parse_program(program)
    result = run_benchmark(card, entry, parts or default_parts(secret), out or Path("benchmark-out"), jobs, secret, _show_progress)
    document = result.document if other is None else result.document | {"against": compare(other, result.rows)}
    if output == "json":
        print(json.dumps(document))
    else:
        print(f"{entry.name}: benchmark {card.version}, {document['part']} part, {len(result.rows)} inputs")
        print_table(table(document["figures"]))
        if other is not None:
            print(comparison_line(document["against"]))
        print(f"result  {result.file}")
    for line in result.problems:
        say(f"minder: {line}")
    return 0


def _show_progress(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()


def _progress(done: int, of: int) -> None:
    sys.stderr.write(f"\r{done} of {of} recordings{chr(10) if done == of else ''}")
    sys.stderr.flush()
