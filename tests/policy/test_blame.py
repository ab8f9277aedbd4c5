"""Whose a failure is, by what is remembered: the machine's, the program's, or unknown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minder.act.policy import Policy, PolicyConfig, PolicyContext
from minder.act.policy.blame import FOLLOWS, STAYS, attribute
from minder.model.evidence import Failure, Verdict
from minder.model.history import History, Trial
from minder.record.incidents import Ledger, kinds

START_S = 9_000.0  # of the running generation; what is remembered lies before it
Fail = Callable[..., Failure]


@pytest.fixture
def running(context: PolicyContext) -> PolicyContext:
    """m0 to m3 with a rank each, generation 3 since START_S, its workers dead."""
    job = replace(context.job, generation=3, generation_start_s=START_S, rank_machine={rank: f"m{rank}" for rank in range(4)})
    return replace(context, job=replace(job, machines=("m0", "m1", "m2", "m3")), workers_dead=True)


def fail(machine: str = "m1", rank: int = 1, ago_s: float = 0.0, **changes: Any) -> Failure:
    """ago_s: before the running generation began; 0: now."""
    time_s, generation = (START_S - ago_s, 2) if ago_s else (9_990.0, 3)
    return replace(Failure(time_s, machine, (rank,), "crash", step=50, generation=generation, text="ended by SIGKILL"), **changes)


def crash(*failures: Failure) -> Verdict:
    return Verdict(9_995.0, "job", "evict", (), "explicit", 0.6, 9_990.0, sources=("crash",), failures=failures)


def hang(machine: str, rank: int, **changes: Any) -> Verdict:
    failure = fail(machine, rank, sort="hang", **changes)
    return Verdict(9_995.0, "machine", "evict", (machine,), "stall", 0.9, 9_990.0, sources=("stall",), failures=(failure,))


def remembered(*failures: Failure, **changes: Any) -> History:
    return replace(History(failures=failures), **changes)


def decide(verdict: Verdict, history: History, context: PolicyContext, **config: Any) -> Any:
    policy = Policy(PolicyConfig(**{"dry_run": False, **config}))
    return policy.decide([verdict], history, context)


def test_the_first_unknown_failure_is_restarted_in_place(running: PolicyContext) -> None:
    (decision,) = decide(crash(fail()), remembered(), running)
    assert (decision.action, decision.machines) == ("restart", ())
    assert "first time" in decision.detail


def test_the_second_of_one_rank_and_machine_is_a_trial_with_a_standby(running: PolicyContext) -> None:
    (decision,) = decide(crash(fail()), remembered(fail(ago_s=60.0)), running)
    assert (decision.action, decision.machines, decision.replacements) == ("trial", ("m1",), ("s0",))
    assert "m1 at " in decision.detail, "the decision shows the history"


def test_without_a_standby_two_machines_exchange_their_ranks(running: PolicyContext) -> None:
    (decision,) = decide(crash(fail()), remembered(fail(ago_s=60.0)), replace(running, standbys_ready=()))
    assert decision.action == "trial" and decision.replacements[0] in ("m0", "m2", "m3")


def test_a_failure_that_follows_the_rank_is_the_programs(running: PolicyContext) -> None:
    placed = replace(
        running, job=replace(running.job, rank_machine={0: "m0", 1: "s0", 2: "m2", 3: "m3"}, machines=("m0", "s0", "m2", "m3"))
    )
    history = remembered(fail(ago_s=120.0), fail(ago_s=60.0))
    (decision,) = decide(crash(fail("s0")), history, placed)
    assert decision.action == "restart" and FOLLOWS in decision.detail
    assert attribute(crash(fail("s0")), history, placed).finding == FOLLOWS


def test_a_failure_that_stays_with_the_machine_evicts_it(running: PolicyContext) -> None:
    """m1 and m3 have exchanged their ranks, and m1 fails with those of m3."""
    placed = replace(running, job=replace(running.job, rank_machine={0: "m0", 1: "m3", 2: "m2", 3: "m1"}))
    (decision,) = decide(crash(fail("m1", 3)), remembered(fail(ago_s=120.0), fail(ago_s=60.0)), placed)
    assert (decision.action, decision.machines) == ("evict", ("m1",)) and STAYS in decision.detail


def test_one_failure_with_other_ranks_is_tried_before_its_machine_goes(running: PolicyContext) -> None:
    """Its ranks moved for another reason than a trial of it: as the partner of another one, or with a new run."""
    placed = replace(running, job=replace(running.job, rank_machine={0: "m0", 1: "m3", 2: "m2", 3: "m1"}))
    (decision,) = decide(crash(fail("m1", 3)), remembered(fail(ago_s=60.0)), placed)
    assert (decision.action, decision.machines) == ("trial", ("m1",))
    tried = Trial("trial-1", "m1", "m3", (1,), START_S - 30.0, True, None)
    (decision,) = decide(crash(fail("m1", 3)), remembered(fail(ago_s=60.0), trials=(tried,)), placed)
    assert (decision.action, decision.machines) == ("evict", ("m1",)) and STAYS in decision.detail


def test_a_hang_of_before_an_update_of_the_code_is_not_remembered(running: PolicyContext) -> None:
    past = remembered(fail("m9", 1, ago_s=60.0, sort="hang", update=1))
    assert decide(hang("m1", 1, update=1), past, running)[0].action == "restart"
    assert decide(hang("m1", 1, update=2), past, running)[0].action == "evict"


def test_a_fingerprint_that_was_seen_on_another_machine_is_the_programs(running: PolicyContext) -> None:
    past = fail("m3", 3, ago_s=60.0, fingerprint="RuntimeError|device:illegal|train:main")
    (decision,) = decide(crash(fail(fingerprint=past.fingerprint)), remembered(past), running)
    assert decision.action == "restart" and "was seen on another machine" in decision.detail


def test_a_bare_exit_matches_no_other_machines(running: PolicyContext) -> None:
    (decision,) = decide(crash(fail()), remembered(fail("m3", 3, ago_s=60.0)), running)
    assert decision.action == "restart" and "first time" in decision.detail


def test_two_fingerprints_that_differ_are_not_one_failure_that_follows(running: PolicyContext) -> None:
    history = remembered(fail("s9", ago_s=60.0, fingerprint="A"))
    assert attribute(crash(fail(fingerprint="B")), history, running).finding == ""


def test_machines_evidence_outranks_memory(running: PolicyContext) -> None:
    past = fail("m3", 3, ago_s=60.0, fingerprint="same")
    own = replace(crash(fail(fingerprint="same")), kind="machine", machines=("m1",), sources=("signals",))
    (decision,) = decide(own, remembered(past), running)
    assert (decision.action, decision.machines) == ("evict", ("m1",))
    ecc = replace(own, sources=("crash",), failures=(fail(fingerprint="same", kind="machine"),))
    assert decide(ecc, remembered(past), running)[0].action == "evict"


def test_a_signal_beside_a_hang_outranks_memory_only_where_it_would_evict_by_itself(running: PolicyContext) -> None:
    """A program that hangs its device makes the driver reset it wherever its rank runs."""
    beside = replace(hang("m1", 1), sources=("signals", "stall"))
    past = remembered(fail("m9", 1, ago_s=60.0, sort="hang"))
    (decision,) = decide(beside, past, running)
    assert decision.action == "restart" and FOLLOWS in decision.detail
    (decision,) = decide(replace(beside, cause="explicit"), past, running)
    assert (decision.action, decision.machines) == ("evict", ("m1",))


def test_the_same_step_again_with_the_machine_exchanged_is_the_programs(running: PolicyContext) -> None:
    past = fail("m9", 2, ago_s=60.0, sort="hang", step=77)
    (decision,) = decide(hang("m1", 1, step=77, stepped=True), remembered(past), running)
    assert decision.action == "restart" and "step 77 again" in decision.detail


@pytest.mark.parametrize(
    ("past", "changes"),
    [
        (fail("m9", 2, ago_s=60.0, sort="hang", step=77), {"step": 77, "stepped": False}),  # no step was made after the resume
        (fail("m2", 2, ago_s=60.0, sort="hang", step=77), {"step": 77, "stepped": True}),  # its machine still runs that rank
        (fail("m9", 2, ago_s=60.0, sort="hang", step=76), {"step": 77, "stepped": True}),
        (fail("m9", 2, ago_s=60.0, sort="hang", step=None), {"step": None, "stepped": True}),
    ],
)
def test_what_is_not_the_same_step_again(running: PolicyContext, past: Failure, changes: dict[str, Any]) -> None:
    (decision,) = decide(hang("m1", 1, **changes), remembered(past), running)
    assert decision.action == "evict"


def test_a_hang_that_follows_the_rank_evicts_no_second_machine(running: PolicyContext) -> None:
    (decision,) = decide(hang("m1", 1), remembered(fail("m9", 1, ago_s=60.0, sort="hang")), running)
    assert decision.action == "restart" and FOLLOWS in decision.detail


def test_a_hang_that_followed_and_comes_back_there_is_tried_on_a_third_machine(running: PolicyContext) -> None:
    """Two machines that stop in turn: neither the rank nor the second machine is proven."""
    history = remembered(fail("m9", 1, ago_s=120.0, sort="hang"), fail("m1", 1, ago_s=60.0, sort="hang"))
    (decision,) = decide(hang("m1", 1), history, running)
    assert (decision.action, decision.machines) == ("trial", ("m1",))


def test_a_hang_at_the_step_of_another_machine_that_comes_back_is_tried_on_a_third(running: PolicyContext) -> None:
    """Two machines that stop four steps after each resume, one after the other: the first was evicted, and the second is not proven."""
    first, second = fail("m9", 2, ago_s=120.0, sort="hang", step=77), fail("m1", 1, ago_s=60.0, sort="hang", step=77)
    (decision,) = decide(hang("m1", 1, step=77, stepped=True), remembered(first, second), running)
    assert (decision.action, decision.machines) == ("trial", ("m1",))
    same = {"fingerprint": "Timeout:a"}
    known = remembered(replace(first, **same), replace(second, **same))
    (decision,) = decide(hang("m1", 1, step=77, stepped=True, **same), known, running)
    assert decision.action == "restart", "the same structure on two machines is the program's"


def standing(machine: str, rank: int) -> Verdict:
    """The whole job hangs, and the ranks of one machine stand elsewhere than the others: no evidence that evicts."""
    return Verdict(9_995.0, "job", "evict", (), "stall", 0.9, 9_990.0, sources=("hang",), failures=(fail(machine, rank, sort="hang"),))


def test_a_hang_of_one_odd_rank_is_remembered_and_the_second_is_a_trial(running: PolicyContext) -> None:
    hung = replace(running, workers_dead=False, hangs=True)
    (decision,) = decide(standing("m1", 1), remembered(), hung)
    assert (decision.action, decision.machines) == ("restart", ())
    past = remembered(fail(ago_s=60.0, sort="hang"))
    (decision,) = decide(standing("m1", 1), past, hung)
    assert (decision.action, decision.machines) == ("trial", ("m1",))
    (decision,) = decide(standing("m1", 1), past, replace(hung, hangs=False))
    assert decision.action == "none", "it moves again"


def test_a_hang_is_restarted_where_a_trial_cannot_be(running: PolicyContext) -> None:
    hung = replace(running, workers_dead=False, hangs=True)
    first, *_ = decide(standing("m1", 1), remembered(fail(ago_s=60.0, sort="hang")), hung, trial_s=0.0)
    assert first.action == "restart" and "no_trial" in first.detail


def test_another_version_of_the_code_is_not_remembered(running: PolicyContext) -> None:
    past = fail(ago_s=60.0, code_version="old")
    (decision,) = decide(crash(fail(code_version="new")), remembered(past), running)
    assert decision.action == "restart" and "first time" in decision.detail


@pytest.mark.parametrize(
    ("then", "now", "is_known"),
    [
        ({"code_version": "a"}, {"code_version": "a"}, True),
        ({}, {}, True),
        ({"code_version": "a"}, {}, True),
        ({}, {"code_version": "a"}, True),
        ({"code_version": "a"}, {"code_version": "b"}, False),
        ({"code_version": "a", "beside": ("b",)}, {"code_version": "b"}, True),
        ({"code_version": "a"}, {"code_version": "b", "beside": ("a", "c")}, True),
        ({"code_version": "a", "beside": ("c",)}, {"code_version": "b", "beside": ("c",)}, True),
        ({"code_version": "a", "beside": ("b",)}, {"code_version": "c", "beside": ("d",)}, False),
        ({"code_version": "a", "beside": ("b",)}, {"code_version": "b", "beside": ("a",), "update": 1}, False),
    ],
    ids=["same", "unknown", "now unknown", "then unknown", "another", "beside it", "it beside", "both beside", "all others", "updated"],
)
def test_versions_that_ran_beside_one_another_are_one_code(
    then: dict[str, Any], now: dict[str, Any], is_known: bool, running: PolicyContext
) -> None:
    """Arguments or files of a machine's own make another hash on each of them: a bug that followed its rank there was new each time."""
    past = fail("m9", ago_s=60.0, fingerprint="KeyError|:|train:main", **then)
    (decision,) = decide(crash(fail(fingerprint="KeyError|:|train:main", **now)), remembered(past), running)
    assert decision.action == "restart"
    assert ("was seen on another machine" in decision.detail) == is_known


