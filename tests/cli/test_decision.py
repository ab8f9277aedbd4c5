from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from minder.model.decision import Decision, Price
from minder.model.evidence import Verdict
from minder.record.incidents import Ledger, kinds

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Operators are asked about m1 and about m2; of m2 nobody answered in time."""
    ledger = Ledger(tmp_path / "ledger.db")
    now_s = time.time()
    for machine, until_s in (("m1", now_s + 600), ("m2", now_s - 5)):
        verdict = Verdict(now_s - 20, "machine", "evict", (machine,), "stall", 0.97, now_s - 30)
        decision = Decision(f"evict-{machine}", now_s - 19, "evict", (machine,), "act", "", verdict, Price(1.0, 9.0), ("s1",))
        payload = {"decision": decision, "until_s": until_s, "on_timeout": "page", "generation": 1, "incidents": ["llm-1"]}
        ledger.append_once(kinds.APPROVAL_ASKED, payload, job="llm", incident="llm-1", operation_id=decision.operation_id)
    return ledger


def test_what_waits_is_listed(run_on_ledger: Run, ledger: Ledger) -> None:
    status, out, err = run_on_ledger("decision", "list")
    assert err == "minder: no controller of llm is heard: whatever is answered, nothing will happen until one runs\n"
    assert status == 0 and "evict-m1" in out and "stall 0.97" in out and "waiting" in out and "evict-m2" not in out
    assert "evict-m2" in run_on_ledger("decision", "list", "--all")[1]
    (found,) = json.loads(run_on_ledger("decision", "list", "--format", "json")[1])
    assert found["decision"]["price"]["waiting_gpu_s"] == 9.0 and found["state"] == "waiting"
    assert run_on_ledger("decision", "list", "--job", "other")[1] == "no decision waits for an operator\n"


def test_an_answer_is_in_the_ledger_with_who_and_why(run_on_ledger: Run, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    status, out, err = run_on_ledger("decision", "approve", "evict-m1", "--reason", " GPU 3 is off the bus ")
    assert (status, err) == (0, "") and out == (
        "evict-m1 is approved, not yet carried out: no controller of llm is heard; nothing happens until one runs\n"
    )
    (event,) = ledger.events(kinds=[kinds.APPROVAL_SETTLED])
    assert dict(event.payload) == {"answer": "approved", "by": "alice", "reason": "GPU 3 is off the bus"}
    assert (event.job, event.incident, event.operation_id) == ("llm", "llm-1", "evict-m1")
    assert "approved, not yet carried out, by alice" in run_on_ledger("decision", "list")[1]


def test_a_rejection_says_what_it_means(run_on_ledger: Run, ledger: Ledger) -> None:
    assert run_on_ledger("decision", "reject", "evict-m1", "--reason", "flashing")[1] == "evict-m1 is rejected: m1 stays in job llm\n"


@pytest.mark.parametrize(("words", "said"), [
    (("approve", "evict-m1"), "--reason is missing"),
    (("approve", "evict-m1", "--reason", "  "), "--reason is missing"),
    (("approve", "evict-m9", "--reason", "x"), "no decision \"evict-m9\" waits"),
    (("reject", "evict-m2", "--reason", "x"), "evict-m2 has expired: no operator answered by"),
])  # fmt: skip
def test_what_cannot_be_answered_is_one_line(run_on_ledger: Run, ledger: Ledger, words: tuple[str, ...], said: str) -> None:
    status, out, err = run_on_ledger("decision", *words)
    assert (status, out) == (2, "") and said in err and err.count("\n") == 1
    assert ledger.events(kinds=[kinds.APPROVAL_SETTLED]) == []


def test_the_second_answer_is_refused(run_on_ledger: Run, ledger: Ledger) -> None:
    run_on_ledger("decision", "reject", "evict-m1", "--reason", "x")
    status, _, err = run_on_ledger("decision", "approve", "evict-m1", "--reason", "y")
    assert status == 2 and "was rejected by" in err
