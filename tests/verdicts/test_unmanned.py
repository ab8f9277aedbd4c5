"""Launchers that were started again under a job: the job is down, though nobody reports an exit."""

from __future__ import annotations

from typing import Any

import pytest

from minder.types import RuleResult, Suspect
from minder.verdicts.judge import Judge
from minder.verdicts.unmanned import UnmannedRule


def anew(scene: Any, *machines: str) -> None:
    """These launchers are new: their workers stand at the barrier and never had a rank."""
    for machine in machines:
        scene.worker(machine, state="waiting", rank=None, generation=0, step=None)


def watch(scene: Any, seconds: range, rule: UnmannedRule | None = None) -> list[Suspect]:
    rule = rule or UnmannedRule()
    return [suspect for at_s in seconds for suspect in rule.observe(scene.see(at_s)).suspects]


def test_all_launchers_began_again_and_the_job_is_started_again(scene: Any) -> None:
    anew(scene, *scene.machines)
    (suspect,) = watch(scene, range(20, 60))
    assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "evict")
    assert [item.machine for item in suspect.evidence] == list(scene.machines)
    assert suspect.time_s - suspect.since_s == pytest.approx(5.0)


def test_one_launcher_that_began_again_takes_the_job_with_it(scene: Any) -> None:
    anew(scene, "m2")
    (suspect,) = watch(scene, range(20, 60))
    assert (suspect.kind, suspect.machines) == ("job", ()) and [item.machine for item in suspect.evidence] == ["m2"]


@pytest.mark.parametrize("phase", ["starting", "recovering", "finished", "failed"])
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
    assert len(watch(scene, range(25, 60), rule)) == 1


def test_the_next_generation_has_its_own(scene: Any) -> None:
    rule = UnmannedRule()
    anew(scene, *scene.machines)
    assert len(watch(scene, range(20, 60), rule)) == 1
    scene.generation = 2
    assert len(watch(scene, range(60, 90), rule)) == 1


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
