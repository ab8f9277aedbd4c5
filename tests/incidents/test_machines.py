from __future__ import annotations

from minder.model.decision import ActionResult
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.machines import MACHINE_KINDS, fold_machines, unfit_because


def test_a_machine_is_known_by_its_evictions_bars_and_outcomes(ledger: Ledger, recovered_incident: str) -> None:
    ledger.intend("evict-2", {"action": "evict", "machines": ["m7"]}, job="llm", incident="llm-2")
    ledger.complete("evict-2", ActionResult("evict-2", 5.0, "failed"))
    records = fold_machines(ledger.events(kinds=MACHINE_KINDS))
    assert set(records) == {"m2"}, "an eviction that failed made nobody a former machine"
    found = records["m2"]
    assert (found.evictions, found.last_eviction_s, found.incident, found.job) == (1, 1013.0, "llm-1", "llm")
    assert (found.barred_in, found.outcome) == (("llm",), None)
    ledger.append(kinds.UNBARRED, {"machine": "m2"})
    ledger.append(kinds.OUTCOME, {"machine": "m2", "outcome": "confirmed"}, job="llm", incident="llm-1")
    found = fold_machines(ledger.events(kinds=MACHINE_KINDS))["m2"]
    assert (found.barred_in, found.outcome) == ((), "confirmed")


def test_an_outcome_belongs_to_the_eviction_before_it(ledger: Ledger, recovered_incident: str) -> None:
    ledger.append(kinds.OUTCOME, {"machine": "m2", "outcome": "confirmed"}, job="llm", incident="llm-1")
    ledger.intend("evict-2", {"action": "evict", "machines": ["m2"]}, job="llm", incident="llm-2")
    ledger.complete("evict-2", ActionResult("evict-2", 5.0, "done"))
    found = fold_machines(ledger.events(kinds=MACHINE_KINDS))["m2"]
    assert (found.evictions, found.incident, found.outcome) == (2, "llm-2", None)


def test_a_machine_barred_from_every_job_says_so(ledger: Ledger) -> None:
    ledger.append(kinds.BARRED, {"machine": "m9", "reason": "smells"})
    ledger.append(kinds.BARRED, {"machine": "m1"}, job="llm")
    records = fold_machines(ledger.events(kinds=MACHINE_KINDS))
    assert records["m9"].barred_in == ("every job", "llm")
    assert records["m1"].barred_in == ("llm",)


def test_a_machine_is_unfit_while_its_newest_test_has_not_passed(ledger: Ledger) -> None:
    def unfit() -> str | None:
        return unfit_because(fold_machines(ledger.events(kinds=MACHINE_KINDS)).get("m1"))

    ledger.append(kinds.BARRED, {"machine": "m1"}, job="llm")
    assert unfit() is None, "no test was ordered"
    for name, outcome in (("retest-1", "failed"), ("retest-2", "done")):
        ledger.append(kinds.RETEST_ASKED, {"machine": "m1", "by": "alice", "reason": "x"}, job="llm", operation_id=name)
        assert f"({name}) has not ended" in (unfit() or "")
        ledger.intend(name, {"action": "retest", "machines": ["m1"]}, job="llm")
        assert "has not ended" in (unfit() or "")
        ledger.complete(name, ActionResult(name, 5.0, outcome, "HBM bad"))  # type: ignore[arg-type]
        assert unfit() == ("the test of m1 failed: HBM bad" if outcome == "failed" else None)
    ledger.append(kinds.RETEST_ASKED, {"machine": "m1"}, job="llm", operation_id="retest-3")
    ledger.append(kinds.BARRED, {"machine": "m1"}, job="llm")
    assert unfit() is None, "what was asked of it before it was barred again says nothing"
