from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from minder.act.policy import PolicyConfig
from minder.act.policy.case import Case
from minder.act.policy.timing import barred_yet_inside, cooldown, in_progress, membership, paused, restarts_left, tier
from minder.model.evidence import Verdict
from minder.model.history import History, PastEviction, Pause
from minder.model.observation import JobView

Make = Callable[..., Case]
Accuse = Callable[..., Verdict]
Evicted = Callable[..., PastEviction]


@pytest.mark.parametrize(("name", "action"), [("watch", "none"), ("page", "page"), ("evict", None)])
def test_a_tier_is_obeyed(case: Make, accuse: Accuse, name: str, action: str | None) -> None:
    ruling = tier(case(accuse("m1", tier=name)))
    assert (ruling.action, ruling.reason) == (action, "act" if action is None else "tier_too_low")


def test_nobody_is_evicted_where_nobody_is_named(case: Make, accuse: Accuse) -> None:
    assert tier(case(accuse())).reason == "no_machine_to_blame"
    assert tier(case(accuse("m1", kind="recovered"))).action == "none"


def test_dead_workers_are_restarted_whatever_the_tier(case: Make, accuse: Accuse) -> None:
    verdict = accuse(kind="job", tier="page")
    assert tier(case(verdict, action="restart")).action == "page"
    assert tier(case(verdict, action="restart", workers_dead=True)).action is None
    assert tier(case(accuse("m1", tier="page"), workers_dead=True)).action == "page"


def test_only_machines_of_the_job_are_evicted_and_only_once(case: Make, accuse: Accuse) -> None:
    assert membership(case()).action is None
    stranger = membership(case(accuse("s0")))
    assert (stranger.action, stranger.reason) == ("page", "not_in_job")
    gone = membership(case(accuse("old"), history=History(barred=frozenset({"old"}))))
    assert (gone.action, gone.reason) == ("none", "already_barred")
    partly = membership(case(accuse("m1", "old"), history=History(barred=frozenset({"old"}))))
    assert (partly.action, partly.reason) == ("page", "not_in_job")


def test_a_machine_that_was_taken_out_and_is_in_the_job_again_is_a_page(case: Make, evicted: Evicted) -> None:
    barred = frozenset({"m1"})
    ruling = barred_yet_inside(case(history=History(barred=barred)))
    assert (ruling.action, ruling.reason) == ("page", "already_barred")
    begun = History(barred=barred, actions=(replace(evicted("m1", finished=False), operation_id=case().operation_id),))
    assert barred_yet_inside(case(history=begun)).action is None, "what was begun is finished"
    assert barred_yet_inside(case(history=History(barred=frozenset({"m2"})))).action is None


def test_one_action_at_a_time(case: Make, evicted: Evicted) -> None:
    assert in_progress(case()).action is None
    assert in_progress(case(history=History(actions=(evicted("m3"),)))).action is None
    for busy in (case(in_progress="evict-other"), case(history=History(actions=(evicted("m3", finished=False),)))):
        assert (in_progress(busy).action, in_progress(busy).reason) == ("none", "already_in_progress")
    assert in_progress(case(history=History(actions=(evicted("m3", finished=False, job="other"),)))).action is None
    assert in_progress(case(planned=("m1",))).action == "none"


def test_an_action_that_never_ends_is_a_page_and_not_silence(case: Make, evicted: Evicted) -> None:
    stuck = History(actions=(evicted("m3", finished=False, ago_s=901.0),))
    ruling = in_progress(case(history=stuck))
    assert (ruling.action, ruling.reason) == ("page", "already_in_progress")
    assert "901 s" in ruling.say


def test_a_verdict_that_outlives_its_own_operation_is_a_page(case: Make, evicted: Evicted) -> None:
    ended = History(actions=(evicted("m1", operation_id="evict-now"),))
    assert in_progress(case(history=ended)).action == "page"


@pytest.mark.parametrize(
    ("scope", "target", "covered"),
    [("all", None, True), ("job", "llm", True), ("job", "other", False), ("rack", "r1", True), ("rack", "r2", False)],
)
def test_a_pause_covers_its_scope(case: Make, scope: str, target: str | None, covered: bool) -> None:
    pause = Pause(scope, target, 10_060.0, "firmware")  # type: ignore[arg-type]
    domains = {"m1": {"rack": "r1"}, "m2": {"rack": "r2"}}
    ruling = paused(case(history=History(pauses=(pause,)), domains=domains))
    assert (ruling.action, ruling.reason) == (("page", "paused") if covered else (None, "act"))
    assert not covered or "another 60 s: firmware" in ruling.say


def test_a_pause_that_is_over_stops_nothing(case: Make) -> None:
    assert paused(case(history=History(pauses=(Pause("all", None, 10_000.0, ""),)))).action is None


def test_a_rack_pause_stops_a_restart_of_a_job_that_uses_the_rack(case: Make, accuse: Accuse) -> None:
    history = History(pauses=(Pause("rack", "r2", 10_060.0, ""),))
    assert paused(case(accuse(kind="job"), action="restart", history=history, domains={"m2": {"rack": "r2"}})).action == "page"


def test_after_a_restart_only_explicit_causes_do_not_wait(case: Make, accuse: Accuse, job: JobView) -> None:
    history = History(last_restart_s=9_950.0)
    waiting = cooldown(case(history=history))
    assert (waiting.action, waiting.reason) == ("none", "cooldown")
    assert "another 10 s" in waiting.say
    for cause in ("slowdown", "absence", "unknown"):
        assert cooldown(case(accuse("m1", cause=cause), history=history)).action == "none"
    for cause in ("explicit", "numeric"):
        assert cooldown(case(accuse("m1", cause=cause), history=history)).action is None
    assert cooldown(case(history=History(last_restart_s=9_940.0))).action is None
    assert cooldown(case(job=replace(job, quiet_until_s=10_001.0))).action == "none"
    assert cooldown(case(history=history, workers_dead=True)).action is None


def test_restarts_are_counted(case: Make) -> None:
    assert restarts_left(case(history=History(restarts=2))).action is None
    used_up = restarts_left(case(history=History(restarts=3)))
    assert (used_up.action, used_up.reason) == ("page", "max_restarts")
    assert restarts_left(case(config=PolicyConfig(max_restarts=0))).action == "page"


def test_a_restart_before_the_clock_was_set_back_is_no_quiet_phase_of_an_hour(case: Make, accuse: Accuse) -> None:
    waiting = case(accuse("m1", cause="stall"), history=History(last_restart_s=1e12))
    now_s, job = waiting.context.now_s, waiting.context.job
    for began_s, passes in ((now_s - 1000.0, True), (now_s - 5.0, False)):
        moved = replace(waiting, context=replace(waiting.context, job=replace(job, generation_start_s=began_s)))
        assert (cooldown(moved).action is None) is passes
