"""All wait, in several places that are large enough to be usual ones: whether ranks of one group met different collectives."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from minder.diagnose.stacks.finding import Finding, accuse
from minder.diagnose.stacks.scene import Member, Scene, machines_of
from minder.model.topology import Parallelism

__all__ = ["judge_split", "name_sides", "say_different"]

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
    """One place holds all ranks of a rack or switch, and nobody else."""
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
    told = [f"{len(side)} in {_place(side[0], sides, inner)} ({_names(side)})" for side in sides[:_SHOWN_SIDES]]
    return "; ".join(told) + (f"; {len(sides) - _SHOWN_SIDES} more places" if len(sides) > _SHOWN_SIDES else "")


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
