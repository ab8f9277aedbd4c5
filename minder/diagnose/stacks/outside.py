"""Some processes are not where their peers wait: held by the kernel, idle, at work for all, or busy elsewhere.

- What the kernel says of a process goes before what its stack says: stopped, in uninterruptible sleep, dead (`judge_states`).
- A process that is asked for nothing, and a program beside the job's own, are evidence of something, and not of everything (`judge_idle`,
  `beside`).
- One rank may save, evaluate, log or prepare data for all of them while its peers wait, and no machine is at fault (`judge_duty`).
- Else the others wait for those that are busy elsewhere (`judge_outsiders`), or most are busy with the same (`judge_crowd`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from minder.diagnose.stacks.finding import Accused, Finding, accuse
from minder.diagnose.stacks.roles import Blame
from minder.diagnose.stacks.scene import Member, Scene, is_duty, machines_of

__all__ = ["are_deputies", "beside", "judge_crowd", "judge_duty", "judge_idle", "judge_outsiders", "judge_states", "spare_where_most_idle"]

_GROUP_SHARE = 0.5  # a group that holds more of the job than this is no explanation


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
        domain = scene.places.domain(machines)
        where = f"{domain} stands apart: all its machines" if domain is not None else "processes of several machines"
        return Finding(accused, because=f"{where} are in uninterruptible sleep: storage or a network that they share")
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


_BESIDE = 0.5  # the most that another program's finding is worth where the job's own program is at work


def judge_idle(scene: Scene, finding: Finding) -> Finding:
    """All that work wait in a collective, and some have nothing to do: they will not come, as their function has ended or was never
    called. Where more idle than work, nothing says that they were to come."""
    if not scene.idle or len(scene.passive) < scene.size or scene.size < 2 or len(scene.idle) >= scene.size:
        return finding
    accused = tuple(accuse(member, 0.5, "idle while its peers wait: its training has ended, or was never called") for member in scene.idle)
    return Finding(accused, blame="software", because="some processes have nothing to do, the others wait in a collective for them")


def spare_where_most_idle(scene: Scene, finding: Finding) -> Finding:
    """Where no more work than idle, nothing shows that the job waits for those that work."""
    if not finding.evict or len(scene.idle) < scene.size:
        return finding
    because = f"{finding.because}; but {len(scene.idle)} processes are idle, and nothing shows that they wait for it"
    return replace(finding, evict=(), group=None, blame="unknown", because=because)


def beside(own: Finding, other: Finding, is_idle: bool) -> Finding:
    """The finding of the job's own program with that of another one on its machines. The other's says all where the own one idles."""
    if not other.suspects:
        return own
    if is_idle:
        return other
    added = tuple(replace(suspect, confidence=min(suspect.confidence, _BESIDE)) for suspect in other.suspects)
    because = "; ".join(words for words in (own.because, f"in another program on these machines: {other.because}") if words)
    return replace(own, suspects=(*own.suspects, *added), because=because)


_MEETINGS = ("barrier", "monitored_barrier", "wait_for_everyone", "broadcast_object_list", "scatter_object_list", "gather_object")
_MEETING_SHARE = 0.8  # of those that wait: so many have been sent to a meeting place
_EVERYWHERE = 0.5  # of the machines


def judge_duty(scene: Scene) -> Finding | None:
    """None unless all that are busy are the ranks that work for all, and do what such ranks do. A sleeping rank works for no other."""
    busy = [member for member in scene.busy if not (member.role.start and not member.role.duty)]
    if not busy or len(busy) < len(scene.busy) or any(member.role.kind == "idle" and not member.role.duty for member in busy):
        return None
    if not (are_deputies(busy, scene) or _is_one_a_machine(busy, scene)):
        return None
    known = all(member.role.duty or is_duty(member, scene) for member in busy)
    if not known and not _have_met(scene):
        return None
    what = next((member.role.duty for member in busy if member.role.duty), "works")
    because = f"{busy[0].process.name} {what} for all ({busy[0].role.reason}), the others wait for it"
    return Finding(blame="workload", because=because, passes=known)


def are_deputies(busy: Sequence[Member], scene: Scene) -> bool:
    """Rank 0 alone, or the last rank alone, which logs in some frameworks, or several that save at once."""
    if all(is_duty(member, scene) for member in busy):
        return True
    if len(busy) > 1:
        return False
    rank = busy[0].process.rank
    if (
        rank is None
        and busy[0].role.duty
        and (busy[0].machine == scene.places.machines[0] or (not scene.places.topology and _have_met(scene)))
    ):
        return True  # pids come in any order, and without ranks and groups nothing says where rank 0 is
    if rank is None:
        first = next((member for member in (*scene.members, *scene.without) if member.machine == scene.places.machines[0]), None)
        return first is busy[0]
    ranks = [member.process.rank for member in scene.members if member.process.rank is not None]
    return rank == 0 or (busy[0].role.duty == "logs" and rank == max(ranks))


def _is_one_a_machine(busy: Sequence[Member], scene: Scene) -> bool:
    """The first rank of every machine, as for work on the machine's own disk."""
    machines = {member.machine for member in busy}
    if len(machines) != len(busy) or len(machines) < 2 or len(machines) <= _EVERYWHERE * len(scene.machines):
        return False
    firsts: dict[str, Member] = {}
    for member in scene.members:
        firsts.setdefault(member.machine, member)
    return len(busy) < len(scene.members) / 2 and all(firsts[member.machine] is member for member in busy)


