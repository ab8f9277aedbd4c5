from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.act.policy import Policy, PolicyConfig
from minder.act.policy.approval import answered, awaits_answer, restart_waits
from minder.model.decision import Decision
from minder.model.errors import ConfigError
from minder.model.evidence import Evidence
from minder.model.history import Approval, History

Make = Callable[..., Any]


@pytest.fixture
def question(accuse: Make, context: Any) -> Make:
    """question("m1", state="rejected", ...): asked ten seconds ago, about the present generation."""

    def make(*machines: str, cause: str = "stall", **changes: Any) -> Approval:
        verdict = accuse(*machines, cause=cause)
        decision = Decision("evict-then", context.now_s - 10, "evict", machines, "act", "", verdict)
        plain = Approval(decision, "llm", ("llm-1",), 1, context.now_s - 10, context.now_s + 600)
        return replace(plain, **changes)

    return make


def test_a_trouble_that_somebody_is_asked_about_is_not_asked_about_again(case: Make, accuse: Make, question: Make) -> None:
    for state in ("waiting", "approved"):
        history = History(approvals=(question("m1", state=state),))
        assert answered(case(accuse("m1"), history=history)).reason == "awaiting_approval"
        assert answered(case(accuse("m2"), history=history)).action is None
    elsewhere = History(approvals=(question("m1", generation=0),))
    assert answered(case(accuse("m1"), history=elsewhere)).action is None


def test_an_answer_holds_for_what_began_before_it(case: Make, accuse: Make, question: Make, context: Any) -> None:
    said = {"settled_s": context.now_s - 5, "by": "alice", "note": "firmware"}
    no = History(approvals=(question("m1", state="rejected", **said),))
    ruling = answered(case(accuse("m1"), history=no))
    assert (ruling.action, ruling.reason) == ("none", "approval_rejected") and "alice" in ruling.say and "firmware" in ruling.say
    assert answered(case(accuse("m1", since_s=context.now_s - 1), history=no)).action is None
    silence = History(approvals=(question("m1", state="expired", why="timeout", **said),))
    assert answered(case(accuse("m1"), history=silence)).reason == "approval_timeout"
    recovered = History(approvals=(question("m1", state="expired", why="recovered", **said),))
    assert answered(case(accuse("m1"), history=recovered)).action is None


def test_only_its_own_approval_lets_an_eviction_pass(case: Make, accuse: Make, question: Make) -> None:
    yes = question("m1", state="approved", by="alice")
    own = replace(yes, decision=replace(yes.decision, operation_id="evict-now"))
    assert "approved by alice" in answered(case(accuse("m1"), history=History(approvals=(own,)))).say
    assert answered(case(accuse("m1"), history=History(approvals=(yes,)))).reason == "awaiting_approval"
    asks = PolicyConfig(approval="required")
    assert awaits_answer(own.decision, History(), asks) and not awaits_answer(own.decision, History(approvals=(own,)), asks)
    assert not awaits_answer(own.decision, History(), PolicyConfig())
    assert not awaits_answer(replace(own.decision, action="restart"), History(), asks)


def test_an_operators_order_needs_no_second_operator(case: Make, accuse: Make, question: Make) -> None:
    ordered = accuse("m1", cause="explicit", evidence=(Evidence("order", "m1", "an operator orders its eviction: alice: fan"),))
    waiting = History(approvals=(question("m1", state="waiting"),))
    assert answered(case(ordered, history=waiting)).action is None
    decision = Decision("evict-now", 1.0, "evict", ("m1",), "act", "", ordered)
    assert not awaits_answer(decision, History(), PolicyConfig(approval="required"))
    both = replace(ordered, machines=("m1", "m2"), kind="group")
    assert awaits_answer(replace(decision, verdict=both), History(), PolicyConfig(approval="required"))


def test_a_job_that_stands_waits_for_the_answer_and_a_slow_one_does_not(case: Make, accuse: Make, question: Make) -> None:
    job = replace(accuse(), kind="job", machines=())
    for cause, reason in (("stall", "awaiting_approval"), ("explicit", "awaiting_approval"), ("slowdown", "act")):
        assert restart_waits(case(job, action="restart", history=History(approvals=(question("m1", cause=cause),)))).reason == reason


def test_dead_workers_are_not_started_beside_an_open_question_and_are_after_a_no(
    accuse: Make, question: Make, context: Any, live: PolicyConfig
) -> None:
    policy, dead = Policy(replace(live, approval="required")), replace(context, workers_dead=True)
    open_ = History(approvals=(question("m1"),))
    assert [item.action for item in policy.decide([accuse("m1")], open_, dead)] == ["none"]
    no = History(approvals=(question("m1", state="rejected", settled_s=context.now_s),))
    assert [(item.action, item.reason) for item in policy.decide([accuse("m1")], no, dead)] == [
        ("restart", "act"),
        ("none", "approval_rejected"),
    ]


@pytest.mark.parametrize("values", [{"approval": "maybe"}, {"approval_on_timeout": "ask"}, {"approval_timeout_s": -1}, {"approval": None}])
def test_a_rule_that_makes_no_sense_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(values))):
        PolicyConfig.from_mapping(values)
