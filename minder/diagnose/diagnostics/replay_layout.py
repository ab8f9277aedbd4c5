"""Which machines replay together: groups of whole machines, each a job of its own with fewer replicas (pure).

ByteRobust keeps the sizes of tensor and pipeline parallelism and reduces data parallelism only: m = k * PP machines a group, n = DP / k
groups. That holds for machines of one stage each. For any placement: a replica of the model needs TP * CP * PP * EP ranks (experts divide
the data axis, so fewer replicas must still hold all of them), and the fewest whole machines whose ranks are a multiple of that are a block.
Then m = k blocks, n = blocks / k. Horizontal groups are x // m, vertical ones x % n, where x numbers the machines replica by replica: a
horizontal group is whole pipelines of the job as they were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from minder.model.errors import BadInputError
from minder.model.topology import Parallelism, Topology

__all__ = ["ReplayGroup", "ReplayLayout", "choose_k", "fewer_layers", "lay_out"]


class Place(NamedTuple):
    """What a rank is to the model."""

    expert_group: int
    stage: int
    expert: int
    context: int
    tensor: int


@dataclass(frozen=True, slots=True)
class ReplayGroup:
    """Machines that replay the job together. rank_machine: rank of the group's own job to machine; the job has `parallelism`."""

    name: str
    machines: tuple[str, ...]
    rank_machine: dict[int, str]
    parallelism: Parallelism


@dataclass(frozen=True, slots=True)
class ReplayLayout:
    """machines: numbered x = 0, 1, ...; block: the fewest machines that can run a replica; m = k * block machines in each of n groups.
    places: what each machine's ranks are in the job."""

    machines: tuple[str, ...]
    ranks_per_machine: int
    parallelism: Parallelism
    block: int
    k: int
    places: Mapping[str, tuple[Place, ...]] = field(repr=False)

    @property
    def m(self) -> int:
        return self.k * self.block

    @property
    def n(self) -> int:
        return len(self.machines) // self.m

    def horizontal(self) -> tuple[ReplayGroup, ...]:
        return tuple(self.group(f"h{a}", self.machines[a * self.m : (a + 1) * self.m]) for a in range(self.n))

    def vertical(self) -> tuple[ReplayGroup, ...]:
        return tuple(self.group(f"v{b}", self.machines[b :: self.n]) for b in range(self.n))

    def group(self, name: str, machines: Sequence[str]) -> ReplayGroup:
        """A group of these machines, each with the roles that it has in the job where they make up whole replicas, else laid out anew.
        Raises BadInputError where they hold no whole number of replicas."""
        ranks = len(machines) * self.ranks_per_machine
        replicas, left = divmod(ranks, _replica_ranks(self.parallelism))
        if left or not replicas:
            raise BadInputError(f"{len(machines)} machines hold {ranks} ranks, no whole replica: take a multiple of {self.block} machines")
        parallelism = replace(self.parallelism, data=replicas * self.parallelism.expert)
        filled = self._as_in_the_job(machines, replicas) or [machines[index // self.ranks_per_machine] for index in range(ranks)]
        at = sorted(range(parallelism.world_size), key=lambda rank: _place(parallelism, rank))
        return ReplayGroup(name, tuple(machines), dict(sorted(zip(at, filled, strict=True))), parallelism)

    def _as_in_the_job(self, machines: Sequence[str], replicas: int) -> list[str]:
        """The machines in the order of what their ranks are in the job; empty if that is no whole number of replicas."""
        owner = {place: machine for machine in machines for place in self.places.get(machine, ())}
        parts = {place[1:] for place in owner}
        whole = (
            len({place[0] for place in owner}) == replicas and len(parts) * replicas == len(owner) == len(machines) * self.ranks_per_machine
        )
        return [owner[place] for place in sorted(owner)] if whole else []


def lay_out(topology: Topology, k: int | None = None) -> ReplayLayout:
    """Number the job's machines and choose the groups. k: blocks per group; None chooses (`choose_k`). Raises BadInputError where machines
    hold different numbers of ranks, or k does not divide the blocks."""
    parallelism = topology.parallelism
    places = {machine: tuple(_place(parallelism, rank) for rank in topology.ranks_of(machine)) for machine in topology.machines}
    machines = sorted(topology.machines, key=lambda machine: min(places[machine], default=(0,) * 5))
    counts = {machine: len(topology.ranks_of(machine)) for machine in machines}
    if len(set(counts.values())) > 1:
        fewest, most = min(machines, key=counts.__getitem__), max(machines, key=counts.__getitem__)
        raise BadInputError(f"{fewest} holds {counts[fewest]} ranks and {most} {counts[most]}: a replay needs as many on each machine")
    ranks = counts[machines[0]]
    need = _replica_ranks(parallelism)
    block = need // math.gcd(need, ranks)
    blocks = len(machines) // block
    chosen = choose_k(block, blocks) if k is None else k
    if chosen < 1 or blocks % chosen:
        raise BadInputError(f"k = {chosen} does not divide the {blocks} blocks of {block} machines: give one of {_divisors(blocks)}")
    return ReplayLayout(tuple(machines), ranks, parallelism, block, chosen, places)


def choose_k(block: int, blocks: int) -> int:
    """The largest k with m <= n, for which two groups cross in one machine: a group is then as like the job as it can be. 1 where no k
    does: two groups cross in up to ceil(m / n) machines then, and further phases part them.

    >>> choose_k(block=4, blocks=6), choose_k(block=1, blocks=16), choose_k(block=4, blocks=2)
    (1, 4, 1)
    """
    return max((k for k in _divisors(blocks) if k * block <= blocks // k), default=1)


def fewer_layers(layers: int, pipeline: int, per_stage: int = 1) -> int:
    """Layers of the replayed model: so many a stage, and never more than the job has.

    >>> fewer_layers(80, 8), fewer_layers(4, 4, per_stage=2)
    (8, 4)
    """
    return min(layers, pipeline * per_stage)


def _replica_ranks(parallelism: Parallelism) -> int:
    return parallelism.tensor * parallelism.context * parallelism.pipeline * parallelism.expert


def _divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _place(parallelism: Parallelism, rank: int) -> Place:
    at = parallelism.coordinates(rank)
    replica, expert = divmod(at["dp"], parallelism.expert)
    return Place(replica, at["pp"], expert, at["cp"], at["tp"])
