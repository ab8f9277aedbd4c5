"""Who was first, where nobody of ours is the processes' parent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from minder.diagnose.verdicts.absence import VanishedRule
from minder.model.evidence import Signal, Suspect
from minder.model.observation import JobView, MachineView, Observation
from tests.fakes.followed import Followed

JOB = JobView("llm", 1, "running", ("m0", "m1", "m2"), (), (), {0: "m0", 1: "m1", 2: "m2"}, 0.0, 0.0)


def gone(rank: int, time_s: float, **data: Any) -> Signal:
    return Signal(time_s, "exit", f"m{rank}", f"rank {rank} ended", rank, None, 100 + rank, 1, {"vanished": True, **data})


def judge(*signals: Signal, job: JobView = JOB, now_s: float = 110.0, rule: Followed | None = None) -> tuple[Suspect, ...]:
    return (rule or Followed(VanishedRule)).observe(Observation(now_s, signals=signals, job=job, clock_error_s=0.01)).suspects


def test_the_first_by_more_than_the_sampling_interval_is_paged_and_never_evicted() -> None:
    (suspect,) = judge(gone(1, 100.0), gone(0, 101.5), gone(2, 101.6))
    assert (suspect.machines, suspect.tier, suspect.kind) == (("m1",), "page", "machine")
    assert "vanished first" in suspect.evidence[0].message and len(suspect.evidence) == 3


def test_one_that_vanishes_alone_is_paged() -> None:
    assert [suspect.machines for suspect in judge(gone(2, 100.0))] == [("m2",)]


def test_many_together_are_the_end_of_the_job() -> None:
    assert judge(gone(0, 100.0), gone(1, 100.3), gone(2, 100.9)) == ()


def test_a_finished_script_is_no_failure_however_early() -> None:
    assert judge(gone(1, 90.0, code=0, signal=None), gone(0, 99.0, code=0, signal=None), gone(2, 100.0, code=0, signal=None)) == ()


def test_where_the_kernel_told_how_it_ended_a_tenth_of_a_second_is_enough() -> None:
    (suspect,) = judge(gone(1, 100.0, signal=9), gone(0, 100.4, code=1), gone(2, 100.5, code=1))
    assert (suspect.machines, suspect.tier) == (("m1",), "page")


def test_all_failed_at_once_is_the_job_and_nobody() -> None:
    (suspect,) = judge(gone(0, 100.0, code=1), gone(1, 100.02, code=1), gone(2, 100.05, code=1))
    assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "page")


def test_an_exception_of_the_program_names_no_machine_and_an_echo_was_not_first() -> None:
    """As torchrun's ranks leave it in their error files."""
    bug = {"code": 1, "type": "KeyError", "error": "'input_ids'"}
    echo = {"code": 1, "type": "RuntimeError", "error": "[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:39089"}
    broken = {"code": 1, "type": "RuntimeError", "error": "CUDA error: uncorrectable ECC error encountered"}
    (suspect,) = judge(gone(1, 100.0, **bug), gone(0, 101.0, **echo), gone(2, 101.5, **echo))
    assert (suspect.kind, suspect.machines, suspect.tier) == ("job", (), "page")
    (suspect,) = judge(gone(0, 100.0, **echo), gone(1, 100.5, signal=9), gone(2, 101.5, **echo))
    assert suspect.machines == ("m1",)
    (suspect,) = judge(gone(2, 100.0, **broken), gone(0, 101.0, **echo))
    assert suspect.machines == ("m2",)
    (suspect,) = judge(gone(0, 100.0, **echo), gone(1, 101.0, **echo))
    assert (suspect.kind, suspect.machines) == ("job", ())


def test_it_waits_for_what_dies_of_the_first() -> None:
    rule = Followed(VanishedRule)
    assert judge(gone(1, 100.0), now_s=101.0, rule=rule) == ()
    assert judge(gone(0, 100.5), gone(2, 100.6), now_s=101.5, rule=rule) == ()
    assert judge(now_s=104.0, rule=rule) == (), "the others went within the interval"


def test_another_generations_exits_and_a_launchers_own_are_not_its_business() -> None:
    old = replace(gone(1, 100.0), generation=0)
    told = Signal(100.0, "exit", "m1", "", 1, None, 101, 1, {"code": None, "signal": 9})
    assert judge(old, told) == ()
    assert judge(gone(1, 100.0), job=replace(JOB, generation_start_s=105.0)) == ()


def test_a_single_machine_has_nobody_to_compare_with() -> None:
    job = replace(JOB, machines=("m0",), rank_machine={0: "m0", 1: "m0"})
    assert judge(gone(0, 100.0), job=job) == ()
    (suspect,) = judge(gone(0, 100.0, signal=11), job=job)
    assert (suspect.kind, suspect.tier) == ("job", "page")


def test_it_speaks_once_per_generation() -> None:
    rule = Followed(VanishedRule)
    assert judge(gone(1, 100.0), rule=rule)
    assert judge(gone(0, 109.0), now_s=120.0, rule=rule) == ()
    again = replace(gone(0, 130.0), generation=2)
    assert judge(again, job=replace(JOB, generation=2, generation_start_s=125.0), now_s=140.0, rule=rule)


def with_silence(age_s: float, at_s: float = 110.0, first_s: float = 100.0) -> tuple[Suspect, ...]:
    """m2 has not answered for age_s when its peers' processes have been seen to end."""
    rule = Followed(VanishedRule)
    found: list[Suspect] = []
    for now_s in (first_s - 20.0, first_s + 1.0, at_s):
        ages = {"m0": 0.2, "m1": 0.2, "m2": max(0.2, now_s - (at_s - age_s))}
        fleet = {name: MachineView(name, seconds, None) for name, seconds in ages.items()}
        signals = [gone(0, first_s), gone(1, first_s + 2.5)] if first_s < now_s < at_s else []
        found += rule.observe(Observation(now_s, signals=signals, job=JOB, fleet=fleet, clock_error_s=0.01)).suspects
    return tuple(found)


def test_a_machine_that_fell_silent_with_its_agent_is_named_and_not_the_first_of_its_victims() -> None:
    (suspect,) = with_silence(11.0)
    assert (suspect.machines, suspect.cause, suspect.tier) == (("m2",), "absence", "page")


def test_an_agent_that_answers_leaves_the_first_exit_to_blame() -> None:
    (suspect,) = with_silence(0.0)
    assert (suspect.machines, suspect.cause) == (("m0",), "explicit")


def test_an_agent_that_was_lost_long_before_is_somebody_elses_story() -> None:
    (suspect,) = with_silence(70.0)
    assert (suspect.machines, suspect.cause) == (("m0",), "explicit")
