"""The Trainer of transformers on a tiny model with random weights, its progress bar switched off; it logs every fifth step."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset
from trouble import Trouble

sys.modules["datasets"] = None  # type: ignore[assignment]  # a checkout's folder of this name is not the library that Trainer looks for
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments  # noqa: E402
from transformers.trainer_utils import get_last_checkpoint  # noqa: E402


class Tokens(Dataset[dict[str, torch.Tensor]]):
    def __init__(self, count: int, trouble: Trouble) -> None:
        self.values = torch.randint(0, 128, (count, 16))
        self.trouble = trouble

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if torch.utils.data.get_worker_info() is not None:
            self.trouble.loaded()
        return {"input_ids": self.values[index], "labels": self.values[index]}


class Steps(TrainerCallback):
    def __init__(self, trouble: Trouble) -> None:
        self.trouble = trouble

    def on_step_begin(self, args, state, control, **others):  # type: ignore[no-untyped-def]
        self.trouble.begin(state.global_step + 1)

    def on_step_end(self, args, state, control, **others):  # type: ignore[no-untyped-def]
        self.trouble.done(state.global_step)


class TinyTrainer(Trainer):
    """A loss of its own, as many projects have it."""

    trouble: Trouble
    seconds: float = 0.2

    def compute_loss(self, model, inputs, return_outputs=False, **others):  # type: ignore[no-untyped-def]
        time.sleep(self.seconds)  # a device at work
        outputs = model(**inputs)
        loss = self.trouble.batch(self.state.global_step + 1, outputs.loss)
        return (loss, outputs) if return_outputs else loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()

    arguments = TrainingArguments(
        output_dir=str(options.output), max_steps=options.steps, per_device_train_batch_size=2, learning_rate=1e-3,
        logging_steps=5, save_strategy="steps", save_steps=options.save_every, disable_tqdm=True, report_to=[], use_cpu=True,
        dataloader_num_workers=options.workers, ddp_backend="gloo",
    )  # fmt: skip
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=32
    )
    trouble = Trouble()
    data = Tokens(2 * arguments.world_size * (options.steps + 1), trouble)
    trainer = TinyTrainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=data, callbacks=[Steps(trouble)])
    trainer.trouble, trainer.seconds = trouble, options.step_seconds
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(options.output)))
    trainer.save_model(str(options.output / "final"))


if __name__ == "__main__":
    main()
