"""Launchers that were started again under a job: the job is down, though nobody reports an exit."""

from __future__ import annotations

from typing import Any

import pytest

from minder.diagnose.verdicts.absence import UnmannedRule
from minder.diagnose.verdicts.judge import Judge
from minder.model.evidence import Suspect
from minder.model.observation import RuleResult


def anew(scene: Any, *machines: str) -> None:
    """These launchers are new: their workers stand at the barrier and never had a rank."""
    for machine in machines:
        scene.worker(machine, state="waiting", rank=None, generation=0, step=None)


def watch(scene: Any, seconds: range, rule: UnmannedRule | None = None) -> list[Suspect]:
    rule = rule or UnmannedRule()
    return [suspect for at_s in seconds for suspect in rule.observe(scene.see(at_s)).suspects]


def test_all_launchers_began_again_and_the_job_is_started_again(scene: Any) -> None:
    anew(scene, *scene.machines)
    suspect = watch(scene, range(20, 60))[0]
    assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "evict")
    assert [item.machine for item in suspect.evidence] == list(scene.machines)
    assert suspect.time_s - suspect.since_s == pytest.approx(5.0)


def test_one_launcher_that_began_again_takes_the_job_with_it(scene: Any) -> None:
    anew(scene, "m2")
    suspect = watch(scene, range(20, 60))[0]
    assert (suspect.kind, suspect.machines) == ("job", ()) and [item.machine for item in suspect.evidence] == ["m2"]


def test_a_launcher_that_began_again_before_the_first_step_is_no_bad_standby(scene: Any) -> None:
    anew(scene, "m2")
    scene.phase = "starting"
    suspect = watch(scene, range(20, 60))[0]
    assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "evict")


@pytest.mark.parametrize("phase", ["recovering", "finished", "failed"])
def test_workers_wait_at_the_barrier_while_the_job_does_not_run(scene: Any, phase: str) -> None:
    anew(scene, *scene.machines)
    scene.phase = phase
    assert watch(scene, range(20, 60)) == []


@pytest.mark.parametrize("state", ["running", "exited", "ended", "interrupted"])
def test_a_worker_with_a_rank_is_another_rules(scene: Any, state: str) -> None:
    scene.worker("m2", state=state)
    assert watch(scene, range(20, 60)) == []


def test_a_launcher_that_does_not_answer_says_nothing_of_its_workers(scene: Any) -> None:
    anew(scene, *scene.machines)
    for machine in scene.machines:
        scene.silence(machine, 0.2, 30.0)
    assert watch(scene, range(20, 60)) == []


def test_whoever_knows_who_failed_speaks_first(scene: Any) -> None:
    rule = UnmannedRule()
    anew(scene, "m1")
    assert rule.observe(scene.see(20.0, [scene.killed("m1", 19.9)])).suspects == ()
    assert watch(scene, range(21, 25), rule) == []
    assert watch(scene, range(25, 60), rule)[0].time_s == scene.see(25.0).now_s


def test_who_is_back_waits_a_minute_for_who_is_not(scene: Any) -> None:
    anew(scene, *scene.machines)
    rule = UnmannedRule()
    scene.silence("m2", 0.2, 30.0)
    assert watch(scene, range(20, 60), rule) == []
    assert watch(scene, range(60, 81), rule)[0].time_s == scene.see(80.0).now_s


def test_the_next_generation_has_its_own(scene: Any) -> None:
    rule = UnmannedRule()
    anew(scene, *scene.machines)
    assert watch(scene, range(20, 60), rule)
    scene.generation = 2
    assert watch(scene, range(60, 65), rule) == []
    assert watch(scene, range(65, 90), rule)


def test_nothing_is_started_again_while_an_eviction_stands_open(scene: Any) -> None:
    """An operator may be asked for it: a restart with the bad machine in it would come in between."""
    crash = Suspect(scene.see(19.0).now_s, "crash", "machine", ("m1",), "explicit", 0.95, scene.see(19.0).now_s, "evict", ())

    class Crashed:
        name = "crash"

        def observe(self, observation: Any) -> Any:
            return RuleResult((crash,)) if observation.now_s == crash.time_s else RuleResult()

    judge = Judge([Crashed(), UnmannedRule()])
    anew(scene, "m1")
    verdicts = [verdict for at_s in range(19, 60) for verdict in judge.judge(scene.see(at_s))[0]]
    assert [verdict.machines for verdict in verdicts] == [("m1",)]


def test_a_job_that_is_down_is_started_again_once_the_episode_before_is_over(scene: Any) -> None:
    """Two machines were thought gone and came back; the eviction was not to be had, and nothing runs."""
    gone = Suspect(scene.see(19.0).now_s, "absence", "group", ("m1", "m2"), "absence", 0.96, scene.see(19.0).now_s, "evict", ())

    class Absence:
        name = "absence"

        def observe(self, observation: Any) -> Any:
            return RuleResult((gone,)) if observation.now_s == gone.time_s else RuleResult()

    judge = Judge([Absence(), UnmannedRule()])
    anew(scene, *scene.machines)
    verdicts = [verdict for at_s in range(19, 260) for verdict in judge.judge(scene.see(at_s))[0]]
    assert [verdict.kind for verdict in verdicts] == ["group", "recovered", "job"]
