"""A small job whose loader leaves batches out: what bench/skip_batch.py plays, and the least that a loader of one's own has to do.

    skipped.py --output DIR --steps N --seed S [--without B]... [--memory | --bare]

Wrong numbers, from OUTPUT/bad.json: {"batch": B} makes batch B not a number for all ranks, with "rank" for that rank only; {"machine": M,
"batches": [B, ...]} makes machine M compute wrongly at each of these batches, once each. --without: a run whose data never had the batch.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import minder
from minder.model.batch_ranges import batch_of_step


class Loader:
    """Deals out batch after batch: that of the plan at each step, without those that the run leaves out."""

    def __init__(self, seed: int, rank: int, without: list[int]) -> None:
        self._seed, self._rank = seed, rank
        self._plan = [number for number in range(100_000) if number not in without]  # the data as it is
        self._skipped = minder.skipped_batches()

    def deal(self, after_step: int) -> Iterator[tuple[int, int, torch.Tensor]]:
        """(step, batch, this rank's part of it)."""
        for step in itertools.count(after_step + 1):
            batch = self._plan[batch_of_step(step, self._skipped)]
            dice = torch.Generator().manual_seed(self._seed * 1_000_003 + batch * 97 + self._rank)
            yield step, batch, torch.randn(16, 32, generator=dice)


def main(options: argparse.Namespace) -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", "env://", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(options.seed)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    ddp = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    checkpoints, state = None if options.bare else _open_checkpoints(options, ddp), {"model": model, "optimizer": optimizer}
    loader = Loader(options.seed, rank, options.without)
    for step, batch, values in loader.deal(0 if checkpoints is None else checkpoints.load_latest(state) or 0):
        begun_s = time.monotonic()
        loss = (ddp(values * _poison(options.output, batch, rank)) - values.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        reduced = loss.detach().clone()
        dist.all_reduce(reduced)
        if rank == 0:
            _append(options.output / "losses.jsonl", {"step": step, "batch": batch, "loss": float(reduced).hex()})
        minder.heartbeat(step, float(reduced))
        if checkpoints is not None:
            checkpoints.save(step, state)
        if step >= options.steps:
            break
        time.sleep(max(0.0, begun_s + options.step_seconds - time.monotonic()))
    if checkpoints is not None:
        checkpoints.close()
    del ddp
    dist.destroy_process_group()


def _open_checkpoints(options: argparse.Namespace, ddp: Any) -> Any:
    """With the guard on the model; a bare run loads neither."""
    from minder import Checkpointer
    from minder.edge.worker import install_gradient_guard

    install_gradient_guard(ddp)
    if options.memory:
        return Checkpointer("memory", ring=3)
    return Checkpointer(os.environ.get("MINDER_CHECKPOINT_DIR") or options.output / "checkpoints", sync_files=False)


def _poison(output: Path, batch: int, rank: int) -> float:
    path = output / "bad.json"
    bad: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if bad.get("batch") == batch and bad.get("rank", rank) == rank:
        return float("nan")
    if bad.get("machine") == os.environ.get("MINDER_MACHINE", "-") and batch in bad.get("batches", ()):
        try:
            (output / f"wrong-at-{batch}").touch(exist_ok=False)
        except FileExistsError:
            return 1.0
        return float("nan")
    return 1.0


def _append(path: Path, row: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        stream.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step-seconds", type=float, default=0.1)
    parser.add_argument("--without", type=int, action="append", default=[])
    parser.add_argument("--memory", action="store_true", help="checkpoints in the machines' memory")
    parser.add_argument("--bare", action="store_true", help="without checkpoints and gradient guard")
    chosen, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    minder.run(lambda: main(chosen))
