"""All processes wait: which of them wait at another place than their peers, and whether ranks of one group met different collectives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from minder.diagnose.stacks.finding import Accused, Finding, accuse
from minder.diagnose.stacks.outside import are_deputies
from minder.diagnose.stacks.records import Frame
from minder.diagnose.stacks.scene import Member, Scene, machines_of
from minder.model.topology import Parallelism

__all__ = ["judge_sites", "judge_split", "name_sides", "say_different"]

_HEALTHY = 0.25  # of all: a group of this size is one of the job's usual places ("dominant groups" in the paper, which gives no number)
_GROUP_SHARE = 0.5
_HELD_BY = ("logs", "saves")  # work for all that reads numbers or state off the device
_SPREAD = 0.5  # outliers on so many machines are a pattern of the program


def judge_sites(scene: Scene) -> Finding:
    """The paper's rule: dominant groups are healthy, per pipeline stage and over all; the outliers share a parallel group."""
    odd = _outliers(scene)
    if not odd:
        return judge_split(scene) or _judge_lines(scene)
    machines, peers = machines_of(odd), _majority(scene)
    if len(scene.places.machines) == 1:
        return Finding(
            tuple(_describe(peers, member, 0.5) for member in odd),
            blame="software",
            because="ranks of one machine wait in different places",
        )
    if len(machines) > 1:
        return _several(scene, odd, machines)
    return _one_machine(scene, odd, machines)


def _outliers(scene: Scene) -> list[Member]:
    """Who stands where few of its own stage stand; fewer than half of the job, or none of them is an outlier."""
    sizes = Counter(member.role.key for member in scene.members)
    usual = {key for key, size in sizes.items() if size >= max(2, _HEALTHY * scene.size)}
    stages: dict[int | None, Counter[object]] = {}
    for member in scene.members:
        stages.setdefault(scene.places.stage(member.process), Counter())[member.role.key] += 1
    healthy: dict[int | None, set[object]] = {}
    for stage, counts in stages.items():
        key, size = counts.most_common(1)[0]
        clear = stage is not None and size > 1 and size > counts.total() / 2
        healthy[stage] = {key} if clear else usual | ({key} if size > max(1, counts.total() / 2) else set())
    odd = [member for member in scene.members if member.role.key not in healthy[scene.places.stage(member.process)]]
    usual_language = _is_compiled(_majority(scene))  # places in compiled code and in Python cannot be compared
    odd = [member for member in odd if _is_compiled(member) == usual_language]
    if len(odd) * 2 >= scene.size:
        return []
    return [member for member in odd if not (member.role.kind == "point to point" and _is_alone_in_its_stage(scene, member, stages))]


def _is_alone_in_its_stage(scene: Scene, member: Member, stages: Mapping[int | None, Counter[object]]) -> bool:
    """One replica of one rank a stage: no other rank does what it does, so that no message of it stands out."""
    stage = scene.places.stage(member.process)
    return stage is not None and len(stages) > 1 and stages[stage].total() == 1


def _is_compiled(member: Member) -> bool:
    return all(frame.native for frame in member.role.frames)


def _several(scene: Scene, odd: Sequence[Member], machines: Sequence[str]) -> Finding:
    cover, peers = scene.places.smallest_group(machines), _majority(scene)
    domain = scene.places.domain(machines)
    if domain is not None:
        accused = tuple(_describe(peers, member, 0.4) for member in odd)
        return Finding(accused, because=f"{domain} stands apart: all its machines wait elsewhere: look at what they share")
    if cover is None or len(cover[1]) > _GROUP_SHARE * len(scene.places.machines):
        if len(machines) > _SPREAD * len(scene.machines):
            accused = tuple(_describe(peers, member, 0.3) for member in odd)
            return Finding(accused, blame="software", because="the same ranks on many machines wait in another place than their peers")
        accused = tuple(_describe(peers, member, 0.4) for member in odd)
        different = say_different(scene)
        if different is not None:
            return replace(different, suspects=accused)
        return Finding(accused, because="those that wait elsewhere share no small parallel group")
    accused = tuple(_describe(peers, member, 0.6) for member in odd)
    return Finding(
        accused, cover[1], cover[0], "machine", f"all that wait elsewhere are in {cover[0]}: which of them is at fault is not known"
    )


