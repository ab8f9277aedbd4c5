"""Machines that join a running job: part of its configuration from then on, in this process and in every controller that takes over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from minder.config import JobConfig, MachineConfig
from minder.model.history import LedgerEvent
from minder.model.topology import Topology
from minder.record.incidents.joins import Addresses, Join, fold_joins
from minder.wire.client import MachineEndpoints

__all__ = ["Admission", "registration", "with_joined"]


def with_joined(config: JobConfig, events: Iterable[LedgerEvent]) -> JobConfig:
    """The configuration and the machines that joined the job's present run; one that it names itself by now is as it says."""
    for join in fold_joins(events):
        if join.state == "done" and join.machine not in [machine.name for machine in config.machines]:
            config = _extended(config, join)
    return config


def registration(config: JobConfig, largest_group: int) -> dict[str, Any]:
    """What the ledger says of a run when it begins (kinds.JOB_REGISTERED)."""
    topology, machines = config.topology(), config.machines
    return {
        "machines": list(topology.machines),
        "standbys": list(topology.standbys),
        "gpus": topology.parallelism.world_size,
        "largest_group": largest_group,
        "domains": {machine: dict(found) for machine, found in topology.domains.items() if found},
        "serials": {machine.name: machine.serial for machine in machines if machine.serial},
        "agents": {machine.name: machine.agent.rstrip("/") for machine in machines if machine.agent},
        "launchers": {machine.name: machine.launcher.rstrip("/") for machine in machines if machine.launcher},
    }


class Admission:
    """Holds the configuration as it grows, and gives a machine that joins what the others were given at the start.

    names, agents: of all machines, and of those with an agent. They grow in place, and so do the topology's domains.
    on_admit: called with the grown configuration.
    """

    def __init__(self, config: JobConfig) -> None:
        self.config = config
        self.names = [machine.name for machine in config.machines]
        self.agents = {machine.name for machine in config.machines if machine.agent is not None}
        self._domains = {machine: dict(found) for machine, found in config.topology().domains.items()}
        self.on_admit: list[Callable[[JobConfig, MachineEndpoints], None]] = []

    def topology(self) -> Topology:
        """Of the job's start, with the domains of machines that join later as soon as they do."""
        found = self.config.topology()
        return Topology(found.machines, found.gpus_per_machine, found.parallelism, found.standbys, self._domains)

    def known(self) -> Addresses:
        return {machine.name: (_bare(machine.agent), _bare(machine.launcher)) for machine in self.config.machines}

    def endpoints(self, join: Join) -> MachineEndpoints:
        """With the job's tokens. Raises ConfigError."""
        return _extended(self.config, join).endpoints()[-1]

    def admit(self, join: Join) -> None:
        endpoints = self.endpoints(join)
        self.config = _extended(self.config, join)
        self._domains[join.machine] = dict(self.config.topology().domains[join.machine])
        self.names.append(join.machine)
        self.agents.add(join.machine)
        for take in self.on_admit:
            take(self.config, endpoints)


def _extended(config: JobConfig, join: Join) -> JobConfig:
    machine = MachineConfig(
        name=join.machine, agent=join.agent, launcher=join.launcher, standby=True, rack=join.rack, switch=join.switch, block=join.block
    )  # fmt: skip
    return config.model_copy(update={"machines": (*config.machines, machine)})


def _bare(url: str | None) -> str | None:
    return None if url is None else url.rstrip("/")