@pytest.mark.parametrize(("age_s", "is_known"), [(86_340.0, True), (86_460.0, False)], ids=["23 h 59", "24 h 01"])
@pytest.mark.parametrize("version", ["a", ""], ids=["version known", "version unknown"])
def test_the_memory_is_a_day_long_and_outlives_the_controller(
    age_s: float, is_known: bool, version: str, running: PolicyContext, tmp_path: Path
) -> None:
    old = fail("m9", fingerprint="KeyError|:|train:main", code_version=version)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.append(kinds.JOB_REGISTERED, {}, job="llm", time_s=old.time_s - 600.0)
        ledger.open_incident(crash(old), job="llm", time_s=old.time_s)
    now_s = old.time_s + age_s
    later = replace(running, now_s=now_s, job=replace(running.job, generation=4, generation_start_s=now_s - 30.0))
    now = fail(fingerprint="KeyError|:|train:main", code_version="a", time_s=now_s, generation=4)
    with Ledger(tmp_path / "ledger.db") as ledger:
        (decision,) = decide(replace(crash(now), time_s=now_s), ledger.history("llm", now_s), later)
    assert decision.action == "restart" and ("was seen on another machine" in decision.detail) == is_known


def test_an_error_of_the_program_is_never_tried(running: PolicyContext) -> None:
    past = fail(ago_s=60.0, kind="program")
    (decision,) = decide(crash(fail(kind="program")), remembered(past), running)
    assert decision.action == "restart" and "an error of the program" in decision.detail


