from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from minder.record.incidents import Ledger

Run = Callable[..., tuple[int, str, str]]


def test_a_window_is_added_listed_and_ended(run_on_ledger: Run, tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.db").close()
    assert run_on_ledger("maintenance", "list")[1] == "no maintenance is planned\n"
    status, out, _ = run_on_ledger("maintenance", "add", "--rack", "r1", "--machine", "m1", "--for", "2h", "--reason", "firmware")
    assert status == 0 and out.startswith("window-") and out.endswith("alarms go on\n")
    (window,) = json.loads(run_on_ledger("maintenance", "list", "--format", "json")[1])
    assert (window["machines"], window["racks"], window["reason"]) == (["m1"], ["r1"], "firmware")
    assert "m1, rack r1" in run_on_ledger("maintenance", "list")[1] and "holds" in run_on_ledger("maintenance", "list")[1]
    assert run_on_ledger("maintenance", "end", window["id"], "--reason", "done")[0] == 0
    assert run_on_ledger("maintenance", "list")[1] == "no maintenance is planned\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "--machine", "m1", "--for", "2h"], "--reason is missing"),
        (["add", "--for", "2h", "--reason", "x"], "name something"),
        (["add", "--machine", "m1", "--for", "soon", "--reason", "x"], "is no length of time"),
        (["add", "--machine", "m1", "--for", "1h", "--from", "2020-01-01", "--reason", "x"], "is over already"),
        (["add", "--machine", "m1", "--for", "1h", "--from", "dawn", "--reason", "x"], "is no time"),
        (["end", "window-1", "--reason", "x"], 'no window "window-1"'),
    ],
)
def test_what_makes_no_sense_is_one_line(run_on_ledger: Run, tmp_path: Path, words: list[str], said: str) -> None:
    Ledger(tmp_path / "ledger.db").close()
    status, out, err = run_on_ledger("maintenance", *words)
    assert (status, out) == (2, "") and said in err and len(err.strip().splitlines()) == 1
