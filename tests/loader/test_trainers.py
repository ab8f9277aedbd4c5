"""Trainers that handle data themselves go on in the plan where their own checkpoint is; and jobs whose loaders and ranks are killed."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import minder
from minder.edge.data.plan import Plan
from minder.model.errors import DataError

torch: Any
pytestmark = [pytest.mark.lab, pytest.mark.timeout(240), pytest.mark.filterwarnings("ignore")]
STEPS = 14  # of epochs of six
BENCH = Path(__file__).parents[2] / "bench" / "data.py"


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """Every quick run collects this file, and has no use for the seconds that torch takes to load."""
    global torch
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchdata")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MINDER_SKIP_BATCHES", "MINDER_GENERATION", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)


class Numbers:
    """Samples that say who they are."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.rand(4), "id": index}


def _loader(accumulate: int = 1) -> Any:
    return minder.DataLoader(Numbers(), 8, seed=5, accumulate=accumulate, shadows=0)


def _hugging_face(folder: Path, last: int, begin: int | None, accumulate: int) -> list[Any]:
    """What was trained on up to step `last`, from the checkpoint of step `begin`."""
    sys.modules["datasets"] = None  # type: ignore[assignment]  # a checkout's folder of this name is not the library that Trainer looks for
    from transformers import Trainer, TrainingArguments

    from minder.edge.data.hugging_face import use_loader

    seen: list[Any] = []

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, id: Any) -> dict[str, Any]:
            seen.append((id.tolist(), x.sum().item(), torch.rand(1).item()))
            return {"loss": self.layer(x).pow(2).mean()}

    arguments = TrainingArguments(
        str(folder), max_steps=last, save_steps=2, report_to=[], disable_tqdm=True, use_cpu=True, logging_strategy="no",
        gradient_accumulation_steps=accumulate,
    )  # fmt: skip
    trainer = Trainer(model=Net(), args=arguments, train_dataset=Numbers())
    with pytest.raises(DataError, match="give both the same number"):
        use_loader(trainer, _loader(accumulate + 1))
    use_loader(trainer, _loader(accumulate))
    trainer.train(resume_from_checkpoint=None if begin is None else str(folder / f"checkpoint-{begin}"))
    return seen


def _lightning(folder: Path, last: int, begin: int | None, accumulate: int) -> list[Any]:
    import lightning as L
    from lightning.pytorch.callbacks import ModelCheckpoint

    seen: list[Any] = []

    class Net(L.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            seen.append((batch["id"].tolist(), batch["x"].sum().item(), torch.rand(1).item()))
            return self.layer(batch["x"]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    keep = ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=2, save_top_k=-1)
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_steps=last, callbacks=[keep], logger=False, enable_progress_bar=False, enable_model_summary=False,
        accumulate_grad_batches=accumulate,
    )  # fmt: skip
    trainer.fit(Net(), _loader(accumulate), ckpt_path=None if begin is None else str(folder / f"step={begin}.ckpt"))
    return seen


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(("run", "needs"), [(_hugging_face, "transformers"), (_lightning, "lightning")])
def test_a_trainer_goes_on_in_the_plan(run: Callable[..., list[Any]], needs: str, accumulate: int, tmp_path: Path) -> None:
    """From the middle of an epoch, and from the end of one: samples, what the dataset drew, and what the model drew."""
    pytest.importorskip(needs)
    whole = run(tmp_path / "whole", STEPS, None, accumulate)
    plan = Plan(samples=50, global_batch=8, seed=5)
    samples = [sample for ids, *_ in whole for sample in ids]
    assert samples == [sample for batch in range(STEPS) for sample in plan.samples_of(batch)]
    for begin in (6, 8):
        assert run(tmp_path / "whole", STEPS, begin, accumulate) == whole[begin * accumulate :]


def test_the_lines_of_the_page_for_the_trainer(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    sys.modules["datasets"] = None  # type: ignore[assignment]
    from transformers import Trainer, TrainingArguments

    page = (Path(__file__).parents[2] / "docs/data.md").read_text()
    lines = next(block for block in page.split("```python\n") if block.startswith("from minder.edge.data.hugging")).split("```")[0]
    model = torch.nn.Linear(4, 1)
    model.forward = lambda x, id: {"loss": torch.nn.functional.linear(x, model.weight).pow(2).mean()}
    names: dict[str, Any] = {"minder": minder, "dataset": torch.utils.data.ConcatDataset([Numbers()] * 8), "collator": None}
    for last, resume in ((2, "False"), (4, "True")):
        arguments = TrainingArguments(str(tmp_path), max_steps=last, save_steps=2, report_to=[], disable_tqdm=True, use_cpu=True)
        names |= {"Trainer": Trainer, "model": model, "arguments": arguments}
        exec(lines.replace("checkpoint=True", f"checkpoint={resume}"), names)
    assert (names["loader"].step, names["trainer"].state.global_step) == (4, 4)


@pytest.mark.parametrize(("trainer", "needs"), [("fsdp2", "torchdata"), ("hf", "transformers")])
def test_killed_loaders_and_a_killed_rank_leave_no_gap_and_no_duplicate(trainer: str, needs: str, tmp_path: Path) -> None:
    pytest.importorskip(needs)
    bench = _bench()
    found = bench.play(bench.Job(trainer, tmp_path, random.Random(3)), 8, 200.0)
    assert (found["gaps"], found["duplicates"], found["elsewhere"], found["audit_says"]) == (0, 0, 0, [])
    assert found["audit"] and found["again"] > 0 and found["replaced"] >= 4


def _bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_data", BENCH)
    assert spec is not None and spec.loader is not None
    sys.modules["bench_data"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
