"""Hugging Face's Trainer: its steps into the machines' memory, and on from there.

    callback = MemoryCallback()
    trainer = Trainer(..., callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.resume_folder())

The Trainer reads a checkpoint from a folder of its own format. `resume_folder` writes what the memory has into one, each rank its own, so
that the Trainer itself finds its place in the data, its schedule and its logs. For one process and data-parallel ranks (DDP): under FSDP
and DeepSpeed the Trainer reads formats of theirs, and a state that is cut is refused.
"""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from minder.edge.checkpoint.checkpoint import Checkpointer

__all__ = ["MemoryCallback"]


class MemoryCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Keyword arguments go to Checkpointer("memory"). Make it where ranks meet: after torch.distributed is up, if it is used."""

    def __init__(self, checkpoints: Checkpointer | None = None, **options: Any) -> None:
        self.checkpoints = checkpoints or Checkpointer("memory", **options)
        self._folder: Path | None = None

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """After the optimiser's step: state.global_step steps are in the parameters."""
        self._forget_folder()
        if not self.checkpoints.is_due(state.global_step):
            return
        optimizer = parts["optimizer"]
        taken = {
            "model": parts["model"],
            "optimizer": getattr(optimizer, "optimizer", optimizer),  # Accelerate wraps it; the inner one is the one that steps
            "scheduler": parts["lr_scheduler"],
            "trainer": _as_json(state),
        }
        self.checkpoints.save(state.global_step, taken)

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        self._forget_folder()
        self.checkpoints.close()

    def resume_folder(self) -> str | None:
        """The newest step as a checkpoint folder of the Trainer's; None where nothing was saved yet. It goes with the next step. All ranks
        call it together. Raises CheckpointError."""
        found: dict[str, Any] = dict.fromkeys(("model", "optimizer", "scheduler", "trainer"))
        if self.checkpoints.load_latest(found) is None:
            return None
        self._folder = Path(tempfile.mkdtemp(prefix="minder-resume-"))
        torch.save(found["model"], self._folder / "pytorch_model.bin")
        torch.save(found["optimizer"], self._folder / "optimizer.pt")
        torch.save(found["scheduler"], self._folder / "scheduler.pt")
        (self._folder / "trainer_state.json").write_text(found["trainer"])
        for name in _random_files():
            torch.save(_random_state(), self._folder / name)
        return str(self._folder)

    def _forget_folder(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _as_json(state: Any) -> str:
    """As TrainerState.save_to_json writes it, without a copy of its logs."""
    fields = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
    return json.dumps(fields, indent=2, sort_keys=True) + "\n"


def _random_files() -> list[str]:
    """The Trainer's name for this rank's generators."""
    if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        return [f"rng_state_{torch.distributed.get_rank()}.pth"]
    return ["rng_state.pth"]


def _random_state() -> dict[str, Any]:
    """`load_latest` has set the generators to what they were at the step."""
    numpy = sys.modules["numpy"]  # the Trainer has loaded it
    state = {"python": random.getstate(), "numpy": numpy.random.get_state(), "cpu": torch.random.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.random.get_rng_state_all()
    return state
