"""`minder job skip` and `skips`: what is ordered, waited for, listed and refused."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.record.incidents import Ledger, kinds

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run_on_ledger: Run) -> Run:
    return functools.partial(run_on_ledger, "job")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.append(kinds.JOB_REGISTERED, {"machines": ["m1", "m2"]}, job="llm")
    return ledger


def start(ledger: Ledger, generation: int, batches: str, *orders: str | None) -> None:
    payload = {"generation": generation, "machines": ["m1"], "skip_batches": batches, "skip_operations": list(orders)}
    ledger.append(kinds.GENERATION_STARTED, payload, job="llm")


def asked(ledger: Ledger) -> Any:
    return ledger.events(kinds=[kinds.SKIP_ASKED])[-1]


def test_a_skip_is_ordered_listed_and_taken_back(run: Run, ledger: Ledger) -> None:
    status, out, _ = run("skip", "llm", "7,5-6", "--note", "it spikes", "--wait", "0")
    assert status == 1 and "batches 5-7 of llm: the order waits" in out, "no generation has applied it"
    event = asked(ledger)
    assert (event.payload["batches"], event.payload["note"]) == ("5-7", "it spikes") and event.payload["by"]
    start(ledger, 2, "5-7", event.operation_id)
    found = json.loads(run("skips", "llm", "--format", "json")[1])
    assert (found["batches"], found["orders"][0]["state"], found["orders"][0]["generation"]) == ("5-7", "applied", 2)
    assert "llm leaves out: 5-7" in run("skips", "llm")[1]
    assert run("skip", "llm", "6", "--undo", "--wait", "0")[0] == 1
    start(ledger, 3, "5,7", asked(ledger).operation_id)
    assert asked(ledger).payload["undo"] is True
    run("skip", "llm", "--undo", "--wait", "0")
    assert asked(ledger).payload["batches"] == "5-7", "without batches those of the last order"


def test_what_cannot_be_carried_out_is_the_commands_error(run: Run, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.record.incidents import skips

    def refuse(opened: Ledger, job: str, *rest: Any) -> Any:
        order = ordered(opened, job, *rest)
        opened.append(kinds.SKIP_FAILED, {"detail": "not left out: nothing is saved yet"}, job=job, operation_id=order.operation_id)
        return order

    ordered = skips.order_skip
    monkeypatch.setattr(skips, "order_skip", refuse)
    status, _, error = run("skip", "llm", "5")
    assert status == 2 and "nothing is saved yet" in error
    assert json.loads(run("skips", "llm", "--format", "json")[1])["orders"][0]["state"] == "failed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("llm",), "give the batches"),
        (("llm", "x"), "names no batches"),
        (("llm", "--undo"), "no batch out that could be taken back"),
        (("llm", "5", "--undo"), "leaves out none"),
        (("other", "5"), "no job"),
    ],
)
def test_what_changes_nothing_is_refused(run: Run, ledger: Ledger, words: tuple[str, ...], said: str) -> None:
    status, _, error = run("skip", *words)
    assert status == 2 and said in error and ledger.events(kinds=[kinds.SKIP_ASKED]) == []


def test_an_order_ends_with_the_run_and_what_is_left_out_does_not(run: Run, ledger: Ledger) -> None:
    """The job's checkpoints hold what was learned without the batches."""
    run("skip", "llm", "5", "--wait", "0")
    start(ledger, 2, "5", asked(ledger).operation_id)
    run("skip", "llm", "9", "--wait", "0")
    ledger.append(kinds.JOB_REGISTERED, {"machines": ["m1"]}, job="llm")
    found = json.loads(run("skips", "llm", "--format", "json")[1])
    assert found["batches"] == "5" and "begun anew" in found["orders"][0]["detail"]
