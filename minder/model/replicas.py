"""Replicas of a data-parallel job, as units of machines that can leave it and join it (pure).

A replica is one copy of the model: every tensor, context, pipeline and expert part of it. A unit is the fewest machines that hold whole
replicas and nothing else: one machine under plain data parallelism; all stages of a pipeline that crosses machines. A job goes on without
a unit, never without a part of one. The units that stay keep their order, and ranks are numbered anew from 0, so `data` alone changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from minder.model.errors import BadInputError
from minder.model.topology import Parallelism

__all__ = ["Refit", "Replicas"]

_Place = tuple[int, tuple[tuple[str, int], ...]]  # index on the data axis inside the unit, and the place on the other axes


@dataclass(frozen=True, slots=True)
class Refit:
    """A job at another size. rank_machine: its ranks, 0 to n - 1. idle: machines that have no ranks any more and may wait as standbys.
    joined: machines of units that were added."""

    rank_machine: Mapping[int, str]
    idle: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()

    @property
    def machines(self) -> int:
        return len(set(self.rank_machine.values()))


@dataclass(frozen=True, slots=True)
class Replicas:
    """How a job's replicas lie on its machines. units: the machines of each, in the order of their first rank. replicas: data-parallel
    ranks in each unit. shape: which machine of a unit, by its index, holds which place."""

    parallelism: Parallelism
    units: tuple[tuple[str, ...], ...]
    replicas: int
    shape: tuple[tuple[_Place, int], ...]

    @classmethod
    def of(cls, parallelism: Parallelism, rank_machine: Mapping[int, str]) -> Replicas:
        """parallelism: of the job at any size. Raises BadInputError, one line, where no machine can leave without a part of a replica that
        stays, or where replicas lie differently on different machines.

        >>> Replicas.of(Parallelism(data=3), {0: "a", 1: "b", 2: "c"}).units
        (('a',), ('b',), ('c',))
        """
        sized = parallelism.sized(len(rank_machine))
        places = {rank: sized.coordinates(rank) for rank in sorted(rank_machine)}
        found: list[tuple[tuple[str, ...], int, tuple[tuple[_Place, int], ...]]] = []
        for ranks in _together({rank: place["dp"] // sized.expert for rank, place in places.items()}, rank_machine):
            data = {at: index for index, at in enumerate(sorted({places[rank]["dp"] for rank in ranks}))}
            order = {machine: index for index, machine in enumerate(dict.fromkeys(rank_machine[rank] for rank in ranks))}
            shape = sorted((_inside(places[rank], data), order[rank_machine[rank]]) for rank in ranks)
            found.append((tuple(order), len(data), tuple(shape)))
        if len({shape for _, _, shape in found}) > 1:
            raise BadInputError("its replicas do not lie alike on its machines")
        return cls(parallelism, tuple(order for order, _, _ in found), found[0][1], found[0][2])

    @property
    def machines(self) -> int:
        """Machines of one unit."""
        return len(self.units[0])

    def placed(self, units: Sequence[Sequence[str]]) -> dict[int, str]:
        """Rank to machine of a job of these units, in their order."""
        sized = self.parallelism.sized(len(units) * len(self.shape))
        found = {}
        for index, unit in enumerate(units):
            for (data, others), machine in self.shape:
                found[sized.rank_at({**dict(others), "dp": index * self.replicas + data})] = unit[machine]
        return dict(sorted(found.items()))

    def refit(self, leaving: Collection[str], replacements: Sequence[str] = (), joins: Sequence[str] = ()) -> Refit:
        """The job without `leaving`. Each place that they leave goes to a replacement; where these run out, the unit that lacks most goes,
        and its other machines fill the places that are left. joins: machines that add whole units. Raises BadInputError where no unit is
        left.

        >>> Replicas.of(Parallelism(data=3), {0: "a", 1: "b", 2: "c"}).refit(["b"]).rank_machine
        {0: 'a', 1: 'c'}
        """
        spare = list(replacements)
        units = [[self._fill(machine, leaving, spare) for machine in unit] for unit in self.units]
        while any("" in unit for unit in units):
            worst = max(units, key=lambda unit: unit.count(""))
            units.remove(worst)
            spare += [machine for machine in worst if machine]
            units = [[machine or (spare.pop(0) if spare else "") for machine in unit] for unit in units]
        if not units:
            raise BadInputError("no whole replica would be left")
        whole = len(joins) // self.machines * self.machines
        joined = tuple(joins[:whole])
        units += [list(joined[begin : begin + self.machines]) for begin in range(0, whole, self.machines)]
        return Refit(self.placed(units), tuple(spare), joined)

    @staticmethod
    def _fill(machine: str, leaving: Collection[str], spare: list[str]) -> str:
        """The machine that has this place now; "" where it is left empty."""
        if machine not in leaving:
            return machine
        return spare.pop(0) if spare else ""


def _together(blocks: Mapping[int, int], rank_machine: Mapping[int, str]) -> list[list[int]]:
    """Ranks on machines that hold parts of the same replicas, in the order of their first rank. blocks: rank to its replica."""
    leader: dict[str | int, str | int] = {}

    def root(item: str | int) -> str | int:
        while (above := leader.setdefault(item, item)) != item:
            leader[item] = leader[above]
            item = above
        return item

    for rank, block in blocks.items():
        leader[root(rank_machine[rank])] = root(block)
    units: dict[str | int, list[int]] = {}
    for rank in blocks:
        units.setdefault(root(rank_machine[rank]), []).append(rank)
    return list(units.values())


def _inside(place: Mapping[str, int], data: Mapping[int, int]) -> _Place:
    return data[place["dp"]], tuple(sorted((axis, at) for axis, at in place.items() if axis != "dp"))
