"""Stamps that are far behind are late, not absent; and one old sample is no late machine."""

from __future__ import annotations

import json
import re
import urllib.parse
from typing import Any

import pytest

from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.late import LateStamps
from minder.ingest.sources.prometheus import PrometheusOptions, PrometheusSource
from minder.ingest.windows import Aligner
from minder.model.telemetry import Sample

STEP_S = 15
DELAYS_S = (40.0, 55.0, 70.0, 45.0, 60.0)


def late(known: tuple[str, ...] = ("m0", "m1")) -> LateStamps:
    return LateStamps(float(STEP_S), lambda: known, 300.0)


def sample(time_s: float, machine: str = "m1") -> Sample:
    return Sample(time_s, machine, {"gpu_power_draw_watts": 300.0})


def test_samples_on_time_pass_as_they_are() -> None:
    stamps = late(())
    for now in range(0, 600, STEP_S):
        assert stamps.reach_s(float(now)) == 0.0
        assert stamps.move([sample(now - 1.0)], float(now)) == [sample(now - 1.0)]
    assert stamps.late_s == {}


def test_a_missing_machine_is_looked_for_further_back_and_ever_less_often() -> None:
    stamps, reached = late(("m1",)), list[int]()
    for now in range(3600):
        if stamps.reach_s(float(now)) == 300.0:
            reached.append(now)
    assert 0 < reached[0] <= 60 and len(reached) < 20


def test_a_machine_that_died_before_we_came_is_no_late_one() -> None:
    stamps = late()
    assert stamps.move([sample(100.0), sample(115.0)], 300.0) == [] and stamps.late_s == {}


def test_the_last_words_of_a_machine_that_was_on_time_are_handed_on() -> None:
    stamps = late()
    stamps.move([sample(99.0)], 100.0)
    assert stamps.move([sample(115.0)], 300.0) == [sample(115.0)]


def test_a_machine_whose_stamps_are_late_is_there_at_every_row() -> None:
    """The case that was found: 40 to 70 s behind, and 26 minutes without a sample."""
    stamps, aligner, present = late(), Aligner(("m0", "m1"), float(STEP_S)), list[bool]()
    for turn, now in enumerate(range(0, 1800, STEP_S)):
        came = [sample(now - 1.0, "m0"), sample(now - DELAYS_S[turn % len(DELAYS_S)])]
        aligner.push(stamps.move(came, float(now)))
        window = aligner.pop(float(now))
        if window is not None and now > 300:
            present += window.present_TM.all(axis=1).tolist()
    assert len(present) > 90 and all(present)
    assert stamps.late_s == pytest.approx({"m1": 70.0})


def test_an_exporter_that_is_mended_is_read_as_it_stamps() -> None:
    stamps = late()
    for now in range(0, 300, STEP_S):
        stamps.move([sample(now - 60.0)], float(now))
    for now in range(300, 400, STEP_S):
        found = stamps.move([sample(now - 1.0)], float(now))
    assert [item.time_s for item in found] == [389.0] and stamps.late_s == {}


def test_a_prometheus_source_reads_them(site: Any) -> None:
    """m1 exports its values 60 s late: an instant query over 38 s never sees them."""

    def answer(request: Any) -> tuple[int, bytes]:
        query = urllib.parse.parse_qs(urllib.parse.urlparse(request.path).query)["query"][0]
        back_s = int(re.search(r"\[(\d+)s\]$", query)[1])  # type: ignore[index]
        result = []
        for machine, delay_s in (("m0", 0), ("m1", 60)):
            times = [time_s for time_s in range(0, now - delay_s + 1, STEP_S) if time_s > now - back_s]
            metric = {"__name__": "minder_cpu_usage_ratio", "machine": machine, "instance": machine}
            result += [{"metric": metric, "values": [[time_s, "0.5"] for time_s in times]}] if times else []
        return 200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()

    site.answer = answer
    source = PrometheusSource(PrometheusOptions(site.url, float(STEP_S)), MachineMap("machine", known=("m0", "m1")), follows_late=True)
    heard: list[float] = []
    for now in range(1000, 1400, STEP_S):
        heard += [item.time_s - now for item in source.collect(float(now)) if item.machine == "m1"]
    assert len(heard) >= 15 and max(abs(lag_s) for lag_s in heard[-10:]) <= STEP_S
    assert set(source.late_s) == {"m1"}
