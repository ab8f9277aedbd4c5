"""Trust in rules, in machines, and in a failure that comes back wherever the code runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from minder.act.policy import Policy, PolicyConfig, PolicyContext
from minder.act.policy.beta import rate_of
from minder.act.policy.describe import rule_json, rule_rows
from minder.act.policy.trust import distrusted, standing_of
from minder.model.evidence import Failure, Verdict
from minder.model.history import History, RuleRecord
from minder.model.share import beta_quantile

NOW_S, DAY_S = 10_000.0, 86_400.0
Accuse = Callable[..., Verdict]
LIVE = PolicyConfig(dry_run=False, breaker_share=0.5)


def wrong(rule: str, times: int, right: int = 0, tier: str = "evict") -> RuleRecord:
    """Right first, then wrong, a minute each, the last one at NOW_S."""
    times_s = tuple(NOW_S - 60.0 * count for count in range(times + right - 1, -1, -1))
    return RuleRecord(rule, tier, times + right, times_s[:right], times_s[right:])


@pytest.mark.parametrize(
    ("a", "b", "share", "expected"),
    [(0.5, 0.5, 0.5, 0.5), (1.0, 1.0, 0.975, 0.975), (2.0, 1.0, 0.25, 0.5), (0.5, 4.5, 0.975, 0.4447), (10.5, 0.5, 0.025, 0.7828)],
)
def test_the_quantiles_are_those_of_the_beta_distribution(a: float, b: float, share: float, expected: float) -> None:
    assert beta_quantile(a, b, share) == pytest.approx(expected, abs=2e-3)


def test_a_rule_of_which_nothing_is_known_evicts() -> None:
    assert rate_of(0, 0).high > 0.99 and not standing_of(RuleRecord("stall", "evict"), 0.5).demoted


@pytest.mark.parametrize(("no", "yes", "demoted"), [(3, 0, False), (4, 0, True), (7, 1, True), (4, 3, False)])
def test_a_rule_is_demoted_when_the_upper_bound_falls_below_its_threshold(no: int, yes: int, demoted: bool) -> None:
    assert standing_of(wrong("slowdown", no, yes), 0.5).demoted is demoted


def test_a_demoted_rule_pages_and_says_why(context: PolicyContext, accuse: Accuse) -> None:
    history = History(rules=(wrong("slowdown", 5),))
    (decision,) = Policy(LIVE).decide(
        [accuse("m1", cause="slowdown", sources=("slowdown",))], history, replace(context, speed_lost_share=0.5)
    )
    assert (decision.action, decision.reason) == ("page", "rule_demoted")
    assert "0 of 5" in decision.detail and "minder policy restore" in decision.detail


@pytest.mark.parametrize("sources", [("slowdown", "stall"), ("order", "slowdown")])
def test_a_demoted_rule_with_a_witness_and_a_persons_order_evict_as_ever(
    context: PolicyContext, accuse: Accuse, sources: tuple[str, ...]
) -> None:
    history = History(rules=(wrong("slowdown", 5), wrong("order", 5)))
    assert Policy(LIVE).decide([accuse("m1", sources=sources)], history, context)[0].action == "evict"


def test_what_a_rule_said_at_another_tier_and_a_threshold_of_zero_demote_nothing(context: PolicyContext, accuse: Accuse) -> None:
    paged = History(rules=(wrong("slowdown", 9, tier="page"),))
    assert Policy(LIVE).decide([accuse("m1", sources=("slowdown",))], paged, context)[0].action == "evict"
    never = replace(LIVE, ladder={"demote_below": 0.0})  # type: ignore[arg-type]
    assert Policy(never).decide([accuse("m1", sources=("slowdown",))], History(rules=(wrong("slowdown", 9),)), context)[0].action == "evict"


def test_the_table_of_rules_has_the_interval_and_since_when() -> None:
    row = rule_json([wrong("slowdown", 5)], LIVE)[0]
    assert row["demoted"] and row["demoted_since"].startswith("1970-01-01T02:45:40"), "with the fourth of the five"
    assert 0 <= row["low"] < row["confirmed_rate"] < row["high"] < 0.5
    assert rule_rows([wrong("slowdown", 5)], LIVE)[1][-1].startswith("demoted to page since")


def test_a_machine_evicted_twice_in_a_window_takes_no_place(context: PolicyContext, accuse: Accuse) -> None:
    history = History(evicted_s={"s0": (NOW_S - DAY_S, NOW_S - 2 * DAY_S), "s1": (NOW_S - DAY_S, NOW_S - 30 * DAY_S)})
    assert set(distrusted(history, LIVE, NOW_S)) == {"s0"}
    assert Policy(LIVE).decide([accuse("m1")], history, context)[0].replacements == ("s1",)
    (page,) = Policy(LIVE).decide([accuse("m1")], history, replace(context, standbys_ready=("s0",)))
    assert page.reason == "no_standby" and "s0 was evicted 2 times within 7 days and has passed no test since" in page.detail


def test_neither_does_it_take_anothers_ranks_on_trial(context: PolicyContext) -> None:
    failure = Failure(9_990.0, "m1", (1,), "nonfinite")
    nan = Verdict(9_995.0, "job", "evict", (), "numeric", 0.9, 9_990.0, failures=(failure,))
    job = replace(context.job, rank_machine={rank: f"m{rank}" for rank in range(3)}, machines=("m0", "m1", "m2"))
    history = History(evicted_s={"m0": (NOW_S - 60.0, NOW_S - 50.0)})
    around = replace(context, job=job, standbys_ready=(), workers_dead=True)
    assert Policy(LIVE).decide([nan], history, around)[0].replacements == ("m2",)


def same(machine: str, ago_s: float = 0.0, version: str = "v1", print_: str = "OSError|EIO|train:load") -> Failure:
    return Failure(NOW_S - ago_s, machine, (1,), "crash", "machine", print_, code_version=version)


@pytest.mark.parametrize(
    ("past", "action", "reason"),
    [
        ((same("m5", 60.0), same("m6", 90.0)), "page", "everywhere"),
        ((same("m5", 60.0),), "evict", "act"),
        ((same("m5", 60.0), same("m6", 90.0, version="v0")), "evict", "act"),
        ((same("m5", 60.0, print_=""), same("m6", 90.0, print_="")), "evict", "act"),
    ],
)
def test_what_the_same_code_does_on_machine_after_machine_evicts_none(
    context: PolicyContext, accuse: Accuse, past: tuple[Failure, ...], action: str, reason: str
) -> None:
    own = accuse("m1", cause="explicit", sources=("crash",), failures=(same("m1"),))
    decision = Policy(LIVE).decide([own], History(failures=past), context)[0]
    assert (decision.action, decision.reason) == (action, reason)


def test_in_a_small_job_all_its_machines_are_enough_and_a_persons_order_is_obeyed(context: PolicyContext, accuse: Accuse) -> None:
    small = replace(context, job=replace(context.job, machines=("m0", "m1")))
    own = accuse("m1", cause="explicit", sources=("crash",), failures=(same("m1"),))
    history = History(failures=(same("m0", 60.0),))
    assert Policy(LIVE).decide([own], history, small)[0].reason == "everywhere"
    assert Policy(LIVE).decide([replace(own, sources=("order",))], history, small)[0].action == "evict"
