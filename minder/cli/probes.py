"""What `minder machine test` and `minder job diagnose` have in common: whose agents are asked, what is written down, what is printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from minder.model.log import say

if TYPE_CHECKING:
    from minder.app.probing import ProbedMachine
    from minder.config import JobConfig
    from minder.model.probes import ProbeJudgement
    from minder.record.incidents import Ledger
    from minder.wire.client import MachineEndpoints

__all__ = [
    "AgentToken",
    "ProbeNames",
    "agents_of_job",
    "agents_token",
    "conclude",
    "find_agent",
    "judge_and_record",
    "launchers_of",
    "load_job",
    "open_local",
]

Judged = Mapping[str, Sequence["ProbeJudgement"]]

ProbeNames = Annotated[str | None, typer.Option("--probes", help="Which probes, comma separated; all if not given (docs/diagnostics.md).")]
AgentToken = Annotated[
    Path | None,
    typer.Option(
        "--agent-token-file", envvar="MINDER_AGENT_TOKEN_FILE", help="The agents' token. [default: the job's, as --config names it]"
    ),
]


def load_job(config: Path | None, ledger: str | None) -> tuple[JobConfig | None, str | None]:
    """The configuration, if one is named, and the ledger that is meant: of its job, unless another one is named."""
    import os

    from minder.cli.extras import demand_controller

    if config is None:
        return None, ledger
    demand_controller()
    from minder.app.build import state_dir_of
    from minder.config import load_config

    loaded = load_config(config, only_watch=True)
    return loaded, ledger or os.environ.get("MINDER_LEDGER") or str(state_dir_of(loaded) / "ledger.db")


def open_local(place: str | None, *, needed: bool = True) -> Ledger | None:
    """None where none is needed, none is named, and there is none. Raises BadInputError for a service: agents are asked from here."""
    from minder.cli.remote import open_ledger
    from minder.model.errors import BadInputError
    from minder.record.incidents import Ledger, find_ledger

    usual = find_ledger(place)
    if not needed and place is None and "://" not in usual and not Path(usual).exists():
        return None
    opened = open_ledger(place)
    if not isinstance(opened, Ledger):
        opened.close()
        raise BadInputError("probes are asked for where the machines' agents can be reached: leave --server out")
    return opened


def agents_token(token_file: Path | None, job: str) -> str:
    """The one that is named, or the one that minder made for a job of this host."""
    from minder.model.errors import BadInputError
    from minder.model.resources import default_state_dir
    from minder.wire.tokens import read_token

    own = default_state_dir() / "jobs" / job / "token"
    if token_file is None and not own.exists():
        raise BadInputError(f"the token of {job}'s agents is not known: give --agent-token-file, or --config with its job.toml")
    return read_token(token_file or own)


def find_agent(name: str, agent: str | None, config: JobConfig | None, token_file: Path | None, ledger: Ledger | None) -> MachineEndpoints:
    """Where the agent of a machine listens: as the command line says, the configuration, or the job that registered it last."""
    from minder.app.probing import find_endpoint
    from minder.config import check_url
    from minder.model.errors import BadInputError
    from minder.record.incidents import kinds
    from minder.wire.client import Endpoint, MachineEndpoints
    from minder.wire.tokens import read_token

    if agent is not None:
        token = read_token(token_file) if token_file is not None else ""
        return MachineEndpoints(name, Endpoint(check_url("--agent", agent).rstrip("/"), token), None)
    if config is not None:
        found = next((item for item in config.endpoints() if item.machine == name and item.agent is not None), None)
        if found is None:
            raise BadInputError(f'--config names no machine "{name}" with an agent')
        return found
    events = [] if ledger is None else ledger.events(kinds=[kinds.JOB_REGISTERED, kinds.STANDBY_ADDED])
    return find_endpoint(events, name, lambda job: agents_token(token_file, job))


def agents_of_job(name: str, config: JobConfig | None, token_file: Path | None, ledger: Ledger | None) -> list[MachineEndpoints]:
    """Of all machines and standbys of a job, in its order. Raises BadInputError where none is known."""
    from minder.model.errors import BadInputError
    from minder.record.incidents import kinds
    from minder.record.incidents.joins import agent_addresses
    from minder.wire.client import Endpoint, MachineEndpoints

    if config is not None:
        if config.name != name:
            raise BadInputError(f'--config is of job "{config.name}", not of "{name}"')
        return [item for item in config.endpoints() if item.agent is not None]
    addresses: dict[str, str] = {}
    events = [] if ledger is None else ledger.events(job=name, kinds=[kinds.JOB_REGISTERED, kinds.STANDBY_ADDED])
    for event in events:
        addresses = {**(addresses if event.kind == kinds.STANDBY_ADDED else {}), **agent_addresses(event)}
    if not addresses:
        raise BadInputError(f'no job "{name}" with agents is in the ledger: give --config job.toml')
    token = agents_token(token_file, name)
    return [MachineEndpoints(machine, Endpoint(url, token), None) for machine, url in addresses.items()]


def launchers_of(config: Path | None, agents: Sequence[MachineEndpoints]) -> list[MachineEndpoints]:
    """The launchers of these machines, without their agents."""
    import dataclasses

    from minder.config import load_config
    from minder.model.errors import BadInputError

    known = [] if config is None else [item for item in load_config(config).endpoints() if item.launcher is not None]
    wanted = {item.machine for item in agents}
    found = [dataclasses.replace(item, agent=None) for item in known if item.machine in wanted]
    if not found:
        raise BadInputError("--launchers needs --config with a job.toml that names launchers")
    return found


def judge_and_record(tested: Mapping[str, ProbedMachine], ledger: Ledger | None, why: str, job: str | None, note: str) -> Judged:
    """Beside what the ledger knows, and into it; where there is none, beside each other."""
    from minder.app.probing import judge_all, record
    from minder.cli.tables import operator_name
    from minder.record.incidents.probes import read_past

    judged = judge_all(tested, () if ledger is None else read_past(ledger.events))
    if ledger is None:
        say("note: there is no ledger here: nothing earlier is compared, and nothing is written down")
    else:
        record(ledger, tested, judged, by=operator_name(), why=why, job=job, note=note)
    return judged


def conclude(tested: Mapping[str, ProbedMachine], judged: Judged, format_: str) -> int:
    """Print, and the exit status: 1 where a machine was found faulty or slow, or a probe said nothing."""
    import json

    from minder.app.probe_tables import judgement_rows, matrix_rows, reasons
    from minder.cli.tables import print_table
    from minder.wire.codec import to_json

    if format_ == "json":
        document = [{**to_json(item), "judgements": to_json(judged[machine])} for machine, item in tested.items()]
        typer.echo(json.dumps(document, indent=1))
    elif len(tested) == 1 and all(item.results for item in tested.values()):
        print_table(judgement_rows(next(iter(judged.values()))))
    else:
        print_table(matrix_rows(tested, judged))
        for line in reasons(tested, judged):
            typer.echo(line)
    silent = any(item.refused or any(result.state == "not_judged" for result in item.results) for item in tested.values())
    bad = any(item.verdict in ("fail", "slow") for items in judged.values() for item in items)
    return 1 if bad or silent else 0
