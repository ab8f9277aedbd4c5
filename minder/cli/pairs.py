"""What `minder job diagnose --pairs` asks, writes down and prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from minder.model.log import say

if TYPE_CHECKING:
    from minder.app.pairing import PairOptions
    from minder.config import JobConfig
    from minder.model.pairs import PairGraph
    from minder.record.incidents import Ledger
    from minder.wire.client import MachineEndpoints

__all__ = ["conclude_pairs", "pair_and_record"]


def pair_and_record(
    machines: Sequence[MachineEndpoints], config: JobConfig | None, ledger: Ledger | None, options: PairOptions, of: tuple[str, str]
) -> PairGraph:
    """of: the job's name, and why it is tested. The graph goes into the newest incident of the job that is open, where there is one."""
    import dataclasses

    from minder.app.pairing import PairMachine, job_address, pair_test, record_pairs
    from minder.cli.tables import operator_name

    job, note = of
    given = {} if config is None else {machine.name: machine.job_address for machine in config.machines}
    domains = {} if config is None else config.topology().domains
    asked = [PairMachine(item, job_address(item, given.get(item.machine))) for item in machines]
    options = dataclasses.replace(options, generation=_generation(ledger, job))
    graph = pair_test(asked, domains, options, None if config is None else config.tls.context())
    if ledger is None:
        say("note: there is no ledger here: nothing is written down")
    else:
        incident = max(ledger.open_incidents(job), key=lambda item: item.opened_s, default=None)
        where = None if incident is None else incident.id
        record_pairs(ledger, graph, by=operator_name(), why="diagnose", job=job, incident=where, note=note)
    return graph


def _generation(ledger: Ledger | None, job: str) -> int:
    """The job's newest, 0 where none is known."""
    from minder.record.incidents import kinds

    started = [] if ledger is None else ledger.events(job=job, kinds=[kinds.GENERATION_STARTED], newest_first=True, limit=1)
    return int(started[0].payload.get("generation") or 0) if started else 0


def conclude_pairs(graph: PairGraph, format_: str) -> int:
    """Print, and the exit status: 1 where a machine or a link is faulty or slow, or a machine is not judged."""
    import json

    from minder.app.probe_tables import pair_rows
    from minder.cli.tables import print_table
    from minder.wire.codec import to_json

    if format_ == "json":
        typer.echo(json.dumps({**to_json(graph), "links": graph.links}, indent=1))
    else:
        print_table(pair_rows(graph))
        for node in graph.nodes:
            if node.state != "good":
                typer.echo(f"{node.machine}: {node.state.replace('_', ' ')}: {node.reason}")
        for one, other in graph.links:
            typer.echo(f"the link between {one} and {other} is to blame: both are good with others")
    return 1 if graph.links or any(node.state != "good" for node in graph.nodes) else 0
