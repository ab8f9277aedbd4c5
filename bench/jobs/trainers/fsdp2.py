"""FSDP2 with distributed checkpoints (DCP), every rank its own shards. It prints when it saves and no steps."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from trouble import Trouble


class Tokens(Dataset[torch.Tensor]):
    def __init__(self, count: int, trouble: Trouble) -> None:
        self.values = torch.randn(count, 32, 64)
        self.trouble = trouble

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> torch.Tensor:
        if torch.utils.data.get_worker_info() is not None:
            self.trouble.loaded()
        return self.values[index]


class Transformer(torch.nn.Module):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True) for _ in range(2))
        self.seconds = seconds

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)  # a device at work
        for block in self.blocks:
            values = block(values)
        return values


class AppState(Stateful):
    """As the DCP tutorial has it."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self) -> dict[str, object]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state: dict[str, object]) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = state["step"]


def newest(folder: Path) -> Path | None:
    """DCP writes .metadata last: a folder without it is half a checkpoint."""
    found = [path.parent for path in folder.glob("step-*/.metadata")]
    return max(found, key=lambda path: int(path.name.split("-")[1]), default=None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    trouble = Trouble()
    mesh = init_device_mesh("cpu", (world,))
    model = Transformer(options.step_seconds)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    app = AppState(model, optimizer)
    if (path := newest(options.output)) is not None:
        dcp.load({"app": app}, checkpoint_id=path)
    data = Tokens(2 * world * (options.steps + 1), trouble)
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data), num_workers=options.workers)
    for values in loader:
        if app.step == options.steps:
            break
        trouble.begin(app.step + 1)
        loss = model(trouble.batch(app.step + 1, values)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        optimizer.step()
        app.step += 1
        trouble.done(app.step)
        if app.step % options.save_every == 0:
            dcp.save({"app": app}, checkpoint_id=options.output / f"step-{app.step}")
            if rank == 0:
                print(f"saved {options.output.name}/step-{app.step}", flush=True)
    dcp.save({"app": app}, checkpoint_id=options.output / "final")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
