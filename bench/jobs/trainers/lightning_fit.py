"""A LightningModule under the DDP strategy, with Lightning's own checkpoints and progress bar."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, Dataset
from trouble import Trouble


class Points(Dataset[torch.Tensor]):
    trouble: Trouble | None = None

    def __init__(self, count: int) -> None:
        self.values = torch.randn(count, 64)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.trouble is not None and torch.utils.data.get_worker_info() is not None:
            self.trouble.loaded()
        return self.values[index]


class Autoencoder(L.LightningModule):
    def __init__(self, seconds: float, data: Points, workers: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
        self.seconds, self.data, self.workers = seconds, data, workers
        self.trouble: Trouble | None = None

    def train_dataloader(self) -> DataLoader[torch.Tensor]:
        self.data.trouble = self.trouble = self.trouble or Trouble()
        return DataLoader(self.data, batch_size=4, num_workers=self.workers)

    def on_train_batch_start(self, batch: torch.Tensor, batch_idx: int) -> None:
        assert self.trouble is not None
        self.trouble.begin(self.global_step + 1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        assert self.trouble is not None
        time.sleep(self.seconds)  # a device at work
        batch = self.trouble.batch(self.global_step + 1, batch)
        loss = torch.nn.functional.mse_loss(self.layers(batch), batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def on_train_batch_end(self, outputs: object, batch: torch.Tensor, batch_idx: int) -> None:
        assert self.trouble is not None
        self.trouble.done(self.global_step)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()

    L.seed_everything(0)
    world = int(os.environ["WORLD_SIZE"])
    checkpoints = ModelCheckpoint(dirpath=options.output, every_n_train_steps=options.save_every, save_top_k=-1, save_last=True)
    trainer = L.Trainer(
        accelerator="cpu", devices=1, num_nodes=world, strategy="ddp", max_steps=options.steps, callbacks=[checkpoints],
        logger=False, detect_anomaly=True,
    )  # fmt: skip
    model = Autoencoder(options.step_seconds, Points(4 * world * (options.steps + 1)), options.workers)
    trainer.fit(model, ckpt_path="last")
    trainer.save_checkpoint(options.output / "final.ckpt")


if __name__ == "__main__":
    main()
