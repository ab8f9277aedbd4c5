"""Several machines at once: which parallel group of the job they share (ByteRobust, arXiv 2509.16293)."""

from __future__ import annotations

from collections.abc import Sequence

from minder.diagnose.stacks.places import Places
from minder.model.errors import BadInputError
from minder.model.observation import JobView
from minder.model.topology import Parallelism, Topology

__all__ = ["shared_group", "topology_of"]

_GROUP_SHARE = 0.5  # a group that holds more of the job than this is no explanation


def topology_of(job: JobView, parallelism: Parallelism | None) -> Topology | None:
    """The job's ranks as they are placed now. None where nothing is known of its groups, or it runs with fewer ranks than it had."""
    if parallelism is None or not job.machines:
        return None
    try:
        return Topology(job.machines, len(job.rank_machine) // len(job.machines), parallelism, rank_machine=dict(job.rank_machine))
    except BadInputError:
        return None


def shared_group(machines: Sequence[str], job: JobView | None, parallelism: Parallelism | None) -> tuple[str, tuple[str, ...]] | None:
    """("pp:1", its machines): the smallest parallel group that holds all of these and at most half of the job's machines, or None."""
    topology = None if job is None else topology_of(job, parallelism)
    if topology is None:
        return None
    cover = Places(topology.machines, topology).smallest_group(machines)
    return cover if cover is not None and len(cover[1]) <= _GROUP_SHARE * len(topology.machines) else None
