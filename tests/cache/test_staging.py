"""A shard that leaves a device by page-locked memory: the copy is put behind and before what writes, as streams order it.

The device is a fake one whose copies run as late as a stream allows: when the current stream is made to wait for them, or the host waits.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from minder.model.errors import CheckpointError

torch: Any
pytestmark = pytest.mark.lab  # torch takes seconds to load


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    global torch
    torch = pytest.importorskip("torch")


class _Mark:
    def __init__(self, copy: Callable[[], None]) -> None:
        self._copy, self._lock, self.held = copy, threading.Lock(), False

    def hold_streams(self) -> None:
        self.held = True
        self.wait()

    def wait(self) -> None:
        with self._lock:
            self._copy()
            self._copy = lambda: None


def _late_staging(served: Callable[[Any], bool] = lambda tensor: True) -> Any:
    from minder.edge.checkpoint.staging import Staging

    class Late(Staging):
        def __init__(self) -> None:
            super().__init__()
            self.marks: list[_Mark] = []

        def serves(self, tensor: Any) -> bool:
            return served(tensor)

        def copy(self, sources: Sequence[Any], targets: Sequence[Any]) -> Any:
            def run() -> None:
                for source, target in zip(sources, targets, strict=True):
                    target.copy_(source)

            self.marks.append(_Mark(run))
            return self.marks[-1]

        def _lock_memory(self, buffer: Any) -> None:
            """Nothing is locked here."""

    return Late()


def _job() -> tuple[dict[str, Any], Any]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(40, 40), torch.nn.BatchNorm1d(40))
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.1)}, model


def _train(state: dict[str, Any]) -> None:
    state["model"](torch.randn(8, 40)).square().sum().backward()
    state["optimizer"].step()
    state["optimizer"].zero_grad()


def _start(state: dict[str, Any], staging: Any, overlap: bool = True) -> tuple[Any, Any, Any]:
    """The copy of a state, as the memory tier makes it: (copy, body, what the body must hold)."""
    from minder.edge.checkpoint.copying import CopyOut, StepGate
    from minder.edge.checkpoint.shards import take_apart

    gate = state.setdefault("_gate", StepGate())
    plain = {name: value for name, value in state.items() if name != "_gate"}
    late = gate.watch(plain.values()) if overlap else frozenset()
    shard = take_apart(plain)
    wanted = [tensor.clone() for tensor in shard.tensors]
    body = torch.zeros(shard.body_bytes, dtype=torch.uint8)
    copy = CopyOut(shard, body, late, staging)
    gate.hold_for(copy)
    return copy, [piece.of(body) for piece in shard.pieces], wanted


def _equal(found: Sequence[Any], wanted: Sequence[Any]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_tensors_of_every_kind_reach_a_file_as_they_are(tmp_path: Path) -> None:
    from minder.edge.checkpoint.copying import CopyOut
    from minder.edge.checkpoint.shards import take_apart
    from minder.edge.checkpoint.staging import Staging

    numbers = torch.arange(24.0).reshape(4, 6)
    shard = take_apart(
        {"t": [numbers, numbers.t(), numbers.bfloat16(), numbers > 5, torch.tensor(7), torch.empty(0), (numbers + 1j).conj()]}
    )
    with (tmp_path / "body").open("w+b") as file:
        file.truncate(shard.body_bytes)
        body = torch.frombuffer(mmap.mmap(file.fileno(), shard.body_bytes), dtype=torch.uint8)
        CopyOut(shard, body, frozenset(), Staging(), file).finish()
    assert _equal([piece.of(body) for piece in shard.pieces], shard.tensors)


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("served", [lambda tensor: True, lambda tensor: tensor.numel() > 1], ids=["all", "steps on the processor"])
def test_the_bytes_are_those_of_the_step_that_was_saved(overlap: bool, served: Callable[[Any], bool]) -> None:
    state, _ = _job()
    staging = _late_staging(served)
    for _ in range(3):  # the third save takes the buffer of the first
        _train(state)
        copy, found, wanted = _start(state, staging, overlap)
        _train(state)
        copy.finish()
        assert _equal(found, wanted)
    assert len(staging._free) == 1


def test_what_a_forward_changes_is_held_at_once_and_an_optimisers_own_only_before_its_step() -> None:
    state, model = _job()
    _train(state)
    staging = _late_staging()
    _start(state, staging)
    at_once, late = staging.marks
    assert at_once.held and not late.held
    model(torch.randn(8, 40)).sum().backward()
    assert not late.held
    state["optimizer"].step()
    assert late.held


def test_a_change_before_the_optimisers_step_spoils_the_copy_and_that_step_does_not() -> None:
    state, model = _job()
    _train(state)
    staging = _late_staging()
    copy, *_ = _start(state, staging)
    with torch.no_grad():
        model[0].weight.mul_(0.5)
    state["optimizer"].step()
    with pytest.raises(CheckpointError, match="changed outside of an optimiser's step"):
        copy.finish()
    assert len(staging._free) == 1  # the buffer is free for the next save


def test_two_saves_in_flight_have_two_buffers_and_another_state_has_new_ones() -> None:
    state, _ = _job()
    _train(state)
    staging = _late_staging()
    first, *_ = _start(state, staging)
    second, *_ = _start(state, staging)
    first.finish()
    second.finish()
    assert len({buffer.memory.data_ptr() for buffer in staging._free}) == 2
    larger, *_ = _start({"more": torch.ones(9000)}, staging)
    larger.finish()
    assert [buffer.memory.nbytes for buffer in staging._free] == [36_000]


def test_a_device_that_fails_leaves_its_buffer_alone() -> None:
    state, _ = _job()
    _train(state)
    staging = _late_staging()
    copy, *_ = _start(state, staging)

    def fail() -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")

    staging.marks[-1]._copy = fail
    with pytest.raises(RuntimeError, match="launch failure"):
        copy.finish()
    assert staging._free == []
