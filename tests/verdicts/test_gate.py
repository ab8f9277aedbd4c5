"""Telemetry's word against what the job itself shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.telemetry import GatedRule
from minder.model.evidence import Evidence, Scores, Suspect
from minder.model.observation import Observation, RuleResult

Make = Callable[..., Any]


class Accuser:
    """Stands in for the telemetry rule: always accuses m1."""

    scores: Scores | None = None

    def observe(self, observation: Observation) -> RuleResult:
        evidence = (Evidence("detector", "m1", "hot"),)
        return RuleResult((Suspect(observation.now_s, "telemetry", "machine", ("m1",), "slowdown", 0.9, 0.0, "evict", evidence),))


def gated(scene: Any, step_s: float = 0.5) -> tuple[GatedRule, JobTracker]:
    tracker = JobTracker()
    for at_s in range(1, 21):
        scene.answer(at_s, int(at_s / step_s))
        tracker.update(scene.see(at_s + 0.1))
    return GatedRule(Accuser(), tracker), tracker  # type: ignore[arg-type]


def test_a_deviation_that_does_not_reach_the_training_is_noted_with_what_speaks_against_it(scene: Any) -> None:
    rule, _ = gated(scene)
    (suspect,) = rule.observe(scene.see(20.5)).suspects
    assert suspect.tier == "watch"
    assert "steps as usual" in suspect.against[-1].message
    assert suspect.evidence[0].message == "hot"


def test_a_job_that_slows_down_lets_it_through(scene: Any) -> None:
    rule, tracker = gated(scene)
    for at_s in range(21, 31):
        scene.answer(at_s, 40 + (at_s - 20))
        tracker.update(scene.see(at_s + 0.1))
    (suspect,) = rule.observe(scene.see(30.5)).suspects
    assert suspect.tier == "evict"


def test_a_job_that_stands_lets_it_through(scene: Any) -> None:
    rule, _ = gated(scene)
    (suspect,) = rule.observe(scene.see(40.0)).suspects
    assert suspect.tier == "evict"


@pytest.mark.parametrize("quiet", ["starting", "evaluation"])
def test_while_the_job_starts_or_pauses_telemetry_says_nothing(scene: Any, quiet: str) -> None:
    rule, tracker = gated(scene)
    if quiet == "starting":
        scene.phase = "starting"
    else:
        scene.answer(20.0, 40, phase=quiet)
    tracker.update(scene.see(21.0))
    assert rule.observe(scene.see(40.0)).suspects == ()


def test_without_any_step_known_telemetry_speaks_for_itself(make_scene: Make) -> None:
    rule = GatedRule(Accuser(), JobTracker())  # type: ignore[arg-type]
    (suspect,) = rule.observe(make_scene().see(5.0)).suspects
    assert suspect.tier == "evict"
