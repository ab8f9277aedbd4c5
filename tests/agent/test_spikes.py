"""Heartbeat pages and followed logs as spike signals."""

from __future__ import annotations

from pathlib import Path

import pytest

from minder.edge.agent.spikes import SpikeReader
from minder.edge.agent.steplog import StepLog
from minder.edge.exporters.jobs import JobProcess
from minder.model.evidence import Signal
from minder.wire.heartbeat import SAID_NAN, HeartbeatPage


def page(folder: Path, rank: int) -> tuple[HeartbeatPage, JobProcess]:
    made = HeartbeatPage(folder / str(rank))
    made.identify(rank, 4)
    return made, JobProcess(100 + rank, "j", rank, heartbeat=str(folder / str(rank)))


def facts(signals: list[Signal]) -> list[tuple[object, ...]]:
    return [(item.rank, item.generation, item.data["what"], item.data["step"], item.data["value"], item.data["usual"]) for item in signals]


def test_a_spike_of_one_step_between_two_samples_is_one_signal(tmp_path: Path) -> None:
    written, process = page(tmp_path, 0)
    reader = SpikeReader("m0")
    for step in range(200):
        written.beat(step, loss=22.0 if step == 170 else 2.0, grad_norm=0.5)
        if step % 40 == 39:
            found = reader.read([process], []).signals
            assert facts(found) == ([(0, 4, "loss", 170, 22.0, 2.0)] if step == 199 else [])
    assert reader.read([process], []).signals == []


def test_a_loss_that_all_ranks_tell_is_told_once_and_own_gradients_by_each(tmp_path: Path) -> None:
    both = [page(tmp_path, rank) for rank in (0, 1)]
    reader = SpikeReader("m0")
    for step in range(30):
        for written, _ in both:
            written.beat(step, loss=20.0 if step == 29 else 2.0)
    for written, _ in both:
        written.spike(29, 9e4, 3.0)
    found = reader.read([process for _, process in both], []).signals
    assert [(item.rank, item.data["what"]) for item in found] == [(0, "loss"), (0, "own gradient"), (1, "own gradient")]
    assert found[0].kind == "spike" and "20" in found[0].message
    assert reader.read([process for _, process in both], []).signals == []


@pytest.mark.parametrize("loss", [float("inf"), SAID_NAN])
def test_a_script_that_tells_no_loss_has_none_and_one_that_is_not_finite_is_reported(tmp_path: Path, loss: float) -> None:
    written, process = page(tmp_path, 0)
    reader = SpikeReader("m0")
    for step in range(30):
        written.beat(step, loss=float("nan"))  # as an older worker writes "no loss"
        written.beat(step)
    assert reader.read([process], []).signals == []
    written.beat(30, loss=loss)
    (signal,) = reader.read([process], []).signals
    assert (signal.data["what"], signal.data["value"]) == ("loss", None)


def test_a_new_generation_is_a_new_series(tmp_path: Path) -> None:
    written, process = page(tmp_path, 0)
    reader = SpikeReader("m0")
    for step in range(30):
        written.beat(step, loss=2.0)
    reader.read([process], [])
    written.identify(0, 5)
    for step in range(30):
        written.beat(step, loss=50.0)
    assert reader.read([process], []).signals == []


def test_a_page_that_is_none_is_no_spike(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"something else")
    assert SpikeReader("m").read([JobProcess(1, "j", 0, heartbeat=str(tmp_path / "0"))], []).signals == []


def test_a_followed_log_tells_its_spikes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = StepLog(path)
    log.poll(0.0)
    lines = [f"iter {step}: loss {30.0 if step == 25 else 'nan' if step == 60 else 3.0}, time 100ms" for step in range(61)]
    path.write_text("\n".join(lines) + "\n")
    log.poll(9.0)
    found = SpikeReader("m0").read([], [log]).signals
    assert [(item.time_s, item.rank, item.data["step"], item.data["value"]) for item in found] == [
        (9.0, None, 25, 30.0),
        (9.0, None, 60, None),
    ]
    assert log.take_spikes() == []
