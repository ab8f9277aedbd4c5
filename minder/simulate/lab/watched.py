"""What the lab's training script does with minder: heartbeat, phases, gradient guard, asynchronous checkpoints."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import minder
from minder import Checkpointer
from minder.edge.worker import install_gradient_guard


class WatchedLoop:
    """The same face as PlainLoop."""

    def __init__(self, checkpoint_dir: Path | str, sync_files: bool, **flush: Any) -> None:
        self._checkpoints = Checkpointer(checkpoint_dir, sync_files=sync_files, **flush)

    def guard(self, ddp: Any) -> None:
        """Look at this rank's own gradient before the all-reduce hides whose it was."""
        install_gradient_guard(ddp)

    def load(self, state: dict[str, Any]) -> int:
        return self._checkpoints.load_latest(state) or 0

    def save(self, step: int, state: dict[str, Any]) -> None:
        self._checkpoints.save(step, state)

    def stepped(self, step: int, loss: float, gradient_norm: float, learning_rate: float) -> None:
        minder.heartbeat(step=step, loss=loss, grad_norm=gradient_norm)

    def evaluation(self) -> contextlib.AbstractContextManager[Any]:
        return minder.phase("evaluation")

    def close(self) -> None:
        self._checkpoints.close()
