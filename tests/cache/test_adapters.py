"""What people run saves every step into the cache by its own interface, and goes on as it would have."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.edge.cache.client import SOCKET_VARIABLE
from minder.model.errors import CheckpointError
from tests.cache.conftest import Running

torch: Any
pytestmark = [pytest.mark.lab, pytest.mark.timeout(120)]  # torch and the trainers take seconds to load


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    global torch
    torch = pytest.importorskip("torch")


@pytest.fixture
def cache(start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> Running:
    for name in ("MINDER_GENERATION", "TORCHELASTIC_RESTART_COUNT", "MINDER_PARALLELISM"):
        monkeypatch.delenv(name, raising=False)
    running = start("m0")
    monkeypatch.setenv(SOCKET_VARIABLE, str(running.settings.socket_path))
    return running


def _state(seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = torch.nn.Linear(6, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model(torch.randn(4, 6)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": seed}


def _lines_of_the_page(begin: str) -> str:
    page = (Path(__file__).resolve().parents[2] / "docs/state.md").read_text()
    return next(block for block in page.split("```python\n") if block.startswith(begin)).split("```")[0]


def test_dcp_saves_into_the_cache_and_loads_from_it(cache: Running) -> None:
    from minder import Checkpointer
    from minder.edge.checkpoint.dcp import CacheReader, CacheWriter

    save, _, load = _lines_of_the_page("import torch.distributed").partition("...\n")
    checkpoints, saved = Checkpointer("memory"), _state(1)
    assert CacheReader(checkpoints).newest_step() is None
    for step in (1, 2):
        exec(save, {"state": saved, "step": step, "checkpoints": checkpoints})
    assert checkpoints.wait() is None
    fresh = _state(2)
    found: dict[str, Any] = {"state": fresh, "step": 0, "checkpoints": Checkpointer("memory")}
    exec(save.rpartition("dcp.save")[0] + load, found)
    assert (found["step"], fresh["epoch"]) == (2, 1)
    torch.testing.assert_close(fresh["model"], saved["model"], rtol=0, atol=0)
    torch.testing.assert_close(fresh["optimizer"]["state"], saved["optimizer"]["state"], rtol=0, atol=0)
    with pytest.raises(CheckpointError, match="names no step"):
        CacheWriter(checkpoints).reset("newest")


def test_a_folder_is_no_place_for_dcps_writer(tmp_path: Path) -> None:
    from minder import Checkpointer
    from minder.edge.checkpoint.dcp import CacheWriter

    with pytest.raises(CheckpointError, match="saves to a folder"):
        CacheWriter(Checkpointer(tmp_path))


class _Stopped(Exception):
    pass


def test_hugging_faces_trainer_goes_on_from_memory_as_if_nothing_had_been(
    cache: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    monkeypatch.setattr("transformers.trainer.is_datasets_available", lambda: False)  # our folder datasets/ is not that package
    from minder.edge.checkpoint.hugging_face import MemoryCallback

    class Stop(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            if state.global_step == 5:
                raise _Stopped

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            found = self.inner(x)
            return {"loss": (found - labels).square().mean(), "logits": found}

    generator = torch.Generator().manual_seed(3)
    data = [{"x": torch.randn(4, generator=generator), "labels": torch.randn(1, generator=generator)} for _ in range(24)]

    def prepare() -> tuple[Any, Any]:
        transformers.set_seed(7)
        arguments = transformers.TrainingArguments(
            str(tmp_path / "out"), max_steps=9, per_device_train_batch_size=4, save_strategy="no", report_to=[], disable_tqdm=True,
            use_cpu=True, logging_steps=1, lr_scheduler_type="linear",
        )  # fmt: skip
        return Model(), arguments

    def run(*callbacks: Any) -> Any:
        trainer = transformers.Trainer(*prepare(), train_dataset=data, callbacks=list(callbacks))
        trainer.train()
        return trainer

    whole = run()
    first = MemoryCallback()
    assert first.resume_folder() is None
    with pytest.raises(_Stopped):
        run(first, Stop())
    assert first.checkpoints.wait() is None
    names = dict(zip(("model", "arguments"), prepare(), strict=True)) | {"data": data, "Trainer": transformers.Trainer}
    exec(_lines_of_the_page("from minder.edge.checkpoint.hugging_face"), names)
    resumed = names["trainer"]
    assert names["callback"]._folder is None, "what it resumed from is removed"
    losses = [[entry["loss"] for entry in trainer.state.log_history if "loss" in entry] for trainer in (whole, resumed)]
    assert len(losses[0]) == 9
    assert losses[1][-4:] == losses[0][-4:]
    torch.testing.assert_close(resumed.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


def test_lightning_goes_on_from_memory(cache: Running, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    from minder.edge.checkpoint.lightning import MemoryCheckpoints

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
            self.seen: list[int] = []

        def training_step(self, batch: Any, index: int) -> Any:
            self.seen.append(self.global_step)
            return self.layer(batch).square().mean()

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    class Stop(lightning.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, *unused: Any) -> None:
            if unused[0].global_step == 7:
                raise _Stopped

    data = torch.utils.data.DataLoader(torch.randn(24, 4, generator=torch.Generator().manual_seed(3)), 6)  # four batches an epoch

    def run(seed: int, *callbacks: Any) -> Any:
        torch.manual_seed(seed)
        module = Module()
        trainer = lightning.Trainer(
            max_epochs=4, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, callbacks=list(callbacks), default_root_dir=tmp_path,
        )  # fmt: skip
        trainer.fit(module, data)
        return trainer, module

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, whole = run(1)
        memory = MemoryCheckpoints()
        with pytest.raises(_Stopped):
            run(1, memory, Stop())
        assert memory.checkpoints is not None and memory.checkpoints.wait() is None
        again = MemoryCheckpoints()
        trainer, module = run(2, again)
    assert again.resumed_step == 7
    assert (trainer.global_step, trainer.current_epoch, module.seen[0]) == (16, 4, 7)
    assert trainer.lr_scheduler_configs[0].scheduler.get_last_lr() == pytest.approx([0.1**5])
    assert len(whole.seen) == len(module.seen) + 7
