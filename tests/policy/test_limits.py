from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from minder.act.policy import PolicyConfig
from minder.act.policy.case import Case
from minder.act.policy.limits import breaker, budgets, dry_run, group_size, shared_machine, standbys
from minder.model.evidence import Verdict
from minder.model.history import History, PastEviction

Make = Callable[..., Case]
Accuse = Callable[..., Verdict]
Evicted = Callable[..., PastEviction]


def test_a_group_goes_as_a_whole_or_not_at_all(case: Make, accuse: Accuse) -> None:
    config = PolicyConfig(dry_run=False, breaker_share=0.5)
    group = accuse("m0", "m1", "m2")
    assert group_size(case(group)).action is None
    assert group_size(case(group, config=replace(config, max_evictions_per_hour=1, max_machines_per_hour=3))).action is None
    assert group_size(case(group, config=replace(config, max_machines_per_hour=2))).reason == "group_too_large"
    assert group_size(case(group, config=replace(config, breaker_share=0.25))).reason == "group_too_large"
    few = case(group, standbys_ready=("s0", "s1"))
    assert (group_size(few).action, standbys(few).reason) == (None, "no_standby"), "it waits for a third one"
    assert group_size(case(accuse("m0"), standbys_ready=())).action is None


@pytest.mark.parametrize(
    ("setting", "reason"),
    [("max_evictions_per_job", "budget_job"), ("max_evictions_per_day", "budget_day"), ("max_evictions_per_hour", "budget_hour")],
)
def test_budgets_are_never_passed(case: Make, accuse: Accuse, evicted: Evicted, setting: str, reason: str) -> None:
    config = replace(PolicyConfig(False, max_evictions_per_hour=50, max_evictions_per_job=50, max_machines_per_hour=50), **{setting: 2})
    one, two = (evicted("a", "x", "y", "z"),), (evicted("a"), evicted("b", ago_s=60))
    assert budgets(case(config=config, history=History(actions=one))).action is None
    ruling = budgets(case(config=config, history=History(actions=two)))
    assert (ruling.action, ruling.reason) == ("page", reason)
    assert budgets(case(config=config, history=History(actions=one), planned=("m5",))).action is None, "both go in one eviction"
    assert budgets(case(accuse("m1", "m2"), config=config, history=History(actions=one))).action is None, "a group is one eviction"
    assert budgets(case(accuse("m1", "m2"), config=config, history=History(actions=two))).reason == reason
    other_job = tuple(replace(item, job="other") for item in two)
    restarts = tuple(replace(item, action="restart") for item in two)
    assert budgets(case(config=config, history=History(actions=other_job))).action is None
    assert budgets(case(config=config, history=History(actions=restarts))).action is None


def test_a_job_of_many_machines_may_lose_what_so_many_fail_and_a_day_stays_bounded(case: Make, evicted: Evicted) -> None:
    """1,200 machines: the eviction after eighty in ninety days is one like the others; the ninth of a day is a person's."""
    job = replace(case().context.job, machines=tuple(f"n{n}" for n in range(1200)))
    run = [evicted(f"m{day}", ago_s=86_400.0 * day + 7200.0) for day in range(1, 81)]
    now = case(config=PolicyConfig(), job=job)
    begun_s = now.context.now_s - 90 * 86_400.0
    assert budgets(replace(now, history=History(actions=tuple(run), begun_s=begun_s))).action is None
    assert budgets(replace(now, history=History(actions=tuple(run)))).reason == "budget_job", "how long it has run is not known"
    busy = [evicted(f"d{hour}", ago_s=3600.0 * hour + 60.0) for hour in range(2, 10)]
    ruling = budgets(replace(now, history=History(actions=tuple(busy), begun_s=begun_s)))
    assert (ruling.action, ruling.reason) == ("page", "budget_day")
    assert ruling.say == "8 evictions in the last day, one more would pass the limit of 8"


def test_the_hour_passes_and_the_run_does_not(case: Make, evicted: Evicted) -> None:
    history = History(actions=(evicted("a", ago_s=3601),))
    assert budgets(case(config=PolicyConfig(max_evictions_per_hour=1), history=history)).action is None
    assert budgets(case(config=PolicyConfig(max_evictions_per_job=1), history=history)).action == "page"
    assert budgets(case(config=PolicyConfig(max_evictions_per_job=0))).action == "page"


def test_machines_have_a_limit_of_their_own_within_the_hour(case: Make, accuse: Accuse, evicted: Evicted) -> None:
    group, config = accuse("m1", "m2", "m3"), PolicyConfig(dry_run=False, max_machines_per_hour=6)
    gone = (evicted("a", "b", "c", ago_s=3000),)
    assert budgets(case(group, config=config, history=History(actions=gone))).action is None
    assert budgets(case(group, config=config, history=History(actions=gone), planned=("m5",))).reason == "budget_hour"
    ruling = budgets(case(group, config=config, history=History(actions=(*gone, evicted("d")))))
    assert (ruling.action, ruling.reason) == ("page", "budget_hour")
    assert ruling.say == "4 machines evicted in the last hour, 3 more would pass the limit of 6 machines"
    assert budgets(case(group, config=config, history=History(actions=(evicted("a", "b", "c", "d", ago_s=3601),)))).action is None


