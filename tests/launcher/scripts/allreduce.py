"""All-reduce in a loop, as torchrun would run it. Restarts in place if MINDER_TEST_IN_PLACE is set. Writes what it does."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import minder

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000


def main() -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    rank, generation = dist.get_rank(), int(os.environ["MINDER_GENERATION"])
    notes = Path(os.environ["MINDER_TEST_NOTES"])
    for step in range(STEPS):
        value = torch.full((1000,), float(rank))
        if generation == 0 and os.environ.get("MINDER_TEST_FAULT") == f"exception:{rank}" and step == 5:
            raise ValueError(f"a bug of the script in rank {rank}")
        if generation == 0 and os.environ.get("MINDER_TEST_FAULT") == f"sleep:{rank}" and step == 5:
            time.sleep(1000)
        dist.all_reduce(value)
        minder.heartbeat(step, loss=float(value[0]))
        if step == 3:
            found = {"rank": rank, "pid": os.getpid(), "generation": generation, "sum": float(value[0]), "world": dist.get_world_size()}
            with notes.open("a") as file:
                file.write(json.dumps(found) + "\n")
        time.sleep(0.01)
    dist.destroy_process_group()


if __name__ == "__main__":
    if os.environ.get("MINDER_TEST_IN_PLACE"):
        minder.run(main)
    else:
        main()
