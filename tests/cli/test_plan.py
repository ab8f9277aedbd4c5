from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from minder.cli import main
from minder.model.decision import ActionResult
from minder.model.evidence import Verdict
from minder.record.incidents import Ledger, kinds

Run = Callable[..., tuple[int, str, str]]
MONTH = 30 * 86_400.0


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: str) -> tuple[int, str, str]:
        status = main(["plan", *words])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A hundred machines for a month, three of which were evicted; one for nothing."""
    import time

    begin_s = time.time() - MONTH
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.append(kinds.JOB_REGISTERED, {"machines": [f"m{index}" for index in range(100)]}, job="llm", time_s=begin_s)
        for day, machine in ((2, "m7"), (9, "m8"), (21, "m7")):
            fault_s = begin_s + day * 86_400.0
            verdict = Verdict(fault_s + 5, "machine", "evict", (machine,), "stall", 0.9, fault_s)
            incident = ledger.open_incident(verdict, job="llm", time_s=fault_s + 5)
            ledger.intend(f"evict-{day}", {"action": "evict", "machines": [machine]}, job="llm", incident=incident, time_s=fault_s + 6)
            ledger.complete(f"evict-{day}", ActionResult(f"evict-{day}", fault_s + 7, "done"))
            ledger.append(kinds.FIRST_STEP, {"step": 9}, job="llm", incident=incident, time_s=fault_s + 9)
        ledger.append(kinds.OUTCOME, {"machine": "m8", "outcome": "no-fault-found"}, incident="llm-2")
        ledger.append(kinds.JOB_ENDED, {"outcome": "finished"}, job="llm")
    return tmp_path / "ledger.db"


def test_the_published_pools_are_the_default_answer(plan: Run) -> None:
    status, out, _ = plan("standbys", "--format", "json")
    assert status == 0
    assert [(row["machines"], row["standbys"]) for row in json.loads(out)["advice"]] == [(128, 2), (256, 2), (512, 3), (1024, 4)]
    assert json.loads(out)["counted"] is None


def test_the_rate_can_be_counted_from_the_ledger(plan: Run, ledger: Path) -> None:
    status, out, _ = plan("standbys", "--ledger", str(ledger), "--machines", "1000", "--format", "json")
    found = json.loads(out)
    assert status == 0
    assert found["counted"] == {
        "failures": 3, "evicted": 3, "dry": 0, "confirmed": 0, "no_fault_found": 1, "machine_days": pytest.approx(3000.0, rel=1e-3),
    }  # fmt: skip
    assert found["rate"]["value"] == pytest.approx(0.001, rel=1e-3)
    assert found["few_failures"] is True
    (advice,) = found["advice"]
    assert advice["low"] < advice["standbys"] == 4 < advice["high"]
    text = plan("standbys", "--ledger", str(ledger), "--machines", "1000")[1]
    assert "fewer than 10 failures" in text and "no fault found 1" in text


def test_a_month_is_simulated_as_a_table_and_a_document(plan: Run, tmp_path: Path) -> None:
    words = ("ettr", "--gpus", "9600", "--months", "1", "--repeats", "2")
    status, out, _ = plan(*words, "--picture", str(tmp_path / "plan.png"))
    assert status == 0 and "9,600 GPUs, 1,200 machines, 30 days, 5 standbys" in out and "Simulated, not measured" in out
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    first, again = (json.loads(plan(*words, "--format", "json")[1]) for _ in range(2))
    assert first == again
    assert {item["variant"] for item in first["outcomes"]} >= {"everything", "without standbys"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("standbys", "--machines", "0"), "0 machines"),
        (("standbys", "--rate", "2"), "rate 2"),
        (("standbys", "--percentile", "100"), "percentile 100"),
        (("standbys", "--rate", "0.1", "--ledger", "x.db"), "--rate and --ledger"),
        (("standbys", "--ledger", "nowhere.db"), "no ledger at"),
        (("ettr", "--assume", "luck=1"), "known are"),
        (("ettr", "--rates", "mine"), '--rates "mine"'),
        (("ettr", "--gpus", "4"), "--gpus 4"),
        (("ettr", "--months", "0"), "0 days"),
        (("ettr", "--gpus", "9600", "--months", "0.1", "--repeats", "1", "--picture", "nowhere/plan.png"), "--picture"),
        (("ettr", "--format", "xml"), "--format"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    plan: Run, words: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = plan(*words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_without_a_recorded_run_there_is_no_rate(plan: Run, tmp_path: Path) -> None:
    Ledger(tmp_path / "empty.db").close()
    status, _, err = plan("standbys", "--ledger", str(tmp_path / "empty.db"))
    assert status == 2 and "no run is recorded" in err


def test_stats_and_report_read_the_same_ledger(run_on_ledger: Run, ledger: Path, tmp_path: Path) -> None:
    stats = functools.partial(run_on_ledger, "incidents", "stats", "--since", "40d")
    status, out, _ = stats()
    assert status == 0 and "llm-3" in out and "stall" in out
    found = json.loads(stats("--format", "json")[1])
    assert found["jobs"][0]["incidents"][0]["by_phase"] == {"detect": 5.0, "decide": 1.0, "restart": pytest.approx(3.0)}
    assert found["jobs"][0]["unproductive_s"] == pytest.approx(sum(found["by_phase"].values()))
    assert json.loads(stats("--format", "json", "--job", "nobody")[1])["jobs"] == []
    assert "no data, not health" in stats("--job", "nobody")[1]
    status, out, _ = run_on_ledger("report", "--since", "40d", "-o", str(tmp_path / "report.html"))
    assert status == 0 and "jobs: 1, incidents: 3" in out
    assert "m7" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("words", [("incidents", "stats"), ("report", "-o", "report.html")])
def test_an_until_that_is_no_time_is_reported(run_on_ledger: Run, ledger: Path, words: tuple[str, ...]) -> None:
    status, _, err = run_on_ledger(*words, "--until", "yesterday")
    assert status == 2 and '--until "yesterday"' in err and err.count("\n") == 1
