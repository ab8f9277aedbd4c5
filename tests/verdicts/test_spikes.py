"""Spikes of one machine's own gradient, of all machines', and of the job's loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.numeric import SpikeRule
from minder.model.evidence import Signal, Suspect, Verdict

Make = Callable[..., Any]


def own(scene: Any, machine: str, at_s: float, step: int = 30, **data: Any) -> Signal:
    facts = {"what": "own gradient", "step": step, "value": 9e4, "usual": 2.0, **data}
    found: Signal = scene.signal("spike", machine, at_s, **facts)
    return found


def loss(scene: Any, machine: str, at_s: float, step: int = 30, **data: Any) -> Signal:
    return own(scene, machine, at_s, step, **{"what": "loss", "value": 11.0, "usual": 2.0, **data})


def conclude(scene: Any, *signals: Signal, rule: SpikeRule | None = None, until_s: float = 40.0) -> list[Suspect]:
    rule, found = rule or SpikeRule(), []
    start_s = scene.see(0.0).now_s
    for tick in range(int(until_s)):
        new = [signal for signal in signals if tick - 1 < signal.time_s - start_s <= tick]
        found += rule.observe(scene.see(float(tick), new)).suspects
    return found


def test_one_machine_alone_is_paged_not_evicted(scene: Any) -> None:
    (suspect,) = conclude(scene, own(scene, "m2", 10.0))
    assert (suspect.kind, suspect.machines, suspect.cause, suspect.tier) == ("machine", ("m2",), "numeric", "page")
    (evidence,) = suspect.evidence
    assert (evidence.machine, evidence.observed, evidence.expected) == ("m2", 9e4, 2.0)
    assert "rank 2" in evidence.message and "step 30" in evidence.message and "hardware" in evidence.message


def test_the_same_machine_alone_three_times_is_evicted(scene: Any) -> None:
    found = conclude(scene, *(own(scene, "m2", 10.0 * n, 30 * n) for n in (1, 2, 3)), until_s=60.0)
    assert [(item.machines, item.tier) for item in found] == [(("m2",), "page"), (("m2",), "page"), (("m2",), "evict")]
    assert len(found[-1].evidence) == 3


def test_three_machines_once_each_are_none_that_repeats(scene: Any) -> None:
    found = conclude(scene, *(own(scene, f"m{n}", 10.0 * n, 40 * n) for n in (1, 2, 3)), until_s=60.0)
    assert [item.tier for item in found] == ["page"] * 3


def test_all_at_once_is_the_data_and_names_nobody(scene: Any) -> None:
    (suspect,) = conclude(scene, *(own(scene, machine, 10.0 + n) for n, machine in enumerate(scene.machines)))
    assert (suspect.kind, suspect.machines, suspect.tier, suspect.cause) == ("job", (), "page", "numeric")
    assert "data" in suspect.evidence[0].message


@pytest.mark.parametrize("count", [1, 2])
def test_in_a_small_job_everybody_is_the_data(make_scene: Make, count: int) -> None:
    scene = make_scene(count=count)
    (suspect,) = conclude(scene, *(own(scene, machine, 10.0) for machine in scene.machines))
    assert suspect.kind == "job"


def test_what_follows_one_machines_spike_is_its_echo(scene: Any) -> None:
    echoes = [own(scene, machine, 10.5, 31) for machine in scene.machines] + [loss(scene, machine, 9.5, 31) for machine in scene.machines]
    (suspect,) = conclude(scene, own(scene, "m2", 12.0, 30), *echoes)
    assert suspect.machines == ("m2",)


def test_a_rank_over_the_threshold_in_the_wake_of_a_bad_batch_is_nobodys_fault(scene: Any) -> None:
    batch = [own(scene, machine, 10.0, 30) for machine in scene.machines]
    (suspect,) = conclude(scene, *batch, own(scene, "m1", 10.5, 33), own(scene, "m3", 20.0, 30))
    assert suspect.kind == "job"


def test_nobody_is_named_while_the_others_cannot_tell(scene: Any) -> None:
    for machine in ("m0", "m1", "m3"):
        scene.silence(machine)
    (suspect,) = conclude(scene, own(scene, "m2", 10.0))
    assert (suspect.kind, suspect.machines) == ("job", ())
    assert "do not answer" in suspect.evidence[0].message


def test_the_jobs_loss_names_nobody(scene: Any) -> None:
    scene.answer(0.0, step=29, loss=2.0)
    (suspect,) = conclude(scene, *(loss(scene, machine, 10.0) for machine in scene.machines))
    assert (suspect.kind, suspect.machines, suspect.cause, suspect.tier) == ("job", (), "numeric", "page")
    assert "the job's loss is 11 at step 30 (usually 2)" in suspect.evidence[0].message


def test_a_loss_that_only_rank_0_tells_is_the_jobs(scene: Any) -> None:
    scene.worker("m0", loss=2.0)
    (suspect,) = conclude(scene, loss(scene, "m0", 10.0, value=None))
    assert suspect.kind == "job" and "not finite" in suspect.evidence[0].message


def test_one_ranks_own_loss_is_not_the_jobs(scene: Any) -> None:
    scene.answer(0.0, step=29, loss=2.0)
    assert conclude(scene, loss(scene, "m1", 10.0)) == []


def test_steps_of_a_recording_are_followed(scene: Any) -> None:
    told = [scene.signal("step", None, float(n), step=n, loss=2.0 if n < 20 else 13.0, grad_norm="?") for n in range(1, 24)]
    (suspect,) = conclude(scene, *told)
    assert (suspect.kind, suspect.machines) == ("job", ())
    assert (suspect.evidence[0].observed, suspect.evidence[0].expected) == (13.0, 2.0)


def test_another_generation_and_strangers_do_not_count(make_scene: Make) -> None:
    scene = make_scene(generation=2)
    old = [own(scene, "m1", 10.0, generation=1), own(scene, "m2", -1.0, generation=None)]
    assert conclude(scene, *old, replace(own(scene, "m1", 10.0), machine="other")) == []
    assert len(conclude(scene, own(scene, "m1", 10.0, generation=1), rule=SpikeRule(generations=False))) == 1


class _Stall:
    """m1 stops at a given second, as another rule says; or the job as a whole."""

    name = "stall"

    def __init__(self, at_s: float, suspect: Suspect) -> None:
        self._at_s, self._suspect = at_s, suspect

    def observe(self, observation: Any) -> Any:
        from minder.model.observation import RuleResult

        found = observation.now_s >= self._at_s
        return RuleResult((replace(self._suspect, time_s=observation.now_s),) if found else ())


def judged(scene: Any, stall: Suspect, *signals: Signal) -> list[Verdict]:
    start_s = scene.see(0.0).now_s
    judge, found = Judge([SpikeRule(), _Stall(start_s + 16.0, stall)]), []
    for tick in range(60):
        new = [signal for signal in signals if tick - 1 < signal.time_s - start_s <= tick]
        found += judge.judge(scene.see(float(tick), new))[0]
    return found


STALL = Suspect(0.0, "stall", "machine", ("m1",), "stall", 0.9, 0.0, "evict")


@pytest.mark.parametrize("who", ["m2", "all"])
def test_a_fault_after_a_spike_is_told_as_ever(scene: Any, who: str) -> None:
    """Nothing stops because of a spike, so what stops after it is no victim of it, and no contradiction."""
    machines = scene.machines if who == "all" else (who,)
    first, second = judged(scene, STALL, *(own(scene, machine, 10.0) for machine in machines))
    assert (first.tier, first.cause) == ("page", "numeric")
    assert (second.machines, second.tier, second.against) == (("m1",), "evict", ())


def test_a_job_that_stands_after_a_spike_of_its_loss_is_told_too(scene: Any) -> None:
    stands = replace(STALL, kind="job", machines=(), tier="page", confidence=0.5)
    found = judged(scene, stands, loss(scene, "m0", 8.0))
    assert [(item.kind, item.tier, item.cause) for item in found] == [("job", "page", "numeric"), ("job", "page", "numeric")]
    assert found[1].sources == ("spikes", "stall")


def test_a_spike_is_told_once(scene: Any) -> None:
    quiet = replace(STALL, tier="watch")
    assert len(judged(scene, quiet, own(scene, "m2", 10.0), own(scene, "m2", 20.0, 90))) == 1
