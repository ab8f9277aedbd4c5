"""Lightning: its steps into the machines' memory, and on from there.

    trainer = Trainer(..., callbacks=[MemoryCheckpoints()])
    trainer.fit(model, data)

What is kept is what Lightning itself writes into a checkpoint: module, optimisers, schedules, loops, callbacks, the data module. It is
taken and given back through the Trainer's checkpoint connector, the only place where Lightning has all of it (`save_checkpoint` would
write one file, by one rank). Where Lightning's own resumption begins an epoch's data again, this does so too.
"""

from __future__ import annotations

from typing import Any

from minder.edge.checkpoint.checkpoint import Checkpointer

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:  # the package of the same code under its older name
    from pytorch_lightning.callbacks import Callback

__all__ = ["MemoryCheckpoints"]

_MODULE, _OPTIMIZERS = "state_dict", "optimizer_states"


class MemoryCheckpoints(Callback):  # type: ignore[misc, unused-ignore]
    """Keyword arguments go to Checkpointer("memory"). For strategies under which each rank can restore its own state when it starts to
    fit: one device, DDP, FSDP2 of ModelParallelStrategy. A `ckpt_path` counts where the memory has nothing."""

    def __init__(self, checkpoints: Checkpointer | None = None, **options: Any) -> None:
        self.checkpoints = checkpoints
        self._options = options
        self.resumed_step: int | None = None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """The ranks have met; the training state is restored after this. Raises CheckpointError."""
        self.checkpoints = self.checkpoints or Checkpointer("memory", **self._options)
        state: dict[str, Any] = {_MODULE: pl_module, "trainer": None}
        for index, optimizer in enumerate(trainer.optimizers):
            state[f"{_OPTIMIZERS}.{index}"] = optimizer
        self.resumed_step = self.checkpoints.load_latest(state)
        if self.resumed_step is None:
            return
        # The rest is restored by the connector, from the checkpoint that it would have read from a file.
        whole = {
            **state["trainer"],
            _MODULE: pl_module.state_dict(),
            _OPTIMIZERS: [optimizer.state_dict() for optimizer in trainer.optimizers],
        }
        connector = trainer._checkpoint_connector
        connector._loaded_checkpoint = whole
        connector.restore_datamodule()
        connector.restore_callbacks()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *unused: Any) -> None:
        """Between two steps of accumulated gradients the global step stands still, and nothing is saved twice."""
        assert self.checkpoints is not None
        if not self.checkpoints.is_due(trainer.global_step):
            return
        rest = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        del rest[_MODULE], rest[_OPTIMIZERS]
        state = {_MODULE: pl_module, "trainer": rest}
        for index, optimizer in enumerate(trainer.optimizers):
            state[f"{_OPTIMIZERS}.{index}"] = optimizer
        self.checkpoints.save(trainer.global_step, state)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        if self.checkpoints is not None:
            self.checkpoints.close()
            self.checkpoints = None
