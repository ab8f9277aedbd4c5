"""Parallel groups as sets of machines: which of them covers the outliers (SOSP'25 ByteRobust, section 7.1)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minder.diagnose.stacks.records import Process
from minder.model.errors import BadInputError
from minder.model.topology import Parallelism, Topology

if TYPE_CHECKING:
    from minder.model.observation import JobView

__all__ = ["Places", "shared_group", "topology_of"]

_AXES = ("pp", "tp", "cp", "ep", "dp")  # the paper prefers the pipeline where groups are of one size
_GROUP_SHARE = 0.5  # a group that holds more of the job than this is no explanation


@dataclass(frozen=True, slots=True)
class Places:
    """Where the processes of a capture are. Without a topology there are machines and nothing else."""

    machines: tuple[str, ...]
    topology: Topology | None = None

    @classmethod
    def of(cls, processes: Sequence[Process], topology: Topology | None) -> Places:
        """The machines that have dumps, and those that the topology names. A topology of other machines is none."""
        seen = tuple(dict.fromkeys(process.machine for process in processes))
        if topology is None or not set(seen) & set(topology.machines):
            return cls(seen)
        return cls(tuple(dict.fromkeys((*topology.machines, *seen))), topology)

    def stage(self, process: Process) -> int | None:
        """Pipeline stage: peers of one stage do the same. None where it is not known or the machine holds several."""
        if self.topology is None:
            return None
        if process.rank is not None and process.rank < self.topology.parallelism.world_size:
            return self.topology.parallelism.coordinates(process.rank)["pp"]
        stages = self.topology.stages_of(process.machine)
        return stages[0] if len(stages) == 1 else None

    def smallest_group(self, machines: Collection[str]) -> tuple[str, tuple[str, ...]] | None:
        """("pp:0", its machines): the smallest parallel group on two or more machines that holds all of these."""
        found: list[tuple[int, int, str, tuple[str, ...]]] = []
        for order, axis in enumerate(_AXES):
            for index, group in enumerate(self._groups(axis)):
                if len(group) > 1 and set(machines) <= set(group):
                    found.append((len(group), order, f"{axis}:{index}", group))
        if not found:
            return None
        _, _, name, group = min(found)
        return name, group

    def domain(self, machines: Collection[str]) -> str | None:
        """ "rack r7, switch leaf-7": what two or more machines share and no other machine of the job has; None where there is none.
        What the whole job shares is none."""
        return ", ".join(name for name, members in self._domains().items() if len(members) > 1 and members == set(machines)) or None

    def _domains(self) -> dict[str, set[str]]:
        """Machines by what they hang on, of those that are not all of the job."""
        found: dict[str, set[str]] = {}
        for machine in self.machines:
            for kind, name in (self.topology.domains.get(machine, {}) if self.topology is not None else {}).items():
                found.setdefault(f"{kind} {name}", set()).add(machine)
        return {name: members for name, members in found.items() if len(members) < len(self.machines)}

    def _groups(self, axis: str) -> tuple[tuple[str, ...], ...]:
        """Distinct sets of machines that share a group of this axis, in rank order; ranks of one machine in one stage count once."""
        if self.topology is None:
            return ()
        parallelism = self.topology.parallelism
        groups: dict[tuple[str, ...], None] = {}
        for rank in range(parallelism.world_size):
            if axis != "ep" and parallelism.coordinates(rank).get(axis):
                continue  # not the first of its group
            try:
                ranks = parallelism.group(axis, rank) if axis != "ep" or parallelism.expert > 1 else ()
            except BadInputError:
                return ()
            if ranks and ranks[0] == rank:
                groups.setdefault(self.topology.machines_of([r for r in ranks if r in self.topology.rank_machine]))
        return tuple(groups)


def topology_of(job: JobView, parallelism: Parallelism | None) -> Topology | None:
    """The job's ranks as they are placed now; of one that goes on with fewer machines, in fewer replicas. None where nothing is known of
    its groups, or not all of its ranks are seen."""
    if parallelism is None or not job.machines:
        return None
    try:
        sized = parallelism.sized(len(job.rank_machine)) if job.is_short else parallelism
        return Topology(job.machines, len(job.rank_machine) // len(job.machines), sized, rank_machine=dict(job.rank_machine))
    except BadInputError:
        return None


def shared_group(machines: Sequence[str], job: JobView | None, parallelism: Parallelism | None) -> tuple[str, tuple[str, ...]] | None:
    """("pp:1", its machines): the smallest parallel group that holds all of these and at most half of the job's machines, or None."""
    topology = None if job is None else topology_of(job, parallelism)
    if topology is None:
        return None
    cover = Places(topology.machines, topology).smallest_group(machines)
    return cover if cover is not None and len(cover[1]) <= _GROUP_SHARE * len(topology.machines) else None
