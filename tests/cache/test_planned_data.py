"""The loader's place lies in the machines' memory, or in DCP's folder, beside the model: whatever saves the model takes it along."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import minder
from minder.edge.cache.client import SOCKET_VARIABLE
from minder.edge.data.plan import Plan
from tests.cache.conftest import Running

torch: Any
pytestmark = [pytest.mark.lab, pytest.mark.timeout(240), pytest.mark.filterwarnings("ignore")]
STEPS, STOP = 14, 8  # of epochs of six


class _Stopped(Exception):
    pass


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    global torch
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchdata")


@pytest.fixture(autouse=True)
def _cache(start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch) -> None:
    unset = (
        "RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "MINDER_SKIP_BATCHES",
        "MINDER_GENERATION",
        "MINDER_PARALLELISM",
        "TORCHELASTIC_RESTART_COUNT",
    )
    for name in unset:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(SOCKET_VARIABLE, str(start("m0").settings.socket_path))


class Numbers:
    """Samples that say who they are, with what the loader drew."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.rand(4), "id": index}


class Counting(Numbers):
    """It changes while it is read, so its state is the rank's own."""

    read = 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.read += 1
        return super().__getitem__(index) | {"read": self.read}

    def state_dict(self) -> dict[str, Any]:
        return {"read": self.read}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.read = state["read"]


def _loop(dataset: Any, load: Callable[[dict[str, Any]], Any], save: Callable[[int, dict[str, Any]], Any], last: int) -> list[Any]:
    from minder.edge.checkpoint import optimizer_state

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    loader = minder.DataLoader(dataset, 8, seed=5, shadows=0, snapshot_every=3)
    optimizer_state.materialise(optimizer)  # DCP loads into what is there
    state = {"model": model, "optimizer": optimizer, "data": loader}
    load(state)
    seen = []
    while loader.step < last:
        for batch in loader:
            loss = torch.nn.functional.dropout(model(batch["x"])).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append((batch["id"].tolist(), batch.get("read", batch["id"]).tolist(), float(loss.detach())))
            save(loader.step, state)
            if loader.step == last:
                break
    loader.close()
    return seen


def _memory(last: int, folder: Path, dataset: Any) -> list[Any]:
    checkpoints = minder.Checkpointer("memory")
    found = _loop(dataset, checkpoints.load_latest, checkpoints.save, last)
    assert checkpoints.wait() is None
    return found


def _dcp_memory(last: int, folder: Path, dataset: Any) -> list[Any]:
    import torch.distributed.checkpoint as dcp

    from minder.edge.checkpoint.dcp import CacheReader, CacheWriter

    checkpoints = minder.Checkpointer("memory")

    def load(state: dict[str, Any]) -> None:
        reader = CacheReader(checkpoints)
        if reader.newest_step() is not None:
            dcp.load(state, storage_reader=reader)

    writer = CacheWriter(checkpoints)
    found = _loop(dataset, load, lambda step, state: dcp.save(state, checkpoint_id=f"step-{step}", storage_writer=writer), last)
    assert checkpoints.wait() is None
    return found


def _dcp_folder(last: int, folder: Path, dataset: Any) -> list[Any]:
    import torch.distributed.checkpoint as dcp

    def load(state: dict[str, Any]) -> None:
        if folder.exists():
            dcp.load(state, checkpoint_id=folder)

    return _loop(dataset, load, lambda step, state: dcp.save(state, checkpoint_id=folder), last)


def _folder(last: int, folder: Path, dataset: Any) -> list[Any]:
    checkpoints = minder.Checkpointer(folder, sync_files=False)
    found = _loop(dataset, checkpoints.load_latest, checkpoints.save, last)
    assert checkpoints.close() is None
    return found