def _have_met(scene: Scene) -> bool:
    """The others are at a barrier: they have been sent there to wait for what another rank does."""
    met = [member for member in scene.passive if any(frame.function in _MEETINGS for frame in member.role.frames)]
    return len(met) >= _MEETING_SHARE * len(scene.passive) > 0


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
        held = [member for member in scene.busy if member.role.blame == "software" and member.machine not in machines]
        if held:
            both = f"{machines[0]} and {held[0].machine} are busy elsewhere, and either may be what the others wait for"
            return Finding((*accused, *(accuse(member, 0.5) for member in held)), because=both)
        return Finding(
            accused, machines, None, "machine", f"{machines[0]} is busy elsewhere while {len(scene.passive)} of {scene.size} wait"
        )
    return _several(scene, suspects)


def _several(scene: Scene, suspects: Sequence[Member]) -> Finding:
    """Two or more machines: one cause that they share. A shared disk or service is no machine of the job."""
    accused = tuple(accuse(member, 0.5) for member in suspects)
    apart = _domain(scene, suspects)
    if apart is not None:
        return apart
    cover = scene.places.smallest_group(machines_of(suspects))
    if cover is None or len(cover[1]) > _GROUP_SHARE * len(scene.places.machines) or any(member.role.io for member in suspects):
        return Finding(
            accused, because="several machines are busy elsewhere and share no small parallel group: a common cause, such as storage"
        )
    return Finding(accused, cover[1], cover[0], "machine", f"all that are busy elsewhere are in {cover[0]}")


def _domain(scene: Scene, suspects: Sequence[Member]) -> Finding | None:
    """All machines of a rack or switch, and no other, are busy: what they share is to be looked at, whatever they do."""
    domain = scene.places.domain(machines_of(suspects))
    if domain is None:
        return None
    because = f"{domain} stands apart: all its machines are busy elsewhere, the others wait: look at what they share"
    return Finding(tuple(accuse(member, 0.5) for member in suspects), because=because)


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
    apart = _domain(scene, scene.busy)
    if apart is not None:
        return apart
    blames = Counter(member.role.blame for member in scene.busy)
    blame = blames.most_common(1)[0][0]
    accused = tuple(accuse(member, _confidence(member, share)) for member in scene.busy)
    return Finding(accused, blame=blame, because="what the others wait for is the job's own doing, or nothing says whose")


def _confidence(member: Member, share: float) -> float:
    """The rule's weight, less where fewer than all others are seen to wait."""
    return member.role.weight * (0.7 + 0.3 * share) if share < 0.9 else member.role.weight


def judge_crowd(scene: Scene) -> Finding:
    """Most processes are busy: that is what the job does now, and no machine is evicted for it."""
    kinds = Counter(member.role.kind for member in scene.busy)
    kind, count = kinds.most_common(1)[0]
    ours = [member for member in scene.busy if member.role.kind == kind]
    blame: Blame = Counter(member.role.blame for member in ours).most_common(1)[0][0]
    if kind == "data loading":  # a file that all of them read is the job's storage, whichever rank reads it
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
