from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from minder.model.decision import ActionResult
from minder.model.evidence import Verdict
from minder.record.incidents import Ledger, kinds

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run_on_ledger: Run) -> Run:
    return functools.partial(run_on_ledger, "machine")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """m2 was evicted from job llm."""
    ledger = Ledger(tmp_path / "ledger.db")
    name = ledger.open_incident(Verdict(time.time(), "machine", "evict", ("m2",), "stall", 0.98, time.time()), job="llm")
    ledger.intend("evict-1", {"action": "evict", "machines": ["m2"]}, job="llm", incident=name)
    ledger.complete("evict-1", ActionResult("evict-1", time.time(), "done"))
    ledger.append(kinds.BARRED, {"machine": "m2", "reason": "evicted"}, job="llm", incident=name)
    return ledger


def test_the_list_says_who_is_barred_and_whether_it_was_right(run: Run, ledger: Ledger) -> None:
    out = run("list")[1]
    assert "m2" in out and "llm-1" in out
    (record,) = json.loads(run("list", "--format", "json")[1])
    assert (record["machine"], record["barred_in"], record["outcome"]) == ("m2", ["llm"], None)


def test_an_outcome_becomes_part_of_the_incident(run: Run, ledger: Ledger) -> None:
    status, out, _ = run("outcome", "m2", "no-fault-found", "--note", "ran clean for a day")
    assert (status, out) == (0, "m2: no-fault-found (incident llm-1)\n")
    assert ledger.incident("llm-1").outcomes == {"m2": "no-fault-found"}
    (event,) = ledger.events(kinds=[kinds.OUTCOME])
    assert event.payload["note"] == "ran clean for a day" and event.payload["by"]
    assert run("outcome", "m2", "confirmed", "--incident", "llm-1")[0] == 0
    assert ledger.incident("llm-1").outcomes == {"m2": "confirmed"}, "the last word counts, the first one stays in the ledger"
    assert len(ledger.events(kinds=[kinds.OUTCOME])) == 2


def test_a_returned_machine_may_work_again(run: Run, ledger: Ledger) -> None:
    assert ledger.history("llm").barred == {"m2"}
    assert run("return", "m2", "--note", "new GPU")[0] == 0
    assert ledger.history("llm").barred == frozenset()
    assert ledger.incident("llm-1").undo == ()
    assert [item.undo for item in ledger.incidents(job="llm")] == [()]
    status, _, err = run("return", "m2")
    assert status == 2 and "is not barred from any job" in err


def test_a_machine_may_return_to_one_job_alone(run: Run, ledger: Ledger) -> None:
    ledger.append(kinds.BARRED, {"machine": "m2"}, job="other")
    assert run("return", "m2", "--job", "other")[0] == 0
    assert (ledger.history("llm").barred, ledger.history("other").barred) == ({"m2"}, frozenset())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("outcome", "m2", "broken"), 'the outcome "broken": use confirmed or no-fault-found'),
        (("outcome", "m7", "confirmed"), 'machine "m7" was never evicted or barred'),
        (("outcome", "m7", "confirmed", "--incident", "llm-1"), "does not name m7: it names m2"),
        (("outcome", "m2", "confirmed", "--incident", "llm-9"), 'no incident "llm-9"'),
        (("outcome", "m2"), "Missing argument"),
        (("return", "m7"), 'machine "m7" is not barred from any job'),
        (("return", "m2", "--job", "nope"), "is not barred from job nope"),
        (("list", "--format", "xml"), "--format"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_writes_nothing(run: Run, ledger: Ledger, arguments: tuple[str, ...], said: str) -> None:
    before = ledger.events()
    status, out, err = run(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert ledger.events() == before


def test_a_machine_that_is_barred_from_every_job_returns_to_all(run: Run, ledger: Ledger) -> None:
    ledger.append(kinds.BARRED, {"machine": "m2"})
    status, _, err = run("return", "m2", "--job", "llm")
    assert status == 2 and "barred from every job: return it without --job" in err
    assert run("return", "m2")[0] == 0
    assert ledger.history("llm").barred == frozenset()
    assert {event.job for event in ledger.events(kinds=[kinds.UNBARRED])} == {"llm", None}, "each job's own record tells it"


def test_a_test_is_ordered_and_a_machine_that_failed_it_is_kept(run: Run, ledger: Ledger) -> None:
    status, out, _ = run("retest", "m2", "--note", "new HBM")
    (order,) = ledger.events(kinds=[kinds.RETEST_ASKED])
    name = str(order.operation_id)
    assert status == 0 and out == f"{name}: the controller of llm has m2 tested\n" and order.job == "llm"
    status, _, err = run("retest", "m2")
    assert status == 2 and name in err
    status, out, _ = run("retest", "m9", "--job", "llm", "--wait", "0.1")
    assert status == 1 and out.endswith("m9: asked\n")
    ledger.intend(name, {"action": "retest", "machines": ["m2"]}, job="llm")
    ledger.complete(name, ActionResult(name, time.time(), "failed", "HBM bad"))
    assert "failed" in run("list")[1]
    for words in ((), ("--force",)):
        status, _, err = run("return", "m2", *words)
        assert status == 2 and "the test of m2 failed: HBM bad" in err and len(err.splitlines()) == 1
    assert run("return", "m2", "--force", "--note", "the test is wrong")[0] == 0


def test_a_test_that_is_waited_for_says_what_came_of_it(run: Run, ledger: Ledger) -> None:
    def carry_out() -> None:
        while not (orders := ledger.events(kinds=[kinds.RETEST_ASKED])):
            time.sleep(0.01)
        name = str(orders[0].operation_id)
        ledger.intend(name, {"action": "retest", "machines": ["m2"]}, job="llm")
        ledger.complete(name, ActionResult(name, time.time(), "done", "all fine"))

    controller = threading.Thread(target=carry_out)
    controller.start()
    status, out, _ = run("retest", "m2", "--wait", "60")
    controller.join()
    assert status == 0 and out.endswith("m2: passed: all fine\n")
    assert run("return", "m2")[0] == 0
