"""How far a job's communication groups are spread over blocks of the network: the measure that placement keeps small (pure).

Arnold (arXiv 2509.15940, section 4): what costs is a communication group that crosses blocks, the minipods below one spine switch. The
spread of a group is the number of blocks that it touches; of a kind of group the largest counts, since the slowest group sets the pace.
A block is what `block` names; where no machine of the job names one, its switch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minder.model.errors import BadInputError
from minder.model.topology import Parallelism

__all__ = ["BLOCK_KINDS", "Spread", "block_kind"]

BLOCK_KINDS = ("block", "switch")


def block_kind(domains: Mapping[str, Mapping[str, str]], machines: tuple[str, ...]) -> str | None:
    """What names the blocks of these machines; None where nothing does: then nothing is known of their spread."""
    return next((kind for kind in BLOCK_KINDS if any(kind in domains.get(machine, {}) for machine in machines)), None)


@dataclass(frozen=True, slots=True)
class Spread:
    """A job's groups, by axis, as machines. blocks: machine to its block; a machine without one is a block of its own."""

    groups: Mapping[str, tuple[frozenset[str], ...]]
    blocks: Mapping[str, str]

    @classmethod
    def of(cls, parallelism: Parallelism, rank_machine: Mapping[int, str], blocks: Mapping[str, str]) -> Spread:
        """Only groups that cross machines. Raises BadInputError where the ranks are not those of `parallelism`."""
        if sorted(rank_machine) != list(range(parallelism.world_size)):
            raise BadInputError(f"{len(rank_machine)} ranks are placed, and the parallelism has {parallelism.world_size}")
        found: dict[str, tuple[frozenset[str], ...]] = {}
        for axis, size in parallelism.axes():
            if size == 1:
                continue
            stride, _ = parallelism.stride(axis)
            first = (rank for rank in range(parallelism.world_size) if rank // stride % size == 0)
            groups = {frozenset(rank_machine[rank + at * stride] for at in range(size)) for rank in first}
            crossing = tuple(group for group in groups if len(group) > 1)
            if crossing:
                found[axis] = crossing
        return cls(found, blocks)

    def largest(self) -> dict[str, int]:
        """Of each axis the largest spread of a group.

        >>> job = Spread.of(Parallelism(pipeline=2, data=2), {0: "a", 1: "b", 2: "c", 3: "d"}, {"a": "x", "b": "x", "c": "x", "d": "y"})
        >>> job.largest()
        {'dp': 2, 'pp': 2}
        """
        return {axis: max(len(self._touched(group)) for group in groups) for axis, groups in self.groups.items()}

    def grows_by(self, machine: str, standby: str) -> tuple[int, int]:
        """What it costs that a standby takes a machine's place: (by how much the largest spreads grow together, how many blocks the groups
        of this place touch then, together)."""
        largest, grown, touched = self.largest(), 0, 0
        for axis, groups in self.groups.items():
            own = [len(self._touched(group - {machine} | {standby})) for group in groups if machine in group]
            grown += max(0, max(own, default=0) - largest[axis])
            touched += sum(own)
        return grown, touched

    def _touched(self, group: frozenset[str]) -> set[str]:
        return {self.blocks.get(machine, machine) for machine in group}