def _one_machine(scene: Scene, odd: Sequence[Member], machines: tuple[str, ...]) -> Finding:
    """One machine, waiting in another place. Its own device, a lost message, or all its ranks together: the machine.
    A single rank in another collective: its program took another way."""
    peers = _majority(scene)
    whole = len(odd) > 1 and len(odd) == sum(1 for member in scene.members if member.machine == machines[0])
    device = all(member.role.stance == "may wait" for member in odd)
    message = all(member.role.kind == "point to point" for member in odd) and scene.places.topology is not None
    if device and all(member.role.duty in _HELD_BY for member in odd) and are_deputies(odd, scene):
        because = f"{odd[0].process.name} {odd[0].role.duty} for all and waits for its device: which of the two holds it is not known"
        return Finding(tuple(_describe(peers, member, 0.5) for member in odd), blame="software", because=because)
    if whole or device or message:
        weight = 0.7 if device else 0.65
        accused = tuple(_describe(peers, member, weight) for member in odd)
        return Finding(accused, machines, None, "machine", f"only {machines[0]} waits elsewhere: its peers have gone past it")
    accused = tuple(_describe(peers, member, 0.5) for member in odd)
    if any(member.role.kind == "point to point" for member in odd):
        return Finding(accused, because="one rank waits for a message; without the job's groups nothing says from whom")
    because = f"one rank is in another collective than its peers: the program took another way there: {name_sides(scene.members)}"
    return Finding(accused, blame="software", because=because)


def _describe(peers: Member, member: Member, confidence: float) -> Accused:
    mine, theirs = member.role.key[0][0], peers.role.key[0][0]
    side = compare_sites(member.role.frames, peers.role.frames)
    where = f", {side}" if side else ""
    return accuse(member, confidence, f"{member.role.reason} in {mine}{where}, its peers in {theirs}")


def _majority(scene: Scene) -> Member:
    key = Counter(member.role.key for member in scene.members).most_common(1)[0][0]
    return next(member for member in scene.members if member.role.key == key)


def _judge_lines(scene: Scene) -> Finding:
    """Same functions everywhere; perhaps one process stands at another line of them."""
    lines = Counter((member.role.key, _lines(member.role.frames)) for member in scene.members if member.role.stance == "waits")
    odd: list[tuple[Member, Member]] = []
    for key in {key for key, _ in lines}:
        ours = [(count, place) for (other, place), count in lines.items() if other == key]
        total, (most, usual) = sum(count for count, _ in ours), max(ours)
        if len(ours) == 2 and total >= 4 and total - most == 1:
            same = [member for member in scene.members if member.role.key == key and member.role.stance == "waits"]
            peer = next(member for member in same if _lines(member.role.frames) == usual)
            odd += [(member, peer) for member in same if _lines(member.role.frames) != usual]
    if len(odd) != 1:
        return Finding(because="all ranks wait in their usual places: no machine stands out")
    member, peer = odd[0]
    if _is_other_version(member.role.frames, peer.role.frames):
        return Finding(because="all ranks wait in their usual places: no machine stands out")
    side = compare_sites(member.role.frames, peer.role.frames) or "at another line than its peers"
    return Finding(
        (accuse(member, 0.5, f"{member.role.reason}, {side}"),),
        because="one process waits at another call site; which side is right is not known",
    )


def _lines(frames: Sequence[Frame]) -> tuple[int, ...]:
    """Of the caller's own code: inside the library the same call may stand on any line."""
    return tuple(frame.line for frame in frames if not frame.native and not frame.file.startswith("torch/"))