def _hugging_face(last: int, folder: Path, dataset: Any) -> list[Any]:
    pytest.importorskip("transformers")
    sys.modules["datasets"] = None  # type: ignore[assignment]  # a checkout's folder of this name is not the library that Trainer looks for
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from minder.edge.checkpoint.hugging_face import MemoryCallback
    from minder.edge.data.hugging_face import use_loader

    seen: list[Any] = []

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, id: Any) -> dict[str, Any]:
            loss = torch.nn.functional.dropout(self.layer(x)).square().mean()
            seen.append((id.tolist(), id.tolist(), float(loss.detach())))
            return {"loss": loss}

    class Stop(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
            if state.global_step == last:
                raise _Stopped

    arguments = TrainingArguments(str(folder), max_steps=STEPS, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True)
    memory = MemoryCallback()
    trainer = Trainer(model=Net(), args=arguments, train_dataset=dataset, callbacks=[memory, *([Stop()] if last < STEPS else [])])
    loader = minder.DataLoader(dataset, 8, seed=5, shadows=0)
    use_loader(trainer, loader)
    try:
        trainer.train(resume_from_checkpoint=memory.resume_folder())
    except _Stopped:
        assert memory.checkpoints.wait() is None
    loader.close()
    return seen


def _lightning(last: int, folder: Path, dataset: Any) -> list[Any]:
    pytest.importorskip("lightning")
    import lightning as L

    from minder.edge.checkpoint.lightning import MemoryCheckpoints

    seen: list[Any] = []

    class Net(L.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = torch.nn.functional.dropout(self.layer(batch["x"])).square().mean()
            seen.append((batch["id"].tolist(), batch["id"].tolist(), float(loss.detach())))
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.1)

    class Stop(L.Callback):  # type: ignore[misc, name-defined]
        def on_train_batch_end(self, trainer: Any, *unused: Any) -> None:
            if trainer.global_step == last < STEPS:
                raise _Stopped

    memory = MemoryCheckpoints()
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_steps=STEPS, callbacks=[memory, Stop()], logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, default_root_dir=folder,
    )  # fmt: skip
    loader = minder.DataLoader(dataset, 8, seed=5, shadows=0)
    try:
        trainer.fit(Net(), loader)
    except _Stopped:
        assert memory.checkpoints is not None and memory.checkpoints.wait() is None
    loader.close()
    return seen


@pytest.mark.parametrize("stop", [STOP, 12])  # within an epoch, and at its end
@pytest.mark.parametrize("run", [_memory, _dcp_memory, _dcp_folder, _folder, _hugging_face, _lightning])
def test_a_run_goes_on_with_its_data_from_where_its_model_is(
    run: Callable[..., list[Any]],
    stop: int,
    tmp_path: Path,
    start: Callable[..., Running],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(1)
    whole = run(STEPS, tmp_path / "whole", Numbers())
    plan = Plan(samples=50, global_batch=8, seed=5)
    assert [sample for ids, *_ in whole for sample in ids] == [sample for batch in range(STEPS) for sample in plan.samples_of(batch)]
    monkeypatch.setenv(SOCKET_VARIABLE, str(start("m1").settings.socket_path))
    torch.manual_seed(1)
    assert run(stop, tmp_path / "again", Numbers()) == whole[:stop]
    torch.manual_seed(2)  # another model to begin with
    assert run(STEPS, tmp_path / "again", Numbers()) == whole[stop:]


@pytest.mark.parametrize("run", [_memory, _hugging_face, _lightning])
def test_a_batch_is_left_out_of_a_run_that_goes_on_from_memory(
    run: Callable[..., list[Any]], tmp_path: Path, start: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch 9 hurt at step 10; the run goes on from step 8 as one that never had it."""
    torch.manual_seed(1)
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "9")
    without = run(STEPS, tmp_path / "whole", Numbers())
    monkeypatch.setenv(SOCKET_VARIABLE, str(start("m1").settings.socket_path))
    monkeypatch.delenv("MINDER_SKIP_BATCHES")
    torch.manual_seed(1)
    run(STOP, tmp_path / "again", Numbers())
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "9")
    assert run(STEPS, tmp_path / "again", Numbers()) == without[STOP:]
    plan = Plan(samples=50, global_batch=8, seed=5)
    wanted = [sample for batch in range(STEPS + 1) if batch != 9 for sample in plan.samples_of(batch)]
    assert [sample for ids, *_ in without for sample in ids] == wanted


@pytest.mark.parametrize("run", [_memory, _dcp_memory, _dcp_folder, _folder])
def test_a_dataset_that_keeps_a_state_goes_on_too(
    run: Callable[..., list[Any]],
    tmp_path: Path,
    start: Callable[..., Running],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(1)
    whole = run(STEPS, tmp_path / "whole", Counting())
    monkeypatch.setenv(SOCKET_VARIABLE, str(start("m1").settings.socket_path))
    torch.manual_seed(1)
    run(STOP, tmp_path / "again", Counting())
    assert run(STEPS, tmp_path / "again", Counting()) == whole[STOP:]
    assert [each for _, read, _ in whole for each in read] == list(range(1, STEPS * 8 + 1))
