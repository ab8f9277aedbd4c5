"""`minder promote`: the alias `champion` moves to a version that is better, and only then (docs/training.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from minder.model.errors import BadInputError

_FORMATS = ("table", "json")


def command(
    version: Annotated[int, typer.Argument(help="The challenger: a version of minder-detector.", min=1, show_default=False)],
    recordings: Annotated[list[Path] | None, typer.Option(help="The evaluation set; else what its training held back.")] = None,
    registry: Annotated[str | None, typer.Option(help="MLflow's address; else $MLFLOW_TRACKING_URI, else a sqlite file.")] = None,
    output: Annotated[str, typer.Option("--format", help="table: for reading; json: one document.")] = "table",
    jobs: Annotated[int, typer.Option(help="Processes to evaluate with.", min=1)] = 1,
) -> int:
    """Compare a registered model with the champion on the same recordings; make it the champion if it is better. Else exit 1, and why.

    Example: minder promote 2 --recordings held-back/
    """
    if output not in _FORMATS:
        raise BadInputError(f'--format is "{output}": use {" or ".join(_FORMATS)}')
    from minder.offline.training.promote import comparison_record, promote
    from minder.record.registry.mlflow_registry import Registry

    found, opponent = promote(version, Registry(registry), recordings or (), jobs)
    if output == "json":
        print(json.dumps(comparison_record(found, version, opponent)))
    else:
        print(f"version {version} {'is the champion now' if found.better else 'stays a challenger'}; compared with {opponent}")
        print("\n".join(f"  {line}" for line in found.why))
    return 0 if found.better else 1