def _is_other_version(mine: Sequence[Frame], theirs: Sequence[Frame]) -> bool:
    """Several lines of a file are moved by the same number: another version of it is installed there, and the place is the same."""
    moved: dict[str, list[int]] = {}
    for own, other in zip(mine, theirs, strict=False):
        if own.line and other.line and not own.native:
            moved.setdefault(own.file, []).append(own.line - other.line)
    differing = [shifts for shifts in moved.values() if any(shifts)]
    return any(len(shifts) > 1 for shifts in differing) and all(len(set(shifts)) == 1 for shifts in differing)


def compare_sites(mine: Sequence[Frame], theirs: Sequence[Frame]) -> str:
    """ "one call site behind (train.py:98 against 120)", where the outermost frame that differs is the same function."""
    for own, other in zip(reversed(mine), reversed(theirs), strict=False):
        if (own.function, own.file) != (other.function, other.file):
            return ""
        if own.line != other.line and own.line and other.line:
            side = "behind" if own.line < other.line else "ahead"
            return f"one call site {side} ({own.file.rsplit('/', 1)[-1]}:{own.line} against {other.line})"
    return ""


_SHOWN_RANKS = 16
_SHOWN_SIDES = 4
_INNER = re.compile(  # names that a collective of a smaller group than the job's has on its stack
    r"tensor_parallel|tensor_model_parallel|sequence_parallel|context_parallel|expert|moe|mappings\.py|ulysses|ring_attn|ring_flash"
    r"|all_to_all|alltoall|pipeline|p2p|vllm|sglang|tp_group|cp_group|ep_group"
)


def judge_split(scene: Scene) -> Finding | None:
    """None where all stand in one place, or each stage in one, or where messages are waited for, as in a pipeline."""
    places = {(scene.places.stage(member.process), member.role.key) for member in scene.members}
    if len({key for _, key in places}) < 2 or (None not in dict(places) and len(places) == len(dict(places))):
        return None
    return _judge_ways(scene) or _judge_domain(scene) or say_different(scene) or _say_places(scene)


def _judge_ways(scene: Scene) -> Finding | None:
    """Ranks of one machine in two places, in the same way on every machine, and no pipeline that explains it: the program diverged."""
    parallelism = _parallelism(scene)
    if _has_messages(scene) or (parallelism is not None and parallelism.tensor < 2):
        return None
    patterns: dict[str, Counter[object]] = {}
    for member in scene.members:
        patterns.setdefault(member.machine, Counter())[member.role.key] += 1
    first = next(iter(patterns.values()))
    if len(patterns) < 2 or len(first) < 2 or any(pattern != first for pattern in patterns.values()):
        return None
    because = f"on every machine some ranks wait in another place than the rest: the program took two ways: {name_sides(scene.members)}"
    return Finding(blame="software", because=because)


def _judge_domain(scene: Scene) -> Finding | None:
    """One place holds all ranks of a rack or switch, and no other rank."""
    for side in _sides(scene.members)[1:] if not _has_messages(scene) else ():
        domain = scene.places.domain(machines_of(side))
        if domain is not None:
            accused = tuple(accuse(member, 0.4, f"{member.role.reason}, elsewhere than most") for member in side)
            return Finding(accused, because=f"{domain} stands apart: {name_sides(scene.members)}")
    return None


def say_different(scene: Scene) -> Finding | None:
    """Ranks of one group in different collectives: each side waits for the other, as the program called them. None where the places may be
    of different groups, or are no collectives."""
    if not _are_collectives(scene.members):
        return None
    stages: dict[int | None, list[Member]] = {}
    for member in scene.members:
        stages.setdefault(scene.places.stage(member.process), []).append(member)
    split = [members for members in stages.values() if len({member.role.key for member in members}) > 1]
    if not split or not all(_share_group(scene, members) for members in split):
        return None
    return Finding(blame="software", because=f"ranks of one group wait in different collectives: {name_sides(split[0])}")


