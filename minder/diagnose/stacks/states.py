"""What the kernel says of a process goes before what its stack says: stopped, in uninterruptible sleep, dead."""

from __future__ import annotations

from collections.abc import Sequence

from minder.diagnose.stacks.finding import Accused, Finding, accuse
from minder.diagnose.stacks.scene import Member, Scene, is_duty, machines_of

__all__ = ["judge_states"]

_GROUP_SHARE = 0.5


def judge_states(scene: Scene) -> Finding | None:
    """None if no process's state says anything. A data-loading worker's state counts for its machine."""
    everyone = (*scene.members, *scene.without, *scene.helpers)
    return _stopped(scene, everyone) or _blocked(scene, everyone) or _dead(scene, everyone)


def _stopped(scene: Scene, everyone: Sequence[Member]) -> Finding | None:
    stopped = [member for member in everyone if member.process.state[:1] == "T"]
    if not stopped:
        return None
    machines = machines_of(stopped)
    if len(scene.places.machines) > 1 and len(machines) > _GROUP_SHARE * len(scene.places.machines):
        return Finding(because=f"{len(stopped)} of {len(everyone)} processes are stopped (T) on most machines: a debugger or an operator")
    return _name(scene, stopped, machines, "stopped (state T)", 0.95)


def _blocked(scene: Scene, everyone: Sequence[Member]) -> Finding | None:
    """Uninterruptible sleep (D). One machine alone: its disk or its driver. Several: the storage that they share."""
    sleeping = [member for member in everyone if member.process.state[:1] == "D"]
    blocked = [member for member in sleeping if not member.role.start and not is_duty(member, scene)]  # who writes for all is often in D
    waits = [member for member in scene.passive if member.process.state[:1] != "D"]
    if not blocked or len(waits) * 2 < len(scene.members) - len(blocked):
        return None
    machines = machines_of(blocked)
    if len(machines) > 1:
        accused = tuple(_accuse(member, "in uninterruptible sleep (state D)", 0.5) for member in blocked)
        return Finding(accused, because="processes of several machines are in uninterruptible sleep: storage that they share")
    return _name(scene, blocked, machines, "in uninterruptible sleep (state D)", 0.9)


def _dead(scene: Scene, everyone: Sequence[Member]) -> Finding | None:
    """A process that is gone explains why its peers wait, but not whose fault its end was."""
    dead = [member for member in everyone if member.process.state[:1] in ("Z", "X", "x") and not member.role.part]
    if not dead or len(dead) * 2 > len(everyone):
        return None
    return Finding(
        tuple(_accuse(member, "has ended (state Z)", 0.6) for member in dead), because="a process has ended: its log and exit code say why"
    )


def _name(scene: Scene, members: Sequence[Member], machines: tuple[str, ...], words: str, confidence: float) -> Finding:
    accused = tuple(_accuse(member, words, confidence) for member in members)
    because = f"{', '.join(machines)}: {words}"
    if len(scene.places.machines) < 2:
        return Finding(accused, because=f"{because}; all processes are on one machine")
    domain = scene.places.domain(machines)
    if domain is not None:
        return Finding(accused, because=f"{domain} stands apart: {because}")
    cover = scene.places.smallest_group(machines) if len(machines) > 1 else None
    if cover is None or len(cover[1]) > _GROUP_SHARE * len(scene.places.machines):
        return Finding(accused, machines, None, "machine", because)
    return Finding(accused, cover[1], cover[0], "machine", f"{because}: all of them in {cover[0]}")


def _accuse(member: Member, words: str, confidence: float) -> Accused:
    doing = f", {member.role.reason}" if member.role.stance not in ("none", "waits") else ""
    part = f" of {member.role.part}" if member.role.part else ""
    return accuse(member, confidence, f"{words}{part}{doing}")
