"""For a job's own script that can be replayed: what a replay asks of it, and the lines that it writes down (docs/replay.md).

asked = minder.replay()
if asked is not None:                       # after init_process_group
    for step in range(1, asked.steps + 1):
        train(step)                         # fewer layers, no checkpoint, the same seed
        asked.note(step, *model.parameters())
    sys.exit()
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minder.model.errors import BadInputError

__all__ = ["Replay", "replay"]


@dataclass(frozen=True, slots=True)
class Replay:
    """steps: to take, from the beginning. seed: of weights and data, equal in every group. layers: of the model. file: for the lines."""

    steps: int
    seed: int
    layers: int
    file: Path

    def note(self, step: int, *parts: Any) -> str:
        """Write down the hash of this rank's state after a step: tensors, arrays or bytes, in a fixed order. Returns it."""
        digest = hashlib.sha256()
        for part in parts:
            digest.update(_bytes(part))
        found = digest.hexdigest()[:16]
        self._write(f"{step} {found}")
        return found

    def not_finite(self, step: int, text: str = "") -> None:
        """Write down that a loss, a gradient or a parameter is NaN or infinite; then end."""
        self._write(f"nan step {step}{': ' + text if text else ''}")

    def begin(self) -> None:
        """The other ranks are met: what fails from now on is the run's."""
        self._write("begin")

    def _write(self, line: str) -> None:
        with self.file.open("a") as stream:
            stream.write(line + "\n")


def replay() -> Replay | None:
    """What is asked of this process, or None where it trains as ever. Call it after init_process_group. Raises BadInputError where
    MINDER_REPLAY is none."""
    wanted, file = os.environ.get("MINDER_REPLAY", ""), os.environ.get("MINDER_REPLAY_FILE", "")
    if not wanted:
        return None
    numbers = wanted.split(",")
    if len(numbers) != 3 or not all(number.isdigit() for number in numbers) or not file:
        raise BadInputError(f'MINDER_REPLAY is "{wanted}": steps,seed,layers as numbers, with MINDER_REPLAY_FILE beside it')
    steps, seed, layers = map(int, numbers)
    found = Replay(steps, seed, layers, Path(file))
    found.begin()
    return found


def _bytes(part: Any) -> Any:
    if not hasattr(part, "detach"):
        return part
    import torch

    return part.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
