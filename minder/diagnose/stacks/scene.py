"""One capture, sorted: which processes are of the job's own program, which train, which wait for peers, which are busy elsewhere.

Other programs on the same machines are monitors, notebooks, drivers, or inference beside training. A pipeline at work has busy stages whose
neighbours wait for messages, and that is how it should be (`is_at_work`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from minder.diagnose.stacks.places import Places
from minder.diagnose.stacks.records import Capture, Process
from minder.diagnose.stacks.roles import Role
from minder.diagnose.stacks.threads import complete_roles, program_of, read_role
from minder.model.topology import Parallelism, Topology

__all__ = ["Member", "Scene", "find_guests", "is_at_work", "is_duty", "machines_of", "set_scene"]


@dataclass(frozen=True, slots=True)
class Member:
    """One process and what it does."""

    process: Process
    role: Role

    @property
    def machine(self) -> str:
        return self.process.machine


def find_guests(members: Sequence[Member]) -> tuple[tuple[Member, ...], ...]:
    """Processes of other programs, by program, beside a machine's full number of the job's own. All ranks of a job run one program, and
    every machine runs as many; a process that is known to be a rank is one."""
    programs = [program_of(member.process) for member in members]
    program = _own_program(members, programs)
    if not program:
        return ()
    per_machine = Counter(member.machine for member, own in zip(members, programs, strict=True) if own == program)
    usual, machines = Counter(per_machine.values()).most_common(1)[0]
    if machines * 2 <= len(per_machine) or len(per_machine) < 2:
        return ()
    ranks = Counter((member.machine, member.process.rank) for member in members)
    found: dict[str, list[Member]] = {}
    for member, own in zip(members, programs, strict=True):
        is_rank = member.process.rank is not None and ranks[member.machine, member.process.rank] == 1
        if own not in ("", program) and per_machine[member.machine] == usual and not is_rank:
            found.setdefault(own, []).append(member)
    return tuple(tuple(guests) for guests in found.values())


def _own_program(members: Sequence[Member], programs: Sequence[str]) -> str:
    """The program with most processes; of equals, and where the largest only idles, the one that is at work. "" where there is one only."""
    counts = Counter(program for program in programs if program)
    if len(counts) < 2:
        return ""
    working = Counter(own for member, own in zip(members, programs, strict=True) if own and member.role.stance not in ("idle", "none"))
    (first, _), *_ = counts.most_common(1)
    return first if working[first] * 2 > counts[first] or not working else working.most_common(1)[0][0]


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


def is_at_work(scene: Scene) -> bool:
    """True where only computing ranks are busy, and each of them may be what its own pipeline waits for.

    With the job's groups: every pipeline that still exchanges messages has a rank that computes, and none computes alone among
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
    """All ranks that share a stage with one that computes do so too, and other stages wait: faults do not strike by stage."""
    stages = {scene.places.stage(member.process) for member in scene.busy}
    return bool(stages) and None not in stages and not any(scene.places.stage(member.process) in stages for member in scene.passive)


def _replica(parallelism: Parallelism, rank: int) -> int:
    place = parallelism.coordinates(rank)
    return place["dp"] * parallelism.context + place["cp"]


def _works(members: Sequence[Member]) -> bool:
    """It has nothing to wait for but a rank in it that computes. One that has met its replicas in a collective is done with that."""
    computing = any(member.role.kind == "compute" for member in members)
    messages = any(member.role.kind == "point to point" for member in members)
    return computing and (messages or any(member.role.stance != "waits" for member in members))


def _is_alone(members: Sequence[Member]) -> bool:
    """One computes, and all its tensor-parallel peers wait in a collective: for it."""
    busy = [member for member in members if member.role.stance == "outside"]
    waits = [member for member in members if member.role.kind == "collective"]
    return len(members) > 1 and len(busy) == 1 and len(waits) == len(members) - 1
