"""`minder demo`: the whole loop on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    fault: Annotated[
        str, typer.Option(help="hang, crash, crash-cascade, exception, slow-cpu, slow-link, dead-link, oom, nan, ...")
    ] = "hang",
    at: Annotated[int | None, typer.Option("--at", help="Inject when this step is done.")] = None,
    machine: Annotated[int, typer.Option(help="Index of the machine that gets the fault.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the training job.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for logs, ledger, report and picture.")] = Path("demo-out"),
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    record: Annotated[Path | None, typer.Option(help="Write a recording with its truth here.")] = None,
    prometheus: Annotated[str | None, typer.Option(help="URL of a Prometheus that scrapes the lab's agents.")] = None,
    scrape_interval: Annotated[float, typer.Option(min=1.0, help="Seconds between scrapes.")] = 1.0,
    masked: Annotated[bool, typer.Option("--masked", help="Hide the injector's fingerprints from the agents.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Train with a script that calls no minder function.")] = False,
    steps: Annotated[int | None, typer.Option(help="Steps of the job.")] = None,
    mode: Annotated[str, typer.Option(help="auto, namespaces or processes.")] = "auto",
    serve: Annotated[bool, typer.Option("--serve", help="Then keep the pages of the run open, with a link, until Ctrl-C.")] = False,
) -> None:
    """Train a small model on six local machines, break one, and watch minder name it, evict it and resume on a standby.

    Exit status 0 only if what came out is what the fault demands and the losses equal those of an undisturbed run, bit for bit.

    Example: minder demo --fault hang
    """
    from minder.model.errors import BadInputError
    from minder.simulate.demo.options import DemoOptions
    from minder.simulate.demo.present import present

    if format not in ("text", "json"):
        raise BadInputError(f"--format is {format!r}: text or json")
    if mode not in ("auto", "namespaces", "processes"):
        raise BadInputError(f"--mode is {mode!r}: auto, namespaces or processes")
    options = DemoOptions(
        fault=fault,
        out=out,
        at_step=at,
        machine=machine,
        seed=seed,
        steps=steps,
        masked=masked,
        plain=plain,
        mode=mode,  # type: ignore[arg-type]
        telemetry=prometheus or "auto",
        scrape_interval_s=scrape_interval,
        record=record,
    )
    raise typer.Exit(present(options, as_json=format == "json", serve=serve))
