"""Leaving a GPU: communicators are aborted, its memory comes back, or the process ends. With a fake torch: no GPU is needed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from minder.edge.worker import device


class ProcessGroupNCCL:
    def __init__(self, abort: Callable[[], None] = lambda: None) -> None:
        self.aborted, self._abort = False, abort

    def abort(self) -> None:
        self.aborted = True
        self._abort()


class ProcessGroupGloo(ProcessGroupNCCL):
    pass


class _Group:
    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def _get_backend(self, kind: Any) -> Any:
        if self._backend is None:
            raise RuntimeError("no backend for cuda")
        return self._backend


@pytest.fixture
def give_groups(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def give(*backends: Any) -> None:
        world = SimpleNamespace(pg_map={_Group(backend): () for backend in backends})
        distributed = SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: True, distributed_c10d=SimpleNamespace(_world=world)
        )  # fmt: skip
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(device=str))
        monkeypatch.setitem(sys.modules, "torch.distributed", distributed)

    return give


def _cuda(monkeypatch: pytest.MonkeyPatch, synchronize: Callable[[Any], None]) -> list[str]:
    calls: list[str] = []
    fake = SimpleNamespace(
        is_initialized=lambda: True, current_device=lambda: 3, synchronize=synchronize, empty_cache=lambda: calls.append("emptied")
    )
    monkeypatch.setitem(sys.modules, "torch.cuda", fake)
    return calls


def test_every_nccl_communicator_is_aborted_and_no_gloo_group(give_groups: Callable[..., None]) -> None:
    wrapped, plain, gloo = ProcessGroupNCCL(), ProcessGroupNCCL(), ProcessGroupGloo()
    give_groups(SimpleNamespace(wrapped_pg=wrapped), plain, gloo, None)
    assert device.abort_device_groups()
    assert wrapped.aborted and plain.aborted and not gloo.aborted


def test_aborts_that_wait_for_each_other_run_at_once(give_groups: Callable[..., None]) -> None:
    both = threading.Barrier(2)
    give_groups(*(ProcessGroupNCCL(lambda: both.wait(5.0) and None) for _ in range(2)))  # type: ignore[func-returns-value]
    assert device.abort_device_groups() and not both.broken


def test_an_abort_that_hangs_or_raises_does_not_hold_the_others_up(
    give_groups: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(device, "_ABORT_LIMIT_S", 0.05)
    hangs, raises, healthy = threading.Event(), RuntimeError("NCCL error"), ProcessGroupNCCL()

    def fail() -> None:
        raise raises

    give_groups(ProcessGroupNCCL(lambda: hangs.wait(5.0) and None), ProcessGroupNCCL(fail), healthy)  # type: ignore[func-returns-value]
    assert not device.abort_device_groups()
    hangs.set()
    assert healthy.aborted
    assert "NCCL error" in capsys.readouterr().err


def test_memory_is_given_back_once_the_kernels_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    assert _cuda(monkeypatch, seen.append) == [] and device.free_device(5.0)
    assert seen == [3], "the main thread's device, not the first one"


@pytest.mark.parametrize("how", ["hangs", "error"])
def test_a_gpu_that_does_not_come_back_is_reported(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def synchronize(index: Any) -> None:
        if how == "error":
            raise RuntimeError("CUDA error: device-side assert triggered\nmore lines")
        release.wait(5.0)

    calls = _cuda(monkeypatch, synchronize)
    assert not device.free_device(0.05 if how == "hangs" else 5.0)
    assert calls == []
    release.set()


@pytest.mark.parametrize(("left_share", "before_share", "too_much"), [(0.02, 0.0, False), (0.2, 0.0, True), (0.5, 0.45, False)])
def test_what_a_generation_leaves_on_the_gpu_counts_beyond_what_was_there(
    left_share: float, before_share: float, too_much: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    total = 80 << 30
    _cuda(monkeypatch, lambda index: None)
    fake = sys.modules["torch.cuda"]
    fake.memory_allocated = lambda: int(left_share * total)  # type: ignore[attr-defined]
    fake.get_device_properties = lambda index: SimpleNamespace(total_memory=total)  # type: ignore[attr-defined]
    assert device.holds_too_much(int(before_share * total)) is too_much
    assert "still holds" in capsys.readouterr().err


def test_without_a_gpu_in_use_there_is_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.cuda", raising=False)
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    assert device.free_device(0.0) and device.abort_device_groups()


def test_what_the_job_sets_about_nccl_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3")
    monkeypatch.delenv("TORCH_NCCL_RETHROW_CUDA_ERRORS", raising=False)
    device.allow_abort()
    assert device.os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"
    assert device.os.environ.pop("TORCH_NCCL_RETHROW_CUDA_ERRORS") == "0"