def test_a_gradient_of_one_rank_is_tried_at_once_and_then_follows(running: PolicyContext) -> None:
    verdict = replace(hang("m1", 1), cause="numeric", sources=("numeric",), failures=(fail(sort="nonfinite"),))
    assert decide(verdict, remembered(), running)[0].action == "trial"
    placed = replace(
        running, job=replace(running.job, rank_machine={0: "m0", 1: "s0", 2: "m2", 3: "m3"}, machines=("m0", "s0", "m2", "m3"))
    )
    again = replace(verdict, machines=("s0",), failures=(fail("s0", sort="nonfinite"),))
    (decision,) = decide(again, remembered(fail(ago_s=60.0, sort="nonfinite")), placed)
    assert decision.action == "restart" and FOLLOWS in decision.detail


def test_what_the_job_left_behind_by_progress_follows_only_if_it_was_the_last(running: PolicyContext) -> None:
    """A rank failed on m9, ran on m1 for long, then failed there twice: m1 is tried, too."""
    old, here = fail("m9", ago_s=5_000.0), fail(ago_s=60.0)
    assert attribute(crash(fail()), remembered(old, here, left_behind=1), running).seen == 1
    back = replace(old, time_s=START_S + 4_000.0)  # the clock was set back after it
    assert attribute(crash(fail()), remembered(back, here, left_behind=1), running).seen == 1
    assert attribute(crash(fail()), remembered(old, here), running).finding == FOLLOWS


