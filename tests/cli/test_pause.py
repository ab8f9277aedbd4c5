from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from minder.record.incidents import Ledger, kinds

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.append(kinds.JOB_REGISTERED, {"machines": ["m1"], "domains": {"m1": {"rack": "r1"}}}, job="llm")
    return ledger


def test_a_pause_reaches_the_policys_history_and_ends_by_itself(run_on_ledger: Run, ledger: Ledger) -> None:
    status, out, err = run_on_ledger("pause", "--job", "llm", "--for", "2h", "--reason", "firmware")
    assert (status, err) == (0, "")
    assert out.startswith("actions are paused for job llm until ") and "alarms go on" in out
    (pause,) = ledger.history("llm").pauses
    assert (pause.scope, pause.target, pause.reason) == ("job", "llm", "firmware")
    assert pause.until_s == pytest.approx(time.time() + 7200, abs=60)
    assert ledger.history("llm", time.time() + 7300).pauses == ()


def test_pauses_are_listed_and_lifted(run_on_ledger: Run, ledger: Ledger) -> None:
    assert run_on_ledger("pause", "--list")[1] == "nothing is paused\n"
    run_on_ledger("pause", "--all", "--for", "30m", "--reason", "power work")
    run_on_ledger("pause", "--rack", "r1", "--for", "1h", "--reason", "switch")
    listed = run_on_ledger("pause", "--list")[1]
    assert "every job" in listed and "rack r1" in listed and "power work" in listed
    assert run_on_ledger("unpause", "--rack", "r1")[0] == 0
    assert [pause.scope for pause in ledger.history("llm").pauses] == ["all"]
    run_on_ledger("pause", "--rack", "r1", "--for", "1h", "--reason", "switch")
    status, out, _ = run_on_ledger("unpause")
    assert status == 0 and out.count("\n") == 2
    assert ledger.history("llm").pauses == ()


def test_a_name_that_nobody_knows_is_said(run_on_ledger: Run, ledger: Ledger) -> None:
    status, _, err = run_on_ledger("pause", "--rack", "r2", "--for", "1h", "--reason", "x")
    assert status == 0 and 'has not seen rack "r2" yet (it knows: r1)' in err
    assert 'job "lmm" yet (it knows: llm)' in run_on_ledger("pause", "--job", "lmm", "--for", "1h", "--reason", "x")[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pause", "--for", "1h", "--reason", "x"), "one of --job NAME, --rack NAME or --all"),
        (("pause", "--all", "--job", "llm", "--for", "1h", "--reason", "x"), "one of"),
        (("pause", "--all", "--reason", "x"), "--for is missing"),
        (("pause", "--all", "--for", "1h"), "--reason is missing"),
        (("pause", "--all", "--for", "1h", "--reason", " "), "--reason is missing"),
        (("pause", "--all", "--for", "soon", "--reason", "x"), '--for "soon" is no length of time'),
        (("pause", "--everything"), "No such option"),
        (("unpause",), "no pause holds"),
        (("unpause", "--job", "llm"), "no pause holds for job llm"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_writes_nothing(run_on_ledger: Run, ledger: Ledger, arguments: tuple[str, ...], said: str) -> None:
    before = ledger.events()
    status, out, err = run_on_ledger(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert ledger.events() == before
