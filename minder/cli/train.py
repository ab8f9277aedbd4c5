"""`minder train`: a recipe becomes a registered model (docs/training.md)."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from minder.model.errors import BadInputError

_FORMATS = ("table", "json")


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe: a file, or the name of a packaged one.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Also write the model's folder here.")] = None,
    registry: Annotated[str | None, typer.Option(help="MLflow's address; else $MLFLOW_TRACKING_URI, else a sqlite file.")] = None,
    output: Annotated[str, typer.Option("--format", help="table: for reading; json: one document.")] = "table",
    jobs: Annotated[int, typer.Option(help="Processes to evaluate with.", min=1)] = 1,
) -> int:
    """Fit a detector to data, evaluate it on what was held back, log it all to MLflow and register the model.

    Example: minder train default --out model/
    """
    if output not in _FORMATS:
        raise BadInputError(f'--format is "{output}": use {" or ".join(_FORMATS)}')
    from minder.offline.training.recipe import load_training_recipe

    found = load_training_recipe(recipe)
    from minder.offline.training.train import train
    from minder.record.registry.mlflow_registry import Registry

    trained = train(found, Registry(registry), out, lambda line: print(line, file=sys.stderr), jobs)
    summary = None if trained.report is None else trained.report["summary"]
    if output == "json":
        data = dict(trained.model.training)
        print(json.dumps({"model": trained.uri, "run": trained.version.run_id, "training": data, "heldout": summary}))
    else:
        from minder.offline.evaluation.report import evaluation_table

        print(f"registered {trained.uri} (run {trained.version.run_id})")
        print("nothing was held back: not evaluated" if trained.report is None else evaluation_table(trained.report))
    for line in trained.problems:
        print(f"minder: {' '.join(line.split())}", file=sys.stderr)
    return 2 if trained.problems else 0
