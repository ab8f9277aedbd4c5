from __future__ import annotations

import json

import numpy as np
import pytest

from minder.act.controller.evidence import Excerpts
from minder.model.evidence import Evidence, Verdict
from minder.model.history import LedgerEvent
from minder.model.telemetry import TelemetryExcerpt, Window
from minder.record.incidents.excerpts import find_excerpts

METRICS = ("gpu_power_draw_watts", "gpu_temperature_celsius", "cpu_usage_ratio", "steps_total")
FAULT_S = 1000.0


def row(time_s: float, machines: int) -> Window:
    """m1 draws a quarter of the power from the fault on, and cools a little; nobody has data of the processor."""
    values_TMK = np.empty((1, machines, len(METRICS)))
    values_TMK[:, :, 0] = 500.0 + np.arange(machines) % 5
    values_TMK[:, :, 1] = 60.0 + np.arange(machines) % 5
    values_TMK[:, :, 2] = np.nan
    values_TMK[:, :, 3] = time_s
    if time_s >= FAULT_S:
        values_TMK[:, 1, 0], values_TMK[:, 1, 1] = 125.0, 55.0
    return Window(np.array([time_s]), tuple(f"m{n}" for n in range(machines)), METRICS, values_TMK, np.ones((1, machines), dtype=bool))


def verdict_of(*machines: str, metric: str | None = "gpu_temperature_celsius", since_s: float = FAULT_S) -> Verdict:
    evidence = (Evidence("telemetry", machines[0], metric=metric),) if machines else ()
    return Verdict(FAULT_S + 8.0, "machine", "evict", machines, "stall", 0.9, since_s, evidence)


def keep(verdict: Verdict, machines: int = 6, begin_s: float = 700.0, end_s: float = 1100.0) -> list[tuple[float, TelemetryExcerpt]]:
    """(when it was written, what) of a job that ticks every second."""
    excerpts, found = Excerpts(), []
    for time_s in np.arange(begin_s, end_s):
        excerpts.note(row(float(time_s), machines))
        if time_s == FAULT_S + 8.0:
            excerpts.want(verdict, "job-1", [f"m{n}" for n in range(machines)])
        for incident, payload in excerpts.due(float(time_s)):
            assert incident == "job-1" and len(json.dumps(payload)) < 8_000
            (excerpt,) = find_excerpts([LedgerEvent(1, time_s, "evidence", "job", incident, None, json.loads(json.dumps(payload)))])
            found.append((float(time_s), excerpt))
    return found


@pytest.mark.parametrize("machines", [6, 200])
def test_what_came_before_is_written_at_once_and_what_came_after_a_minute_later(machines: int) -> None:
    (first_s, first), (last_s, last) = keep(verdict_of("m1"), machines)
    assert (first_s, last_s) == (FAULT_S + 8.0, FAULT_S + 68.0)
    assert abs(first.times[0] - (FAULT_S - 120.0)) < 5.0 and first.times[-1] <= FAULT_S + 8.0 < last.times[-1] <= FAULT_S + 68.0
    assert last.peers == machines - 1 and len(last.times) <= 60
    # the metric that the verdict names comes first, then the one that is furthest away; totals and what nobody measures never
    assert list(last.metrics) == ["gpu_temperature_celsius", "gpu_power_draw_watts"]
    power = last.metrics["gpu_power_draw_watts"]
    before = [value for time_s, value in zip(last.times, power.line, strict=True) if time_s < FAULT_S - 5.0]
    after = [value for time_s, value in zip(last.times, power.line, strict=True) if time_s > FAULT_S + 5.0]
    assert set(before) == {501.0} and set(after) == {125.0}
    assert set(power.low) == {500.0} and set(power.high) == {504.0}  # the accused machine is no part of the band


def test_a_machine_that_is_gone_is_a_line_that_ends() -> None:
    excerpts = Excerpts()
    for time_s in range(900, 1010):
        window = row(float(time_s), 4)
        window.values_TMK[:, 1] = np.nan if time_s >= FAULT_S else window.values_TMK[:, 1]
        excerpts.note(window)
    excerpts.want(verdict_of("m1", metric="gpu_power_draw_watts"), "job-1", ["m0", "m1", "m2", "m3"])
    ((_, payload),) = excerpts.due(1009.0)
    line = payload["data"]["metrics"]["gpu_power_draw_watts"]["line"]
    assert line[0] == 501.0 and line[-1] is None


def test_an_old_fault_is_shown_as_far_as_it_is_remembered() -> None:
    (_, first), _ = keep(verdict_of("m1", since_s=FAULT_S - 3600.0))
    assert first.times[0] == pytest.approx(FAULT_S + 8.0 - 240.0, abs=5.0)


def test_no_telemetry_no_accused_machine_or_the_same_again_is_nothing() -> None:
    assert keep(verdict_of(), machines=4) == []
    empty = Excerpts()
    empty.note(None)
    empty.want(verdict_of("m1"), "job-1", ["m0", "m1"])
    assert empty.due(FAULT_S) == [] and empty.due(FAULT_S + 100.0) == []
    twice = Excerpts()
    twice.note(row(FAULT_S, 4))
    for _ in range(3):
        twice.want(verdict_of("m1"), "job-1", ["m0", "m1"])
        twice.want(verdict_of("m1", "m2"), "job-2", ["m0", "m1", "m2"])
    assert set(twice.accused(FAULT_S + 10.0)) == {"m1", "m2"} and twice.accused(FAULT_S + 1000.0) == ()
    told = [(incident, payload["machine"]) for incident, payload in twice.due(FAULT_S)]
    assert told == [("job-1", "m1"), ("job-2", "m1"), ("job-2", "m2")]


def test_a_clock_that_is_set_back_leaves_nothing_of_the_time_before() -> None:
    excerpts = Excerpts()
    for time_s in (*np.arange(4000.0, 4100.0), *np.arange(950.0, 1009.0)):
        excerpts.note(row(float(time_s), 4))
    excerpts.want(verdict_of("m1"), "job-1", ["m0", "m1"])
    ((_, payload),) = excerpts.due(FAULT_S + 8.0)
    assert payload["data"]["times"][0] >= 950.0 and payload["data"]["times"][-1] <= FAULT_S + 8.0
