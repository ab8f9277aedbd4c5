"""The state of a climb, the trust in machines and the record of rules: all out of the ledger, for the next controller too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minder.model.decision import ActionResult, Decision, PassedOver
from minder.model.evidence import Failure, Verdict
from minder.model.history import RuleRecord
from minder.model.pairs import PairGraph, PairNode
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.ascent import ASCENT_KINDS, Step, fold_ascent
from minder.record.incidents.machines import MACHINE_KINDS, fold_machines, unfit_because
from minder.record.incidents.pairs import pairs_payload

NOW_S = 1_000.0


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.db") as opened:
        yield opened


def verdict(machine: str = "m1", *sources: str, **changes: Any) -> Verdict:
    failure = Failure(NOW_S, machine, (1,), "hang")
    plain = Verdict(NOW_S, "machine", "evict", (machine,), "stall", 0.9, NOW_S - 5.0, sources=sources or ("stall",), failures=(failure,))
    return replace(plain, **changes)


def act(
    ledger: Ledger, name: str, action: Any = "evict", machine: str = "m1", job: str = "llm", time_s: float = NOW_S, outcome: Any = "done",
    rung: Any = "", **changes: Any,
) -> str:  # fmt: skip
    """One operation with its incident; returns the incident. outcome "": it has no result."""
    said = verdict(machine, **changes)
    incident = ledger.open_incident(said, job=job, time_s=time_s)
    decision = Decision(name, time_s, action, (machine,), "act", "every stage passed", said, rung=rung, trouble="hang")
    ledger.append(kinds.DECISION, decision, job=job, incident=incident, operation_id=name, time_s=time_s)
    ledger.intend(name, decision, job=job, incident=incident, time_s=time_s)
    if outcome:
        ledger.complete(name, ActionResult(name, time_s, outcome, "its workers ended"))
    return incident


def climbs(ledger: Ledger, now_s: float = NOW_S + 100.0) -> list[tuple[str, str]]:
    return [(item.rung, item.outcome) for item in ledger.history("llm", now_s).climbs]


def test_a_climb_is_in_the_ledger_from_its_intent_on(ledger: Ledger) -> None:
    act(ledger, "restart-1", "restart", outcome="", rung="reattempt")
    assert climbs(ledger) == [("reattempt", "")]
    ledger.complete("restart-1", ActionResult("restart-1", NOW_S, "done"))
    assert climbs(ledger) == [("reattempt", "done")]
    ledger.append(kinds.PROGRESS, {"generation": 2, "steps": 100, "seconds": 5.0, "anew": False}, job="llm", time_s=NOW_S + 1.0)
    assert climbs(ledger) == [("reattempt", "held")]
    act(ledger, "trial-1", "trial", time_s=NOW_S + 2.0, rung="trial")
    assert climbs(ledger) == [("reattempt", "came back"), ("trial", "done")]
    assert climbs(ledger, NOW_S + 2 * 86_400.0) == [], "a day is remembered"
    with Ledger(ledger.location) as other:
        assert climbs(other) == climbs(ledger), "the next controller reads the same"


def test_another_machines_trouble_does_not_come_back_and_a_dry_run_is_no_climb(ledger: Ledger) -> None:
    act(ledger, "restart-1", "restart")
    act(ledger, "evict-2", machine="m7", time_s=NOW_S + 1.0, failures=(Failure(NOW_S, "m7", (7,), "hang"),))
    act(ledger, "evict-3", machine="m8", time_s=NOW_S + 2.0, outcome="dry_run", failures=(Failure(NOW_S, "m8", (8,), "hang"),))
    assert climbs(ledger) == [("reattempt", "done"), ("evict", "done")], "what a version without rungs wrote is read by its action"


def test_trust_is_of_the_ledger_not_of_one_job_and_a_passed_test_restores_it(ledger: Ledger) -> None:
    act(ledger, "evict-1")
    act(ledger, "evict-2", job="vision", time_s=NOW_S + 10.0)
    act(ledger, "evict-3", job="vision", time_s=NOW_S + 20.0, outcome="failed")
    assert ledger.history("speech", NOW_S).evicted_s == {"m1": (NOW_S, NOW_S + 10.0)}
    record = fold_machines(ledger.events(kinds=MACHINE_KINDS))["m1"]
    assert "evicted 2 times" in str(unfit_because(record, NOW_S + 30.0))
    assert unfit_because(record, NOW_S + 30 * 86_400.0) is None and unfit_because(record) is None
    retest(ledger, "retest-1", "failed")
    assert "failed" in str(unfit_because(fold_machines(ledger.events(kinds=MACHINE_KINDS))["m1"], NOW_S))
    retest(ledger, "retest-2", "done")
    assert ledger.history("llm", NOW_S).evicted_s == {}
    assert unfit_because(fold_machines(ledger.events(kinds=MACHINE_KINDS))["m1"], NOW_S) is None


def test_a_person_who_forces_a_return_vouches_for_the_machine(ledger: Ledger) -> None:
    act(ledger, "evict-1")
    ledger.append(kinds.UNBARRED, {"machine": "m1", "by": "ann"}, job="llm")
    assert ledger.history("llm", NOW_S).evicted_s == {"m1": (NOW_S,)}, "a plain return proves nothing"
    ledger.append(kinds.UNBARRED, {"machine": "m1", "by": "ann", "forced": "tested by hand"}, job="llm")
    assert ledger.history("llm", NOW_S).evicted_s == {}


def test_what_pair_tests_found_is_over_once_the_machine_is_given_back(ledger: Ledger) -> None:
    nodes = (PairNode("m1", "slow", "with m2 and m3"), PairNode("m2", "good", "with m3"))
    ledger.append(kinds.PAIRS, pairs_payload(PairGraph(nodes, (), None), by="ann", why="diagnose"), job="llm", time_s=NOW_S)
    assert set(ledger.history("llm", NOW_S).paired) == {"m1", "m2"}
    ledger.append(kinds.UNBARRED, {"machine": "m1", "by": "ann"}, job="other", time_s=NOW_S)
    assert set(ledger.history("llm", NOW_S).paired) == {"m2"}


def retest(ledger: Ledger, name: str, outcome: Any, untouched: bool = False, detail: str = "") -> None:
    asked = {"machine": "m1", "reason": "", "by": "ann"} | ({"untouched": True} if untouched else {})
    ledger.append(kinds.RETEST_ASKED, asked, job="llm", operation_id=name)
    ledger.intend(name, {"action": "retest", "machines": ["m1"]}, job="llm")
    ledger.complete(name, ActionResult(name, NOW_S, outcome, detail))


def outcome(ledger: Ledger, word: str, incident: str | None = None) -> None:
    ledger.append(kinds.OUTCOME, {"machine": "m1", "outcome": word, "by": "ann"}, job="llm", incident=incident, time_s=NOW_S + 50.0)


def counts(ledger: Ledger) -> dict[str, tuple[int, int, int]]:
    return {item.rule: (item.evictions, item.confirmed, item.no_fault_found) for item in ledger.history("llm", NOW_S).rules}


@pytest.mark.parametrize(
    ("result", "untouched", "detail", "expected"),
    [
        ("failed", False, "HBM bad", (1, 1, 0)),
        ("done", True, "", (1, 0, 1)),
        ("done", False, "", (1, 0, 0)),
        ("failed", True, "not tested: no agent", (1, 0, 0)),
    ],
)
def test_a_test_tells_whether_the_rule_was_right(
    ledger: Ledger, result: str, untouched: bool, detail: str, expected: tuple[int, int, int]
) -> None:
    """A pass says that the rule was wrong only of a machine that is as it was: where no order says so, it may have been repaired."""
    act(ledger, "evict-1")
    retest(ledger, "retest-1", result, untouched, detail)
    assert counts(ledger) == {"stall": expected}


def test_a_persons_word_goes_before_a_tests_and_the_newest_counts_once(ledger: Ledger) -> None:
    incident = act(ledger, "evict-1", sources=("stall", "captures"))
    outcome(ledger, "no-fault-found", incident)
    outcome(ledger, "confirmed", incident)
    retest(ledger, "retest-1", "done", untouched=True)
    assert counts(ledger) == {"stall": (1, 1, 0), "captures": (1, 1, 0)}
    assert ledger.history("llm", NOW_S).rules[0] == RuleRecord("captures", "evict", 1, (NOW_S + 50.0,))


def test_what_was_only_paged_is_judged_too_so_a_demoted_rule_can_come_back(ledger: Ledger) -> None:
    incident = ledger.open_incident(verdict(), job="llm", time_s=NOW_S)
    assert counts(ledger) == {}
    outcome(ledger, "confirmed", incident)
    assert counts(ledger) == {"stall": (0, 1, 0)}


def test_a_person_restores_a_rule_and_it_is_counted_anew(ledger: Ledger) -> None:
    outcome(ledger, "no-fault-found", act(ledger, "evict-1"))
    ledger.append(kinds.RULE_RESTORED, {"rule": "stall", "tier": "evict", "reason": "x", "by": "ann"}, time_s=NOW_S + 60.0)
    assert counts(ledger) == {"stall": (0, 0, 0)}
    assert ledger.history("llm", NOW_S).rules[0].restored_s == NOW_S + 60.0
    ledger.append(kinds.CLOSED, {"by": "ann"}, job="llm", incident="llm-1")
    outcome(ledger, "no-fault-found", act(ledger, "evict-2", time_s=NOW_S + 70.0))
    assert counts(ledger) == {"stall": (1, 0, 1)}


def test_the_climb_of_an_incident_is_told_rung_by_rung(ledger: Ledger) -> None:
    incident = act(ledger, "restart-1", "restart", rung="reattempt")
    passed = (PassedOver("reattempt", "used_up", "1 of 1"), PassedOver("diagnose", "not_available", "not here"))
    trial = Decision("trial-1", NOW_S + 5.0, "trial", ("m1",), "act", "tried", verdict(), rung="trial", passed_over=passed)
    for _ in range(2):  # decided again at the next tick
        ledger.append(kinds.DECISION, trial, job="llm", incident=incident, operation_id="trial-1", time_s=NOW_S + 5.0)
    ledger.intend("trial-1", trial, job="llm", incident=incident)
    page = replace(trial, operation_id="page-1", action="page", rung="page", reason="end_of_ladder", passed_over=())
    ledger.append(kinds.DECISION, page, job="llm", incident=incident, operation_id="page-1", time_s=NOW_S + 9.0)
    ledger.append(
        kinds.TRIAL_ENDED, {"machine": "m1", "finding": "did not come back"}, job="llm", incident=incident, operation_id="trial-1"
    )
    steps = fold_ascent(ledger.events(incident=incident, kinds=ASCENT_KINDS))
    assert [(step.rung, step.state) for step in steps] == [
        ("reattempt", "climbed"), ("reattempt", "passed over"), ("diagnose", "passed over"), ("trial", "climbed"), ("page", "person"),
    ]  # fmt: skip
    assert steps[0].outcome == "done: its workers ended"
    assert steps[3].outcome == "under way; the trial ended: did not come back"
    assert isinstance(steps[4], Step) and steps[4].reason == "end_of_ladder"


def fails(ledger: Ledger, machine: str, rank: int, time_s: float, fingerprint: str = "") -> None:
    failure = Failure(time_s, machine, (rank,), "hang", fingerprint=fingerprint)
    ledger.open_incident(verdict(machine, failures=(failure,)), job="llm", time_s=time_s)


def exchange(ledger: Ledger, name: str, machine: str, said: Verdict, time_s: float, started: bool = True) -> None:
    incident = ledger.open_incident(said, job="llm", time_s=time_s)
    trial = Decision(name, time_s, "trial", (machine,), "act", "a standby takes its ranks", said, replacements=("s0",))
    ledger.intend(name, trial, job="llm", incident=incident, time_s=time_s)
    if started:
        ledger.append(kinds.GENERATION_STARTED, {"rank_machine": {"1": "s0"}}, job="llm", operation_id=name, time_s=time_s)


@pytest.mark.parametrize(
    ("machine", "rank", "fingerprint", "started", "failed_s", "restarts"),
    [
        pytest.param("m3", 3, "", True, 20.0, 1, id="another machine and rank: another trouble, the trial put the first one right"),
        pytest.param("m3", 3, "", True, -500.0, 1, id="the same after the clock was set back"),
        pytest.param("s0", 1, "", True, 20.0, 3, id="the rank on the standby: it follows the rank"),
        pytest.param("m1", 3, "", True, 20.0, 3, id="the machine on trial, with other ranks"),
        pytest.param("m3", 3, "RuntimeError@a:b", True, 20.0, 3, id="another machine in the same way: the same trouble"),
        pytest.param("m3", 3, "KeyError@c:d", True, 20.0, 1, id="another machine in another way"),
        pytest.param("m3", 3, "", False, 20.0, 3, id="the exchange never came about"),
    ],
)
def test_a_trial_that_put_its_trouble_right_begins_the_count_of_restarts_anew(
    ledger: Ledger, machine: str, rank: int, fingerprint: str, started: bool, failed_s: float, restarts: int
) -> None:
    act(ledger, "restart-1", "restart")
    said = verdict("m1", failures=(Failure(NOW_S, "m1", (1,), "hang", fingerprint="RuntimeError@a:b"),))
    exchange(ledger, "trial-1", "m1", said, NOW_S + 10.0, started)
    assert ledger.history("llm", NOW_S + 11.0).restarts == 2
    fails(ledger, machine, rank, NOW_S + failed_s, fingerprint)
    act(ledger, "restart-2", "restart", machine, time_s=NOW_S + 21.0, failures=(Failure(NOW_S + 20.0, machine, (rank,), "hang"),))
    assert ledger.history("llm", NOW_S + 30.0).restarts == restarts


def test_a_failure_that_wanders_uses_up_the_restarts(ledger: Ledger) -> None:
    """On ever another machine, twice on each: every trial looks as if it had helped. Two of them are believed without progress."""
    counts = []
    for turn in range(5):
        machine, rank, time_s = f"m{turn}", turn, NOW_S + 100.0 * turn
        failure = Failure(time_s + 1.0, machine, (rank,), "hang")
        act(ledger, f"restart-{turn}", "restart", machine, time_s=time_s + 2.0, failures=(failure,))
        said = verdict(machine, failures=(replace(failure, time_s=time_s + 3.0, generation=turn + 1),))
        exchange(ledger, f"trial-{turn}", machine, said, time_s + 4.0)
        counts.append(ledger.history("llm", time_s + 5.0).restarts)
    assert counts == [2, 2, 2, 4, 6]


def test_a_trial_that_failed_tried_nothing(ledger: Ledger) -> None:
    exchange(ledger, "trial-1", "m1", verdict("m1"), NOW_S, started=False)
    assert [item.machine for item in ledger.history("llm", NOW_S + 1.0).trials] == ["m1"]
    ledger.complete("trial-1", ActionResult("trial-1", NOW_S + 2.0, "failed", "its launcher did not answer"))
    assert ledger.history("llm", NOW_S + 3.0).trials == ()
