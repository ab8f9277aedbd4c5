"""A pipeline at work: some stages compute, their neighbours wait for messages, and that is how it should be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from minder.diagnose.stacks.scene import Member, Scene, machines_of
from minder.model.topology import Parallelism

__all__ = ["is_at_work"]


def is_at_work(scene: Scene) -> bool:
    """True where nobody but computing ranks is busy, and each of them may be what its own pipeline waits for.

    With the job's groups: every pipeline that still exchanges messages has somebody who computes, and nobody computes alone among
    tensor-parallel peers that wait for it; or whole stages compute, in all replicas. Without them: several machines compute while others
    wait for messages.
    """
    messages = [member for member in scene.passive if member.role.kind == "point to point"]
    if any(member.role.kind != "compute" for member in scene.busy):
        return False
    topology = scene.places.topology
    if _fills_stages(scene) and (messages or len(machines_of(scene.busy)) > 1):
        return True
    if not messages:
        return False
    if topology is None or topology.parallelism.pipeline < 2 or any(member.process.rank is None for member in scene.members):
        return len(machines_of([member for member in scene.members if member.role.kind == "compute"])) > 1
    replicas: dict[int, list[Member]] = defaultdict(list)
    tensors: dict[tuple[int, ...], list[Member]] = defaultdict(list)
    for member in scene.members:
        rank = member.process.rank
        if rank is None or rank >= topology.parallelism.world_size:
            return False
        replicas[_replica(topology.parallelism, rank)].append(member)
        tensors[topology.parallelism.group("tp", rank)].append(member)
    return all(_works(members) for members in replicas.values()) and not any(_is_alone(members) for members in tensors.values())


def _fills_stages(scene: Scene) -> bool:
    """Whoever shares a stage with one that computes does so too, and other stages wait: faults do not strike by stage."""
    stages = {scene.places.stage(member.process) for member in scene.busy}
    return bool(stages) and None not in stages and not any(scene.places.stage(member.process) in stages for member in scene.passive)


def _replica(parallelism: Parallelism, rank: int) -> int:
    place = parallelism.coordinates(rank)
    return place["dp"] * parallelism.context + place["cp"]


def _works(members: Sequence[Member]) -> bool:
    """It has nothing to wait for but somebody in it that computes. One that has met its replicas in a collective is done with that."""
    computing = any(member.role.kind == "compute" for member in members)
    messages = any(member.role.kind == "point to point" for member in members)
    return computing and (messages or any(member.role.stance != "waits" for member in members))


def _is_alone(members: Sequence[Member]) -> bool:
    """One computes, and all its tensor-parallel peers wait in a collective: for it."""
    busy = [member for member in members if member.role.stance == "outside"]
    waits = [member for member in members if member.role.kind == "collective"]
    return len(members) > 1 and len(busy) == 1 and len(waits) == len(members) - 1
