"""What the gradient guard costs a bucket of DDP: the look for NaN and spikes, against a look for NaN alone. One JSON line.

A bucket of DistributedDataParallel has 25 MiB; the small one is what a bias would be. Times are the best of many, in microseconds.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path


def best_us(work: Callable[[int], object], rounds: int) -> float:
    times = []
    for step in range(rounds):
        begun = time.perf_counter()
        work(step)
        times.append(time.perf_counter() - begun)
    return round(min(times) * 1e6, 1)


def main() -> None:
    import torch

    from minder.edge.worker.gradients import check_gradient
    from minder.edge.worker.spikes import GradientSpikes

    torch.set_num_threads(1)
    found = {}
    for kind in (torch.float32, torch.bfloat16):
        for elements in (1_000, 6_553_600):
            flat, past, rounds = torch.randn(elements).to(kind), GradientSpikes(), 60 if elements > 1_000 else 600
            guard = best_us(lambda step, flat=flat, past=past: check_gradient(flat, step, past=past), rounds)  # type: ignore[misc]
            alone = best_us(lambda step, flat=flat: bool(torch.isfinite(flat.sum())), rounds)  # type: ignore[misc]
            found[f"{str(kind).removeprefix('torch.')} x {elements}"] = {"guard": guard, "nan_alone": alone}
    print(json.dumps({"bench": "gradients", "unit": "us", **found}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MINDER_HEARTBEAT_FILE"] = str(Path(folder) / "page")
        main()
