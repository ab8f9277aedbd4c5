"""What the lab's training script does in --plain mode: what a user who has never heard of minder would have written.

It prints a log line per step, writes a checkpoint with torch.save from rank 0, and imports nothing of minder.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


class PlainLoop:
    """log_format: "megatron" or "huggingface". every_rank: all ranks print, not only rank 0."""

    def __init__(self, checkpoint_dir: Path, steps: int, log_format: str, every_rank: bool) -> None:
        self._path = checkpoint_dir / "latest.pt"
        self._steps = steps
        self._log_format = log_format
        self._every_rank = every_rank
        self._last_s = time.monotonic()

    def guard(self, ddp: Any) -> None:
        """Nothing looks at gradients here."""

    def load(self, state: dict[str, Any]) -> int:
        """The step of the last checkpoint, loaded into `state`; 0 if there is none."""
        if not self._path.exists():
            return 0
        saved = torch.load(self._path, weights_only=True)
        for name, target in state.items():
            target.load_state_dict(saved[name])
        torch.set_rng_state(saved["random"][dist.get_rank()])
        return int(saved["step"])

    def save(self, step: int, state: dict[str, Any]) -> None:
        mine = torch.get_rng_state()
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
        dist.gather(mine, everyone)
        if everyone is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            draft = self._path.with_suffix(".draft")
            torch.save({"step": step, "random": everyone, **{name: target.state_dict() for name, target in state.items()}}, draft)
            draft.replace(self._path)

    def stepped(self, step: int, loss: float, gradient_norm: float, learning_rate: float) -> None:
        """Print the step, in the format of a well-known trainer."""
        now_s = time.monotonic()
        milliseconds, self._last_s = (now_s - self._last_s) * 1000, now_s
        if dist.get_rank() != 0 and not self._every_rank:
            return
        if self._log_format == "huggingface":
            epoch = step / self._steps
            print(
                {"loss": round(loss, 4), "grad_norm": round(gradient_norm, 4), "learning_rate": learning_rate, "epoch": round(epoch, 4)},
                flush=True,
            )
            return
        print(
            f" iteration {step:8d}/{self._steps:8d} | elapsed time per iteration (ms): {milliseconds:.1f} | "
            f"learning rate: {learning_rate:.6E} | lm loss: {loss:.6E} | grad norm: {gradient_norm:.3f} |",
            flush=True,
        )

    def evaluation(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def close(self) -> None:
        """Everything is on disk already."""
