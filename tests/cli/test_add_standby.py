"""`minder job add-standby`: what is refused at once, what is written down, and what the answer says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.cli import main
from minder.model.decision import ActionResult
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.joins import JOIN_KINDS, fold_joins, wait_for_join

REGISTERED = {
    "machines": ["m0"],
    "standbys": ["s0"],
    "agents": {"m0": "http://m0:1", "s0": "http://s0:1"},
    "launchers": {"m0": "http://m0:2", "s0": "http://s0:2"},
}
NEW = ["n9", "--agent", "http://n9:1/", "--launcher", "http://n9:2"]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    found = Ledger(tmp_path / "ledger.db")
    found.append(kinds.JOB_REGISTERED, REGISTERED, job="llm")
    return found


def add(ledger: Ledger, *words: str, job: str = "llm") -> int:
    return main(["job", "add-standby", job, *words, "--ledger", ledger.location])


def joins(ledger: Ledger) -> list[Any]:
    return fold_joins(ledger.events(job="llm", kinds=JOIN_KINDS))


def answers(ledger: Ledger, outcome: str, detail: str) -> Callable[[], None]:
    """A controller that does as it is told."""

    def answer() -> None:
        own = Ledger(ledger.location)
        while not (events := own.events(kinds=[kinds.STANDBY_ADDED])):
            pass
        name = str(events[-1].operation_id)
        own.intend(name, {"action": "join", "machines": ["n9"]}, job="llm")
        own.complete(name, ActionResult(name, 1.0, outcome, detail))  # type: ignore[arg-type]
        own.close()

    return answer


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["s0", "--agent", "http://s0:1", "--launcher", "http://elsewhere:2"], "s0 is known with other addresses"),
        (["n9", "--agent", "http://n9:1", "--launcher", "http://m0:2"], "http://m0:2 is m0's"),
        (["n9", "--agent", "n9:1", "--launcher", "http://n9:2"], "--agent"),
        (["n9", "--agent", "http://n9:1", "--launcher", "http://n9:99999"], "--launcher"),
        (["../n9", "--agent", "http://n9:1", "--launcher", "http://n9:2"], "letters, digits"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(ledger: Ledger, words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert add(ledger, *words) == 2
    line = capsys.readouterr().err
    assert expected in line and line.count("\n") == 1 and joins(ledger) == []


@pytest.mark.parametrize("end", [None, {"outcome": "finished"}], ids=["unknown", "ended"])
def test_a_job_that_does_not_run_takes_nobody(ledger: Ledger, end: dict[str, str] | None, capsys: pytest.CaptureFixture[str]) -> None:
    if end is not None:
        ledger.append(kinds.JOB_ENDED, end, job="llm")
    assert add(ledger, *NEW, job="llm" if end else "other") == 2
    assert "no job" in capsys.readouterr().err


def test_a_job_that_is_only_watched_takes_nobody(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.append(kinds.JOB_REGISTERED, {"machines": ["m0"], "standbys": [], "run": "slurm 7"}, job="llm")
    assert add(ledger, *NEW) == 2
    assert "only watched" in capsys.readouterr().err


def test_an_order_without_a_controller_is_not_called_done(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    assert add(ledger, *NEW, "--rack", "r7", "--block", "b1", "--wait", "0") == 1
    assert "not taken in yet" in capsys.readouterr().out
    (join,) = joins(ledger)
    assert (join.machine, join.agent, join.launcher, join.rack, join.block, join.state) == (
        "n9",
        "http://n9:1",
        "http://n9:2",
        "r7",
        "b1",
        "asked",
    )


@pytest.mark.parametrize(
    ("outcome", "detail", "status", "expected"),
    [
        ("done", "a standby of llm", 0, "n9 is a standby of llm"),
        ("failed", "the agent at http://n9:1 is m7's", 2, "n9 does not join llm: the agent at http://n9:1 is m7's"),
    ],
)
def test_what_the_controller_says_is_the_answer(
    ledger: Ledger, outcome: str, detail: str, status: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    thread = threading.Thread(target=answers(ledger, outcome, detail))
    thread.start()
    assert add(ledger, *NEW, "--wait", "30") == status
    thread.join()
    said = capsys.readouterr()
    assert expected in said.out + said.err


def test_the_next_run_begins_without_it(ledger: Ledger) -> None:
    answering = threading.Thread(target=answers(ledger, "done", "a standby of llm"))
    answering.start()
    assert add(ledger, *NEW, "--wait", "30") == 0
    answering.join()
    name = joins(ledger)[0].operation_id
    assert wait_for_join(ledger.events, "llm", name, 0.0).state == "done"
    ledger.append(kinds.JOB_REGISTERED, REGISTERED, job="llm")
    assert joins(ledger) == []
