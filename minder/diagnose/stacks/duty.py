"""What one rank does for all of them: it saves, evaluates, logs or prepares data while its peers wait, and nobody is at fault."""

from __future__ import annotations

from collections.abc import Sequence

from minder.diagnose.stacks.finding import Finding
from minder.diagnose.stacks.scene import Member, Scene, is_duty

__all__ = ["are_deputies", "judge_duty"]

_MEETINGS = ("barrier", "monitored_barrier", "wait_for_everyone", "broadcast_object_list", "scatter_object_list", "gather_object")
_MEETING_SHARE = 0.8  # of those that wait: so many have been sent to a meeting place
_EVERYWHERE = 0.5  # of the machines


def judge_duty(scene: Scene) -> Finding | None:
    """None unless all that are busy are the ranks that work for all, and do what such ranks do. Who sleeps does nothing for anybody."""
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
    """The others are at a barrier: they have been sent there to wait for what somebody does."""
    met = [member for member in scene.passive if any(frame.function in _MEETINGS for frame in member.role.frames)]
    return len(met) >= _MEETING_SHARE * len(scene.passive) > 0
