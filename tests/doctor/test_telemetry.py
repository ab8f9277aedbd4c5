"""What doctor says of the samples that job.toml leads to."""

from __future__ import annotations

import time

import pytest

from minder.config import JobConfig, MachineConfig, TelemetryConfig
from minder.doctor import telemetry
from minder.model.telemetry import Sample


def test_what_the_server_says_of_its_scrapes_makes_no_machine_heard_or_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = time.time()
    scrapes = [Sample(now_s, name, {"scrape_up": 1.0, "scrape_samples": 40.0}) for name in ("a", "b", "c")]
    own = [Sample(now_s - 5.0, "a", {"gpu_power_draw_watts": 500.0}), Sample(now_s - 70.0, "b", {"gpu_power_draw_watts": 500.0})]
    monkeypatch.setattr(telemetry.PrometheusSource, "collect", lambda *given: [*scrapes, *own])
    names = ("a", "b", "c")
    config = JobConfig(
        name="j",
        machines=tuple(MachineConfig(name=name) for name in names),
        telemetry=TelemetryConfig(source="prometheus", url="http://127.0.0.1:1", interval_s=5.0),
    )
    found = {line.check: line for line in telemetry._samples(config)}
    assert "no samples of 1 of 3 machines: c" in found["telemetry"].seen
    assert "1 of 2 machines are old: b (70 s)" in found["stamps"].seen
