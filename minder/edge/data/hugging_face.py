"""Hugging Face's Trainer on planned data.

    loader = minder.DataLoader(dataset, global_batch=64, seed=7, collate_fn=collator, accumulate=arguments.gradient_accumulation_steps)
    trainer = Trainer(model=model, args=arguments, train_dataset=dataset)
    use_loader(trainer, loader)
    trainer.train(resume_from_checkpoint=...)

The Trainer would shard the data and find its place by reading an epoch's batches again. Here the loader does both: it is taken as it is,
and goes on after the step that the Trainer has restored. `per_device_train_batch_size` counts for the Trainer's own logs only.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from minder.edge.data.loader import DataLoader
from minder.model.errors import DataError

__all__ = ["PlannedData", "use_loader"]


def use_loader(trainer: Any, loader: DataLoader) -> PlannedData:
    """Have `trainer` train on `loader`, and go on in it where its checkpoint is. Raises DataError where both accumulate differently."""
    accumulated = trainer.args.gradient_accumulation_steps
    if accumulated != loader.accumulate:
        raise DataError(
            f"gradient_accumulation_steps is {accumulated} and the loader has accumulate={loader.accumulate}: give both the same number"
        )
    trainer.get_train_dataloader = lambda: loader
    trainer.args.ignore_data_skip = True
    planned = PlannedData(loader)
    trainer.callback_handler.callbacks.insert(0, planned)  # first: a callback that saves the Trainer's state saves this one's with it
    return planned


class PlannedData(TrainerCallback, ExportableState):  # type: ignore[misc, unused-ignore]
    """Keeps the loader's place in the Trainer's own state, which every checkpoint of it has."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader

    def state(self) -> dict[str, Any]:
        """What the Trainer writes into trainer_state.json. args: none that JSON could hold."""
        return {"args": {}, "attributes": {"place": self._loader.state_dict()}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """The Trainer has restored its step. Raises DataError where that was on another plan."""
        kept = state.stateful_callbacks.get(type(self).__name__) or self.state()
        self._loader.load_state_dict({**kept["attributes"]["place"], "step": state.global_step})

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        state.stateful_callbacks[type(self).__name__] = self.state()

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        self._loader.close()
