"""How long it takes to place a job, and how far its groups are spread: Arnold's settings, and a fleet of 1,200 machines.

    python bench/placement.py

Each row is solved on its own. `in order` is what filling the blocks one after the other gives: the spread of a job that asks for no
placement.
"""

from __future__ import annotations

import random
import time

from minder.model.spread import Spread
from minder.model.topology import Parallelism
from minder.offline.placement.layout import place

# name, blocks, machines in all, (data, tensor, pipeline)
SETTINGS = (
    ("small", 3, 18, (12, 4, 2)),
    ("medium", 5, 438, (24, 4, 8)),
    ("large", 11, 1019, (46, 8, 8)),
    ("512 machines", 11, 1019, (64, 8, 8)),
    ("1,200 machines", 20, 1200, (140, 8, 8)),
)


def fleet(blocks: int, machines: int, seed: int) -> dict[str, list[str]]:
    """Blocks of unequal size, as other jobs leave them."""
    dice = random.Random(seed)
    weights = [dice.uniform(0.5, 1.5) for _ in range(blocks)]
    ends = [round(machines * sum(weights[: index + 1]) / sum(weights)) for index in range(blocks)]
    return {
        f"b{index}": [f"b{index}-{at}" for at in range(begin, end)]
        for index, (begin, end) in enumerate(zip([0, *ends], ends, strict=False))
    }


def in_order(parallelism: Parallelism, free: dict[str, list[str]]) -> dict[str, int]:
    names = [name for machines in free.values() for name in machines]
    blocks = {name: block for block, machines in free.items() for name in machines}
    return Spread.of(parallelism, {rank: names[rank // 8] for rank in range(parallelism.world_size)}, blocks).largest()


def main() -> None:
    print("| job | machines of the fleet | groups x size | alpha | seconds | spread pp, dp | blocks | proven | in order pp, dp |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, blocks, machines, (data, tensor, pipeline) in SETTINGS:
        free = fleet(blocks, machines, seed=1)
        parallelism = Parallelism(tensor, pipeline, data)
        plain = in_order(parallelism, free)
        for alpha in (0.0, 0.3, 0.5):
            begun_s = time.perf_counter()
            found = place(parallelism, 8, free, alpha=alpha, spares=0)
            took_s = time.perf_counter() - begun_s
            spread = f"{found.spread.get('pp', 1)}, {found.spread.get('dp', 1)}"
            cuts = f"{len(found.solution.groups)} x {sum(count for _, count in found.solution.groups[0])}"
            proven = "yes" if found.solution.proven else "no"
            row = (name, str(machines), cuts, f"{alpha:g}", f"{took_s:.2f}", spread, str(found.solution.blocks), proven)
            print(f"| {' | '.join(row)} | {plain.get('pp', 1)}, {plain.get('dp', 1)} |", flush=True)


if __name__ == "__main__":
    main()
