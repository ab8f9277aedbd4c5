"""From the dumps of one moment to a finding: groups, suspects, whom to evict, whose fault (ByteRobust, arXiv 2509.16293, and further)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minder.diagnose.stacks.duty import judge_duty
from minder.diagnose.stacks.finding import Accused, Finding, Group
from minder.diagnose.stacks.idle import beside, judge_idle, spare_where_most_idle
from minder.diagnose.stacks.outside import judge_crowd, judge_outsiders
from minder.diagnose.stacks.pipeline import is_at_work
from minder.diagnose.stacks.records import Capture, Process
from minder.diagnose.stacks.scene import Member, Scene, set_scene
from minder.diagnose.stacks.sites import judge_sites
from minder.diagnose.stacks.states import judge_states
from minder.model.topology import Topology

__all__ = ["analyse"]

_SHOWN_FRAMES = 16
_AT_WORK = "some stages compute, others wait for their messages: a pipeline at work; capture again to tell if it moves"


def analyse(capture: Capture, topology: Topology | None = None, stands: bool = False) -> Finding:
    """Judge one capture. Strongest evidence first: the kernel's word, then who is busy elsewhere, then who waits elsewhere.

    stands: other captures show that nothing moves, so that what computes is not a pipeline at work.
    """
    scene = set_scene(capture, topology)
    finding = judge_states(scene) or spare_where_most_idle(scene, _judge(scene, stands))
    if not finding.suspects and not finding.evict:
        finding = _unheard(scene, judge_idle(scene, finding))
    for program in scene.programs:
        finding = beside(finding, _judge_program(program, stands), is_idle=not scene.members)
    return replace(
        finding,
        groups=group((*scene.members, *scene.helpers, *scene.idle)),
        without_stack=tuple(member.process for member in scene.without),
        ignored=capture.ignored,
    )


def _judge_program(program: Scene, stands: bool) -> Finding:
    """Another program is judged in itself if its processes wait for one another: monitors and notebooks do not."""
    waits = [member for member in program.members if member.role.stance == "waits"]
    return _judge(program, stands) if len(waits) * 2 > program.size > 1 else Finding()


def _judge(scene: Scene, stands: bool) -> Finding:
    if not scene.members:
        return Finding(because="every process is idle: nothing is asked of it" if scene.idle else "no process has a readable stack")
    if scene.size == 1:
        return Finding(because="one stack alone: there are no peers to compare it with")
    at_work = not stands and is_at_work(scene)
    if not scene.busy:
        return Finding(because=_AT_WORK) if at_work else judge_sites(scene)
    if len(scene.busy) * 2 > scene.size:
        return judge_crowd(scene)
    duty = judge_duty(scene)
    if duty is not None:
        return duty
    if at_work:
        return Finding(because=_AT_WORK)
    return judge_outsiders(scene)


def _unheard(scene: Scene, finding: Finding) -> Finding:
    """All others wait, and from one machine there is no stack: worth a look, never an eviction."""
    silent = {member.machine: member.process for member in scene.without}
    heard = set(scene.machines)
    absent = [machine for machine in scene.places.machines if machine not in heard]
    names = {*silent, *absent}
    domain = scene.places.domain(names)
    if domain is not None and scene.members and len(scene.passive) == scene.size:
        return replace(finding, because=f"{domain} stands apart: no stack of any of its {len(names)} machines while all others wait")
    if len(names) != 1 or not scene.members or len(scene.passive) < scene.size:
        return finding
    name = names.pop()
    process = silent.get(name, Process(name, problem="there is no dump of this machine"))
    suspect = Accused(name, process.pid, process.rank, f"no stack while all others wait: {process.problem or 'not dumped'}", 0.4)
    return replace(finding, suspects=(suspect,), because=f"{name} alone has no stack; look at it before anything is evicted")


def group(members: Sequence[Member]) -> tuple[Group, ...]:
    """Processes by the place of their deciding thread, the largest first. A stack that was cut off joins the group that it begins like."""
    by_key: dict[object, list[Member]] = {}
    for member in members:
        by_key.setdefault((member.role.key, member.role.part, member.role.kind), []).append(member)
    groups = sorted(by_key.values(), key=lambda found: (-len(found), found[0].process.name))
    return tuple(
        Group(
            found[0].role.kind,
            tuple(dict.fromkeys(name for name, _ in found[0].role.key))[:_SHOWN_FRAMES] if found[0].role.key else (),
            tuple(member.process for member in found),
        )
        for found in groups
    )
