"""`minder policy`: the ladder, the climb of an incident, the past under another ladder, and the rules."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minder.cli import main
from minder.model.decision import ActionResult, Decision, PassedOver
from minder.model.evidence import Verdict
from minder.record.incidents import Ledger, kinds

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """Four machines were evicted for the rule slowdown; no fault was found on any."""
    with Ledger(tmp_path / "ledger.db") as opened:
        now_s = time.time()
        opened.append(kinds.JOB_REGISTERED, {"machines": ["m1", "m2", "m3", "m4"], "standbys": ["s0"], "gpus": 4}, job="llm")
        for machine in ("m1", "m2", "m3", "m4"):
            verdict = Verdict(now_s, "machine", "evict", (machine,), "slowdown", 0.97, now_s - 30, sources=("slowdown",))
            incident, name = opened.open_incident(verdict, job="llm"), f"evict-{machine}"
            passed = (PassedOver("over_evict", "not_available", "not here"),)
            decision = Decision(name, now_s, "evict", (machine,), "act", "passed", verdict, rung="evict", passed_over=passed)
            opened.append(kinds.DECISION, decision, job="llm", incident=incident, operation_id=name)
            opened.intend(name, decision, job="llm", incident=incident)
            opened.complete(name, ActionResult(name, now_s, "done", "its workers ended"))
            payload = {"machine": machine, "outcome": "no-fault-found", "by": "ann"}
            opened.append(kinds.OUTCOME, payload, job="llm", incident=incident)
        yield opened


def test_the_ladder_of_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "explain"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[1] == "page"
    config = tmp_path / "job.toml"
    config.write_text('name = "llm"\n[[machines]]\nname = "m1"\n[policy.ladder]\norder = "published"\n')
    assert main(["policy", "explain", "--config", str(config), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["order"] == "published" and "trial" not in [item["rung"] for item in found["rungs"]]
    config.write_text('name = "llm"\n[[machines]]\nname = "m1"\n[policy.ladder]\nordre = "published"\n')
    assert main(["policy", "explain", "--config", str(config)]) == 2
    err = capsys.readouterr().err
    assert "policy.ladder.ordre is not a setting" in err and err.count("\n") == 1


def test_the_climb_of_an_incident(run_on_ledger: Run, ledger: Ledger) -> None:
    status, out, err = run_on_ledger("policy", "explain", "llm-1")
    assert (status, err) == (0, "") and "not available" not in out.splitlines()[0]
    assert "over_evict" in out and "passed over" in out and "done: its workers ended; m1 was found: no-fault-found" in out
    climb = json.loads(run_on_ledger("policy", "explain", "llm-1", "--format", "json")[1])["climb"]
    assert [(item["rung"], item["state"]) for item in climb] == [("over_evict", "passed over"), ("evict", "climbed")]
    status, _, err = run_on_ledger("policy", "explain", "llm-9")
    assert status == 2 and 'no incident "llm-9"' in err


def test_the_past_of_a_ledger(run_on_ledger: Run, ledger: Ledger) -> None:
    status, out, err = run_on_ledger("policy", "test")
    assert (status, err) == (0, "") and "This ladder:" in out and "Then: 4 evictions (4 machines)" in out
    found = json.loads(run_on_ledger("policy", "test", "--format", "json")[1])
    assert found["cost_then"]["evictions"] == 4 and len(found["decisions"]) == 4
    assert json.loads(run_on_ledger("policy", "test", "--job", "other", "--format", "json")[1])["decisions"] == []


@pytest.mark.usefixtures("ledger")
def test_recordings_or_a_ledger_but_not_both(run_on_ledger: Run) -> None:
    status, _, err = run_on_ledger("policy", "test", "somewhere")
    assert status == 2 and "give recordings or --ledger" in err


@pytest.mark.parametrize(
    ("launcher", "said"),
    [('\nlauncher = "http://10.0.0.1:9402"', "tests and replays too"), ("", "without tests and replays")],
    ids=["launchers", "none"],
)
def test_a_recordings_jobs_can_be_tested_where_the_configuration_has_launchers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], launcher: str, said: str
) -> None:
    """Its tokens are on another machine."""
    config, past = tmp_path / "job.toml", tmp_path / "past"
    config.write_text(f'name = "llm"\nmachine_token_dir = "nowhere"\n[[machines]]\nname = "m0"\nagent = "http://10.0.0.1:9401"{launcher}\n')
    past.mkdir()
    (past / "job.toml").write_text('name = "llm"\nmachines = ["m0"]\n')
    assert main(["policy", "test", str(past), "--config", str(config)]) == 0
    assert said in capsys.readouterr().out


def test_a_recording_that_cannot_be_read_has_its_line_and_the_others_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "good"
    good.mkdir()
    (good / "job.toml").write_text('name = "llm"\nmachines = ["m0", "m1"]\n')
    assert main(["policy", "test", str(good), str(tmp_path / "gone"), "--format", "json"]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["cost_now"]["evictions"] == 0 and "gone" in said.err and said.err.count("\n") == 1


def test_a_rule_that_was_wrong_too_often_is_shown_as_demoted_until_a_person_restores_it(run_on_ledger: Run, ledger: Ledger) -> None:
    assert "demoted to page since" in run_on_ledger("policy", "rules")[1]
    assert run_on_ledger("policy", "restore", "stall", "--reason", "x")[0] == 2
    status, out, _ = run_on_ledger("policy", "restore", "slowdown", "--reason", "they were swapped back untested")
    assert status == 0 and "slowdown may evict again" in out
    (rule,) = json.loads(run_on_ledger("policy", "rules", "--format", "json")[1])["rules"]
    assert not rule["demoted"] and rule["restored"] and (rule["evictions"], rule["no_fault_found"]) == (0, 0)
    (event,) = ledger.events(kinds=[kinds.RULE_RESTORED])
    assert event.payload["reason"] == "they were swapped back untested"


def test_a_ledger_without_a_past_says_so(run_on_ledger: Run, tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger.db").close()
    assert "no rule has evicted a machine yet" in run_on_ledger("policy", "rules")[1]
