"""Captures as a voice: what they may lead to alone, with a second witness, against one, and in a job that goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.captures import CapturesRule
from minder.diagnose.verdicts.judge import Judge
from minder.model.evidence import CaptureFinding, Signal, Suspect, Verdict
from minder.model.observation import JobView, Observation, RuleResult
from minder.model.telemetry import Window

MACHINES = ("m0", "m1", "m2", "m3")
JOB = JobView("llm", 0, "running", MACHINES, (), (), dict(enumerate(MACHINES)), float("-inf"), float("-inf"))
STOPS_S, TAKEN_S = 100.0, 110.0


def row(t: float, metric: str, value: float) -> Window:
    shape = (1, len(MACHINES), 1)
    return Window(np.array([t]), MACHINES, (metric,), np.full(shape, value), np.ones(shape[:2], dtype=bool))


def working(t: float) -> Window:
    return row(t, "rdma_throughput_bytes_per_second", 1e10)


def stopping(t: float) -> Window:
    return row(t, "rdma_throughput_bytes_per_second", 1e10 if t < STOPS_S else 1e8)


def silent_on_work(t: float) -> Window:
    return row(t, "cpu_usage_ratio", 0.5)


def stepping(t: float) -> Window:
    return row(t, "steps_total", t)


def stuck(t: float) -> Window:
    return row(t, "steps_total", min(t, STOPS_S))


def suspect(source: str = "stacks", machine: str = "m2", **changes: Any) -> Suspect:
    return replace(Suspect(TAKEN_S, source, "machine", (machine,), "stall", 0.8, TAKEN_S, "evict"), **changes)


def says(*suspects: Suspect, source: str = "stacks", at_s: float = TAKEN_S) -> dict[float, tuple[CaptureFinding, ...]]:
    return {at_s: (CaptureFinding(at_s, source, suspects),)}  # type: ignore[arg-type]


class Telemetry:
    """A telemetry rule that names one machine from a time on."""

    name = "telemetry"

    def __init__(self, machine: str | None, from_s: float, tier: str = "page") -> None:
        self._said = (machine, from_s, tier)

    def observe(self, observation: Observation) -> RuleResult:
        machine, from_s, tier = self._said
        if machine is None or observation.now_s < from_s:
            return RuleResult()
        return RuleResult((suspect("telemetry", machine, time_s=observation.now_s, tier=tier),))


def run(
    window: Callable[[float], Window] | None,
    said: Mapping[float, tuple[CaptureFinding, ...]],
    telemetry: Telemetry | None = None,
    signals: Mapping[float, Signal] | None = None,
    end_s: int = 240,
) -> list[Verdict]:
    tracker = JobTracker()
    judge = Judge([CapturesRule(tracker), *([] if telemetry is None else [telemetry])])
    found = []
    for t in map(float, range(end_s)):
        events = tuple(signal for at_s, signal in (signals or {}).items() if at_s == t)
        observation = Observation(t, window(t) if window else None, events, JOB, statements=said.get(t, ()))
        tracker.update(observation)
        found += judge.judge(observation)[0]
    return found


def named(verdicts: list[Verdict]) -> list[tuple[tuple[str, ...], str]]:
    return [(item.machines, item.tier) for item in verdicts if item.kind != "recovered"]


@pytest.mark.parametrize("window", [stopping, stuck])
def test_a_capture_of_a_job_that_stands_evicts_and_says_since_when(window: Callable[[float], Window]) -> None:
    (verdict,) = run(window, says(suspect()))
    assert (verdict.machines, verdict.tier, verdict.sources) == (("m2",), "evict", ("stacks",))
    assert STOPS_S <= verdict.since_s <= TAKEN_S
    assert verdict.time_s >= STOPS_S + 30.0, "a rule that needs longer was not heard"
    assert any("stands still" in item.message for item in verdict.evidence)


def test_a_sure_capture_of_a_job_that_stands_does_not_wait() -> None:
    assert run(stuck, says(suspect(confidence=0.95)))[0].time_s == TAKEN_S


@pytest.mark.parametrize("window", [working, stepping])
def test_a_capture_of_a_job_at_work_names_nobody_however_sure(window: Callable[[float], Window]) -> None:
    assert run(window, says(suspect(confidence=0.97))) == []


@pytest.mark.parametrize(("window", "confidence", "expected"), [
    (silent_on_work, 0.95, "page"), (silent_on_work, 0.8, None), (None, 0.95, "page"), (None, 0.8, None),
])  # fmt: skip
def test_where_nothing_says_that_the_job_is_stuck_only_a_sure_capture_pages(window: Any, confidence: float, expected: str | None) -> None:
    assert named(run(window, says(suspect(confidence=confidence)))) == ([(("m2",), expected)] if expected else [])


def test_two_sources_that_agree_evict_where_telemetry_does_not_contradict_and_page_without_any() -> None:
    both = {TAKEN_S: (*says(suspect())[TAKEN_S], *says(suspect("collectives"), source="collectives")[TAKEN_S])}
    assert named(run(silent_on_work, both)) == [(("m2",), "evict")]
    (verdict,) = run(None, both)
    assert (verdict.tier, verdict.sources) == ("page", ("collectives", "stacks"))
    assert verdict.confidence == pytest.approx(0.96)


def test_telemetry_that_agrees_makes_a_page_an_eviction_and_surer() -> None:
    alone = run(silent_on_work, {}, Telemetry("m2", 120.0))
    agreed = run(silent_on_work, says(suspect()), Telemetry("m2", 120.0))
    assert (named(alone), named(agreed)) == ([(("m2",), "page")], [(("m2",), "evict")])
    assert agreed[0].confidence > alone[0].confidence


def test_telemetry_that_names_another_lowers_both_and_is_told() -> None:
    verdicts = run(stuck, says(suspect(confidence=0.95)), Telemetry("m1", TAKEN_S, "evict"))
    (verdict,) = (item for item in verdicts if item.kind != "recovered")
    assert verdict.tier == "page"
    assert verdict.confidence < 0.8
    assert any("names" in item.message for item in verdict.against)


@pytest.mark.parametrize("source", ["stacks", "collectives"])
def test_a_fault_of_the_program_accuses_the_job_and_shields_its_machines(source: str) -> None:
    program = suspect(source, kind="job", machines=(), tier="watch", confidence=0.6)
    verdicts = run(stopping, says(program, source=source), Telemetry("m2", 125.0, "evict"))
    assert [(item.kind, item.machines, item.tier) for item in verdicts] == [("job", (), "page")]
    assert run(working, says(program, source=source)) == []


def test_a_newer_capture_that_names_nobody_takes_the_older_back() -> None:
    assert run(stopping, says(suspect()) | says(at_s=TAKEN_S + 5)) == []


def test_a_capture_from_before_the_stall_says_nothing_of_it() -> None:
    assert run(stopping, says(suspect(confidence=0.95), at_s=50.0)) == []


@pytest.mark.parametrize("kind", ["step", "phase"])
def test_a_job_that_moves_on_is_not_accused_later(kind: str) -> None:
    moved = Signal(TAKEN_S + 8, kind, "m0", data={"step": 7, "phase": "checkpoint", "state": "begin"})  # type: ignore[arg-type]
    assert run(silent_on_work, says(suspect()), Telemetry("m2", 150.0), {TAKEN_S + 8: moved})[0].sources == ("telemetry",)


def test_who_left_the_job_is_not_named() -> None:
    assert run(stopping, says(suspect(machine="gone", confidence=0.95))) == []


def test_a_stall_never_becomes_the_usual_and_its_episode_lasts() -> None:
    assert [item.kind for item in run(stopping, says(suspect()), end_s=1200)] == ["machine"]


# Live: it asks, and lets connections speak first


def live(
    said: Mapping[float, tuple[CaptureFinding, ...]], other: Telemetry | None = None, end_s: int = 240
) -> tuple[list[Verdict], list[float]]:  # fmt: skip
    """Verdicts, and when captures were asked for. The job stands from STOPS_S on."""
    tracker = JobTracker()
    judge = Judge([CapturesRule(tracker, asks=True), *([] if other is None else [other])])
    verdicts, asked = [], []
    for t in map(float, range(end_s)):
        observation = Observation(t, stuck(t), (), JOB, statements=said.get(t, ()))
        tracker.update(observation)
        found, requests = judge.judge(observation)
        verdicts += found
        asked += [t] if {"stacks", "dumps"} <= requests else []
    return verdicts, asked


def test_live_it_asks_only_once_the_job_stalls_and_again_only_after_a_while() -> None:
    _, without = live({})
    assert STOPS_S + 3 < without[0] < STOPS_S + 12 and len(without) > 100, "it asks until it is answered"
    first = without[0] + 1
    _, asked = live(says(at_s=first))
    assert [t for t in asked if first < t < first + 10] == []
    assert asked[-1] > first + 10


def test_live_a_sure_capture_waits_for_the_connections_and_what_they_name_stands() -> None:
    sure = says(suspect(confidence=0.95), at_s=STOPS_S + 8)
    (alone,) = live(sure)[0]
    assert (alone.machines, alone.tier) == (("m2",), "evict") and alone.time_s >= STOPS_S + 15
    (first, *_) = live(sure, Telemetry("m1", STOPS_S + 10, "evict"))[0]
    assert first.machines == ("m1",)


def test_live_a_sick_program_does_not_hide_a_machine_that_connections_name() -> None:
    program = says(suspect(kind="job", machines=(), tier="watch", confidence=0.6), at_s=STOPS_S + 8)
    assert [item.kind for item in live(program)[0]] == ["job"]
    (first, *_) = live(program, Telemetry("m1", STOPS_S + 12, "evict"))[0]
    assert first.machines == ("m1",)


def test_work_of_one_rank_for_all_is_given_five_minutes_and_shields_everybody() -> None:
    """Rank 0 saves, and the script does not say so; the collectives call it late."""
    saves = suspect(kind="job", machines=(), tier="watch", confidence=0.5, alone="watch")
    late = suspect("collectives", "m0", confidence=0.97)
    both = {STOPS_S + 8: (*says(saves)[TAKEN_S], *says(late, source="collectives")[TAKEN_S])}
    assert live(both, end_s=390)[0] == []
    (verdict,) = live(both, end_s=420)[0]
    assert (verdict.kind, verdict.tier) == ("job", "page") and verdict.time_s >= STOPS_S + 300


def test_who_waits_for_a_sick_program_longest_is_not_named_for_it() -> None:
    program = suspect(kind="job", machines=(), tier="watch", confidence=0.6)
    both = {STOPS_S + 8: (*says(program)[TAKEN_S], *says(suspect("collectives", confidence=0.97), source="collectives")[TAKEN_S])}
    assert [(item.kind, item.tier) for item in live(both)[0]] == [("job", "page")]
