"""The heartbeat page: one writer that is never held up, readers that see whole records only."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from minder.model.errors import WireError
from minder.wire.heartbeat import HeartbeatPage, read_heartbeat

WRITER = """
import sys, time
from minder.wire.heartbeat import HeartbeatPage
page = HeartbeatPage(sys.argv[1])
page.identify(rank=3, generation=2)
print("ready", flush=True)
step, end_s = 0, time.time() + float(sys.argv[2])
while time.time() < end_s:
    step += 1
    page.beat(step, loss=step * 0.5, grad_norm=step * 0.25)
    page.phase("checkpoint" if step % 2 else "evaluation")
    page.alive()
    time.sleep(float(sys.argv[3]))
print(step, flush=True)
"""


@pytest.mark.parametrize(
    "pause_s",
    [0.0, *(pytest.param(pause_s, marks=pytest.mark.release) for pause_s in (0.0002, 0.01))],
    ids=["as fast as it can", "5 kHz", "100 Hz"],
)
def test_a_reader_sees_whole_records_while_another_process_writes(tmp_path: Path, pause_s: float) -> None:
    path = tmp_path / "page"
    command = [sys.executable, "-c", WRITER, str(path), "0.4", str(pause_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        newest, torn, looks = 0, 0, 0
        while writer.poll() is None:
            looks += 1
            try:
                view = read_heartbeat(path)
            except WireError:
                torn += 1  # it kept changing: said, never a wrong record
                continue
            steps = [record.step for record in view.recent]
            assert steps == list(range(view.count - len(steps) + 1, view.count + 1))
            assert all(record.loss == record.step * 0.5 and record.grad_norm == record.step * 0.25 for record in view.recent)
            assert (view.rank, view.generation, view.pid) == (3, 2, writer.pid)
            assert view.phase in ("", "checkpoint", "evaluation")
            assert view.count >= newest
            newest = view.count
        done = int(writer.stdout.read())
    assert read_heartbeat(path).count == done
    assert newest > 0 and looks > torn
    if pause_s >= 0.01:
        assert torn == 0


def test_the_last_64_steps_are_kept(tmp_path: Path) -> None:
    page = HeartbeatPage(tmp_path / "page")
    for step in range(1, 101):
        page.beat(step)
    view = read_heartbeat(tmp_path / "page")
    assert [record.step for record in view.recent] == list(range(37, 101))
    assert view.last is not None and view.last.step == 100 and math.isnan(view.last.loss)


def test_a_step_that_is_refused_leaves_the_page_readable(tmp_path: Path) -> None:
    page = HeartbeatPage(tmp_path / "page")
    page.beat(1, loss=0.5)
    with pytest.raises(ValueError):
        page.beat(2**63)
    page.beat(2, loss=0.25)
    assert [(record.step, record.loss) for record in read_heartbeat(tmp_path / "page").recent] == [(1, 0.5), (2, 0.25)]


def test_the_last_step_is_one_that_was_done(tmp_path: Path) -> None:
    page = HeartbeatPage(tmp_path / "page")
    assert page.last_step() == -1
    for step in range(1, 66):
        page.beat(step)
    page.beat(66, flags=1)  # its gradient was not finite: it was never done
    assert page.last_step() == 65
    page.identify(rank=0, generation=1)
    assert page.last_step() == -1


def test_a_new_generation_keeps_neither_steps_nor_an_open_phase(tmp_path: Path) -> None:
    page = HeartbeatPage(tmp_path / "page")
    page.identify(rank=0, generation=1)
    page.beat(7, loss=1.0)
    page.phase("checkpoint")
    page.identify(rank=0, generation=2)
    view = read_heartbeat(tmp_path / "page")
    assert (view.count, view.phase, view.generation) == (0, "", 2)
    page.beat(8)
    (record,) = read_heartbeat(tmp_path / "page").recent
    assert math.isnan(record.seconds)


def test_a_new_process_takes_a_dead_ones_page_over(tmp_path: Path) -> None:
    old = HeartbeatPage(tmp_path / "page")
    old.identify(rank=5, generation=9)
    for step in range(70):
        old.beat(step)
    old.phase("checkpoint")
    old.alive()
    old.close()
    HeartbeatPage(tmp_path / "page")
    view = read_heartbeat(tmp_path / "page")
    assert (view.pid, view.rank, view.generation, view.count, view.phase, view.alive_time_s) == (os.getpid(), -1, -1, 0, "", 0.0)


def test_steps_carry_their_time_and_length_and_the_thread_its_tick(tmp_path: Path) -> None:
    page = HeartbeatPage(tmp_path / "page")
    page.beat(1)
    time.sleep(0.05)
    page.beat(2)
    page.alive()
    view = read_heartbeat(tmp_path / "page")
    assert view.recent[1].seconds == pytest.approx(view.recent[1].time_s - view.recent[0].time_s)
    assert view.recent[1].seconds >= 0.05
    assert view.alive_time_s == pytest.approx(time.time(), abs=5.0)


@pytest.mark.parametrize("content", [b"", b"x" * 4096, b"MNDRHB01" + b"\0" * 100])
def test_another_file_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "page").write_bytes(content)
    with pytest.raises(WireError, match="page"):
        read_heartbeat(tmp_path / "page")


def test_a_missing_page_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(WireError, match="gone"):
        read_heartbeat(tmp_path / "gone")


def test_a_name_of_a_phase_that_is_too_long_is_cut_and_never_raises(tmp_path: Path) -> None:
    page = HeartbeatPage(tmp_path / "page")
    page.phase("éééééééééééééééé")
    assert read_heartbeat(tmp_path / "page").phase.startswith("ééé")


def test_spikes_lie_beside_the_steps_and_the_last_16_are_kept(tmp_path: Path) -> None:
    page = HeartbeatPage(tmp_path / "page")
    for step in range(100):
        page.beat(step)
        if step % 5 == 0:
            page.spike(step, 9e4, 2.0)
    view = read_heartbeat(tmp_path / "page")
    assert (view.count, view.spike_count) == (100, 20)
    assert [spike.step for spike in view.spikes] == list(range(20, 100, 5))
    assert (view.spikes[-1].squared, view.spikes[-1].usual) == (9e4, 2.0)
    assert [record.step for record in view.recent] == list(range(36, 100)) and page.last_step() == 99
    page.identify(1, 2)
    assert read_heartbeat(tmp_path / "page").spikes == ()


def test_work_adds_up_within_a_generation_and_a_page_without_any_says_none(tmp_path: Path) -> None:
    page = HeartbeatPage(tmp_path / "page")
    page.beat(1)
    assert (read_heartbeat(page.path).work, read_heartbeat(page.path).work_unit) == (None, None)
    page.work(4096, "tokens")
    page.work(4096, "tokens")
    view = read_heartbeat(page.path)
    assert (view.work, view.work_unit, view.count) == (8192.0, "tokens", 1)
    page.work(32, "samples")
    assert (read_heartbeat(page.path).work, read_heartbeat(page.path).work_unit) == (32.0, "samples")
    page.identify(0, 2)
    assert read_heartbeat(page.path).work is None
