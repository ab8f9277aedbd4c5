"""One capture, sorted: who trains, who waits for peers, who is busy elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from minder.diagnose.stacks.cutoff import complete_roles
from minder.diagnose.stacks.places import Places
from minder.diagnose.stacks.programs import Member, find_guests
from minder.diagnose.stacks.records import Capture, Process
from minder.diagnose.stacks.roles import Role
from minder.diagnose.stacks.threads import read_role
from minder.model.topology import Topology

__all__ = ["Member", "Scene", "is_duty", "machines_of", "set_scene"]

_DOMINANT = 0.25  # of all training processes, on two machines or more: what so many do is what the job does


@dataclass(frozen=True, slots=True)
class Scene:
    """members: training processes that have a stack. without: training processes that have none. helpers: everything else.

    passive: they wait for peers, or stand where so many stand that it must be a wait. busy: all others. idle: processes that are asked for
    nothing, and are no members. programs: other programs on the same machines, each a scene of its own; their processes are helpers here.
    """

    members: tuple[Member, ...]
    without: tuple[Member, ...]
    helpers: tuple[Member, ...]
    passive: tuple[Member, ...]
    busy: tuple[Member, ...]
    places: Places
    idle: tuple[Member, ...] = ()
    programs: tuple[Scene, ...] = ()

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def machines(self) -> tuple[str, ...]:
        """Machines that dumps came from."""
        return machines_of((*self.members, *self.without, *self.idle))


def machines_of(members: Iterable[Member]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(member.machine for member in members))


def is_duty(member: Member, scene: Scene) -> bool:
    """It saves for all: rank 0, or the first process of the first machine, or one of several that save at once."""
    if member.role.kind != "checkpoint":
        return False
    savers = {m.machine for m in scene.busy if m.role.kind == "checkpoint"}
    first = member.process.rank == 0 if member.process.rank is not None else member.machine == scene.places.machines[0]
    return first or len(savers) > 1


def set_scene(capture: Capture, topology: Topology | None) -> Scene:
    """Sort a capture's processes. Where nothing but helpers was dumped, they are all there is to judge."""
    everyone = _share_waits(_with_roles(capture.processes))
    helpers = tuple(member for member in everyone if member.role.part)
    training = [member for member in everyone if not member.role.part]
    if not any(member.role.stance != "none" for member in training):
        training, helpers = [member for member in everyone if not member.process.child], ()
    guests = find_guests(training)
    beside = {id(member) for program in guests for member in program}
    own = [member for member in training if id(member) not in beside]
    scene = _sort(own, Places.of(capture.processes, topology))
    programs = tuple(_sort(program, Places.of([member.process for member in program], None)) for program in guests)
    return replace(scene, helpers=(*helpers, *(member for program in guests for member in program)), programs=programs)


def _sort(training: Sequence[Member], places: Places) -> Scene:
    idle = tuple(member for member in training if member.role.stance == "idle")
    without = tuple(member for member in training if member.role.stance == "none")
    members = tuple(member for member in training if member.role.stance not in ("none", "idle"))
    crowded = _crowded(members)
    passive = tuple(member for member in members if _is_passive(member.role, crowded))
    busy = tuple(member for member in members if not _is_passive(member.role, crowded))
    return Scene(members, without, (), passive, busy, places, idle)


def _with_roles(processes: Sequence[Process]) -> list[Member]:
    roles = [read_role(process) for process in processes]
    return [Member(process, role) for process, role in zip(processes, complete_roles(processes, roles), strict=True)]


def _share_waits(members: list[Member]) -> list[Member]:
    """Where one dump shows compiled frames inside a collective, its peers in the same Python place are inside it too."""
    waits = {member.role.key: member.role for member in members if member.role.stance == "waits" and not member.role.part}
    unsure = ("may wait", "unclear")
    lent = [m.role.stance in unsure and not m.role.part and m.role.key in waits for m in members]
    return [Member(m.process, waits[m.role.key]) if fits else m for m, fits in zip(members, lent, strict=True)]


def _is_passive(role: Role, crowded: set[object]) -> bool:
    return role.stance in ("waits", "may wait") or (role.stance == "unclear" and role.key in crowded)


def _crowded(members: Sequence[Member]) -> set[object]:
    """Places that no rule knows, where a quarter of the job stands: py-spy does not show a wait in compiled code."""
    sizes = Counter(member.role.key for member in members if member.role.stance == "unclear")
    places: dict[object, set[str]] = {}
    for member in members:
        places.setdefault(member.role.key, set()).add(member.machine)
    return {key for key, size in sizes.items() if size >= max(2, _DOMINANT * len(members)) and len(places[key]) > 1}
