"""`minder whatif`: what slows a job's steps down (docs/step-traces.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minder.cli.tables import check_choice


def command(
    trace: Annotated[Path, typer.Argument(help="A step trace in parquet, or a folder that minder.trace_step filled.", show_default=False)],
    job: Annotated[Path, typer.Option("--job", help="The job's sizes: META.yaml.", show_default=False)],
    output: Annotated[str, typer.Option("--format", help="json: one document; table: for reading.")] = "json",
    picture: Annotated[Path | None, typer.Option("--picture", help="Write a heat map of the workers to this PNG file.")] = None,
) -> None:
    """Replay a job's traced steps and say what slows them down: a worker, uneven stages or sequences, communication, or nothing.

    Example: minder whatif trace.parquet --job meta.yaml
    """
    check_choice("--format", output, ("json", "table"))
    import json

    from minder.diagnose.step_traces.advice import as_table
    from minder.diagnose.step_traces.analysis import analyse, to_document
    from minder.diagnose.step_traces.meta import read_layout
    from minder.diagnose.step_traces.sources import read_source

    analysis = analyse(read_source(trace, read_layout(job)))
    if picture is not None:
        from minder.offline.plots.heatmap import draw_heatmap

        title = f"{trace.name}: {analysis.finding.cause}, {analysis.study.slowdown:.2f} times the ideal step"
        draw_heatmap(analysis.study.worker_PD, picture, title, analysis.finding.blame)
    typer.echo(json.dumps(to_document(analysis)) if output == "json" else as_table(analysis))
