"""Which rank runs where, and what a worker is given of it (pure).

A standby takes the evicted machine's ranks, so every other rank keeps its number and its machine: the data of a step, the
order of a sum and the checkpoint's shards stay as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from minder.model.errors import RecoveryError

__all__ = ["GenerationPlan", "exchange_machines", "machine_order", "replace_machines"]


@dataclass(frozen=True, slots=True)
class GenerationPlan:
    """One generation of a job: ranks on machines, the store's address, and what else each worker's environment holds, on any machine
    and on one. program: the version of the job's code that it runs, as launchers read it; None: as they were started."""

    job: str
    generation: int
    rank_machine: Mapping[int, str]
    master_address: str
    master_port: int
    operation_id: str
    environment: Mapping[str, str] = field(default_factory=dict)
    max_restarts: int = 0
    machine_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    program: Mapping[str, Any] | None = None

    @property
    def machines(self) -> tuple[str, ...]:
        return machine_order(self.rank_machine)

    def request_for(self, machine: str, grace_s: float) -> dict[str, Any]:
        """The body of POST /v1/workers for one machine."""
        ranks = sorted(rank for rank, name in self.rank_machine.items() if name == machine)
        assignments = [{"slot": slot, "env": self._worker_environment(machine, rank, slot, len(ranks))} for slot, rank in enumerate(ranks)]
        return {
            "operation_id": f"{self.operation_id}/g{self.generation}",
            "generation": self.generation,
            "desired": "run",
            "world_size": len(self.rank_machine),
            "assignments": assignments,
            "grace_s": grace_s,
            **({} if self.program is None else {"program": dict(self.program)}),
        }

    def _worker_environment(self, machine: str, rank: int, local_rank: int, local_size: int) -> dict[str, str]:
        """The variables that torchrun sets, and ours. The store is never a worker's (TORCHELASTIC_USE_AGENT_STORE)."""
        return {
            **self.environment,
            **self.machine_environment.get(machine, {}),
            "MASTER_ADDR": self.master_address,
            "MASTER_PORT": str(self.master_port),
            "WORLD_SIZE": str(len(self.rank_machine)),
            "RANK": str(rank),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(local_size),
            "GROUP_RANK": str(self.machines.index(machine)),
            "GROUP_WORLD_SIZE": str(len(self.machines)),
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": str(len(self.rank_machine)),
            "ROLE_NAME": "default",
            "TORCHELASTIC_RUN_ID": self.job,
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": str(self.generation - 1),
            "TORCHELASTIC_MAX_RESTARTS": str(self.max_restarts),
            "MINDER_JOB": self.job,
            "MINDER_GENERATION": str(self.generation),
        }


def machine_order(rank_machine: Mapping[int, str]) -> tuple[str, ...]:
    """Machines in the order of their first rank.

    >>> machine_order({0: "b", 1: "a", 2: "b"})
    ('b', 'a')
    """
    return tuple(dict.fromkeys(rank_machine[rank] for rank in sorted(rank_machine)))


def replace_machines(rank_machine: Mapping[int, str], evicted: Sequence[str], replacements: Sequence[str]) -> dict[int, str]:
    """Each evicted machine's ranks go to one replacement. Raises RecoveryError if there are too few.

    >>> replace_machines({0: "a", 1: "b"}, ["b"], ["s0"])
    {0: 'a', 1: 's0'}
    """
    if len(replacements) < len(evicted):
        raise RecoveryError(f"{len(evicted)} machines leave but only {len(replacements)} standbys are ready: add a standby")
    swap = dict(zip(evicted, replacements, strict=False))
    return {rank: swap.get(machine, machine) for rank, machine in rank_machine.items()}


def exchange_machines(rank_machine: Mapping[int, str], machine: str, partner: str) -> dict[int, str]:
    """The partner takes the machine's whole block of ranks, and gives its own where it has one.

    >>> exchange_machines({0: "a", 1: "b", 2: "c"}, "b", "c")
    {0: 'a', 1: 'c', 2: 'b'}
    >>> exchange_machines({0: "a", 1: "b"}, "b", "s0")
    {0: 'a', 1: 's0'}
    """
    swap = {machine: partner, partner: machine}
    return {rank: swap.get(name, name) for rank, name in rank_machine.items()}
