"""`minder plan`: what the next job needs, where it should run, and what it may expect (docs/reliability.md, docs/standbys.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minder.cli.options import TableFormat

__all__ = ["app", "ettr", "place", "spares", "standbys"]

app = typer.Typer(help="What the next job needs: standbys, machines close together, and the ETTR that it may expect.", no_args_is_help=True)


@app.command("standbys")
def standbys(
    machines: Annotated[list[int] | None, typer.Option(help="Machines of the job; may be repeated. [default: 128 256 512 1024]")] = None,
    rate: Annotated[float | None, typer.Option(help="Failures per machine and day. [default: 0.0012]")] = None,
    percentile: Annotated[float, typer.Option(help="How surely a day's failures are covered.")] = 99.0,
    ledger: Annotated[str | None, typer.Option(help="Count the rate from this ledger's evictions: a file or URL.")] = None,
    since: Annotated[str, typer.Option(help="With --ledger, how far back: 30d.")] = "90d",
    job: Annotated[str | None, typer.Option(help="With --ledger, only this job's failures.")] = None,
    format_: TableFormat = "table",
) -> None:
    """How many standbys a job needs: a percentile of the binomial over its machines and their failure rate.

    Example: minder plan standbys --machines 1024 --rate 0.0012
    """
    import json

    from minder.act.recovery.pool_size import DEFAULT_RATE, advise_standbys, given_rate
    from minder.cli.tables import check_choice, print_table
    from minder.model.errors import BadInputError
    from minder.offline.reliability.advice import advice_json, advice_notes, advice_rows, rate_from_ledger

    check_choice("--format", format_, ("table", "json"))
    if ledger is not None and rate is not None:
        raise BadInputError("--rate and --ledger both say how often machines fail: give one of them")
    counted = None if ledger is None else rate_from_ledger(ledger, since, job)
    found = given_rate(DEFAULT_RATE if rate is None else rate) if counted is None else counted.rate
    advice = advise_standbys(machines or [128, 256, 512, 1024], found, percentile)
    if format_ == "json":
        typer.echo(json.dumps(advice_json(advice, found, percentile, counted), indent=1))
        return
    print_table(advice_rows(advice, counted is not None))
    for line in advice_notes(found, percentile, counted):
        typer.echo(line)


@app.command("ettr")
def ettr(
    gpus: Annotated[list[int] | None, typer.Option(help="GPUs of the job; may be given several times. [default: 9600 200000]")] = None,
    gpus_per_machine: Annotated[int, typer.Option(help="GPUs of one machine.")] = 8,
    months: Annotated[float, typer.Option(help="Months of 30 days to simulate.")] = 3.0,
    rates: Annotated[str, typer.Option(help="How often incidents come: byterobust or infinitehbd.")] = "byterobust",
    pool: Annotated[int | None, typer.Option("--standbys", help="Standbys. [default: the P99 rule's]", min=0)] = None,
    assume: Annotated[list[str] | None, typer.Option(help="Change an assumption: step_s=12; may be given several times.")] = None,
    time: Annotated[
        list[str] | None, typer.Option(help="A time that you measured yourself: in_place=40; may be given several times.")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave a mechanism out: detection, over_eviction, diagnosis, standbys, in_place, memory, spaced, update or shrink; "
            "may be given several times."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A job.toml whose [policy] bounds the evictions. [default: minder's defaults]")
    ] = None,
    repeats: Annotated[int, typer.Option(help="Simulated runs per size and variant.", min=1)] = 10,
    seed: Annotated[int, typer.Option(help="The same seed gives the same numbers.", min=0)] = 0,
    picture: Annotated[Path | None, typer.Option(help="Also draw it: a PNG file.")] = None,
    format_: TableFormat = "table",
) -> None:
    """ETTR of simulated months with minder, and without each of its mechanisms: published incidents, and times measured in the lab, by you,
    or published, each marked.

    Example: minder plan ettr --gpus 9600 --months 1
    """
    import json
    from dataclasses import replace

    from minder.act.policy.config import PolicyConfig
    from minder.cli.tables import check_choice, print_table
    from minder.config import read_config
    from minder.offline.reliability.mix import load_published
    from minder.offline.reliability.plan import describe_scale, make_scale, plan_ettr, plan_json, plan_notes, plan_rows
    from minder.offline.reliability.times import with_site_times

    check_choice("--format", format_, ("table", "json"))
    published = load_published().assuming(assume or [])
    published = replace(published, times=with_site_times(published.times, time or []))
    scales = [make_scale(published, count, gpus_per_machine, months * 30.0, rates, pool) for count in gpus or [9600, 200_000]]
    policy = PolicyConfig() if config is None else read_config(config).policy_config(act=False)
    outcomes = plan_ettr(scales, published, seed, repeats, without=without or [], policy=policy)
    if picture is not None:
        from minder.offline.plots.files import write_picture
        from minder.offline.reliability.pictures import plan_picture

        write_picture(plan_picture(outcomes), picture, "--picture")
    if format_ == "json":
        typer.echo(json.dumps(plan_json(outcomes, published, seed, repeats), indent=1))
        return
    for scale in scales:
        typer.echo(describe_scale(scale))
        print_table(plan_rows([item for item in outcomes if item.scale == scale]))
        typer.echo("")
    for line in plan_notes(scales, published, repeats, policy):
        typer.echo(line)


@app.command("place")
def place(
    network: Annotated[
        Path, typer.Option(help="Slurm's topology.conf, nodes as `kubectl get nodes -o json` writes them (.json), or a .toml.")
    ],
    data: Annotated[int, typer.Option(min=1, help="Data-parallel replicas.")],
    tensor: Annotated[int, typer.Option(min=1)] = 1,
    pipeline: Annotated[int, typer.Option(min=1)] = 1,
    context: Annotated[int, typer.Option(min=1)] = 1,
    gpus_per_machine: Annotated[int, typer.Option(min=1, help="GPUs of one machine.")] = 8,
    rank_order: Annotated[str, typer.Option(help="As in [parallelism].")] = "tp-dp-pp",
    unit: Annotated[str, typer.Option(help="The axis whose groups are kept together: pp or dp.")] = "pp",
    alpha: Annotated[float, typer.Option(help="Weight of the number of blocks against the spread of a group, 0 to 1.")] = 0.0,
    spares_: Annotated[
        int | None, typer.Option("--spares", min=0, help="Machines reserved in each block that is used. [default: the P99 rule's]")
    ] = None,
    free: Annotated[Path | None, typer.Option(help="A file with the machines that are free, one a line. [default: all]")] = None,
    label: Annotated[str | None, typer.Option(help="Of Kubernetes' nodes: the label that names the block.")] = None,
    format_: TableFormat = "table",
) -> None:
    """Where a job's machines should be, so that its communication groups touch few blocks of the network, with spares in each block.

    Example: minder plan place --network topology.conf --data 46 --tensor 8 --pipeline 8
    """
    import json

    from minder.cli.tables import check_choice, print_table
    from minder.model.topology import Parallelism
    from minder.offline.placement.layout import place as place_machines
    from minder.offline.placement.network import DEFAULT_LABEL, read_network
    from minder.offline.placement.report import layout_json, layout_notes, layout_rows

    check_choice("--format", format_, ("table", "json"))
    check_choice("--unit", unit, ("pp", "dp"))
    blocks = read_network(network, label or DEFAULT_LABEL).free(None if free is None else _names(free))
    parallelism = Parallelism(tensor, pipeline, data, 1, context, rank_order)
    found = place_machines(parallelism, gpus_per_machine, blocks, unit=unit, alpha=alpha, spares=spares_)
    if format_ == "json":
        typer.echo(json.dumps(layout_json(found), indent=1))
        return
    print_table(layout_rows(found))
    for line in layout_notes(found):
        typer.echo(line)


@app.command("spares")
def spares(
    config: Annotated[Path, typer.Option(help="The job.toml of the job; its machines name their block or switch.")],
    rate: Annotated[float | None, typer.Option(help="Failures per machine and day. [default: 0.0012]")] = None,
    format_: TableFormat = "table",
) -> None:
    """How many standbys each block of a job has, and how many it should have, so that a replacement need not leave its block.

    Example: minder plan spares --config job.toml
    """
    import json

    from minder.act.recovery.pool_size import DEFAULT_RATE
    from minder.cli.tables import check_choice, print_table
    from minder.config import read_config
    from minder.offline.placement.report import spares_of, spares_rows

    check_choice("--format", format_, ("table", "json"))
    found = spares_of(read_config(config).topology(), DEFAULT_RATE if rate is None else rate)
    if format_ == "json":
        typer.echo(json.dumps({"blocks": found}, indent=1))
        return
    print_table(spares_rows(found))


def _names(path: Path) -> frozenset[str]:
    """Raises BadInputError."""
    from minder.model.errors import BadInputError

    try:
        return frozenset(path.read_text().split())
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"--free {path} cannot be read: {error}") from error
