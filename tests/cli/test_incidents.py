from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from minder.model.decision import ActionResult
from minder.model.evidence import Evidence, Verdict
from minder.record.incidents import Ledger, kinds

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run_on_ledger: Run) -> Run:
    return functools.partial(run_on_ledger, "incidents")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    now_s = time.time()
    ledger = Ledger(tmp_path / "ledger.db")
    evidence = (Evidence("telemetry", "m2", metric="cpu_usage_ratio", observed=0.01, expected=0.93),)
    verdict = Verdict(now_s, "machine", "evict", ("m2",), "stall", 0.98, now_s - 5, evidence)
    name = ledger.open_incident(verdict, job="llm")
    ledger.append(kinds.EVIDENCE, {"machine": "m2", "what": "stacks", "data": ["all_reduce"]}, job="llm", incident=name)
    ledger.intend("evict-1", {"action": "evict", "machines": ["m2"]}, job="llm", incident=name)
    ledger.complete("evict-1", ActionResult("evict-1", now_s, "done"))
    ledger.open_incident(
        Verdict(now_s - 30 * 86_400, "machine", "page", ("m5",), "slowdown", 0.5, 0.0), job="old", time_s=now_s - 30 * 86_400
    )
    return ledger


def test_the_list_shows_the_last_week_unless_told_otherwise(run: Run, ledger: Ledger) -> None:
    status, out, _ = run("list")
    assert status == 0 and "llm-1" in out and "m2" in out and "old-1" not in out
    assert "old-1" in run("list", "--since", "40d")[1]
    assert "llm-1" not in run("list", "--since", "40d", "--job", "old")[1]
    assert run("list", "--job", "nobody")[1] == "no incidents in the last 7d\n"


def test_json_is_one_document_and_nothing_else(run: Run, ledger: Ledger) -> None:
    listed = json.loads(run("list", "--format", "json", "--since", "40d")[1])
    assert [item["id"] for item in listed] == ["llm-1", "old-1"]
    assert json.loads(run("list", "--format", "json", "--state", "closed")[1]) == []
    shown = json.loads(run("show", "llm-1", "--format", "json")[1])
    assert (shown["evicted"], shown["undo"]) == (["m2"], ['minder machine return m2 --note "undoes llm-1"'])
    assert "captures" not in shown
    assert json.loads(run("show", "llm-1", "--format", "json", "--captures")[1])["captures"][0]["data"] == ["all_reduce"]


def test_show_prints_the_report_and_on_request_the_captures(run: Run, ledger: Ledger) -> None:
    status, out, _ = run("show", "llm-1")
    assert status == 0
    assert out.startswith("Incident llm-1: m2 stands still") and "Undo: minder machine return m2 --note" in out and "--ledger" in out
    assert "all_reduce" not in out and "all_reduce" in run("show", "llm-1", "--captures")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "llm-9"), 'no incident "llm-9"'),
        (("list", "--since", "yesterday"), '--since "yesterday" is no length of time'),
        (("list", "--format", "xml"), '--format "xml": use table or json'),
        (("list", "--state", "half"), "--state"),
        (("show",), "Missing argument"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(run: Run, ledger: Ledger, arguments: tuple[str, ...], said: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_missing_ledger_is_said_and_not_made(run: Run, tmp_path: Path) -> None:
    status, _, err = run("list")
    assert status == 2 and "no ledger at" in err and err.count("\n") == 1
    assert not (tmp_path / "ledger.db").exists()
