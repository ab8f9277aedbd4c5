"""The ladder as data: which rung a trouble is on, what is passed over and why, and what a configuration may say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.act.policy import Policy, PolicyConfig, PolicyContext
from minder.act.policy.describe import ladder_json, ladder_rows
from minder.act.policy.ladder import OFFERED, TROUBLES, WITH_LAUNCHERS
from minder.model.decision import Climb, Decision
from minder.model.errors import ConfigError
from minder.model.evidence import Evidence, Failure, Verdict
from minder.model.history import History, PastEviction, Pause

NOW_S, START_S = 10_000.0, 9_000.0
Accuse = Callable[..., Verdict]


def fail(machine: str = "m1", rank: int = 1, ago_s: float = 0.0, **changes: Any) -> Failure:
    """ago_s: before the running generation began; 0: now."""
    time_s, generation = (START_S - ago_s, 2) if ago_s else (9_990.0, 3)
    return replace(Failure(time_s, machine, (rank,), "crash", step=50, generation=generation, text="ended by SIGKILL"), **changes)


def crash(*failures: Failure) -> Verdict:
    return Verdict(9_995.0, "job", "evict", (), "explicit", 0.6, 9_990.0, sources=("crash",), failures=failures)


@pytest.fixture
def running(context: PolicyContext) -> PolicyContext:
    """m0 to m3 with a rank each, generation 3 since START_S, its workers dead."""
    job = replace(context.job, generation=3, generation_start_s=START_S, rank_machine={rank: f"m{rank}" for rank in range(4)})
    return replace(context, job=replace(job, machines=("m0", "m1", "m2", "m3")), workers_dead=True)


def decide(verdict: Verdict, history: History, context: PolicyContext, **ladder: Any) -> Decision:
    policy = Policy(PolicyConfig(dry_run=False, ladder=ladder))  # type: ignore[arg-type]
    return policy.decide([verdict], history, context)[0]


def passed(decision: Decision) -> list[tuple[str, str]]:
    return [(item.rung, item.reason) for item in decision.passed_over]


def test_an_unknown_failure_climbs_from_restart_to_trial_and_says_what_it_passes_over(running: PolicyContext) -> None:
    first = decide(crash(fail()), History(), running)
    assert (first.rung, first.action, first.trouble) == ("reattempt", "restart", "unknown")
    assert passed(first) == [("probes", "not_available")] and first.price is not None
    second = decide(crash(fail()), History(failures=(fail(ago_s=60.0),)), running)
    assert (second.rung, second.action, second.machines) == ("trial", "trial", ("m1",))
    before = [("reattempt", "used_up"), ("rollback", "not_available"), ("diagnose", "not_available")]
    assert passed(second) == before and second.price is not None


def test_probes_run_beside_the_restart_where_they_are_offered(running: PolicyContext) -> None:
    decision = decide(crash(fail()), History(), replace(running, offers=OFFERED | {"probes"}))
    assert decision.beside == ("probes",) and decision.passed_over == ()


def test_the_second_unknown_failure_is_diagnosed_where_launchers_run_probes(running: PolicyContext) -> None:
    offered, past = replace(running, offers=OFFERED | WITH_LAUNCHERS), History(failures=(fail(ago_s=60.0),))
    decision = decide(crash(fail()), past, offered)
    assert (decision.rung, decision.action, decision.machines, decision.reason) == ("diagnose", "diagnose", (), "act")
    assert decision.price is not None and decision.price.acting_gpu_s >= PolicyConfig().diagnose_limit_s
    assert decide(crash(fail(sort="nonfinite")), History(), offered).rung == "diagnose", "a NaN is not tried again first"
    climbed = Climb("diagnose", NOW_S - 30.0, "diagnose-1", failures=(fail(),), outcome="done", finding="all tests passed on 4 machines")
    after = decide(crash(fail()), replace(past, climbs=(climbed,)), offered)
    assert after.rung == "trial"
    assert next(item.detail for item in after.passed_over if item.rung == "diagnose").endswith(": all tests passed on 4 machines")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"config": {"dry_run": True}}, "dry_run"),
        ({"config": {"max_restarts": 0}}, "max_restarts"),
        ({"history": {"pauses": (Pause("all", None, NOW_S + 60.0, "a look"),)}}, "paused"),
        ({"history": {"actions": (PastEviction(NOW_S - 20.0, "llm", (), "diagnose", "diagnose-1", False),)}}, "already_in_progress"),
    ],
)
def test_what_stops_a_diagnosis(running: PolicyContext, change: dict[str, Any], reason: str) -> None:
    history = replace(History(failures=(fail(ago_s=60.0),)), **change.get("history", {}))
    policy = Policy(PolicyConfig(**{"dry_run": False, **change.get("config", {})}))
    found = policy.decide([crash(fail())], history, replace(running, offers=OFFERED | WITH_LAUNCHERS))
    assert reason in [item.reason for item in found] and "diagnose" not in [item.action for item in found]


def test_a_diagnosis_waits_for_an_eviction_and_is_asked_again_just_before_it_begins(running: PolicyContext, accuse: Accuse) -> None:
    offered, past = replace(running, offers=OFFERED | WITH_LAUNCHERS), History(failures=(fail(ago_s=60.0),))
    policy = Policy(PolicyConfig(dry_run=False, breaker_share=0.5))
    evict, waits = policy.decide([crash(fail()), accuse("m2", cause="explicit", sources=("signals",))], past, offered)
    assert (evict.action, waits.rung, waits.reason) == ("evict", "diagnose", "already_in_progress")
    decision = decide(crash(fail()), past, offered)
    paused = replace(past, pauses=(Pause("all", None, NOW_S + 60.0, "a look"),))
    assert policy.recheck(decision, past, offered).action == "diagnose"
    assert policy.recheck(decision, paused, offered).reason == "paused"


def test_where_ranks_are_fixed_every_rung_is_passed_over_and_a_person_is_called(running: PolicyContext) -> None:
    history, fixed = History(failures=(fail(ago_s=60.0),)), replace(running, ranks_fixed="checkpoints are local")
    restart, page = Policy(PolicyConfig(dry_run=False)).decide([crash(fail())], history, fixed)
    assert (page.action, page.rung, page.reason) == ("page", "page", "no_trial")
    assert passed(page)[1:] == [
        ("rollback", "not_available"),
        ("diagnose", "not_available"),
        ("trial", "no_trial"),
        ("replay", "not_available"),
    ]
    assert (restart.action, restart.rung) == ("restart", "reattempt"), "the job does not wait for the person"


def test_the_published_order_restarts_where_the_default_tries_a_swap(running: PolicyContext) -> None:
    nan = crash(fail(sort="nonfinite"))
    assert decide(nan, History(), running).rung == "trial"
    published = decide(nan, History(), running, order="published")
    assert (published.rung, passed(published)) == ("reattempt", [("diagnose", "not_available")])
    again = decide(nan, History(failures=(fail(sort="nonfinite", ago_s=60.0),)), running, order="published")
    assert again.rung == "reattempt" and again.trouble == "standstill", "nothing is left but a person; the job goes on meanwhile"


def test_a_rung_with_a_count_is_used_up_by_what_the_ledger_says_was_climbed(running: PolicyContext) -> None:
    own = [{"rung": "trial", "on": ["unknown"], "times": 1}]
    before = Climb("trial", 9_500.0, "trial-1", ("m1",), "unknown", outcome="came back", failures=(fail(ago_s=60.0),))
    assert decide(crash(fail()), History(), running, rungs=own).rung == "trial"
    decisions = Policy(PolicyConfig(dry_run=False, ladder={"rungs": own})).decide(  # type: ignore[arg-type]
        [crash(fail())], History(climbs=(before,)), running
    )
    page = next(item for item in decisions if item.action == "page")
    assert (page.reason, passed(page), page.climbed) == ("end_of_ladder", [("trial", "used_up")], (before,))
    other = replace(before, failures=(fail("m3", 3, ago_s=60.0),))
    assert decide(crash(fail()), History(climbs=(other,)), running, rungs=own).rung == "trial", "another machine's trouble"
    old = replace(before, time_s=100.0)
    assert decide(crash(fail()), History(climbs=(old,)), running, rungs=own, window_s=3600.0).rung == "trial", "out of the window"


def test_two_alerts_of_a_network_page_unless_the_site_wants_them_evicted(context: PolicyContext) -> None:
    evidence = (Evidence("link", "m1", "2 flaps of eth0 in 90 s"),)
    alert = Verdict(NOW_S, "machine", "page", ("m1",), "explicit", 0.7, NOW_S - 10, evidence, sources=("signals",))
    paged = decide(alert, History(), context)
    assert (paged.action, paged.reason, paged.trouble) == ("page", "tier_too_low", "network")
    evicted = decide(alert, History(), context, network_alerts="evict")
    assert (evicted.action, evicted.rung, evicted.machines) == ("evict", "evict", ("m1",))
    policy = Policy(PolicyConfig(dry_run=False, ladder={"network_alerts": "evict"}))  # type: ignore[arg-type]
    assert policy.recheck(evicted, History(), context).action == "evict"
    mixed = replace(alert, evidence=(*evidence, Evidence("xid", "m1", "Xid 45")))
    assert decide(mixed, History(), context, network_alerts="evict").action == "page", "more than links speaks: its own tier holds"


def test_a_group_is_evicted_as_one_and_a_machine_by_itself(context: PolicyContext, accuse: Accuse) -> None:
    config = PolicyConfig(dry_run=False, breaker_share=0.5)
    group, single = (Policy(config).decide([accuse(*names)], History(), context)[0] for names in (("m1", "m2"), ("m1",)))
    assert (group.rung, group.action) == ("over_evict", "evict")
    assert (single.rung, single.action, single.passed_over) == ("evict", "evict", ())


def test_the_highest_rank_acts_and_two_incidents_are_one_plan(running: PolicyContext, accuse: Accuse) -> None:
    trial = crash(fail("m2", 2))
    verdicts = [trial, accuse("m1", sources=("signals",)), crash(fail("m3", 3))]
    history = History(failures=(fail("m2", 2, ago_s=60.0),))
    decisions = Policy(PolicyConfig(dry_run=False)).decide(verdicts, history, running)
    acting = [item for item in decisions if item.action in ("evict", "trial", "restart")]
    assert [(item.action, item.machines) for item in acting] == [("evict", ("m1",))]
    waiting = [item for item in decisions if item.action == "none"]
    assert len(waiting) == 2 and all(acting[0].operation_id in item.detail for item in waiting)


def test_a_sites_own_ladder_decides_which_rank_goes_first(running: PolicyContext, accuse: Accuse) -> None:
    own = [{"rung": "evict", "on": ["machine", "hang"]}, {"rung": "trial", "on": ["unknown"]}]
    policy = Policy(PolicyConfig(dry_run=False, breaker_share=0.5, ladder={"rungs": own}))  # type: ignore[arg-type]
    decisions = policy.decide([crash(fail("m2", 2)), accuse("m1")], History(), running)
    assert [(item.action, item.reason) for item in decisions] == [("trial", "act"), ("none", "already_in_progress")]


def test_a_rung_for_a_machine_is_passed_over_where_none_or_several_are_named(context: PolicyContext, accuse: Accuse) -> None:
    own = [{"rung": "trial", "on": ["standstill", "hang"]}, {"rung": "evict", "on": ["standstill", "hang"]}]
    stands = decide(accuse(kind="job", sources=("hang",)), History(), context, rungs=own)
    assert (stands.action, stands.reason) == ("page", "no_machine_to_blame")
    assert passed(stands) == [("trial", "no_machine_to_blame"), ("evict", "no_machine_to_blame")]
    group = decide(
        accuse("m1", "m2"), History(), replace(context, job=replace(context.job, machines=tuple(f"m{n}" for n in range(16)))), rungs=own
    )
    assert (group.action, group.rung, passed(group)) == ("evict", "evict", [("trial", "no_trial")])


def test_evidence_that_contradicts_itself_is_for_a_person_and_says_so(context: PolicyContext, accuse: Accuse) -> None:
    against = (Evidence("stacks", "m4", "stands elsewhere"),)
    decision = decide(accuse("m1", tier="page", against=against), History(), context)
    assert (decision.action, decision.reason) == ("page", "contradiction") and "m4" in decision.detail


@pytest.mark.parametrize(
    ("ladder", "said"),
    [
        ({"ordre": "default"}, "policy.ladder.ordre is not a setting: use one of order"),
        ({"order": "mine"}, "policy.ladder.order: Input should be 'default' or 'published'"),
        ({"rungs": [{"rung": "reboot", "on": ["nan"]}]}, "policy.ladder.rungs.0.rung"),
        ({"rungs": [{"rung": "trial", "on": ["nan"], "time": 1}]}, "policy.ladder.rungs.0.time is not a setting: use one of rung"),
        ({"rungs": [{"rung": "page", "on": ["nan"]}]}, 'rung "page" is the last one of every ladder'),
        ({"rungs": [{"rung": "trial", "on": ["nan"]}, {"rung": "trial", "on": ["nan"]}]}, 'rung "trial" stands twice for "nan"'),
        ({"order": "published", "rungs": []}, "rungs and order exclude each other"),
        ({"window_s": 90_000.0}, "policy.ladder.window_s"),
        ("default", "give a table, such as [policy.ladder]"),
    ],
)
def test_what_cannot_be_a_ladder_is_one_clear_line(ladder: Any, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        PolicyConfig.from_mapping({"ladder": ladder})
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("order", ["default", "published"])
def test_every_trouble_ends_with_a_person(order: str) -> None:
    config = PolicyConfig(ladder={"order": order})  # type: ignore[arg-type]
    for trouble in TROUBLES:
        climb = config.ladder.climb(trouble)
        ranks = [rank for rank, _ in climb]
        assert climb[-1][1].rung == "page" and ranks == sorted(ranks)


def test_the_table_shows_what_is_not_available_and_where_network_alerts_lead() -> None:
    rows = ladder_rows(PolicyConfig())
    assert rows[0][:2] == ("rank", "rung") and rows[-1][1] == "page"
    assert {row[1] for row in rows if row[-1] == "not available"} == set()
    assert {row[1] for row in rows if "rollback =" in row[-1]} == {"rollback"}
    assert {row[-1] for row in ladder_rows(PolicyConfig(rollback="auto")) if row[1] == "rollback"} == {"with updates"}
    assert {row[1] for row in rows if row[-1] == "with launchers"} == {"diagnose", "replay"}
    assert [row[-1] for row in rows if "beside it" in row[2]] == ["yes; probes with launchers"]
    assert rows[1][4] == "1 for one trouble, once it came back" and rows[-1][4] == "always"
    climbs = {item["trouble"]: item["climb"] for item in ladder_json(PolicyConfig())["troubles"]}
    assert climbs["network"] == ["page"] and climbs["nan"] == ["diagnose", "trial", "rollback", "replay", "page"]
    own = ladder_json(PolicyConfig(ladder={"network_alerts": "evict"}))  # type: ignore[arg-type]
    assert next(item for item in own["rungs"] if item["rung"] == "evict")["on"] == ["machine", "network", "hang", "slow"]