def _are_collectives(members: Sequence[Member]) -> bool:
    return all(member.role.stance == "waits" and member.role.kind == "collective" and not member.role.start for member in members)


def _share_group(scene: Scene, members: Sequence[Member]) -> bool:
    """Whether the sides are of one group. With the job's groups: no side is made of whole smaller groups, which may wait in themselves.
    Without: nothing on the stacks speaks of a smaller group."""
    parallelism = _parallelism(scene)
    ranks = [member.process.rank for member in members]
    if parallelism is not None and any(rank is None or rank >= parallelism.world_size for rank in ranks):
        return parallelism.tensor == parallelism.context == parallelism.expert == 1
    if parallelism is None:
        return not any(_INNER.search(f"{function} {file}") for member in members for function, file in member.role.key)
    sides = [{member.process.rank for member in side if member.process.rank is not None} for side in _sides(members)]
    return not any(_is_whole(parallelism, side) for side in sides[1:])


def _is_whole(parallelism: Parallelism, side: set[int]) -> bool:
    axes = [axis for axis, size in parallelism.axes() if size > 1 and axis in ("tp", "cp")]
    return any(all(set(parallelism.group(axis, rank)) <= side for rank in side) for axis in axes) or parallelism.expert > 1


def _say_places(scene: Scene) -> Finding | None:
    """Whatever the places are, they are said; among messages they are the stages'."""
    if _has_messages(scene):
        return None
    because = f"all wait, in different places, which may be of different groups: {name_sides(scene.members)}"
    return Finding(because=because)


def _parallelism(scene: Scene) -> Parallelism | None:
    return scene.places.topology.parallelism if scene.places.topology is not None else None


def _has_messages(scene: Scene) -> bool:
    return any(member.role.kind == "point to point" for member in scene.members)


def _sides(members: Sequence[Member]) -> list[list[Member]]:
    """Members by place, the largest side first."""
    sides: dict[object, list[Member]] = {}
    for member in members:
        sides.setdefault(member.role.key, []).append(member)
    return sorted(sides.values(), key=len, reverse=True)


def name_sides(members: Sequence[Member]) -> str:
    """ "5 in reduce_scatter_tensor (ranks 0, 1, 2, 3, 7); 3 in all_reduce (ranks 4, 5, 6)"."""
    sides = _sides(members)
    inner = Counter(side[0].role.key[0][0] for side in sides)
    places = [f"{len(side)} in {_place(side[0], sides, inner)} ({_names(side)})" for side in sides[:_SHOWN_SIDES]]
    return "; ".join(places) + (f"; {len(sides) - _SHOWN_SIDES} more places" if len(sides) > _SHOWN_SIDES else "")


def _place(member: Member, sides: Sequence[Sequence[Member]], inner: Counter[str]) -> str:
    """The innermost function; where several sides share it, the first on the way out that only this side has, too."""
    functions = [function for function, _ in member.role.key]
    others = [{function for function, _ in side[0].role.key} for side in sides if side[0].role.key != member.role.key]
    own = next((function for function in functions if not any(function in other for other in others)), "")
    return f"{functions[0]} of {own}" if inner[functions[0]] > 1 and own and own != functions[0] else functions[0]


def _names(side: Sequence[Member]) -> str:
    ranks = sorted(member.process.rank for member in side if member.process.rank is not None)
    if len(ranks) == len(side):
        more = f" and {len(ranks) - _SHOWN_RANKS} more" if len(ranks) > _SHOWN_RANKS else ""
        return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks[:_SHOWN_RANKS]))}{more}"
    names = [member.process.name for member in side]
    return ", ".join(names[:_SHOWN_RANKS]) + (f" and {len(names) - _SHOWN_RANKS} more" if len(names) > _SHOWN_RANKS else "")
