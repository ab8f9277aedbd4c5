from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from minder.act.policy import RETRY_REASONS, Policy, PolicyConfig, PolicyContext, operation_name
from minder.act.policy.policy import EVICT_STAGES
from minder.model.decision import Decision
from minder.model.evidence import Verdict
from minder.model.history import History, PastEviction, Pause
from minder.model.observation import JobView

Accuse = Callable[..., Verdict]
Evicted = Callable[..., PastEviction]


@pytest.fixture
def policy(live: PolicyConfig) -> Policy:
    return Policy(live)


def only(decisions: list[Decision]) -> Decision:
    assert len(decisions) == 1, decisions
    return decisions[0]


def test_a_sure_verdict_is_an_eviction_with_its_price_and_every_stage(policy: Policy, context: PolicyContext, accuse: Accuse) -> None:
    found = only(policy.decide([accuse("m1")], History(), context))
    assert (found.action, found.reason, found.machines, found.replacements) == ("evict", "act", ("m1",), ("s0",))
    assert found.price is not None and found.price.waiting_gpu_s > found.price.acting_gpu_s
    assert found.jobs_affected == ("llm",)
    assert [line.split(":")[0] for line in found.stages] == ["blame", *(name for name, _ in EVICT_STAGES)]


def test_the_stages_end_where_a_decision_was_stopped(policy: Policy, context: PolicyContext, accuse: Accuse) -> None:
    found = only(policy.decide([accuse("m1")], History(), replace(context, standbys_ready=())))
    assert (found.action, found.reason) == ("page", "no_standby")
    assert found.stages[-1] == f"standbys: {found.detail}"


def test_a_dry_run_pages_with_what_it_would_have_done(context: PolicyContext, accuse: Accuse) -> None:
    found = only(Policy().decide([accuse("m1")], History(), context))
    assert (found.action, found.reason, found.replacements) == ("page", "dry_run", ("s0",))
    assert found.price is not None


def test_two_faults_at_once_are_one_eviction_with_one_restart(policy: Policy, context: PolicyContext, accuse: Accuse) -> None:
    verdicts = [accuse("m1", confidence=0.9), accuse("m5", cause="explicit", since_s=5.0)]
    found = only(policy.decide(verdicts, History(), context))
    assert (found.action, set(found.machines), set(found.replacements)) == ("evict", {"m1", "m5"}, {"s0", "s1"})
    assert (found.verdict.confidence, found.verdict.since_s) == (0.9, 5.0)
    again = only(policy.decide(verdicts[::-1], History(), context))
    assert again.operation_id == found.operation_id
    assert policy.recheck(found, History(), context).action == "evict"


def test_what_is_left_goes_to_the_surest_and_the_others_page(context: PolicyContext, accuse: Accuse) -> None:
    policy = Policy(PolicyConfig(dry_run=False, breaker_share=0.125))
    verdicts = [accuse("m1", confidence=0.6), accuse("m2", confidence=0.99), accuse("m3", confidence=0.7)]
    found = policy.decide(verdicts, History(), context)
    assert [(item.machines, item.action, item.reason) for item in found] == [
        (("m2",), "evict", "act"),
        (("m3",), "page", "breaker"),
        (("m1",), "page", "breaker"),
    ]


def test_a_group_that_what_is_left_does_not_cover_pages_whole(policy: Policy, context: PolicyContext, accuse: Accuse) -> None:
    """The surest takes one of three standbys, and three of the group are never two of it."""
    found = policy.decide([accuse("m1", "m2", "m3", confidence=0.8), accuse("m5", confidence=0.99)], History(), context)
    assert [(item.machines, item.action, item.reason) for item in found] == [
        (("m5",), "evict", "act"),
        (("m1", "m2", "m3"), "page", "no_standby"),
    ]


def test_suspects_behind_one_switch_all_page(policy: Policy, context: PolicyContext, accuse: Accuse) -> None:
    domains = {f"m{n}": {"switch": f"leaf-{n // 4}"} for n in range(8)}
    around = replace(context, domains=domains)
    found = policy.decide([accuse("m1"), accuse("m2", tier="page"), accuse("m6")], History(), around)
    assert {item.machines[0]: (item.action, item.reason) for item in found} == {
        "m1": ("page", "shared_domain"),
        "m2": ("page", "tier_too_low"),
        "m6": ("evict", "act"),
    }
    earlier = replace(around, suspects={"m2": context.now_s - 299, "m3": context.now_s - 301})
    assert only(policy.decide([accuse("m1")], History(), earlier)).reason == "shared_domain"
    later = replace(around, suspects={"m3": context.now_s - 301})
    assert only(policy.decide([accuse("m1")], History(), later)).action == "evict"


def test_the_same_conclusion_has_the_same_name_and_another_has_another(context: PolicyContext, accuse: Accuse, job: JobView) -> None:
    name = operation_name(accuse("m1", "m2"), "evict", context)
    assert operation_name(accuse("m2", "m1", time_s=1.0, confidence=0.5), "evict", replace(context, now_s=1.0)) == name
    others = {
        operation_name(accuse("m1"), "evict", context),
        operation_name(accuse("m1", "m2"), "restart", context),
        operation_name(accuse("m1", "m2", since_s=1.0), "evict", context),
        operation_name(accuse("m1", "m2"), "evict", replace(context, job=replace(job, generation=2))),
        operation_name(accuse("m1", "m2"), "evict", replace(context, job=replace(job, name="other"))),
    }
    assert len(others | {name}) == 6


def test_every_job_that_would_die_is_named(policy: Policy, context: PolicyContext, accuse: Accuse) -> None:
    around = replace(context, other_jobs={"m1": ("ads", "search"), "m2": ("maps",)})
    found = only(policy.decide([accuse("m1")], History(), around))
    assert (found.action, found.reason, found.jobs_affected) == ("page", "shared_machine", ("llm", "ads", "search"))


