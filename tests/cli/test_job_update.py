"""`minder job update`, `updates`, `rollback`: what is stored, ordered, waited for and refused."""

from __future__ import annotations

import functools
import json
import stat
from collections.abc import Callable
from pathlib import Path

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


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print(2)\n")
    return folder


def test_an_update_is_stored_ordered_and_listed(run: Run, ledger: Ledger, project: Path, tmp_path: Path) -> None:
    words = ("--code", str(project), "--env", "NCCL_DEBUG=INFO", "--args", "--lr 1e-4", "--note", "lower rate", "--wait", "0")
    status, out, _ = run("update", "llm", *words)
    assert status == 1 and "update 1 of llm waits for its controller" in out, "no launcher has it yet"
    (event,) = ledger.events(kinds=[kinds.UPDATE_ASKED])
    assert (event.payload["args"], event.payload["files"], event.payload["note"]) == (["--lr", "1e-4"], 1, "lower rate")
    assert event.payload["by"] and stat.S_IMODE((tmp_path / "code").stat().st_mode) == 0o700
    ledger.append(kinds.UPDATE_READY, {"machines": ["m1", "m2"]}, job="llm", operation_id=event.operation_id)
    (waiting, first) = json.loads(run("updates", "llm", "--format", "json")[1])
    assert (waiting["update"], waiting["state"], waiting["env"], first["update"]) == (1, "waits", {"NCCL_DEBUG": "INFO"}, 0)
    assert "lower rate" in run("updates", "llm")[1]
    status, out, _ = run("rollback", "llm", "--wait", "0")
    assert status == 0 and "the rollback to version 0 of llm runs" in out, "what waits is taken back at once"


def test_what_a_launcher_refuses_is_the_commands_error(run: Run, ledger: Ledger, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.record.incidents import updates

    def refuse(opened: Ledger, job: str, payload: dict[str, object], by: str) -> updates.Order:
        order = ordered(opened, job, payload, by)
        opened.append(kinds.UPDATE_FAILED, {"detail": "m1 takes no updates"}, job=job, operation_id=order.operation_id)
        return order

    ordered = updates.order_update
    monkeypatch.setattr(updates, "order_update", refuse)
    status, _, err = run("update", "llm", "--code", str(project))
    assert status == 2 and "m1 takes no updates" in err


@pytest.mark.parametrize(("words", "expected"), [
    (("update", "llm"), "the update changes nothing"),
    (("update", "llm", "--code", "/no/such/folder"), "no such folder"),
    (("update", "llm", "--env", "x"), "give NAME=VALUE"),
    (("update", "llm", "--args", "'x"), "close the quotation"),
    (("update", "none", "--args", "x"), 'no job "none" runs'),
    (("rollback", "llm"), "no update to take back"),
    (("rollback", "llm", "7"), "no version 7"),
])  # fmt: skip
def test_what_cannot_be_is_one_line_and_nothing_is_written(run: Run, ledger: Ledger, words: tuple[str, ...], expected: str) -> None:
    status, _, err = run(*words)
    assert status == 2 and expected in err and err.count("\n") == 1
    assert ledger.events(kinds=[kinds.UPDATE_ASKED]) == []
