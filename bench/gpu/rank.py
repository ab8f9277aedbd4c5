"""A rank of bench/gpu/hang.py: a small network under DDP, a checkpoint after each step, losses as hexadecimal floats.

It runs under minder's worker (`minder.run`) and notes each event as a line of JSON in FOLDER/rank-PLACE.jsonl, "time_s" on the monotonic
clock. MINDER_DEVICE: cuda (NCCL) or cpu (gloo). SPIN_AT=STEP: the rank of place 1 keeps its own GPU busy for ever before that step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import minder

FOLDER, PLACE, STEPS = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
DEVICE = os.environ.get("MINDER_DEVICE", "cuda")
SPIN_AT = int(os.environ.get("SPIN_AT", "0"))
WIDTH, BALLAST_BYTES = 512, 1 << 30
STEP_S = float(os.environ.get("STEP_S", "0.08"))


def note(what: str, **fields: Any) -> None:
    with (FOLDER / f"rank-{PLACE}.jsonl").open("a") as file:
        file.write(json.dumps({"what": what, "time_s": time.monotonic(), **memory(), **fields}) + "\n")


def memory() -> dict[str, int]:
    if DEVICE != "cuda" or not torch.cuda.is_initialized():
        return {}
    return {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}


def leftovers() -> list[str]:
    """What is still allocated on the GPU, and where it was: "64 MiB x 24: backward < train"."""
    if DEVICE != "cuda":
        return []
    found: dict[str, list[int]] = {}
    for segment in torch.cuda.memory_snapshot():
        for block in segment["blocks"]:
            if block["state"].startswith("active"):
                names = [f"{frame['name']}:{frame['line']}" for frame in block.get("frames", [])[:6]]
                found.setdefault(" < ".join(names) or "unknown", []).append(block["size"])
    return sorted(f"{sum(sizes) >> 20} MiB in {len(sizes)}: {where}" for where, sizes in found.items())


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    generation = int(os.environ.get("MINDER_GENERATION", "0"))
    note("main", generation=generation, leftovers=leftovers())
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo", rank=rank, world_size=world, timeout=timedelta(seconds=600))
    note("group", generation=generation)
    try:
        train(rank, generation)
    except BaseException as error:
        note("left", generation=generation, error=type(error).__name__)
        raise
    note("finished", generation=generation)
    dist.destroy_process_group()


def train(rank: int, generation: int) -> None:
    torch.manual_seed(7)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ballast = torch.ones(BALLAST_BYTES if DEVICE == "cuda" else 1, dtype=torch.uint8, device=DEVICE)
    step = load(model, optimizer)
    ddp = DistributedDataParallel(model, find_unused_parameters=True)
    while step < STEPS:
        step += 1
        spin_if_asked(rank, step, generation)
        draw = torch.Generator().manual_seed(step * 100 + rank)
        inputs = torch.randn(64, WIDTH, generator=draw).to(DEVICE)
        loss = (ddp(inputs) - inputs).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        reduced = loss.detach().clone()
        dist.all_reduce(reduced)
        optimizer.step()
        value = float(reduced)
        minder.heartbeat(step, value)
        if rank == 0:
            torch.save([step, model.state_dict(), optimizer.state_dict()], FOLDER / "draft.pt")
            (FOLDER / "draft.pt").rename(FOLDER / "state.pt")
        note("step", step=step, loss=value.hex(), generation=generation)
        time.sleep(STEP_S)
    del ballast


def load(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    if not (FOLDER / "state.pt").exists():
        return 0
    step, weights, moments = torch.load(FOLDER / "state.pt", map_location=DEVICE, weights_only=True)
    model.load_state_dict(weights)
    optimizer.load_state_dict(moments)
    return int(step)


def spin_if_asked(rank: int, step: int, generation: int) -> None:
    if SPIN_AT and rank == 1 and generation == 0 and step == SPIN_AT:
        note("spins", step=step)
        while True:
            if DEVICE == "cuda":
                torch.cuda._sleep(1_000_000_000)
                torch.cuda.synchronize()


if __name__ == "__main__":
    torch.set_num_threads(1)
    if DEVICE == "cuda":
        torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=1000)
        torch.zeros(1, device="cuda")
    minder.run(main)
