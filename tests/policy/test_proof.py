"""What pair tests make of a suspicion, and when a slow machine may go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.act.policy import Policy, PolicyConfig, PolicyContext
from minder.act.policy.ladder import OFFERED, WITH_LAUNCHERS
from minder.act.policy.proof import weigh
from minder.model.decision import Climb, Decision
from minder.model.evidence import Evidence, Verdict
from minder.model.history import History
from minder.model.pairs import NodeState, PairWord

NOW_S = 10_000.0
Accuse = Callable[..., Verdict]


def word(machine: str, state: NodeState = "good", ago_s: float = 100.0, peers: tuple[str, ...] = ()) -> PairWord:
    return PairWord(NOW_S - ago_s, machine, state, f"{machine} is {state}", peers)


def paired(*words: PairWord) -> History:
    return History(paired={item.machine: item for item in words})


ALL_GOOD = [word("m1"), word("m2"), word("m3")]
M2_SLOW = [word("m1"), word("m2", "slow"), word("m3")]
A_LINK = [word("m1", peers=("m3",)), word("m2"), word("m3", peers=("m1",))]


@pytest.mark.parametrize(
    ("named", "tier", "cause", "words", "wanted", "machines"),
    [
        pytest.param(("m2",), "page", "slowdown", M2_SLOW, "evict", ("m2",), id="a page is lifted"),
        pytest.param(("m2",), "watch", "slowdown", M2_SLOW, "evict", ("m2",), id="what was only noted, too"),
        pytest.param(("m2",), "page", "stall", [word("m1"), word("m2", "faulty")], "evict", ("m2",), id="a hang"),
        pytest.param(("m1", "m2"), "page", "slowdown", M2_SLOW, "evict", ("m2",), id="one machine of a group"),
        pytest.param(("m1",), "evict", "slowdown", M2_SLOW, "page", ("m1",), id="another machine is slow"),
        pytest.param(("m2",), "evict", "slowdown", A_LINK, "page", ("m2",), id="a link is slow"),
        pytest.param(("m1",), "watch", "slowdown", M2_SLOW, "watch", ("m1",), id="no more than it was"),
        pytest.param(("m1",), "evict", "slowdown", ALL_GOOD, "evict", ("m1",), id="a slow processor shows in no exchange"),
        pytest.param(("m7",), "evict", "slowdown", M2_SLOW, "evict", ("m7",), id="it was not tested"),
        pytest.param(("m2",), "page", "slowdown", [word("m2", "slow", 3700.0)], "page", ("m2",), id="too long ago"),
        pytest.param(("m2",), "page", "numeric", M2_SLOW, "page", ("m2",), id="slowness explains no wrong number"),
    ],
)
def test_pair_tests_weigh_a_suspicion(
    accuse: Accuse, named: tuple[str, ...], tier: str, cause: str, words: list[PairWord], wanted: str, machines: tuple[str, ...]
) -> None:
    verdict = accuse(*named, tier=tier, cause=cause, sources=("telemetry",))
    found = weigh(verdict, paired(*words), NOW_S)
    assert (found.tier, found.machines) == (wanted, machines)
    if (wanted, machines) == (tier, named):
        assert found is verdict or found.against, "nothing changed, or it says what speaks against it"
    elif wanted == "evict":
        assert found.sources[-1] == "pairs" and found.evidence[0].message == f"pair tests: {machines[0]} is {words[1].state}"
    else:
        assert any("m2" in item.message or "m1 and m3" in item.message for item in found.against)


def test_what_if_that_names_the_worker_is_not_outdone_by_a_slow_link_elsewhere(accuse: Accuse) -> None:
    verdict = accuse("m2", cause="slowdown", evidence=(Evidence("whatif", "m2", "its worker"),))
    assert weigh(verdict, paired(*A_LINK), NOW_S) is verdict


def decide(verdict: Verdict, context: PolicyContext, history: History | None = None, **ladder: Any) -> Decision:
    found = replace(context, offers=OFFERED | WITH_LAUNCHERS)
    return Policy(PolicyConfig(dry_run=False, breaker_share=0.5, ladder=ladder)).decide([verdict], history or History(), found)[0]  # type: ignore[arg-type]


def passed(decision: Decision) -> list[tuple[str, str]]:
    return [(item.rung, item.reason) for item in decision.passed_over]


def test_the_site_says_whether_a_slow_machine_needs_a_proof(accuse: Accuse, context: PolicyContext) -> None:
    verdict = accuse("m1", cause="slowdown", sources=("slowdown", "telemetry"))
    assert decide(verdict, context).rung == "evict"
    assert decide(verdict, context, slow_machines="prove").rung == "diagnose"
    assert decide(verdict, context, slow_machines="prove", order="published").rung == "diagnose"


@pytest.mark.parametrize("proof", ["whatif", "pairs", "probes", "evidence"])
def test_what_is_proven_goes_without_another_test(accuse: Accuse, context: PolicyContext, proof: str) -> None:
    evidence = (Evidence("whatif", "m1", "its worker"),) if proof == "evidence" else ()
    verdict = accuse("m1", cause="slowdown", sources=("telemetry", proof), evidence=evidence)
    found = decide(verdict, context, slow_machines="prove")
    assert (found.rung, found.machines, passed(found)) == ("evict", ("m1",), [("diagnose", "not_available")])


def test_a_slow_machine_that_the_tests_did_not_name_is_a_persons(accuse: Accuse, context: PolicyContext) -> None:
    verdict = accuse("m1", cause="slowdown", sources=("telemetry",))
    climb = Climb("diagnose", NOW_S - 300, "diagnose-1", trouble="slow", outcome="done", finding="all tests passed", suspects=("m1",))
    found = decide(verdict, context, History(climbs=(climb,)), slow_machines="prove")
    assert (found.action, found.reason) == ("page", "unproven") and "all tests passed" in found.detail
    assert passed(found) == [("diagnose", "used_up"), ("evict", "unproven")] and "all tests passed" in found.passed_over[0].detail
    other = decide(accuse("m2", cause="slowdown"), context, History(climbs=(climb,)), slow_machines="prove")
    assert other.rung == "diagnose", "another machine was not tested for it"
    unable = replace(context, offers=OFFERED)
    found = Policy(PolicyConfig(dry_run=False, ladder={"slow_machines": "prove"})).decide([verdict], History(), unable)[0]  # type: ignore[arg-type]
    assert found.action == "page" and passed(found) == [("diagnose", "not_available"), ("evict", "unproven")]


def test_other_troubles_ask_for_no_proof(accuse: Accuse, context: PolicyContext) -> None:
    for cause in ("explicit", "absence", "stall"):
        assert decide(accuse("m1", cause=cause), context, slow_machines="prove").rung == "evict"