@pytest.mark.parametrize("change", [{"ranks_fixed": "checkpoints are local"}, {"only": True}])
def test_where_no_trial_is_possible_a_person_is_told_and_the_job_goes_on(running: PolicyContext, change: dict[str, Any]) -> None:
    alone = replace(running.job, machines=("m1",), rank_machine={1: "m1"})
    context = replace(running, job=alone, standbys_ready=()) if "only" in change else replace(running, **change)
    found = {decision.action: decision for decision in decide(crash(fail()), remembered(fail(ago_s=60.0)), context)}
    assert set(found) == {"page", "restart"} and found["page"].reason == "no_trial"


def test_a_dry_run_tries_nothing_and_restarts_dead_workers(running: PolicyContext) -> None:
    found = decide(crash(fail()), remembered(fail(ago_s=60.0)), running, dry_run=True)
    assert {(item.action, item.reason) for item in found} == {("page", "dry_run"), ("restart", "act")}


def test_a_machine_on_trial_takes_no_place(running: PolicyContext) -> None:
    trial = Trial("trial-1", "s0", "m2", (2,), 8_000.0, False)
    (decision,) = decide(crash(fail()), remembered(fail(ago_s=60.0), trials=(trial,)), running)
    assert decision.action == "trial" and decision.replacements != ("s0",)
    over = replace(trial, finding="did not come back")
    history = remembered(fail(ago_s=60.0), trials=(over,))
    assert decide(crash(fail()), history, running)[0].replacements == ("s1",), "the one that was tried is used last"
    assert decide(crash(fail()), history, replace(running, standbys_ready=("s0",)))[0].replacements == ("s0",)


