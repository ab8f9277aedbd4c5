"""torchtitan: every step into the machines' memory, and on from there; every `interval` steps into the folder, as ever.

    from minder.edge.checkpoint.torchtitan import MemoryCheckpoints

    Trainer.Config(..., checkpoint=MemoryCheckpoints.Config(enable=True, interval=500))

What is kept is what torchtitan itself saves: model parts, optimisers, schedulers, the data loader, the trainer's own numbers. Their tensors
are copied while the next forward runs; DCP, which would plan each save over all ranks, is asked for the folder only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchtitan.components.checkpointer import CheckpointManager

from minder.edge.checkpoint.checkpoint import Checkpointer

__all__ = ["MemoryCheckpoints"]

_MODEL, _OPTIMIZER = "model", "optimizer"


class MemoryCheckpoints(CheckpointManager):  # type: ignore[misc, unused-ignore]
    """torchtitan's manager, and Checkpointer("memory") beside it. A job goes on from the newer of the two; a step that `load_step` names is
    the folder's. What `exclude_from_loading` names is not loaded from memory either. load_only: saves into neither."""

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):  # type: ignore[misc, unused-ignore]
        """torchtitan's own settings, and these of Checkpointer("memory"). flush_dir: "" for none."""

        flush_dir: str = ""
        flush_every: int = 100
        ring: int = 1

    def __init__(self, config: Any, *, model_parts: list[Any], optimizers: Any, **parts: Any) -> None:
        super().__init__(config, model_parts=model_parts, optimizers=optimizers, **parts)
        self.memory: Checkpointer | None = None
        self._is_over = False
        if not self.enable:
            return
        self._tensors = {
            _MODEL: {f"{_MODEL}.{index}": part for index, part in enumerate(model_parts)},
            _OPTIMIZER: {f"{_OPTIMIZER}.{index}": each for index, each in enumerate(optimizers)},
        }
        self.memory = Checkpointer("memory", flush_dir=config.flush_dir or None, flush_every=config.flush_every, ring=config.ring)

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        self._is_over |= last_step
        if self.memory is not None and not self.load_only:
            self.memory.save(curr_step, self._parts(()))
        return bool(super()._save(curr_step, last_step))

    def _load(self, step: int = -1) -> bool:
        found = None if self.memory is None or step != -1 else self.memory.load_latest(self._parts(self.exclude_from_loading))
        if found is None or self._find_load_step() > found:
            return bool(super()._load(step))
        return True

    def _close(self) -> None:
        """Called after an error, too: then the memory is what the job goes on from, and only its end gives it back."""
        memory, self.memory = getattr(self, "memory", None), None
        if memory is not None and self._is_over:
            memory.close()
        super()._close()

    def _parts(self, without: Any) -> dict[str, Any]:
        """Each object under a name of its own: the wrappers' state dictionaries hide which tensors only an optimiser's step changes."""
        found: dict[str, Any] = {}
        for name, value in self.states.items():
            if name not in without and value is not None:
                found.update(self._tensors.get(name, {name: value}))
        return found
