"""How many machines of each group go into which block: an integer programme, solved by HiGHS (pure).

Arnold (arXiv 2509.15940, section 4): minimise alpha * (blocks used) + (1 - alpha) * T, T the largest number of blocks that one group
touches. Groups are alike, so what is counted is how many groups are cut in which way, not which group is: without that symmetry the
search takes milliseconds. T is tried from 1 on, until even the fewest blocks that hold the job could not make a larger T worth it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from minder.model.errors import BadInputError, MissingExtraError

__all__ = ["Cut", "Solution", "solve"]

Cut = tuple[tuple[int, int], ...]  # (block, machines there) of one group, blocks ascending
_MOST_CUTS = 20_000
_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Solution:
    """groups: the cut of each. spread: T. blocks: how many are used. proven: no other choice has a smaller objective."""

    groups: tuple[Cut, ...]
    spread: int
    blocks: int
    proven: bool

    def objective(self, alpha: float) -> float:
        return alpha * self.blocks + (1.0 - alpha) * self.spread


def solve(groups: int, size: int, free: Sequence[int], alpha: float = 0.0) -> Solution:
    """groups: of `size` machines each. free: machines that each block has. alpha: weight of the number of blocks, 0 to 1.

    Raises BadInputError where the machines do not suffice, MissingExtraError without scipy.
    """
    if groups < 1 or size < 1 or not 0.0 <= alpha <= 1.0:
        raise BadInputError(f"{groups} groups of {size} machines, alpha {alpha:g}: give counts of 1 or more, and alpha from 0 to 1")
    if sum(free) < groups * size:
        raise BadInputError(
            f"{groups} groups of {size} machines need {groups * size}, and {sum(free)} are free: free more, or ask for less"
        )
    fewest = _fewest_blocks(groups * size, free)
    best: Solution | None = None
    for spread in range(1, min(size, len(free)) + 1):
        if best is not None and alpha * fewest + (1.0 - alpha) * spread >= best.objective(alpha):
            break
        found = _least_blocks(groups, size, free, spread)
        if found is not None and (best is None or found.objective(alpha) < best.objective(alpha)):
            best = found
        if best is not None and not best.proven:
            break
    if best is None:
        raise BadInputError(f"{groups} groups of {size} machines fit nowhere: every block has too few free machines for a part of one")
    return best


def _fewest_blocks(machines: int, free: Sequence[int]) -> int:
    """Blocks that hold so many machines, however groups are cut."""
    for count, total in enumerate(itertools.accumulate(sorted(free, reverse=True)), 1):
        if total >= machines:
            return count
    return len(free)


def _cuts(size: int, free: Sequence[int], spread: int) -> Iterator[Cut]:
    """Every way to cut one group over at most `spread` blocks."""
    for parts in range(1, spread + 1):
        for blocks in itertools.combinations(range(len(free)), parts):
            for ends in itertools.combinations(range(1, size), parts - 1):
                counts = [end - begin for begin, end in itertools.pairwise((0, *ends, size))]
                if all(count <= free[block] for block, count in zip(blocks, counts, strict=True)):
                    yield tuple(zip(blocks, counts, strict=True))


def _least_blocks(groups: int, size: int, free: Sequence[int], spread: int) -> Solution | None:
    """The fewest blocks with no group in more than `spread`; None where it cannot be."""
    if spread == 1:
        return _whole(groups, size, free)
    cuts = list(itertools.islice(_cuts(size, free, spread), _MOST_CUTS + 1))
    if len(cuts) > _MOST_CUTS:
        return _in_line(groups, size, free)
    return _programme(groups, cuts, free)


def _whole(groups: int, size: int, free: Sequence[int]) -> Solution | None:
    """Every group inside one block: the blocks that hold most whole groups are the fewest."""
    chosen: list[Cut] = []
    for block in sorted(range(len(free)), key=lambda block: -(free[block] // size)):
        chosen += [((block, size),)] * min(free[block] // size, groups - len(chosen))
    return _solution(chosen, proven=True) if len(chosen) == groups else None


def _programme(groups: int, cuts: Sequence[Cut], free: Sequence[int]) -> Solution | None:
    """Variables: how many groups are cut in each way, then whether each block is used."""
    try:
        import numpy as np
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_matrix
    except ModuleNotFoundError as error:
        raise MissingExtraError.of("scipy", "placement") from error

    many, blocks = len(cuts), len(free)
    held = [(block, at, count) for at, cut in enumerate(cuts) for block, count in cut]
    rows = [block for block, _, _ in held] + list(range(blocks))
    columns = [at for _, at, _ in held] + [many + block for block in range(blocks)]
    values = [float(count) for _, _, count in held] + [-float(room) for room in free]
    fits = coo_matrix((values, (rows, columns)), shape=(blocks, many + blocks)).tocsr()
    all_placed = coo_matrix(([1.0] * many, ([0] * many, range(many))), shape=(1, many + blocks)).tocsr()
    constraints = [LinearConstraint(fits, -np.inf, 0.0), LinearConstraint(all_placed, groups, groups), *_order(free, many)]
    cost = np.concatenate([np.zeros(many), np.ones(blocks)])
    most = np.concatenate([np.full(many, float(groups)), np.ones(blocks)])
    found = milp(
        cost, integrality=np.ones(many + blocks), bounds=Bounds(0.0, most), constraints=constraints, options={"time_limit": _LIMIT_S}
    )
    if found.x is None:
        return None
    counts = np.rint(found.x[:many]).astype(int)
    chosen = [cut for cut, count in zip(cuts, counts, strict=True) for _ in range(count)]
    return _solution(chosen, proven=found.status == 0)


def _order(free: Sequence[int], many: int) -> list[object]:
    """Of blocks that are alike the first is used first: they could change places."""
    from scipy.optimize import LinearConstraint
    from scipy.sparse import coo_matrix

    pairs = [(a, b) for a, b in itertools.pairwise(sorted(range(len(free)), key=lambda block: free[block])) if free[a] == free[b]]
    if not pairs:
        return []
    rows = [row for row in range(len(pairs)) for _ in (0, 1)]
    columns = [many + block for pair in pairs for block in pair]
    matrix = coo_matrix(([1.0, -1.0] * len(pairs), (rows, columns)), shape=(len(pairs), many + len(free))).tocsr()
    return [LinearConstraint(matrix, 0.0, math.inf)]


def _in_line(groups: int, size: int, free: Sequence[int]) -> Solution:
    """Blocks are filled one after the other, the largest first; a group goes over the edge of one. Good, and not proven to be best."""
    slots = [block for block in sorted(range(len(free)), key=lambda block: -free[block]) for _ in range(free[block])]
    chosen = []
    for group in range(groups):
        own = slots[group * size : (group + 1) * size]
        chosen.append(tuple((block, own.count(block)) for block in sorted(set(own))))
    return _solution(chosen, proven=False)


def _solution(chosen: Sequence[Cut], *, proven: bool) -> Solution:
    used = {block for cut in chosen for block, _ in cut}
    return Solution(tuple(sorted(chosen)), max(len(cut) for cut in chosen), len(used), proven)
