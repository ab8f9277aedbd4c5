"""A job laid out on machines: groups from the solver, consecutive ranks in the same block, spares inside each block (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minder.act.recovery.pool_size import DEFAULT_RATE, binomial_quantile
from minder.model.errors import BadInputError
from minder.model.spread import Spread
from minder.model.topology import Parallelism
from minder.offline.placement.solve import Solution, solve

__all__ = ["Layout", "block_spares", "place"]


@dataclass(frozen=True, slots=True)
class Layout:
    """machines: in the order of their ranks. spares: block to the machines reserved there. spread: of each axis, the largest number of
    blocks that one of its groups touches. solution: what was solved, groups of `unit`."""

    machines: tuple[str, ...]
    spares: Mapping[str, tuple[str, ...]]
    block_of: Mapping[str, str]
    spread: Mapping[str, int]
    unit: str
    solution: Solution


def block_spares(machines: int, rate: float = DEFAULT_RATE) -> int:
    """Spares of one block: the P99 of its machines that fail in a day, and at least one, so that a replacement need not leave the block.

    >>> block_spares(1), block_spares(128), block_spares(1024)
    (1, 2, 4)
    """
    return max(1, binomial_quantile(machines, rate, 0.99))


def place(
    parallelism: Parallelism, gpus_per_machine: int, free: Mapping[str, Sequence[str]], *, unit: str = "pp", alpha: float = 0.0,
    spares: int | None = None,
) -> Layout:  # fmt: skip
    """free: block to its free machines. unit: the axis whose groups are kept together. spares: machines reserved in each block that is
    used; None: as `block_spares` of the block. Raises BadInputError."""
    groups = _groups(parallelism, gpus_per_machine, unit)
    blocks = list(free)
    reserved = [block_spares(len(free[block])) if spares is None else spares for block in blocks]
    room = [max(0, len(free[block]) - kept) for block, kept in zip(blocks, reserved, strict=True)]
    solution = solve(len(groups), len(groups[0]), room, alpha)
    left = {block: list(free[block]) for block in blocks}
    placed: dict[int, str] = {}
    for group, cut in zip(groups, solution.groups, strict=True):
        own = [left[blocks[block]].pop(0) for block, count in cut for _ in range(count)]
        placed |= dict(zip(group, own, strict=True))
    order = tuple(placed[at] for at in sorted(placed))
    used = {blocks[block] for cut in solution.groups for block, _ in cut}
    kept = {block: tuple(left[block][:count]) for block, count in zip(blocks, reserved, strict=True) if block in used and count}
    block_of = {machine: block for block, machines in free.items() for machine in machines}
    ranks = {rank: order[rank // gpus_per_machine] for rank in range(parallelism.world_size)}
    return Layout(order, kept, block_of, Spread.of(parallelism, ranks, block_of).largest(), unit, solution)


def _groups(parallelism: Parallelism, gpus_per_machine: int, unit: str) -> list[list[int]]:
    """Places in the order of ranks, parted into the groups of one axis. Raises BadInputError where groups overlap."""
    machines, left = divmod(parallelism.world_size, gpus_per_machine)
    if left or not machines:
        raise BadInputError(f"{parallelism.world_size} ranks do not fill machines of {gpus_per_machine} GPUs: mend --gpus-per-machine")
    ranks = {rank: str(rank // gpus_per_machine) for rank in range(parallelism.world_size)}
    found = Spread.of(parallelism, ranks, {}).groups
    if unit not in found:  # no group of that axis crosses machines: each machine is one
        return [[place] for place in range(machines)]
    groups = sorted({tuple(sorted(map(int, group))) for group in found[unit]})
    if sorted(place for group in groups for place in group) != list(range(machines)):
        raise BadInputError(f"the {unit} groups of this job overlap on machines: choose another --unit")
    return [list(group) for group in groups]
