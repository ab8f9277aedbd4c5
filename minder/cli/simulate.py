"""`minder simulate`: telemetry of a cluster that does not exist, with the truth beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from minder.model.errors import BadInputError

_FORMATS = ("table", "json")


def command(
    recipe: Annotated[str, typer.Argument(help="A shipped recipe, like plain, hard or healthy, or a .toml file.", show_default=False)],
    out: Annotated[Path, typer.Option(help="A new folder for the recordings.", show_default=False)],
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the recipe's own seed.", show_default=False)] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Instead of the recipe's own number.", show_default=False)] = None,
    output: Annotated[str, typer.Option("--format", help="table: a line per recording; json: one document.")] = "table",
) -> int:
    """Write recordings of jobs that never ran, and truth.json: the same recipe and seed give the same bytes.

    Example: minder simulate plain --out /tmp/plain --count 4
    """
    if output not in _FORMATS:
        raise BadInputError(f'--format is "{output}": use {" or ".join(_FORMATS)}')
    from minder.simulate.cluster.recipe import load_recipe
    from minder.simulate.cluster.simulate import simulate, summary

    loaded = load_recipe(recipe)
    chosen_seed = loaded.seed if seed is None else seed
    entries = []
    for made in simulate(loaded, out, chosen_seed, loaded.count if count is None else count):
        entries.append(summary(made))
        if output == "table":
            if len(entries) == 1:
                typer.echo("  ".join(entries[0]))
            typer.echo("  ".join(str(value).ljust(len(name)) for name, value in entries[-1].items()).rstrip())
    if output == "json":
        document = {"recipe": loaded.name, "held_out": loaded.held_out, "seed": chosen_seed, "folder": str(out), "recordings": entries}
        typer.echo(json.dumps(document))
    return 0
