"""An operator's order to evict a machine: written down for the controller that runs the job, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from minder.act.controller.reading.hearing import Inbox
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.signals import SignalRule
from minder.edge.signals.xid import load_xid_rules
from minder.model.errors import BadInputError
from minder.model.observation import JobView, Observation
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.orders import order_eviction
from tests.fakes.followed import Followed


def test_an_order_is_a_verdict_that_says_who_and_why(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.append(kinds.JOB_REGISTERED, {"machines": ["m1", "m2", "m3"], "standbys": ["s1"]}, job="llm", time_s=90.0)
        said = order_eviction(ledger, "m2", "llm", "alice", "fan 3 is dead", 100.0)
        assert said.startswith("the controller of llm evicts m2")
        (event,) = ledger.events(kinds=[kinds.SIGNAL])
        assert event.payload["by"] == "alice"
        inbox, judge = Inbox(ledger, "llm"), Judge([Followed(lambda tracker: SignalRule(load_xid_rules(), tracker, workers=False))])
        machines = ("m1", "m2", "m3")
        job = JobView("llm", 1, "running", machines, ("s1",), (), dict(enumerate(machines)), 0.0, 90.0)
        found = []
        for now_s in range(101, 130):
            found += judge.judge(Observation(float(now_s), signals=inbox.take(float(now_s)), job=job))[0]
    (verdict,) = found
    assert (verdict.machines, verdict.tier, verdict.cause) == (("m2",), "evict", "explicit")
    assert "alice: fan 3 is dead" in verdict.evidence[0].message


def test_a_job_that_does_not_run_and_a_machine_that_is_elsewhere_are_told_apart(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        with pytest.raises(BadInputError, match='no job "llm" runs'):
            order_eviction(ledger, "m1", "llm", "alice", "x", 1.0)
        ledger.append(kinds.JOB_REGISTERED, {"machines": ["m1"], "standbys": []}, job="llm", time_s=1.0)
        ledger.append(kinds.GENERATION_STARTED, {"generation": 2, "machines": ["s1"]}, job="llm", time_s=2.0)
        with pytest.raises(BadInputError, match="m1 runs no rank of llm: s1 do"):
            order_eviction(ledger, "m1", "llm", "alice", "x", 3.0)
        ledger.append(kinds.JOB_ENDED, {"outcome": "finished"}, job="llm", time_s=4.0)
        with pytest.raises(BadInputError, match='no job "llm" runs'):
            order_eviction(ledger, "s1", "llm", "alice", "x", 5.0)
        assert ledger.events(kinds=[kinds.SIGNAL]) == []
