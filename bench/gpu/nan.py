"""One of two ranks under DDP with minder's gradient guard; the gradient of rank 1 becomes NaN in step 3. Prints what it met."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from minder.edge.worker import NonFiniteGradient, install_gradient_guard


def main() -> None:
    device, rank = sys.argv[1], int(os.environ["RANK"])
    dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=timedelta(seconds=20))
    model = torch.nn.Linear(64, 64).to(device)
    ddp = DistributedDataParallel(model)
    install_gradient_guard(ddp)
    for step in range(1, 6):
        inputs = torch.ones(8, 64, device=device)
        if step == 3 and rank == 1:
            inputs[0, 0] = float("nan")
        try:
            ddp(inputs).sum().backward()
        except NonFiniteGradient as error:
            print("NonFiniteGradient:", error, flush=True)
            os._exit(0)
        if step == 3:  # what the other rank does: it waits for its peer, which has left
            print(f"rank {rank} launched step 3", flush=True)
            os._exit(0)
    os._exit(0)


if __name__ == "__main__":
    main()
