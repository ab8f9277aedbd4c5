"""Heartbeat pages as metrics."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from minder.edge.exporters.heartbeat import HeartbeatExporter
from minder.edge.exporters.jobs import JobProcess
from minder.wire.heartbeat import SAID_NAN, HeartbeatPage, nonfinite_since, read_heartbeat


def _page(folder: Path, rank: int) -> tuple[HeartbeatPage, JobProcess]:
    page = HeartbeatPage(folder / str(rank))
    page.identify(rank, 0)
    return page, JobProcess(100 + rank, "j", rank, heartbeat=str(folder / str(rank)))


def test_the_slowest_rank_counts_and_the_newest_loss(tmp_path: Path) -> None:
    (fast, first), (slow, second) = _page(tmp_path, 0), _page(tmp_path, 1)
    for step in range(5):
        fast.beat(step, loss=float(step))
    for step in range(3):
        slow.beat(step, loss=9.0)
    reading = HeartbeatExporter("m").read([first, second], time.time(), 0.0)
    assert reading.counters["steps", None] == 2
    assert reading.gauges["job_loss", None] == 4.0
    assert ("job_grad_norm", None) not in reading.gauges  # never given: absent


def test_step_seconds_is_the_mean_since_the_scrape_then_the_last_then_absent(tmp_path: Path) -> None:
    page, process = _page(tmp_path, 0)
    for step in range(4):
        page.beat(step)
        time.sleep(0.03)
    now_s, exporter = time.time(), HeartbeatExporter("m")
    mean = exporter.read([process], now_s, now_s - 10).gauges["step_seconds", None]
    assert 0.03 <= mean < 0.3
    assert exporter.read([process], now_s + 30, now_s + 29).gauges["step_seconds", None] >= 0.03
    assert ("step_seconds", None) not in exporter.read([process], now_s + 90, now_s + 89).gauges


def test_a_loss_that_is_not_finite_is_absent_as_a_metric(tmp_path: Path) -> None:
    page, process = _page(tmp_path, 0)
    page.beat(1, loss=math.inf)
    assert ("job_loss", None) not in HeartbeatExporter("m").read([process], time.time(), 0.0).gauges


def test_phases_are_told_when_they_begin_and_end(tmp_path: Path) -> None:
    page, process = _page(tmp_path, 0)
    exporter = HeartbeatExporter("m")
    assert exporter.read([process], 1.0, 0.0).signals == []
    page.phase("checkpoint")
    reading = exporter.read([process], 2.0, 1.0)
    assert [(item.kind, dict(item.data)) for item in reading.signals] == [("phase", {"phase": "checkpoint", "state": "begin"})]
    assert reading.info == [("job_phase_info", {"phase": "checkpoint"})]
    assert exporter.read([process], 3.0, 2.0).signals == []
    page.phase("")
    assert [item.data["state"] for item in exporter.read([process], 4.0, 3.0).signals] == ["end"]


def test_the_oldest_tick_is_the_age(tmp_path: Path) -> None:
    (one, first), (_, second) = _page(tmp_path, 0), _page(tmp_path, 1)
    one.alive()
    reading = HeartbeatExporter("m").read([first, second], time.time() + 7.0, 0.0)
    assert reading.gauges["job_alive_age_seconds", None] == pytest.approx(7.0, abs=1.0)


def test_a_page_that_is_none_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"something else")
    process = JobProcess(1, "j", 0, heartbeat=str(tmp_path / "0"))
    assert len(HeartbeatExporter("m").read([process], 1.0, 0.0)) == 0


def test_the_first_of_each_stretch_of_losses_that_are_not_finite_is_reported(tmp_path: Path) -> None:
    page, process = _page(tmp_path, 3)
    exporter, signals = HeartbeatExporter("m"), []
    for losses in ([2.0, math.nan], [SAID_NAN, math.inf], [SAID_NAN], [1.0, SAID_NAN, SAID_NAN]):
        for loss in losses:
            page.beat(page.count, loss=loss)
        signals += exporter.read([process], time.time(), 0.0).signals
    assert [(item.rank, item.data["step"], item.data["what"]) for item in signals] == [(3, 2, "loss"), (3, 6, "loss")]


@pytest.mark.parametrize(
    ("losses", "since"),
    [([1.0, 2.0], None), ([1.0, SAID_NAN, math.inf], 1), ([SAID_NAN, 1.0], None), ([SAID_NAN, math.nan], None), ([], None)],
)
def test_since_when_a_page_that_has_ended_was_not_finite(tmp_path: Path, losses: list[float], since: int | None) -> None:
    page, _ = _page(tmp_path, 0)
    for step, loss in enumerate(losses):
        page.beat(step, loss=loss)
    assert nonfinite_since(read_heartbeat(page.path)) == since
