"""The plan of a run's data (pure): which samples each rank trains on at each step, whatever the number of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from minder.edge.data.order import Order
from minder.model.errors import DataError

__all__ = ["Plan", "Share"]

_FIELDS = {"samples": "samples", "global_batch": "a global batch of", "seed": "seed", "shuffle": "shuffle", "version": "version"}


@dataclass(frozen=True, slots=True)
class Share:
    """A rank's part of every global batch. rank, world: of the ranks that read different data (data parallel). parts: the pieces in which
    a rank takes its share of one step, as it accumulates gradients.

    Raises DataError where rank, world and parts contradict each other.
    """

    rank: int = 0
    world: int = 1
    parts: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world or self.parts < 1:
            raise DataError(f"rank {self.rank} of {self.world} in {self.parts} parts: ranks count from 0, parts from 1")


@dataclass(frozen=True, slots=True)
class Plan:
    """samples: of the dataset. global_batch: samples that all ranks together train on in one step. epochs: None for no end.
    shuffle: each epoch in another order, which follows from the seed; else in the dataset's order. version: stands for what the samples
    hold, which the plan itself does not know; "" where the program does not say it.

    Batches are numbered from 0 over all epochs. Samples that fill no batch at an epoch's end are left out of that epoch.

    Raises DataError where the numbers make no batch.
    """

    samples: int
    global_batch: int
    seed: int = 0
    epochs: int | None = None
    shuffle: bool = True
    version: str = ""

    def __post_init__(self) -> None:
        if self.global_batch < 1 or (self.epochs is not None and self.epochs < 1):
            raise DataError(f"a global batch of {self.global_batch} samples, {self.epochs} epochs: both count from 1")
        if self.samples < self.global_batch:
            raise DataError(f"{self.samples} samples make no global batch of {self.global_batch}: take a smaller batch, or more data")

    @property
    def batches_per_epoch(self) -> int:
        return self.samples // self.global_batch

    @property
    def batches(self) -> int | None:
        """Of all epochs; None without end."""
        return None if self.epochs is None else self.epochs * self.batches_per_epoch

    def samples_of(self, batch: int, share: Share | None = None, part: int | None = None) -> list[int]:
        """The samples of a batch: all, a rank's share, or one part of that share.

        >>> plan = Plan(samples=10, global_batch=4, shuffle=False)
        >>> plan.samples_of(1), plan.samples_of(1, Share(rank=1, world=2)), plan.samples_of(2)
        ([4, 5, 6, 7], [6, 7], [0, 1, 2, 3])

        Raises IndexError for a batch that is not in the plan.
        """
        if batch < 0 or (self.batches is not None and batch >= self.batches):
            raise IndexError(f"batch {batch} of {self.batches}")
        epoch, within = divmod(batch, self.batches_per_epoch)
        begin, end = _bounds(self.global_batch, share, part)
        places = range(within * self.global_batch + begin, within * self.global_batch + end)
        if not self.shuffle:
            return list(places)
        order = _order(self.samples, self.seed, epoch)
        return [order.at(place) for place in places]

    def check_share(self, share: Share) -> None:
        """Raises DataError where a rank would have no sample of a batch."""
        if self.global_batch < share.world * share.parts:
            raise DataError(
                f"a global batch of {self.global_batch} samples leaves ranks without data: {share.world} ranks in {share.parts} parts "
                f"need {share.world * share.parts} at least; take a larger batch, or fewer ranks"
            )

    def identity(self) -> dict[str, Any]:
        """What makes two plans give out the same batches. The number of epochs does not belong to it: a run may go on for longer."""
        return {name: getattr(self, name) for name in _FIELDS}

    def check_identity(self, found: Mapping[str, Any], where: str) -> None:
        """Raises DataError where `found` is the identity of another plan; `where` says in what it was found."""
        found = {"version": "", **found}  # one of an earlier release has none
        differ = [name for name in _FIELDS if found.get(name) != getattr(self, name)]
        if differ:
            there = ", ".join(_shown(name, found.get(name)) for name in differ)
            here = ", ".join(_shown(name, getattr(self, name)) for name in differ)
            raise DataError(
                f"{where} is of another data plan ({there}; here {here}): give the loader that plan, or begin without this state"
            )


def _shown(name: str, value: Any) -> str:
    return f"no {name}" if value == "" else f"{_FIELDS[name]} {value}"


def _bounds(size: int, share: Share | None, part: int | None) -> tuple[int, int]:
    if share is None:
        return 0, size
    begin, end = size * share.rank // share.world, size * (share.rank + 1) // share.world
    if part is None:
        return begin, end
    length = end - begin
    return begin + length * part // share.parts, begin + length * (part + 1) // share.parts


@lru_cache(maxsize=4)
def _order(samples: int, seed: int, epoch: int) -> Order:
    return Order(samples, seed, epoch)
