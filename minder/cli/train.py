"""`minder train`: a recipe becomes a registered model (docs/training.md); `--cross-validate`: how good the learned detector is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minder.model.errors import BadInputError

if TYPE_CHECKING:
    from minder.offline.training.learned.run import WorldsAsked
    from minder.offline.training.recipe import TrainingRecipe
    from minder.record.registry.mlflow_registry import Registry

_FORMATS = ("table", "json")


def command(
    recipe: Annotated[str, typer.Argument(help="A recipe: a file, or the name of a packaged one.")] = "default",
    out: Annotated[Path | None, typer.Option(help="Also write the model's folder here; with --cross-validate, the report.")] = None,
    registry: Annotated[str | None, typer.Option(help="MLflow's address; else $MLFLOW_TRACKING_URI, else a sqlite file.")] = None,
    output: Annotated[str, typer.Option("--format", help="table: for reading; json: one document.")] = "table",
    jobs: Annotated[int, typer.Option(help="Processes to evaluate with.", min=1)] = 1,
    cross_validate: Annotated[bool, typer.Option("--cross-validate", help="Train no model: judge each family by fits without it.")] = False,
    cache: Annotated[Path | None, typer.Option(help="Folder of the worlds' features; else in minder's state directory.")] = None,
) -> int:
    """Fit a detector to data, evaluate it on what was held back, log it all to MLflow and register the model.

    Example: minder train default --out model/
    """
    if output not in _FORMATS:
        raise BadInputError(f'--format is "{output}": use {" or ".join(_FORMATS)}')
    from minder.offline.training.recipe import load_training_recipe

    found = load_training_recipe(recipe)
    asked = _worlds(found, cache)
    if cross_validate:
        if asked is None:
            raise BadInputError(f'recipe {found.name} has no data.worlds to validate on: use "default", or a recipe with detector = "pool"')
        return _validate(asked, out, registry, output)
    return _train(found, out, registry, output, jobs) if asked is None else _refit(asked, out, registry, output)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _worlds(recipe: TrainingRecipe, cache: Path | None) -> WorldsAsked | None:
    if recipe.data.worlds is None:
        return None
    from minder.offline.training.learned.run import WorldsAsked

    return WorldsAsked(recipe.data.worlds.families, recipe.data.worlds.seeds, recipe.data.worlds.first, cache)


def _open(registry: str | None) -> Registry:
    """Before anything is fitted: a registry that does not answer is found out now, and not after hours."""
    from minder.record.registry.mlflow_registry import Registry

    opened = Registry(registry)
    opened.check()
    return opened


def _validate(asked: WorldsAsked, out: Path | None, registry: str | None, output: str) -> int:
    from minder.offline.training.learned.page import table_of
    from minder.offline.training.learned.run import cross_validate

    document = cross_validate(asked, out, _open(registry), _say)
    print(json.dumps(document) if output == "json" else table_of(document))
    return 0


def _refit(asked: WorldsAsked, out: Path | None, registry: str | None, output: str) -> int:
    from minder.offline.training.learned.page import table_of
    from minder.offline.training.learned.run import refit
    from minder.record.registry.mlflow_registry import MODEL_NAME

    version, model, document = refit(asked, _open(registry), out, _say)
    uri = f"models:/{MODEL_NAME}/{version.number}"
    if output == "json":
        print(json.dumps({"model": uri, "run": version.run_id, "training": dict(model.training), "validation": document}))
    else:
        print(f"registered {uri} (run {version.run_id})")
        print(table_of({**document, "sections": document["sections"][:3]}))
    return 0


def _train(recipe: TrainingRecipe, out: Path | None, registry: str | None, output: str, jobs: int) -> int:
    from minder.offline.training.train import train

    trained = train(recipe, _open(registry), out, _say, jobs)
    summary: Any = None if trained.report is None else trained.report["summary"]
    if output == "json":
        data = dict(trained.model.training)
        print(json.dumps({"model": trained.uri, "run": trained.version.run_id, "training": data, "heldout": summary}))
    else:
        from minder.offline.evaluation.report import evaluation_table

        print(f"registered {trained.uri} (run {trained.version.run_id})")
        print("nothing was held back: not evaluated" if trained.report is None else evaluation_table(trained.report))
    for line in trained.problems:
        _say(f"minder: {' '.join(line.split())}")
    return 2 if trained.problems else 0
