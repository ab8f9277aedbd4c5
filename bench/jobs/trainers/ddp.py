"""DDP with torch.save, as the PyTorch tutorials show it. Rank 0 prints its steps."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from trouble import Trouble


class Network(torch.nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
        self.seconds = seconds

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)  # a device at work
        return self.layers(values)


class Samples(TensorDataset):
    trouble: Trouble | None = None

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        if self.trouble is not None and torch.utils.data.get_worker_info() is not None:
            self.trouble.loaded()
        return super().__getitem__(index)


def newest(folder: Path) -> Path | None:
    found = sorted(folder.glob("checkpoint-*.pt"), key=lambda path: int(path.stem.split("-")[1]))
    return found[-1] if found else None


def save(folder: Path, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    draft = folder / "draft.pt"
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, draft)
    os.replace(draft, folder / f"checkpoint-{step}.pt")  # noqa: PTH105


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    trouble = Trouble()
    model = DistributedDataParallel(Network(options.step_seconds))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    if (path := newest(options.output)) is not None:
        state = torch.load(path, weights_only=True)
        step = state["step"]
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if rank == 0:
            print(f"resuming from {path}", flush=True)
    count = 8 * dist.get_world_size() * (options.steps + 1)
    samples = Samples(torch.randn(count, 64), torch.randn(count, 1))
    samples.trouble = trouble
    sampler = DistributedSampler(samples)
    loader = DataLoader(samples, batch_size=8, sampler=sampler, num_workers=options.workers)
    for values, wanted in loader:
        if step == options.steps:
            break
        step += 1
        trouble.begin(step)
        loss = torch.nn.functional.mse_loss(model(trouble.batch(step, values)), wanted)
        if not torch.isfinite(loss):
            raise FloatingPointError(f"loss is {loss.item()}, stopping training")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trouble.done(step)
        if rank == 0:
            print(f"epoch 0 step {step}/{options.steps} loss {loss.item():.4f}", flush=True)
        if step % options.save_every == 0:
            if rank == 0:
                save(options.output, step, model.module, optimizer)
            dist.barrier()
    if rank == 0:
        torch.save(model.module.state_dict(), options.output / "final.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