def test_a_trial_holds_when_it_is_looked_at_again(running: PolicyContext) -> None:
    history = remembered(fail(ago_s=60.0))
    (decision,) = decide(crash(fail()), history, running)
    again = Policy(PolicyConfig(dry_run=False)).recheck(decision, history, running)
    assert (again.action, again.machines, again.replacements) == ("trial", ("m1",), ("s0",))
    gone = replace(running, standbys_ready=())
    moved = Policy(PolicyConfig(dry_run=False)).recheck(decision, history, gone)
    assert moved.action == "trial" and moved.replacements[0] in running.job.machines


def test_too_many_restarts_of_a_day_are_paged_and_the_job_goes_on(running: PolicyContext) -> None:
    found = decide(crash(fail()), remembered(restarts_today=12), running)
    assert [(item.action, item.reason) for item in found] == [("restart", "act"), ("page", "max_restarts_per_day")]


def test_restarts_that_are_used_up_end_with_the_history(running: PolicyContext) -> None:
    (decision,) = decide(crash(fail()), remembered(restarts=3), running)
    assert (decision.action, decision.reason) == ("page", "max_restarts")


def test_rank_numbers_of_before_the_job_changed_its_size_say_nothing_of_ranks(running: PolicyContext) -> None:
    """The machine's own other rank, and the same rank on another machine, speak only while the job has as many ranks."""
    smaller = replace(running, job=replace(running.job, sized_in=3))
    moved, followed = remembered(fail("m1", 3, ago_s=90.0), fail("m1", 3, ago_s=60.0)), remembered(fail("m2", 1, ago_s=60.0))
    assert attribute(crash(fail()), moved, running).trouble == "machine"
    assert attribute(crash(fail()), followed, running).trouble == "program"
    assert attribute(crash(fail()), moved, smaller).trouble == "unknown" == attribute(crash(fail()), followed, smaller).trouble
    seen = remembered(fail("m2", 1, ago_s=60.0, fingerprint="KeyError"))
    assert attribute(crash(fail(fingerprint="KeyError")), seen, smaller).trouble == "program", "a fingerprint stays what it is"
