"""The loader with real processes, which are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import minder
from minder.edge.data.audit import audit
from minder.edge.data.reading import read_logs
from minder.model.errors import DataError

torch: Any
pytestmark = [pytest.mark.lab, pytest.mark.timeout(120)]


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """Every quick run collects this file, and has no use for the seconds that torch takes to load."""
    global torch
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchdata")


class Numbers:
    """Samples that say who they are, with random parts."""

    def __init__(self, length: int = 48) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"id": index, "noise": torch.rand(2), "chance": random.random()}


class Broken(Numbers):
    """One sample cannot be read."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 20:
            raise ZeroDivisionError("sample 20 is damaged")
        return super().__getitem__(index)


class Growing(Numbers):
    """Remembers how many samples it has read: batches depend on all before."""

    read = 0

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.read += 1
        return {"id": index, "read": self.read}

    def state_dict(self) -> dict[str, Any]:
        return {"read": self.read}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.read = state["read"]


class Slow(Numbers):
    """The first reading of sample 0 of a new order hangs, as storage does."""

    def __init__(self, marker: Path) -> None:
        super().__init__()
        self.marker = marker

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 20 and not self.marker.exists():
            self.marker.touch()
            time.sleep(600)
        return super().__getitem__(index)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes loaders and closes them."""
    for name in ("RANK", "WORLD_SIZE", "MINDER_SKIP_BATCHES", "MINDER_GENERATION"):
        monkeypatch.delenv(name, raising=False)
    loaders: list[Any] = []

    def make(dataset: Any = None, global_batch: int = 8, **options: Any) -> Any:
        loaders.append(minder.DataLoader(dataset or Numbers(), global_batch, **{"seed": 3, "hang_after_s": 0.3, **options}))
        return loaders[-1]

    yield make
    for loader in loaders:
        loader.close()


def seen(batch: dict[str, Any]) -> Any:
    """A batch, and what the training loop's own generators give for its step."""
    values = [value.flatten().tolist() for value in batch.values()]
    return values, torch.rand(1).item(), random.random()


def of_steps(loader: Any, last: int) -> list[Any]:
    found: list[Any] = []
    while loader.step < last:
        for batch in loader:
            found.append(seen(batch))
            if loader.step == last:
                break
    return found


def test_a_killed_and_a_stopped_process_change_nothing(made: Any, tmp_path: Path) -> None:
    planned = of_steps(made(), 14)
    loader = made(log_dir=tmp_path)
    found: list[Any] = []
    for last, number in ((3, signal.SIGKILL), (5, signal.SIGSTOP), (9, signal.SIGKILL), (14, None)):
        found += of_steps(loader, last)
        if number is not None:
            for pid in loader.pids[: 1 if last < 9 else 2]:  # the shadow too, in the end
                os.kill(pid, number)
    assert found == planned
    [log] = read_logs(tmp_path)
    ends = [end for _, end in log.ends]  # on a busy host one that works is taken for hung after 0.3 s, too
    assert {"killed by SIGKILL", "hung"} <= set(ends) and len(ends) >= 3
    assert audit([log]).is_right


def test_killed_workers_of_the_process_change_nothing(made: Any) -> None:
    planned = of_steps(made(), 8)
    loader = made(num_workers=1, shadows=0)
    found = of_steps(loader, 2)
    [worker] = Path(f"/proc/{loader.pids[0]}/task/{loader.pids[0]}/children").read_text().split()
    os.kill(int(worker), signal.SIGKILL)
    before = loader.pids
    assert found + of_steps(loader, 8) == planned
    assert loader.pids != before


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_state_is_the_place_behind_the_last_whole_step(made: Any, accumulate: int) -> None:
    whole = made(accumulate=accumulate)
    planned = of_steps(whole, 9)
    first = made(accumulate=accumulate)
    of_steps(first, 4)
    if accumulate > 1:
        next(iter(first))  # a step that was given in part begins again
    state = first.state_dict()
    assert (state["step"], first.epoch, len(first)) == (4, 0, 6 * accumulate)
    second = made(accumulate=accumulate)
    second.load_state_dict(state)
    assert of_steps(second, 9) == planned[4 * accumulate :]
    assert second.epoch == 1


