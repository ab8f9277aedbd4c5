"""Who is busy elsewhere while the others wait for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from minder.diagnose.stacks.finding import Finding, accuse
from minder.diagnose.stacks.rules import Blame
from minder.diagnose.stacks.scene import Member, Scene, is_duty, machines_of

__all__ = ["judge_crowd", "judge_outsiders"]

_GROUP_SHARE = 0.5  # a group that holds more of the job than this is no explanation


def judge_outsiders(scene: Scene) -> Finding:
    """Some are busy, the others wait for them: one machine explains it, or a small parallel group, or nothing does."""
    share = len(scene.passive) / scene.size
    starting = [member for member in scene.busy if member.role.start]
    if starting:  # who waits for a slow start waits for nothing that an eviction would mend
        kind: Blame = "software" if any(member.role.blame == "software" for member in starting) else "workload"
        return Finding(tuple(accuse(m, 0.4) for m in starting), blame=kind, because="part of the job is still starting or compiling")
    machine_like = [member for member in scene.busy if member.role.blame == "machine" and member.role.kind != "checkpoint"]
    if not machine_like:
        return _software(scene, share)
    suspects = _most_telling(machine_like)
    machines = machines_of(suspects)
    accused = tuple(accuse(member, _confidence(member, share)) for member in suspects)
    if len(machines) == 1:
        if len(scene.places.machines) == 1:
            return Finding(accused, because="all processes are on one machine: nothing to compare it with")
        return Finding(
            accused, machines, None, "machine", f"{machines[0]} is busy elsewhere while {len(scene.passive)} of {scene.size} wait"
        )
    return _several(scene, suspects)


def _several(scene: Scene, suspects: Sequence[Member]) -> Finding:
    """Two or more machines: one cause that they share. A shared disk or service is nobody's machine."""
    accused = tuple(accuse(member, 0.5) for member in suspects)
    domain = scene.places.domain(machines_of(suspects))
    if domain is not None:
        return Finding(
            accused, because=f"{domain} stands apart: all its machines are busy elsewhere, the others wait: look at what they share"
        )
    cover = scene.places.smallest_group(machines_of(suspects))
    if cover is None or len(cover[1]) > _GROUP_SHARE * len(scene.places.machines) or any(member.role.io for member in suspects):
        return Finding(
            accused, because="several machines are busy elsewhere and share no small parallel group: a common cause, such as storage"
        )
    return Finding(accused, cover[1], cover[0], "machine", f"all that are busy elsewhere are in {cover[0]}")


def _most_telling(members: Sequence[Member]) -> list[Member]:
    """If exactly one machine does something that a rule knows for certain, unclear or computing others are only close to a wait."""
    certain = [member for member in members if member.role.stance == "outside" and member.role.kind != "compute"]
    return certain if certain and len(machines_of(certain)) == 1 else list(members)


def _software(scene: Scene, share: float) -> Finding:
    """What they do is the job's own doing: data, checkpoint, a lock, a service."""
    duty = [member for member in scene.busy if is_duty(member, scene)]
    if len(duty) == len(scene.busy):
        because = "the ranks that write for all save or load a checkpoint, the others wait for them"
        return Finding(blame="workload", because=because, passes=True)
    blames = Counter(member.role.blame for member in scene.busy)
    blame = blames.most_common(1)[0][0]
    accused = tuple(accuse(member, _confidence(member, share)) for member in scene.busy)
    return Finding(accused, blame=blame, because="what the others wait for is the job's own doing, or nothing says whose")


def _confidence(member: Member, share: float) -> float:
    """The rule's weight, less where fewer than all others are seen to wait."""
    return member.role.weight * (0.7 + 0.3 * share) if share < 0.9 else member.role.weight


def judge_crowd(scene: Scene) -> Finding:
    """Most processes are busy: that is what the job does now, and nobody is taken away for it."""
    kinds = Counter(member.role.kind for member in scene.busy)
    kind, count = kinds.most_common(1)[0]
    ours = [member for member in scene.busy if member.role.kind == kind]
    blame: Blame = Counter(member.role.blame for member in ours).most_common(1)[0][0]
    if kind == "data loading":  # a file that all of them read is the job's storage, whoever reads it
        blame = "workload"
    because = f"{count} of {scene.size} are busy with the same: {ours[0].role.reason}"
    if blame == "machine" or any(member.role.stance == "unclear" for member in ours):
        return Finding(because=because)
    stray = [member for member in scene.passive if member.role.stance == "waits" and _is_stray(member)]
    if kind == "data loading" and len(stray) == len(scene.passive) == 1 and scene.size >= 4:
        place = stray[0].role.frames[0].function
        return Finding((accuse(stray[0], 0.6, f"alone in {place}, which its peers do not call"),), blame="software", because=because)
    return Finding(blame=blame, because=because, passes=kind == "checkpoint")


def _is_stray(member: Member) -> bool:
    """A collective that is no part of a step: a barrier of its own, or one inside the preparation of data."""
    return member.role.start or bool(member.role.within) or any(frame.function == "barrier" for frame in member.role.frames)