def test_nobody_to_blame_restarts_until_max_restarts(context: PolicyContext, accuse: Accuse) -> None:
    crash = accuse(kind="job", cause="explicit")
    for policy in (Policy(), Policy(PolicyConfig(dry_run=False))):
        found = only(policy.decide([crash], History(restarts=2), context))
        assert (found.action, found.reason, found.machines) == ("restart", "act", ())
        used_up = only(policy.decide([crash], History(restarts=3), context))
        assert (used_up.action, used_up.reason) == ("page", "max_restarts")


def test_dead_workers_are_restarted_where_nobody_may_be_evicted(context: PolicyContext, accuse: Accuse) -> None:
    dead = replace(context, workers_dead=True)
    restart, page = Policy().decide([accuse("m1", cause="explicit")], History(), dead)
    assert (restart.action, restart.reason, page.action, page.reason) == ("restart", "act", "page", "dry_run")
    assert restart.operation_id != page.operation_id
    lost = replace(dead, machines_lost=frozenset({"m1"}))
    assert only(Policy().decide([accuse("m1", cause="absence")], History(), lost)).action == "page"
    noted = Policy().decide([accuse("m1", tier="watch")], History(), dead)
    assert [item.action for item in noted] == ["restart", "none"]


def test_used_up_restarts_are_said(context: PolicyContext, accuse: Accuse) -> None:
    found = Policy().decide([accuse("m1")], History(restarts=3), replace(context, workers_dead=True))
    assert sorted((item.action, item.reason) for item in found) == [("page", "dry_run"), ("page", "max_restarts")]


def test_an_eviction_includes_the_restart(policy: Policy, context: PolicyContext, accuse: Accuse) -> None:
    evict, restart = policy.decide([accuse(kind="job"), accuse("m1")], History(), replace(context, workers_dead=True))
    assert evict.action == "evict"
    assert (restart.action, restart.reason) == ("none", "already_in_progress")


def test_two_job_verdicts_are_one_restart(policy: Policy, context: PolicyContext, accuse: Accuse) -> None:
    found = policy.decide([accuse(kind="job"), accuse(kind="job", since_s=1.0)], History(), context)
    assert [item.action for item in found] == ["restart", "none"]


def test_not_now_is_asked_again(policy: Policy, context: PolicyContext, accuse: Accuse) -> None:
    waiting = only(policy.decide([accuse("m1")], History(last_restart_s=context.now_s - 1), context))
    assert waiting.reason in RETRY_REASONS
    later = replace(context, now_s=context.now_s + 60)
    assert only(policy.decide([accuse("m1")], History(last_restart_s=context.now_s - 1), later)).action == "evict"


def test_a_recheck_does_not_count_its_own_intent(policy: Policy, context: PolicyContext, accuse: Accuse, evicted: Evicted) -> None:
    decision = only(policy.decide([accuse("m1")], History(), context))
    own = evicted("m1", operation_id=decision.operation_id, finished=False, ago_s=1)
    again = policy.recheck(decision, History(actions=(own,)), replace(context, in_progress=decision.operation_id))
    assert (again.action, again.replacements) == ("evict", ("s0",))
    assert again.stages[: len(decision.stages)] == decision.stages
    assert "recheck breaker: pass" in again.stages


def test_a_recheck_sees_what_changed_since(policy: Policy, context: PolicyContext, accuse: Accuse, evicted: Evicted) -> None:
    decision = only(policy.decide([accuse("m1")], History(), context))
    pause = Pause("all", None, context.now_s + 60, "why")
    for history, around, reason in (
        (History(pauses=(pause,)), context, "paused"),
        (History(actions=(evicted("a", "b", "c", "d"),)), context, "budget_hour"),
        (History(), replace(context, standbys_ready=()), "no_standby"),
        (History(actions=(evicted("a", finished=False),)), context, "already_in_progress"),
    ):
        again = policy.recheck(decision, history, around)
        assert again.reason == reason and again.action in ("page", "none")
        assert again.operation_id == decision.operation_id
    other = policy.recheck(decision, History(), replace(context, standbys_ready=("s2",)))
    assert (other.action, other.replacements) == ("evict", ("s2",))


def test_a_recheck_of_a_restart_does_not_count_itself(context: PolicyContext, accuse: Accuse, evicted: Evicted) -> None:
    policy = Policy()
    decision = only(policy.decide([accuse(kind="job")], History(restarts=2), context))
    own = evicted(operation_id=decision.operation_id, action="restart", finished=False)
    assert policy.recheck(decision, History(actions=(own,), restarts=3), context).action == "restart"
    assert policy.recheck(decision, History(restarts=3), context).reason == "max_restarts"


def test_a_page_is_not_rechecked(context: PolicyContext, accuse: Accuse) -> None:
    page = only(Policy().decide([accuse("m1")], History(), context))
    assert Policy().recheck(page, History(), context) is page


def test_no_verdicts_are_no_decisions(policy: Policy, context: PolicyContext) -> None:
    assert policy.decide([], History(), replace(context, workers_dead=True)) == []


def test_dead_workers_in_a_pause_are_told_once(context: PolicyContext, accuse: Accuse) -> None:
    history = History(pauses=(Pause("all", None, context.now_s + 60, "why"),))
    dead = replace(context, workers_dead=True)
    noted = Policy().decide([accuse("m1", tier="watch")], history, dead)
    assert sorted(item.action for item in noted) == ["none", "page"]
    assert only(Policy().decide([accuse("m1")], history, dead)).reason == "paused"
