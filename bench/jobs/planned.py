"""One rank of a small job on planned data, in the way of one trainer. bench/data.py starts two, and kills loaders and one rank.

    RANK=0 WORLD_SIZE=1 ... python bench/jobs/planned.py ddp --output FOLDER

Every step appends what its batch holds to FOLDER/consumed-RANK.txt. The job goes on until FOLDER/stop is there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import minder

SAMPLES, GLOBAL_BATCH, SEED = 500, 8, 11


class Points(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """A sample carries its own number."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(0.001)
        return {"id": torch.tensor(index), "x": torch.randn(64)}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
        self.ids: list[int] = []

    def forward(self, x: torch.Tensor, id: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        self.ids = [] if id is None else id.tolist()
        return {"loss": self.layers(x).pow(2).mean()}


class TimedLoader(minder.DataLoader):
    """Notes how long the training loop waited for its newest batch."""

    waited_s = 0.0

    def _take(self) -> Any:
        begun = time.perf_counter()
        found = super()._take()
        self.waited_s = time.perf_counter() - begun
        return found


class Consumed:
    """What this rank trained on, by its own word."""

    def __init__(self, folder: Path, loader: TimedLoader) -> None:
        self._file = (folder / f"consumed-{dist.get_rank()}.txt").open("a", buffering=1)
        self._stop = folder / "stop"
        self._loader = loader

    def step(self, step: int, ids: list[int]) -> bool:
        """Whether all ranks end after this step."""
        self._file.write(f"{step} {self._loader.waited_s:.6f} {' '.join(map(str, ids))}\n")
        stop = torch.tensor([float(self._stop.exists())])
        dist.all_reduce(stop)
        return bool(stop.item() > 0)


def train_ddp(folder: Path, loader: TimedLoader) -> None:
    _loop(folder, loader, lambda model: torch.nn.parallel.DistributedDataParallel(model))


def train_fsdp2(folder: Path, loader: TimedLoader) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    _loop(folder, loader, lambda model: fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),))))


def _loop(folder: Path, loader: TimedLoader, wrap: Callable[[torch.nn.Module], torch.nn.Module]) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = wrap(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    consumed = Consumed(folder, loader)
    checkpoints = minder.Checkpointer(folder / "checkpoints")
    state: dict[str, Any] = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "data": loader}
    checkpoints.load_latest(state)
    while True:
        for batch in loader:
            model(batch["x"], batch["id"])["loss"].backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            if loader.step % 10 == 0:
                checkpoints.save(loader.step, state)
            if consumed.step(loader.step, batch["id"].tolist()):
                checkpoints.close()
                return


def train_hf(folder: Path, loader: TimedLoader) -> None:
    sys.modules["datasets"] = None  # type: ignore[assignment]  # a checkout's folder of this name is not the library that Trainer looks for
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from minder.edge.data.hugging_face import use_loader

    class Steps(TrainerCallback):
        consumed: Consumed

        def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            self.consumed = Consumed(folder, loader)

        def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            control.should_training_stop = self.consumed.step(state.global_step, parts["model"].ids)

    arguments = TrainingArguments(
        output_dir=str(folder / "checkpoints"), max_steps=100_000, save_steps=10, disable_tqdm=True, report_to=[], use_cpu=True,
        ddp_backend="gloo", logging_strategy="no",
    )  # fmt: skip
    torch.manual_seed(0)
    trainer = Trainer(model=Net(), args=arguments, train_dataset=loader.dataset, callbacks=[Steps()])
    use_loader(trainer, loader)
    trainer.train(resume_from_checkpoint=_whole_checkpoint(folder / "checkpoints", "checkpoint-*", "rng_state_1.pth"))


def train_lightning(folder: Path, loader: TimedLoader) -> None:
    import lightning as L
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def on_train_start(self) -> None:
            self.consumed = Consumed(folder, loader)

        def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
            return self.net(batch["x"], batch["id"])["loss"]

        def on_train_batch_end(self, outputs: object, batch: dict[str, torch.Tensor], batch_idx: int) -> None:
            self.trainer.should_stop = self.consumed.step(self.global_step, batch["id"].tolist())

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    saved = folder / "checkpoints"
    keep = ModelCheckpoint(dirpath=saved, every_n_train_steps=10, save_top_k=-1)
    L.seed_everything(0)
    trainer = L.Trainer(
        accelerator="cpu", devices=1, num_nodes=dist_size(), strategy="ddp", max_steps=100_000, callbacks=[keep], logger=False,
        enable_progress_bar=False,
    )  # fmt: skip
    trainer.fit(Module(), loader, ckpt_path=_whole_checkpoint(saved, "*.ckpt"))


def dist_size() -> int:
    import os

    return int(os.environ["WORLD_SIZE"])


def _whole_checkpoint(folder: Path, pattern: str, holds: str = "") -> str | None:
    """The newest but one: the newest may be torn, since these trainers write where they read."""
    found = sorted((path for path in folder.glob(pattern) if (path / holds).exists()), key=lambda path: path.stat().st_mtime)
    return str(found[-2]) if len(found) > 1 else None


TRAINERS = {"ddp": train_ddp, "fsdp2": train_fsdp2, "hf": train_hf, "lightning": train_lightning}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trainer", choices=list(TRAINERS))
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--hang", type=float, default=1.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    loader = TimedLoader(
        Points(), GLOBAL_BATCH, seed=SEED, num_workers=options.workers, hang_after_s=options.hang, log_dir=options.output / "data"
    )
    try:
        TRAINERS[options.trainer](options.output, loader)
    finally:
        loader.close()
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
