"""Where each rank's backup lies: with a peer that shares no parallel group with it, so that a group can go and all its state is left.

ByteRobust's rule (arXiv 2509.16293, section on over-eviction-aware checkpoints), for any layout. Its published example has TP=2, PP=4,
DP=2: half a turn along the pipeline and data axes takes ranks 8 and 9 to 2 and 3, and back. A turn is a permutation, so every peer holds
one backup. Where one turn does not fit all ranks, those that it does not fit get the best peer there is.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from minder.model.topology import Parallelism

__all__ = ["place_backups"]

_Turn: TypeAlias = Mapping[str, int]
_Cost: TypeAlias = tuple[int, int, int]  # same machine, common group, common switches or racks: each worse than the next


def place_backups(
    parallelism: Parallelism, rank_machine: Mapping[int, str], domains: Mapping[str, Mapping[str, str]] | None = None
) -> dict[int, int]:
    """Rank to the rank whose cache holds its backup; {} where all ranks are on one machine. domains: machine to its rack, switch, ...

    With one parallel axis every peer shares the group: a neighbour on another machine, and in another rack or switch where known.

    >>> peers = place_backups(Parallelism(tensor=2, pipeline=4, data=2), {rank: f"m{rank // 2}" for rank in range(16)})
    >>> peers[8], peers[9], peers[2], peers[3]
    (2, 3, 8, 9)
    """
    if len(set(rank_machine.values())) < 2:
        return {}
    pairs = _Pairs(parallelism, rank_machine, domains or {})
    chosen = _cheapest(pairs, _turns(parallelism, rank_machine))
    peers = {rank: pairs.turned(rank, chosen) for rank in rank_machine}
    return _mend(pairs, peers)


class _Pairs:
    """What it costs to keep one rank's backup with another."""

    def __init__(self, parallelism: Parallelism, rank_machine: Mapping[int, str], domains: Mapping[str, Mapping[str, str]]) -> None:
        self.ranks = sorted(rank_machine)
        self._machine, self._domains = rank_machine, domains
        self._axes = [axis for axis in parallelism.axes() if axis[1] > 1]
        self._place = {rank: parallelism.coordinates(rank) for rank in self.ranks}
        self._rank_at = {tuple(place.values()): rank for rank, place in self._place.items()}
        self._sizes = dict(parallelism.axes())

    def turned(self, rank: int, turn: _Turn) -> int:
        return self._rank_at[tuple((at + turn.get(axis, 0)) % self._sizes[axis] for axis, at in self._place[rank].items())]

    def cost(self, rank: int, peer: int) -> _Cost:
        """A common group is no cost where one axis is all there is: it cannot be had otherwise."""
        apart = sum(self._place[rank][axis] != self._place[peer][axis] for axis, _ in self._axes)
        shares_group = len(self._axes) > 1 and apart < 2
        return int(self._machine[rank] == self._machine[peer]), int(shares_group), self._common(self._machine[rank], self._machine[peer])

    def total_cost(self, turn: _Turn) -> tuple[int, ...]:
        """Of a turn; among equals the first that is tried."""
        costs = [self.cost(rank, self.turned(rank, turn)) for rank in self.ranks]
        return tuple(map(sum, zip(*costs, strict=True)))

    def _common(self, one: str, other: str) -> int:
        """How many of rack, switch and the like both hang on."""
        mine, theirs = self._domains.get(one, {}), self._domains.get(other, {})
        return sum(theirs.get(kind) == name for kind, name in mine.items())


def _cheapest(pairs: _Pairs, turns: Iterator[_Turn]) -> _Turn:
    """The first that costs nothing, else the first of least cost."""
    best: tuple[tuple[int, ...], _Turn] | None = None
    for turn in turns:
        cost = pairs.total_cost(turn)
        if best is None or cost < best[0]:
            best = cost, turn
        if not any(cost):
            break
    return {} if best is None else best[1]


def _turns(parallelism: Parallelism, rank_machine: Mapping[int, str]) -> Iterator[_Turn]:
    """Half a turn along pipeline and data first, as published; then the others, along these axes before context and tensor.

    With one axis: the next machine, the one after it, ...: a neighbour is near, and the first in another rack or switch is taken.
    """
    sizes = dict(parallelism.axes())
    wide = [axis for axis in ("pp", "dp", "cp", "tp") if sizes[axis] > 1]
    if len(wide) == 1:
        a_machine = max(1, Counter(rank_machine.values()).most_common(1)[0][1])
        steps = itertools.chain(range(a_machine, sizes[wide[0]], a_machine), range(1, sizes[wide[0]]))
        yield from ({wide[0]: step} for step in itertools.islice(steps, 64))
        return
    yield {axis: sizes[axis] // 2 for axis in wide[:2]}
    for steps_ in itertools.product(*(_steps(sizes[axis]) for axis in wide)):
        if any(steps_):
            yield dict(zip(wide, steps_, strict=True))


def _steps(size: int) -> list[int]:
    return sorted({0, size // 2, 1, size - 1}, key=lambda step: (step == 0, abs(step - size // 2)))


def _mend(pairs: _Pairs, peers: dict[int, int]) -> dict[int, int]:
    """Each rank that a turn does not suit gets the peer of least cost; among those, the one that holds fewest backups, then the nearest."""
    load = Counter(peers.values())
    for rank, peer in list(peers.items()):
        cost = pairs.cost(rank, peer)
        if not any(cost):
            continue
        load[peer] -= 1
        best = min(
            (*pairs.cost(rank, other), load[other], other != peer, abs(other - rank), other) for other in pairs.ranks if other != rank
        )
        chosen = best[-1] if best[:3] < cost else peer
        load[chosen] += 1
        peers[rank] = chosen
    return peers