def test_the_machine_limit_fits_the_largest_group_and_never_less_than_the_evictions(case: Make) -> None:
    """A job without groups loses as many single machines as it has evictions."""
    assert case(config=PolicyConfig()).machine_limit == 4
    assert case(config=PolicyConfig(), largest_group=8).machine_limit == 16
    assert case(config=PolicyConfig(max_evictions_per_hour=0)).machine_limit == 2
    assert case(config=PolicyConfig(max_machines_per_hour=8), largest_group=8).machine_limit == 8


def test_a_pipeline_group_of_eight_goes_by_default(case: Make, accuse: Accuse, evicted: Evicted) -> None:
    """32 machines, pipelines of 8: the breaker's quarter lets one pass, the hour a second one once the breaker has closed."""
    job = replace(case().context.job, machines=tuple(f"n{n}" for n in range(32)))
    group = accuse(*(f"n{n}" for n in range(8)))
    ready = tuple(f"s{n}" for n in range(8))
    now = case(group, config=PolicyConfig(), job=job, largest_group=8, standbys_ready=ready)
    assert [stage(now).action for stage in (group_size, budgets, breaker, standbys)] == [None] * 4
    again = replace(now, history=History(actions=(evicted(*(f"g{n}" for n in range(8)), ago_s=700),)))
    assert [stage(again).action for stage in (group_size, budgets, breaker)] == [None] * 3
    third = replace(now, history=History(actions=(evicted(*(f"g{n}" for n in range(16)), ago_s=700),)))
    assert budgets(third).reason == "budget_hour"
    assert standbys(case(group, config=PolicyConfig(), job=job, largest_group=8, standbys_ready=ready[:7])).reason == "no_standby"


def test_the_breaker_counts_machines_within_its_window(case: Make, evicted: Evicted) -> None:
    config = PolicyConfig(breaker_share=0.25, breaker_window_s=600)  # 2 of 8 machines
    assert breaker(case(config=config, history=History(actions=(evicted("a"),)))).action is None
    tripped = breaker(case(config=config, history=History(actions=(evicted("a", "b"),))))
    assert (tripped.action, tripped.reason) == ("page", "breaker")
    assert breaker(case(config=config, history=History(actions=(evicted("a", "b", ago_s=601),)))).action is None
    assert breaker(case(config=config, planned=("m5", "m6"))).reason == "breaker"


def test_a_small_job_may_lose_one_machine_and_not_two(case: Make, evicted: Evicted) -> None:
    config = PolicyConfig(breaker_share=0.01)
    assert breaker(case(config=config)).action is None
    assert breaker(case(config=config, history=History(actions=(evicted("a"),)))).reason == "breaker"


def test_every_place_is_filled_by_a_fit_standby(case: Make, accuse: Accuse) -> None:
    assert standbys(case()).replacements == ("s0",)
    assert standbys(case(taken=("s0",))).replacements == ("s1",)
    assert standbys(case(history=History(barred=frozenset({"s0"})), suspects=("s1",))).replacements == ("s2",)
    assert standbys(case(preferred=("s2",))).replacements == ("s2",)
    assert standbys(case(accuse("m1", "m2"))).replacements == ("s0", "s1")
    ruling = standbys(case(standbys_ready=("m3", "s0", "s0"), taken=("s0",)))
    assert (ruling.action, ruling.reason) == ("page", "no_standby")


def test_a_standby_that_is_not_ready_is_named_with_the_reason(case: Make) -> None:
    out = {"s0": "its launcher has been silent for 9 s", "s1": "its launcher was never heard of"}
    ruling = standbys(case(standbys_ready=(), standbys_out=out))
    assert ruling.say == ("0 standbys are ready, 1 needed; s0: its launcher has been silent for 9 s; s1: its launcher was never heard of")
    accused = standbys(case(standbys_ready=("s0",), suspects=("m1", "s0")))
    assert accused.say == "0 standbys are ready, 1 needed; s0: it is accused itself"
    many = standbys(case(standbys_ready=(), standbys_out={f"s{n}": "its launcher was never heard of" for n in range(40)}))
    assert "s3: its" in many.say and many.say.endswith("; 36 more are not ready either")
    assert standbys(case(standbys_out={"s1": "its launcher was never heard of"})).replacements == ("s0",)


def test_a_standby_behind_another_switch_comes_first(case: Make) -> None:
    domains = {"m1": {"switch": "leaf-1"}, "s0": {"switch": "leaf-1"}, "s1": {"switch": "leaf-2"}}
    assert standbys(case(domains=domains)).replacements == ("s1",)


def test_other_jobs_on_the_machine_are_named(case: Make) -> None:
    assert shared_machine(case(other_jobs={"m2": ("ads",)})).action is None
    assert shared_machine(case(other_jobs={"m1": ("llm",)})).action is None
    ruling = shared_machine(case(other_jobs={"m1": ("ads", "llm")}))
    assert (ruling.action, ruling.reason) == ("page", "shared_machine")
    assert "ads would die too" in ruling.say
    assert shared_machine(case(other_jobs={"m1": ("ads",)}, config=PolicyConfig(allow_shared_machines=True))).action is None


def test_a_dry_run_says_what_it_would_have_done(case: Make) -> None:
    ruling = dry_run(case(config=PolicyConfig()))
    assert (ruling.action, ruling.reason) == ("page", "dry_run")
    assert "would evict m1" in ruling.say
    assert dry_run(case()).action is None
