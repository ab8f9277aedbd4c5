"""Ranks, parallel groups and where they live: `rank = tp + T*(cp + C*(dp + D*pp))` for "tp-cp-dp-pp".

An axis that `rank_order` does not name has size 1 or, for `context`, sits right after tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from minder.model.errors import BadInputError
from minder.model.rank_machines import RankMachines

__all__ = ["Parallelism", "Topology"]

_AXES = {"tp": "tensor", "cp": "context", "dp": "data", "pp": "pipeline", "ep": "expert"}


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Sizes of the parallel axes; `expert` divides `data` and takes no ranks of its own."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    context: int = 1
    rank_order: str = "tp-dp-pp"

    def __post_init__(self) -> None:
        for name in ("tensor", "pipeline", "data", "expert", "context"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise BadInputError(f"parallelism.{name} is {value!r}: give a whole number of 1 or more")
        if self.data % self.expert:
            raise BadInputError(f"parallelism.expert is {self.expert} and does not divide data = {self.data}: mend one of them")
        axes = self.rank_order.split("-")
        if len(set(axes)) != len(axes) or not set(axes) <= set(_AXES) or not {"tp", "dp", "pp"} <= set(axes):
            raise BadInputError(
                f'parallelism.rank_order is "{self.rank_order}": name tp, dp and pp once each, fastest first, like "tp-dp-pp"'
            )

    @property
    def world_size(self) -> int:
        return self.tensor * self.pipeline * self.data * self.context

    def axes(self) -> tuple[tuple[str, int], ...]:
        """(axis, size) from the fastest-changing to the slowest, e.g. (("tp", 8), ("cp", 1), ("dp", 4), ("pp", 2))."""
        order = [axis for axis in self.rank_order.split("-") if axis != "ep"]
        if "cp" not in order:
            order.insert(order.index("tp") + 1, "cp")
        sizes = {"tp": self.tensor, "cp": self.context, "dp": self.data, "pp": self.pipeline}
        return tuple((axis, sizes[axis]) for axis in order)

    def stride(self, axis: str) -> tuple[int, int]:
        """(ranks between neighbours, size) of an axis: a rank's place on it is rank // stride % size. Raises BadInputError.

        >>> Parallelism(tensor=2, pipeline=2, data=2).stride("pp")
        (4, 2)
        """
        stride = 1
        for name, size in self.axes():
            if name == axis:
                return stride, size
            stride *= size
        raise BadInputError(f'no parallel axis "{axis}": use one of {", ".join(name for name, _ in self.axes())}')

    def coordinates(self, rank: int) -> dict[str, int]:
        """Position of a rank on every axis.

        >>> Parallelism(tensor=2, pipeline=2, data=2).coordinates(5)
        {'tp': 1, 'cp': 0, 'dp': 0, 'pp': 1}
        """
        found = {}
        for axis, size in self.axes():
            rank, found[axis] = divmod(rank, size)
        return found

    def rank_at(self, place: Mapping[str, int]) -> int:
        """The rank at a place on every axis, as `coordinates` gives it.

        >>> Parallelism(tensor=2, pipeline=2, data=2).rank_at({"tp": 1, "cp": 0, "dp": 0, "pp": 1})
        5
        """
        return sum(place[axis] * self.stride(axis)[0] for axis, _ in self.axes())

    def sized(self, ranks: int) -> Parallelism:
        """The same job on so many ranks: only `data` changes. Raises BadInputError where no whole replicas make them.

        >>> Parallelism(tensor=2, data=4).sized(6).data
        3
        """
        replica = self.tensor * self.pipeline * self.context
        data, left = divmod(ranks, replica)
        if left or data < 1 or data % self.expert:
            raise BadInputError(f"{ranks} ranks are no whole replicas of {replica * self.expert} ranks each")
        return replace(self, data=data)

    def group(self, axis: str, rank: int) -> tuple[int, ...]:
        """All ranks that differ from `rank` only on `axis`: its parallel group. Of "ep", those that share its experts: neighbours on the
        data axis, `expert` at a time.

        >>> Parallelism(data=4, expert=2).group("ep", 3)
        (2, 3)
        """
        if axis == "ep":
            data = self.group("dp", rank)
            first = data.index(rank) // self.expert * self.expert
            return data[first : first + self.expert]
        stride, size = self.stride(axis)
        base = rank - rank // stride % size * stride
        return tuple(base + k * stride for k in range(size))


@dataclass(frozen=True, slots=True)
class Topology:
    """A job's ranks placed on machines, and what machines share (rack, switch).

    `rank_machine` maps rank to machine; by default ranks fill machines in order.
    """

    machines: tuple[str, ...]
    gpus_per_machine: int
    parallelism: Parallelism
    standbys: tuple[str, ...] = ()
    domains: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rank_machine: Mapping[int, str] = field(default_factory=dict)
    _ranks: Mapping[str, tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(set(self.machines)) != len(self.machines):
            raise BadInputError("a machine stands twice in `machines`: name each once")
        both = set(self.machines) & set(self.standbys)
        if both:
            raise BadInputError(f"{sorted(both)[0]} is both a machine and a standby: keep it in one list")
        slots = len(self.machines) * self.gpus_per_machine
        if slots != self.parallelism.world_size:
            raise BadInputError(
                f"{len(self.machines)} machines x {self.gpus_per_machine} GPUs = {slots} ranks, but tensor x context x pipeline x data = "
                f"{self.parallelism.world_size}: mend machines, gpus_per_machine or [parallelism]"
            )
        if not self.rank_machine:
            placed = [self.machines[rank // self.gpus_per_machine] for rank in range(slots)]
            object.__setattr__(self, "rank_machine", RankMachines(placed))
        ranks: dict[str, list[int]] = {}
        for rank, machine in sorted(self.rank_machine.items()):
            ranks.setdefault(machine, []).append(rank)
        object.__setattr__(self, "_ranks", {machine: tuple(own) for machine, own in ranks.items()})

    def ranks_of(self, machine: str) -> tuple[int, ...]:
        """Its ranks, ascending; none of a machine that holds none."""
        return self._ranks.get(machine, ())

    def machines_of(self, ranks: Sequence[int]) -> tuple[str, ...]:
        """Machines that hold these ranks, in rank order, each once."""
        return tuple(dict.fromkeys(self.rank_machine[rank] for rank in sorted(ranks)))

    def stage_of(self, machine: str) -> int:
        """The machine's first pipeline stage: peers of one stage do the same work."""
        ranks = self.ranks_of(machine)
        return self.parallelism.coordinates(ranks[0])["pp"] if ranks else 0

    def stages_of(self, machine: str) -> tuple[int, ...]:
        return tuple(sorted({self.parallelism.coordinates(rank)["pp"] for rank in self.ranks_of(machine)}))

    def largest_group(self, at_most: int) -> int:
        """Machines of the largest parallel group on at most so many machines; 1 where every larger one exceeds that."""
        sizes = {len(self.machines_of(group)) for group in self._groups()}
        return max((size for size in sizes if size <= at_most), default=1)

    def _groups(self) -> set[tuple[int, ...]]:
        """Ranks of every parallel group; experts divide the data axis."""
        parallelism = self.parallelism
        axes = [*(axis for axis, _ in parallelism.axes()), *(["ep"] if parallelism.expert > 1 else [])]
        return {parallelism.group(axis, rank) for axis in axes for rank in range(parallelism.world_size)}