def test_other_ranks_consume_the_same_global_batches(made: Any) -> None:
    def ids(loader: Any, steps: int) -> list[set[int]]:
        return [set(values[0]) for values, *_ in of_steps(loader, steps)]

    whole = ids(made(shadows=0), 6)
    first = made(rank=1, world=2, shadows=0)
    half = ids(first, 3)
    assert all(len(part) == 4 and part < batch for part, batch in zip(half, whole, strict=False))
    grown = made(shadows=0)
    grown.load_state_dict(first.state_dict())
    assert ids(grown, 6) == whole[3:]


def test_batches_are_skipped_from_where_the_run_resumes(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = [values for values, *_ in of_steps(made(shadows=0), 12)]
    first = made(shadows=0)
    of_steps(first, 3)
    monkeypatch.setenv("MINDER_SKIP_BATCHES", "1,4-5")
    second = made(shadows=0, epochs=2)
    second.load_state_dict(first.state_dict())
    rest = [values for values, *_ in of_steps(second, 6)]
    rest += [seen(batch)[0] for batch in second]
    assert [values[0] for values in rest] == [planned[batch][0] for batch in (3, 6, 7, 8, 9, 10, 11)]
    assert second.state_dict()["skipped"] == "4-5"


def test_what_the_dataset_raises_comes_out_once_at_its_batch(made: Any) -> None:
    loader = made(Broken(), shuffle=False)
    with pytest.raises(ZeroDivisionError, match="sample 20 is damaged"):
        of_steps(loader, 6)
    assert (loader.step, loader.pids) == (2, [])
    with pytest.raises(ZeroDivisionError):
        next(iter(loader))


def test_a_batch_without_a_form_as_bytes_is_the_programs_error(made: Any) -> None:
    loader = made(collate_fn=lambda samples: lambda: samples)
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        next(iter(loader))


def test_storage_that_hangs_is_left_behind(made: Any, tmp_path: Path) -> None:
    loader = made(Slow(tmp_path / "marker"), shuffle=False)
    assert [values[0] for values, *_ in of_steps(loader, 4)] == [list(range(at, at + 8)) for at in (0, 8, 16, 24)]


def test_a_dataset_that_keeps_a_state_is_replayed_from_its_snapshot(made: Any) -> None:
    options = {"snapshot_every": 4, "num_workers": 1}
    planned = of_steps(made(Growing(), **options), 18)
    loader = made(Growing(), **options)
    found = of_steps(loader, 7)
    os.kill(loader.pids[0], signal.SIGKILL)
    found += of_steps(loader, 11)
    state = loader.state_dict()
    assert state["dataset"]["state"] is not None
    resumed = made(Growing(), **options)
    resumed.load_state_dict(state)
    assert [values for values, *_ in found + of_steps(resumed, 18)] == [values for values, *_ in planned]
    with pytest.raises(DataError, match="rank 0 of 1, and this is rank 1 of 2"):
        made(Growing(), rank=1, world=2).load_state_dict(state)


def test_a_stream_and_another_plan_are_refused_with_one_line(made: Any) -> None:
    with pytest.raises(DataError, match="generator is a stream"):
        minder.DataLoader((number for number in range(9)), 3)
    counted = type("Lines", (torch.utils.data.IterableDataset,), {"__iter__": lambda self: iter(range(9)), "__len__": lambda self: 9})
    with pytest.raises(DataError, match="Lines is a stream"):
        minder.DataLoader(counted(), 3)
    with pytest.raises(DataError, match=r"another data plan \(a global batch of 8; here a global batch of 4\)"):
        made(global_batch=4).load_state_dict(made().state_dict())
    with pytest.raises(DataError, match="leaves ranks without data"):
        next(iter(made(rank=0, world=9)))


def test_samples_that_changed_under_the_same_length_are_refused_where_the_script_names_their_version(made: Any) -> None:
    state = made(version="2026-11-01").state_dict()
    made(version="2026-11-01").load_state_dict(state)
    with pytest.raises(DataError, match=r"\(version 2026-11-01; here version 2026-11-02\)"):
        made(version="2026-11-02").load_state_dict(state)
    with pytest.raises(DataError, match=r"\(version 2026-11-01; here no version\)"):
        made().load_state_dict(state)
    older = made().state_dict()
    del older["plan"]["version"]  # of a release that did not know it
    made().load_state_dict(older)


def test_batches_come_whole_through_a_channel() -> None:
    from minder.edge.data.channel import channel_pair

    left, right = channel_pair()
    sent = {
        "ints": torch.arange(6).view(2, 3).t(), "half": torch.ones(3, dtype=torch.bfloat16), "none": torch.empty(0, 3),
        "one": torch.tensor(2.5), "flags": torch.tensor([True, False]), "wave": torch.tensor([1j]), "text": ["a", 1],
        "weight": torch.nn.Parameter(torch.ones(2)),
    }  # fmt: skip
    left.send(1, 7, 0.5, sent)
    left.close()  # what was sent outlives its sender
    packet = right.receive()
    assert packet is not None and (packet.kind, packet.number, packet.seconds) == (1, 7, 0.5)
    for name, value in sent.items():
        assert torch.equal(packet.value[name], value) if isinstance(value, torch.Tensor) else packet.value[name] == value
    packet.value["ints"][0, 0] = 9  # the receiver may write into it
    assert right.receive() is None
    right.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_loaders_end_with_the_training_process_and_not_before(number: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, signal, sys, time, minder\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "loader = minder.DataLoader(list(range(64)), 8, num_workers=1)\n"
        "for batch in loader: break\n"
        "print(*loader.pids, flush=True)\n"
        "os.kill(loader.pids[1], signal.SIGSTOP)\n"
        "sys.stdin.readline()\n"
        "for batch in loader: pass\n"
        "print(loader.step, *loader.pids, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin is not None and process.stdout is not None
    pids = process.stdout.readline().split()
    os.killpg(process.pid, signal.SIGTERM)  # a scheduler's word to all: the script handles it
    if number == signal.SIGKILL:
        process.kill()
    else:
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline().split()[:2] == ["8", *pids[:1]]
    process.wait()
    until = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


class _Ended(Exception):
    """The run is cut off here."""


class Kept:
    """A Checkpointer that keeps one state, and ends the run at a step."""

    def __init__(self, end: int) -> None:
        self.end, self.state, self.steps = end, None, list[int]()

    def load_latest(self, state: dict[str, Any]) -> None:
        if self.state is not None:
            state["data"].load_state_dict(self.state)

    def save(self, step: int, state: dict[str, Any]) -> None:
        self.state = state["data"].state_dict()
        self.steps.append(step)
        if step == self.end:
            state["data"].close()
            raise _Ended


def test_the_lines_of_the_page_go_on_where_they_were(made: Any, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/data.md").read_text()
    lines = next(block for block in page.split("```python\n") if block.startswith("loader = minder")).split("```")[0]
    lines = lines.replace("/shared/llm-70b/data", str(tmp_path)).replace("num_workers=4", "num_workers=0")
    kept = Kept(end=4)
    names = {"minder": minder, "dataset": Numbers(200), "collate": None, "checkpoints": kept, "model": 0, "optimizer": 0, "scheduler": 0}
    with pytest.raises(_Ended):
        exec(lines, dict(names))
    exec(lines, dict(names))
    assert kept.steps == list(range(1, 10))  # three epochs of three steps
    found = audit(read_logs(tmp_path))
    assert found.is_right and [start.step for start in found.starts] == [0, 4]
