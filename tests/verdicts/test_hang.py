"""A job that stands without a step having been read: when that is said, when it is not, and what a controller may know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minder.diagnose.job_mode.activity import Activity
from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.hang import HangRule, Standing
from minder.model.evidence import CaptureFinding, Evidence, Signal, Suspect
from minder.model.observation import JobView, Observation
from minder.model.telemetry import Window

TCP, TENSOR = "job_tcp_bytes_per_second", "gpu_tensor_activity_ratio"
STOPS_S = 120.0


class Play:
    """A job in virtual time, a tick a second. `stands(time_s)`: what two captures of the stacks show whenever they are asked for."""

    def __init__(self, machines: tuple[str, ...] = ("m0", "m1", "m2"), phase: str = "running") -> None:
        self.tracker = JobTracker()
        self.rule = HangRule(self.tracker)
        self.job = JobView("llm", 1, phase, machines, (), (), dict(enumerate(machines)), 0.0, 0.0)  # type: ignore[arg-type]
        self.asked: list[float] = []
        self.said: list[tuple[float, Suspect]] = []
        self.standing: dict[float, Standing | None] = {}
        self.accused: tuple[Suspect, ...] = ()
        self.heard: dict[float, tuple[Suspect, ...]] = {}  # captures that other rules asked for

    def run(
        self, tell: Callable[[float], Mapping[str, float]], end_s: int, stands: Callable[[float], bool | None] = lambda time_s: True,
        signals: Mapping[float, Signal] | None = None,
    ) -> Play:  # fmt: skip
        wanted = False
        for now_s in map(float, range(end_s)):
            statements = (CaptureFinding(now_s, "stacks", self.accused, stands(now_s)),) if wanted else ()
            statements += tuple(CaptureFinding(now_s, "stacks", self.heard[now_s]) for _ in range(now_s in self.heard))
            events = tuple(item for at_s, item in (signals or {}).items() if at_s == now_s)
            observation = Observation(now_s, self._window(now_s, tell(now_s)), events, self.job, statements=statements)
            self.tracker.update(observation)
            result = self.rule.observe(observation)
            wanted = "still" in result.requests
            self.asked += [now_s] if wanted else []
            self.said += [(now_s, item) for item in result.suspects]
            self.standing[now_s] = self.rule.standing
        return self

    def _window(self, now_s: float, values: Mapping[str, float]) -> Window:
        shape = (1, len(self.job.machines), len(values))
        return Window(
            np.array([now_s]),
            self.job.machines,
            tuple(values),
            np.broadcast_to(np.array([*values.values()]), shape),
            np.ones(shape[:2], bool),
        )


def stopping(time_s: float) -> Mapping[str, float]:
    return {TCP: 1e6 if time_s < STOPS_S else 0.0, TENSOR: 0.4 if time_s < STOPS_S else 0.0}


def test_no_progress_of_any_kind_and_stacks_that_stand_are_a_hang() -> None:
    play = Play().run(stopping, 400)
    at_s, suspect = play.said[0]
    assert (suspect.kind, suspect.machines, suspect.tier, suspect.cause) == ("job", (), "page", "stall")
    assert STOPS_S + 30.0 < at_s < STOPS_S + 75.0
    assert "no step is read" in suspect.evidence[0].message and "same in two captures" in suspect.evidence[1].message
    standing = play.standing[399.0]
    assert standing is not None and standing.stood is True and standing.began
    assert STOPS_S - 2 <= standing.since_s <= STOPS_S + 12
    first = next(item for item in play.standing.values() if item is not None and item.stood)
    assert STOPS_S + 30.0 < first.seen_s < STOPS_S + 45.0 and standing.seen_s == first.seen_s, "when it was first seen to stand"


def test_of_one_machine_the_rank_that_stands_out_is_told_at_once() -> None:
    play = Play(("host",))
    told = (Evidence("stacks", "host", "rank 1: stopped (state T)"),)
    play.accused = (Suspect(0.0, "stacks", "machine", ("host",), "stall", 0.95, 0.0, "watch", told),)
    play.run(stopping, 200)
    at_s, suspect = play.said[0]
    assert at_s < STOPS_S + 50.0 and suspect.evidence[-1].message == "rank 1: stopped (state T)"


def test_a_capture_in_which_nobody_stands_apart_takes_nothing_back() -> None:
    """A rank that polls is now and then seen inside a computation."""
    play = Play()
    told = Evidence("stacks", "m2", "rank 2: outside any collective")
    play.accused = (Suspect(0.0, "stacks", "machine", ("m2",), "stall", 0.8, 0.0, "evict", (told,)),)

    def stands(time_s: float) -> bool:
        play.accused = ()
        return True

    standing = play.run(stopping, 400, stands).standing[399.0]
    assert len(play.asked) > 1 and standing is not None and told in standing.evidence


@pytest.mark.parametrize(
    ("heard_s", "kept"),
    [
        pytest.param(STOPS_S + 6.0, True, id="of this standstill, before telemetry noticed it"),
        pytest.param(STOPS_S - 40.0, False, id="of an earlier moment, and the job moved on"),
    ],
)
def test_who_stood_apart_before_the_job_was_known_to_stand_is_remembered(heard_s: float, kept: bool) -> None:
    """Another rule asked for that capture, and those that are compared later show every rank alike."""
    play = Play()
    apart = Evidence("stacks", "m2", "rank 2: stopped (state T), computing")
    play.heard[heard_s] = (Suspect(heard_s, "stacks", "machine", ("m2",), "stall", 0.97, heard_s, "page", (apart,)),)
    standing = play.run(stopping, 200).standing[199.0]
    assert standing is not None and standing.stood is True and (apart in standing.evidence) == kept


def test_stacks_are_asked_for_only_once_the_job_is_quiet_and_then_ever_more_seldom() -> None:
    play = Play().run(stopping, 2000)
    assert STOPS_S + 30.0 < play.asked[0] < STOPS_S + 45.0
    gaps = np.diff(play.asked)
    assert gaps.min() >= 50.0 and len(play.asked) < 12


def test_stacks_that_change_are_progress_and_patience_grows() -> None:
    """An evaluation that computes and shows nothing else."""
    play = Play().run(stopping, 1500, stands=lambda time_s: False)
    assert play.said == [] and len(play.asked) < 10


def test_half_an_hour_of_stacks_that_change_and_nothing_else_is_a_persons_to_look_at() -> None:
    play = Play().run(stopping, 2300, stands=lambda time_s: False)
    at_s, suspect = play.said[0]
    assert (suspect.kind, suspect.tier) == ("job", "page") and at_s >= STOPS_S + 1800.0
    assert "although the stacks of its ranks change" in suspect.evidence[0].message


def test_idle_machines_on_which_no_rank_is_known_are_no_job_that_stands() -> None:
    """Attached to a cluster without agents before the job begins: what does not begin does not stand."""
    play = Play()
    play.job = replace(play.job, rank_machine={})
    play.run(lambda time_s: {TCP: 0.0, TENSOR: 0.0}, 600, lambda time_s: None)
    assert play.said == []


def test_stacks_that_cannot_be_read_are_told_and_the_hang_is_not_certain() -> None:
    play = Play().run(stopping, 400, stands=lambda time_s: None)
    assert "cannot be compared" in play.said[0][1].evidence[-1].message
    standing = play.standing[399.0]
    assert standing is not None and standing.stood is None


@pytest.mark.parametrize("phase", ["evaluation", "checkpoint", "compile"])
def test_a_declared_phase_is_no_hang(phase: str) -> None:
    begins = Signal(STOPS_S, "phase", "m0", data={"phase": phase, "state": "begin"})
    play = Play().run(stopping, 900, signals={STOPS_S: begins})
    assert play.said == [] and play.asked == [] and play.standing[899.0] is None


def steps(time_s: float, stop_s: float = STOPS_S, every_s: float = 0.3) -> dict[str, float]:
    return {"steps_total": float(int(min(time_s, stop_s) / every_s))}


def test_with_steps_an_undeclared_evaluation_of_twelve_minutes_stands_for_nobody() -> None:
    """Steps of 0.3 s; then every rank computes for twelve minutes and talks to nobody."""
    play = Play().run(lambda time_s: {**steps(time_s), TCP: 1e6 if time_s < STOPS_S else 0.0, TENSOR: 0.3}, 840)
    assert set(play.standing.values()) == {None}


def test_with_steps_one_rank_that_evaluates_for_all_acquits_the_job() -> None:
    play = Play()
    original = play._window

    def one_alone(now_s: float, values: Mapping[str, float]) -> Window:
        window = original(now_s, values)
        told = np.array(window.values_TMK)
        told[:, 1:, window.metrics.index(TENSOR)] = 0.4 if now_s < STOPS_S else 0.0
        return Window(window.times_T, window.machines, window.metrics, told, window.present_TM)

    play._window = one_alone  # type: ignore[method-assign]
    play.run(lambda time_s: {**steps(time_s), TENSOR: 0.4}, 840)
    assert set(play.standing.values()) == {None}


def test_with_steps_and_nothing_else_the_newest_step_decides() -> None:
    play = Play().run(steps, 400)
    standing = play.standing[399.0]
    assert play.said == [], "the rule for stalls pages"
    assert standing is not None and standing.stood and standing.since_s == pytest.approx(STOPS_S, abs=2.0)


def test_a_compile_before_the_first_step_reads_and_writes() -> None:
    play = Play(phase="starting").run(lambda time_s: {"job_io_bytes_per_second": 1e5 + 9e5 * (time_s % 7 == 0)}, 700)
    assert play.said == [] and set(play.standing.values()) == {None}


def test_another_generation_begins_anew() -> None:
    tracker = JobTracker()
    tracker.activity = Activity()
    play = Play().run(stopping, 300)
    play.job = JobView("llm", 2, "starting", play.job.machines, (), (), play.job.rank_machine, 0.0, 300.0)
    observation: Any = Observation(301.0, play._window(301.0, stopping(301.0)), (), play.job)
    play.tracker.update(observation)
    play.rule.observe(observation)
    assert play.rule.standing is None


def test_what_stacks_showed_of_the_generation_before_is_not_said_of_the_next() -> None:
    play = Play()
    apart = Evidence("stacks", "m2", "rank 2: stopped (state T), computing")
    play.heard[STOPS_S - 2.0] = (Suspect(STOPS_S, "stacks", "machine", ("m2",), "stall", 0.97, STOPS_S, "page", (apart,)),)

    def stop_in_the_next(time_s: float) -> Mapping[str, float]:
        if time_s == STOPS_S - 1.0:
            play.job = replace(play.job, generation=2)
        return stopping(time_s)

    standing = play.run(stop_in_the_next, 200).standing[199.0]
    assert standing is not None and standing.stood is True and apart not in standing.evidence


@pytest.mark.parametrize(("had_steps", "phase"), [(True, "starting"), (False, "starting"), (True, "running")])
def test_a_generation_without_steps_and_telemetry_stands_since_it_began(had_steps: bool, phase: str) -> None:
    """Of a run whose steps were read. Of another it is not known whether it has any."""
    play = Play(phase=phase)
    play.job = replace(play.job, had_steps=had_steps)
    play.run(lambda time_s: {}, 400, lambda time_s: None)
    standing = play.standing[399.0]
    assert play.said == [], "the rule for starts pages a person"
    assert (standing is not None) is had_steps
    if standing is not None:
        assert (standing.since_s, standing.stood, standing.began) == (0.0, None, False)
