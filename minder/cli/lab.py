"""`minder lab`: what this machine lets the local lab do, and clearing away what a killed lab left behind."""

from __future__ import annotations

import typer

app = typer.Typer(help="The local lab: check what works here, clean up after a kill -9.", no_args_is_help=True)


@app.command()
def check() -> None:
    """Try everything the lab needs, once, and say what this machine refuses and why.

    Example: minder lab check
    """
    from rich.console import Console
    from rich.table import Table

    from minder.simulate.lab.capabilities import FEATURES, find_capabilities

    found = find_capabilities()
    table = Table("feature", "what for", "works", "why not")
    for feature, purpose in FEATURES.items():
        works = "yes" if found.can(feature) else "no"
        table.add_row(feature, purpose, works, found.refused.get(feature, ""))
    console = Console()
    console.print(table)
    mode = "namespaces" if found.can("namespaces") and found.can("cgroups") else "processes"
    console.print(f"cgroups: {found.layout}; the lab's machines will be: {mode}")


@app.command()
def clean() -> None:
    """Remove the labs whose owner is gone: processes, cgroups, namespaces, links. A running lab is never touched.

    Example: minder lab clean
    """
    from minder.simulate.lab.clean import clean_labs

    report = clean_labs()
    for run_id, things in report.removed.items():
        typer.echo(f"removed lab {run_id}: {', '.join(things) or 'only its record'}")
    for run_id in report.running:
        typer.echo(f"left lab {run_id} alone: it is running")
    if not report.removed:
        typer.echo("nothing to remove")
