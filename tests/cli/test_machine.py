from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from minder.incidents import Ledger, kinds
from minder.types import ActionResult, Verdict

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
