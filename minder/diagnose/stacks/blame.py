"""From dumps to a finding: groups, suspects, whom to evict, whose fault (ByteRobust, arXiv 2509.16293, and further).

`analyse` judges the dumps of one moment; `analyse_captures` several captures of one job: what stands in all of them and, for a slow job,
what stands out most often; `judge_round` one capture of a job that moves, for a vote over several.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from minder.diagnose.stacks.finding import Accused, Finding, Group
from minder.diagnose.stacks.outside import beside, judge_crowd, judge_duty, judge_idle, judge_outsiders, judge_states, spare_where_most_idle
from minder.diagnose.stacks.places import Places
from minder.diagnose.stacks.records import Capture, Process
from minder.diagnose.stacks.scene import Member, Scene, is_at_work, set_scene
from minder.diagnose.stacks.sites import judge_sites
from minder.model.topology import Topology

__all__ = ["ROUNDS", "Vote", "analyse", "analyse_captures", "judge_round", "vote"]

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
            found[0].role.start and found[0].role.stance != "waits",
        )
        for found in groups
    )


ROUNDS = 5  # of captures 10 s apart (ByteRobust, arXiv 2509.16293)
_WINDOW_S = 120.0  # older captures show the job before the stall
_GROUP_SHARE = 0.5


def analyse_captures(captures: Sequence[Capture], topology: Topology | None = None) -> Finding:
    """One finding for all captures, oldest first. A suspect that a later capture does not confirm is dropped, and its eviction with it."""
    recent = _recent(captures)
    findings = [analyse(capture, topology) for capture in recent]
    last = replace(findings[-1], captures=len(findings))
    if len(findings) == 1:
        return last
    if _stands(findings):
        findings = [analyse(capture, topology, stands=True) for capture in recent]
        last = replace(findings[-1], captures=len(findings))
    agreed = _agreed(findings, last)
    if agreed.evict and _is_moving(findings[0], last):
        slow = "most processes stand elsewhere than in the first capture: the job moves, so it does not hang"
        agreed = replace(agreed, evict=(), group=None, blame="unknown", because=slow)
    if agreed.evict or len(findings) < ROUNDS:
        return agreed
    voted = vote([tuple(dict.fromkeys(s.machine for s in f.suspects)) for f in findings], Places.of(recent[-1].processes, topology))
    return _voted(agreed, voted, findings) if voted is not None else agreed


def _recent(captures: Sequence[Capture]) -> list[Capture]:
    last_s = captures[-1].time_s
    if last_s is None:
        return list(captures)
    return [capture for capture in captures if capture.time_s is None or last_s - capture.time_s <= _WINDOW_S]


def _agreed(findings: Sequence[Finding], last: Finding) -> Finding:
    named = [{suspect.machine for suspect in finding.suspects} for finding in findings]
    stable = set.intersection(*named)
    suspects = tuple(_surer(suspect, findings) for suspect in last.suspects if suspect.machine in stable)
    if all(set(finding.evict) == set(last.evict) and finding.group == last.group for finding in findings):
        return replace(last, suspects=suspects)
    if _is_explained(findings, last):
        return replace(last, suspects=suspects)
    both = f"{len(findings)} captures do not agree on whom to evict"
    return replace(last, suspects=suspects, evict=(), group=None, blame="unknown", because=both)


def _is_explained(findings: Sequence[Finding], last: Finding) -> bool:
    """The last look shows what holds the very machines that were accused before, such as a lock in compiled code: no machine."""
    named = {suspect.machine for suspect in last.suspects}
    before = {machine for finding in findings[:-1] for machine in finding.evict}
    return last.blame in ("software", "workload") and not last.evict and bool(before) and before <= named


def _stands(findings: Sequence[Finding]) -> bool:
    """No process has left its place between the first capture and the last."""
    places = [{process.name: group.frames for group in finding.groups for process in group.processes} for finding in findings]
    return all(place == places[0] for place in places)


def _is_moving(first: Finding, last: Finding) -> bool:
    """More than half of the processes have changed their group: a hang with progress is no hang."""
    before = {process.name: group.frames for group in first.groups for process in group.processes}
    after = {process.name: group.frames for group in last.groups for process in group.processes}
    both = before.keys() & after.keys()
    return sum(before[name] != after[name] for name in both) * 2 > len(both)


def _surer(suspect: Accused, findings: Sequence[Finding]) -> Accused:
    """Agreement takes away a third of the doubt for every further capture."""
    doubt = (1 - suspect.confidence) * (2 / 3) ** (len(findings) - 1)
    return replace(suspect, confidence=round(min(0.99, 1 - doubt), 2))


class Vote(NamedTuple):
    """What most rounds flagged: a parallel group by its name, or one machine (None), in so many rounds."""

    group: str | None
    machines: tuple[str, ...]
    flags: int


def vote(outliers_by_round: Sequence[Sequence[str]], places: Places) -> Vote | None:
    """Fail-slow voting (ByteRobust, arXiv 2509.16293): each round flags its outliers' machine or group; most flags after 5
    rounds decide.

    outliers_by_round: machines that stood out, round by round. None where no round flags any machine,
    where the most flagged has not half of the rounds, or where two have equally many.
    """
    flags: Counter[tuple[str | None, tuple[str, ...]]] = Counter()
    for machines in outliers_by_round:
        if len(set(machines)) == 1:
            flags[(None, (machines[0],))] += 1
        elif machines and (cover := places.smallest_group(machines)) is not None and len(cover[1]) <= _GROUP_SHARE * len(places.machines):
            flags[cover] += 1
    ranking = flags.most_common(2)
    if len(outliers_by_round) < ROUNDS or not ranking or ranking[0][1] * 2 <= len(outliers_by_round):
        return None
    if len(ranking) > 1 and ranking[1][1] == ranking[0][1]:
        return None
    (name, machines), count = ranking[0]
    return Vote(name, machines, count)


def _voted(agreed: Finding, voted: Vote, findings: Sequence[Finding]) -> Finding:
    name, machines, count = voted
    because = f"flagged in {count} of {len(findings)} captures"
    flagged = [suspect for finding in findings for suspect in finding.suspects if suspect.machine in machines]
    one_each = {(suspect.machine, suspect.pid, suspect.rank): suspect for suspect in flagged}
    suspects = tuple(
        replace(s, confidence=round(0.5 + 0.4 * count / len(findings), 2), reason=f"{because}: {s.reason}") for s in one_each.values()
    )
    evicting = [finding for finding in findings if finding.evict and set(finding.evict) <= set(machines)]
    if len(evicting) * 2 <= len(findings):  # what stood out was the job's own code
        return replace(agreed, suspects=suspects, because=because)
    return replace(agreed, suspects=suspects, evict=machines, group=name, blame="machine", because=because)


_SEEN_WAITING = 0.5  # of the others
_HELD = ("D", "T")


def judge_round(capture: Capture, topology: Topology | None = None) -> Finding:
    """As `analyse`, without the eviction of a machine that others cannot be seen to wait for.

    Where a job hangs, an outlier among those that wait has missed what its peers are in. Where it moves, it is as likely the one that is
    early: one rank that is quick among slow ones waits alone, in every round. So an accused rank must be at work itself, or in the
    hands of the kernel, or in what may be either (its device, the backward pass) while all others are in a collective for certain.
    """
    finding = analyse(capture, topology)
    if not finding.evict:
        return finding
    scene = set_scene(capture, topology)
    accused = {(suspect.machine, suspect.pid) for suspect in finding.suspects}
    ours = [member for member in scene.members if _name(member) in accused]
    others = [member for member in scene.members if _name(member) not in accused]
    busy = {_name(member) for member in scene.busy} | {_name(member) for member in scene.members if member.process.state[:1] in _HELD}
    waiting = [member for member in others if member.role.stance in ("waits", "may wait")]
    all_wait = all(member.role.stance == "waits" for member in others)
    telling = all(_name(member) in busy or (member.role.stance == "may wait" and all_wait) for member in ours)
    if telling and len(waiting) >= _SEEN_WAITING * len(others):
        return finding
    early = "the rank that stands out may as well be early: the job moves, and no rank is seen to wait for it"
    return replace(finding, suspects=(), evict=(), group=None, blame="unknown", because=early)


def _name(member: Member) -> tuple[str, int | None]:
    return member.machine, member.process.pid
