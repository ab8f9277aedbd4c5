"""What two studies in a row lead to, and what they make of other rules' suspicions of slow machines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.whatif import WhatIfRule
from minder.model.evidence import StepStudy, StudiedWorker, Suspect, Verdict
from minder.model.observation import Observation, RuleResult

START_S = 1_700_000_000.0  # as the scene's
SECONDS = 10  # between two studies


class Said:
    """A rule that suspects a machine of slowness from some second on."""

    name = "slowdown"

    def __init__(self, machine: str, from_s: float) -> None:
        self.machine, self.from_s = machine, from_s

    def observe(self, observation: Observation) -> RuleResult:
        from_s = START_S + self.from_s
        if observation.now_s < from_s:
            return RuleResult()
        return RuleResult((Suspect(observation.now_s, self.name, "machine", (self.machine,), "slowdown", 0.9, from_s, "evict"),))


class Live:
    """A job of `scene` that steps four times a second; a study now and then."""

    def __init__(self, scene: Any, *others: Any) -> None:
        self.scene, self.others = scene, others
        self.tracker = JobTracker()
        self.judge = Judge([WhatIfRule(self.tracker), *others])
        self.at_s = 0.0

    def run(self, *studies: StepStudy | None) -> list[Verdict]:
        """SECONDS of each, the study at their end."""
        found: list[Verdict] = []
        for study in studies:
            for second in range(SECONDS):
                self.at_s += 1.0
                self.scene.answer(self.at_s, int(4 * self.at_s))
                seen = self.scene.see(self.at_s)
                if study is not None and second == SECONDS - 1:
                    now_s = seen.now_s
                    seen = replace(seen, studies=(replace(study, time_s=now_s, begin_s=now_s - 8.0, end_s=now_s - 1.0),))
                found += self.judge.judge(self.tracker.update(seen))[0]
        return [verdict for verdict in found if verdict.kind != "recovered"]


def study(cause: str, *blamed: str, **changes: Any) -> StepStudy:
    workers = tuple(
        StudiedWorker(rank, 0, rank, f"m{rank}", 0.2, 0.4, 1.9 if f"m{rank}" in blamed else 1.0, 2.0 if f"m{rank}" in blamed else 1.0, 1.0)
        for rank in range(4)
    )
    figures = {"slowdown": 1.6, "waste": 0.4, "worst_workers_share": 0.98, "last_stage_share": 0.02, "replay_error": 0.01}
    base = StepStudy(0.0, cause, "because", 8, 10, 80, trusted=True, seconds=1.0, ideal_s=0.6, blamed=blamed, workers=workers, **figures)
    return replace(base, **changes)


def shown(verdicts: list[Verdict]) -> list[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    return [(item.kind, item.tier, item.machines, item.sources) for item in verdicts]


@pytest.fixture
def live(scene: Any) -> Callable[..., Live]:
    return lambda *others: Live(scene, *others)


def test_a_worker_that_two_studies_name_is_evicted_and_the_figures_are_said(live: Callable[..., Live]) -> None:
    job = live()
    assert job.run(study("worker", "m2")) == []
    (verdict,) = job.run(study("worker", "m2"), study("worker", "m2"))
    assert shown([verdict]) == [("machine", "evict", ("m2",), ("whatif",))]
    assert "rank 2 (dp rank 2, stage 0) computes 2.00 times as long" in verdict.evidence[0].message
    assert "M_W 98%" in verdict.evidence[1].message and "M_S 2%" in verdict.evidence[1].message


@pytest.mark.parametrize(
    "second",
    [
        study("worker", "m1"),
        study("none"),
        study("worker", "m2", trusted=False, replay_error=0.06),
        study("worker", "m2", steps=5),
        StepStudy(0.0, "not judged", "a rank is missing"),
    ],
)
def test_one_study_alone_or_a_doubtful_one_accuses_no_machine(live: Callable[..., Live], second: StepStudy) -> None:
    assert live().run(study("worker", "m2"), second) == []


def test_several_slow_machines_are_a_group_for_a_person(live: Callable[..., Live]) -> None:
    found = live().run(*[study("worker", "m1", "m2")] * 2, None)
    assert shown(found) == [("group", "page", ("m1", "m2"), ("whatif",))]


@pytest.mark.parametrize("cause", ["stage imbalance", "sequence imbalance", "communication"])
def test_what_is_no_machines_doing_is_a_page_that_says_which(live: Callable[..., Live], cause: str) -> None:
    found = live().run(*[study(cause)] * 4)
    assert shown(found) == [("job", "page", (), (cause,))]
    assert cause in found[0].evidence[0].message and "because" in found[0].evidence[0].message


def test_two_causes_one_after_the_other_are_two_pages_and_hide_no_machine(live: Callable[..., Live]) -> None:
    found = live().run(*[study("sequence imbalance")] * 2, *[study("stage imbalance")] * 3, *[study("worker", "m3")] * 3)
    assert [(item.kind, item.tier, item.sources[0]) for item in found] == [
        ("job", "page", "sequence imbalance"),
        ("job", "page", "stage imbalance"),
        ("machine", "evict", "whatif"),
    ]


def test_the_same_cause_is_paged_once_a_day_however_often_the_job_restarts(scene: Any) -> None:
    job = Live(scene)
    assert len(job.run(*[study("stage imbalance")] * 3)) == 1
    job.scene.generation, job.scene.started_s = 2, job.scene.started_s + job.at_s
    assert job.run(None, *[study("stage imbalance")] * 3) == []


# What it makes of another rule's suspicion


def test_without_traces_the_other_rule_decides_and_the_verdict_says_so(live: Callable[..., Live]) -> None:
    job = live(Said("m1", 5.0))
    (verdict,) = job.run(None)
    assert shown([verdict]) == [("machine", "evict", ("m1",), ("slowdown",))]
    assert ["no step trace" in item.message for item in verdict.evidence if item.source == "whatif"] == [True]


def test_a_trace_that_cannot_be_judged_leaves_it_to_the_other_rule_and_says_why(
    live: Callable[..., Live]
) -> None:  # fmt: skip
    job = live(Said("m1", 25.0))
    (verdict,) = job.run(StepStudy(0.0, "not judged", "dp rank 1 of stage 0 reported no traced step"), None, None)
    assert verdict.tier == "evict" and any("dp rank 1 of stage 0" in item.message for item in verdict.evidence)


def test_a_machine_that_the_steps_name_too_is_evicted(live: Callable[..., Live]) -> None:
    job = live(Said("m1", 25.0))
    found = job.run(*[study("none")] * 2, *[study("worker", "m1")] * 3)
    assert shown(found) == [("machine", "evict", ("m1",), ("slowdown",))]  # another rule and one study are two witnesses
    assert any("what-if: worker" in item.message for item in found[0].evidence)


@pytest.mark.parametrize("cause", ["stage imbalance", "sequence imbalance"])
def test_a_stage_or_sequences_that_explain_it_leave_a_page_for_the_job_alone(live: Callable[..., Live], cause: str) -> None:
    found = live(Said("m1", 25.0)).run(*[study("none")] * 2, *[study(cause)] * 8)
    assert shown(found) == [("job", "page", (), (cause,))]


def test_steps_that_explain_nothing_leave_a_page_that_says_so(live: Callable[..., Live]) -> None:
    found = live(Said("m1", 25.0)).run(*[study("none")] * 6)
    assert shown(found) == [("machine", "page", ("m1",), ("slowdown",))]
    assert any("no single cause" in item.message for item in found[0].against)


def test_steps_that_name_another_machine_evict_that_one(live: Callable[..., Live]) -> None:
    found = live(Said("m1", 25.0)).run(*[study("none")] * 2, *[study("worker", "m3")] * 6)
    assert shown(found) == [("machine", "evict", ("m3",), ("whatif",))]


def test_a_job_that_traces_waits_a_minute_for_steps_of_the_slow_time_and_pages_then(
    live: Callable[..., Live]
) -> None:  # fmt: skip
    job = live(Said("m1", 25.0))
    assert job.run(study("none"), study("none"), *[None] * 6) == []
    found = job.run(None)
    assert shown(found) == [("machine", "page", ("m1",), ("slowdown",))]
    assert any("no traced steps of the slow time" in item.message for item in found[0].against)


def test_of_a_job_that_stands_its_steps_say_nothing(live: Callable[..., Live]) -> None:
    """A rank that launches its collectives late is called slow, and holds up a job that hangs."""
    job = live(Said("m1", 60.0))
    job.run(*[study("none")] * 4)
    found: list[Verdict] = []
    for _ in range(30):
        job.at_s += 1.0
        found += job.judge.judge(job.tracker.update(job.scene.see(job.at_s)))[0]
    assert shown(found) == [("machine", "evict", ("m1",), ("slowdown",))]
