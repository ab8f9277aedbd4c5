"""`minder job data`: which samples a run trained on, and whether any are missing or came twice."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["data"]


def data(
    folder: Annotated[Path, typer.Argument(help="Where the ranks write their logs: log_dir of minder.DataLoader.")],
    step: Annotated[int | None, typer.Option(min=1, help="The samples of this step, by rank.")] = None,
    format_: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
) -> None:
    """Compare what all ranks trained on with the plan of the data, over all generations of a run: no gap, no duplicate, the samples of the
    plan. A step that was trained again counts once. Exit status 1: it is not so, or lines are missing.

    Example: minder job data /shared/llm-70b/data --step 340
    """
    import json

    from minder.cli.tables import check_choice, print_table
    from minder.edge.data.audit import audit
    from minder.edge.data.reading import as_json, as_lines, read_logs, samples_of_step

    check_choice("--format", format_, ("table", "json"))
    logs = read_logs(folder)
    if step is not None:
        found = samples_of_step(logs, step)
        if format_ == "json":
            ranks = {
                rank: {"batch": given.batch, "generation": given.begin.generation, "samples": ids} for rank, (given, ids) in found.items()
            }
            typer.echo(json.dumps({"step": step, "ranks": ranks}, indent=1))
            return
        rows = [("rank", "generation", "batch", "samples")]
        rows += [
            (str(rank), str(given.begin.generation), str(given.batch), " ".join(map(str, ids))) for rank, (given, ids) in found.items()
        ]
        print_table(rows)
        return
    checked = audit(logs)
    typer.echo(json.dumps(as_json(checked), indent=1) if format_ == "json" else "\n".join(as_lines(checked)))
    raise typer.Exit(0 if checked.is_right else 1)
