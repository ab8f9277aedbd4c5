"""What the gradient guard costs a bucket of DDP, and what spikes cost a training with and without MomentReset. Two JSON lines.

The guard: the look for NaN and spikes, against a look for NaN alone. A bucket of DistributedDataParallel has 25 MiB; the small one is what
a bias would be. Times are the best of many, in microseconds. Spikes: a small regression under Adam; in every fiftieth step one element in a
hundred of the gradient is a thousand times itself. The loss is the mean of the last fifty steps, for each of three seeds.
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


def train(seed: int, *, spikes: bool, guarded: bool, steps: int = 600) -> float:
    """The loss at the end."""
    import torch

    from minder.edge.worker.moments import MomentReset

    dice = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    teacher = torch.randn(16, 1, generator=dice)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    if guarded:
        MomentReset(optimizer)
    losses = []
    for step in range(1, steps + 1):
        values = torch.randn(64, 16, generator=dice)
        loss = (model(values) - torch.tanh(values @ teacher / 4)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if spikes and step > 100 and step % 50 == 0:
            for parameter in model.parameters():
                struck = torch.rand(parameter.shape, generator=dice) < 0.01
                parameter.grad.mul_(torch.where(struck, 1_000.0, 1.0))  # type: ignore[union-attr]
        optimizer.step()
        losses.append(loss.item())
    return round(sum(losses[-50:]) / 50, 4)


def spiked() -> None:
    rows = {
        name: [train(seed, spikes=spikes, guarded=guarded) for seed in range(3)]
        for name, spikes, guarded in (("without_spikes", False, False), ("spikes", True, False), ("spikes_and_moment_reset", True, True))
    }
    print(json.dumps({"bench": "moments", "unit": "loss", **rows}))


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
        spiked()
