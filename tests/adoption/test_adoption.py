"""What a dry run would have done, a person's yes or no to it, and the policy tried again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from minder.act.policy.config import PolicyConfig
from minder.cli import main
from minder.model.decision import Decision, Price
from minder.model.errors import BadInputError
from minder.model.evidence import Evidence, Verdict
from minder.offline.adoption.answers import find_answered
from minder.offline.adoption.reading import read_adoption
from minder.offline.adoption.report import Adoption
from minder.offline.adoption.words import adoption_text
from minder.record.incidents import Ledger, kinds

MACHINES = [f"m{number}" for number in range(16)]
BEGUN_S = 1_700_000_000.0
DAY_S = 86_400.0


class Week:
    """A dry run's ledger: each `trouble` is a stall that a person ended an hour after it was decided."""

    def __init__(self, path: Path, registered: bool = True) -> None:
        self.path, self.ledger, self.end_s = path, Ledger(path), BEGUN_S + 7 * DAY_S
        facts: dict[str, Any] = {"machines": MACHINES, "standbys": ["s0", "s1"], "gpus": 128}
        if registered:
            self.ledger.append(kinds.JOB_REGISTERED, facts, job="llm", time_s=BEGUN_S)
            ranks = {str(rank): machine for rank, machine in enumerate(MACHINES)}
            started = {"generation": 1, "machines": MACHINES, "rank_machine": ranks}
            self.ledger.append(kinds.GENERATION_STARTED, started, job="llm", time_s=BEGUN_S)
        else:
            self.ledger.append(kinds.NOTE, {"text": "attached to llm", "attached": facts}, job="llm", time_s=BEGUN_S)

    def trouble(self, day: float, machine: str, reason: str = "dry_run", confidence: float = 0.95, priced: bool = True) -> str:
        time_s = BEGUN_S + day * DAY_S
        evidence = (Evidence("telemetry", machine, "", "gpu_power_draw_watts", None, 130.0, 550.0),)
        verdict = Verdict(time_s, "machine", "evict", (machine,), "stall", confidence, time_s - 30.0, evidence=evidence)
        incident = self.ledger.open_incident(verdict, job="llm", time_s=time_s)
        price = Price(128 * 930.0, 128 * 2500.0) if priced else None
        decision = Decision(f"evict-{day}", time_s, "page", (machine,), reason, f"{reason}: as it says", verdict, price)  # type: ignore[arg-type]
        self.ledger.append(kinds.DECISION, decision, job="llm", incident=incident, time_s=time_s, operation_id=decision.operation_id)
        self.ledger.append(kinds.CLOSED, {"by": "ann"}, job="llm", incident=incident, time_s=time_s + 3600.0)
        return incident

    def report(self, **policy: Any) -> Adoption:
        policies = {"llm": PolicyConfig(**policy)} if policy else {}
        return read_adoption(self.ledger.events, 8 * DAY_S, "newest", None, policies)


@pytest.fixture
def week(tmp_path: Path) -> Any:
    week = Week(tmp_path / "ledger.db")
    yield week
    week.ledger.close()


def test_it_says_whom_when_on_what_and_what_was_saved(week: Week) -> None:
    incidents = [week.trouble(day, f"m{day}") for day in (1, 2, 3)]
    found = week.report()
    assert [(item.incident, item.machines, item.stopped_by) for item in found.would] == [
        (name, (f"m{day}",), "") for day, name in zip((1, 2, 3), incidents, strict=True)
    ]
    assert found.saved_gpu_s == pytest.approx(3 * 128 * (3600.0 - 930.0)) and all(item.measured for item in found.would)
    text = adoption_text(found)
    assert "would have evicted 3 machines in 3 incidents" in text and "saved 285 GPU-hours" in text
    assert "gpu_power_draw_watts is 130, expected 550" in text and "Right: 0, wrong: 0, no answer yet: 3." in text
    week.trouble(4, "m1")
    assert "would have evicted 3 machines in 4 incidents" in adoption_text(week.report()), "m1 is one machine"


def test_the_page_shows_what_is_printed(week: Week) -> None:
    for day in (1, 2, 3):
        week.trouble(day, f"m{day}")
    page = (Path(__file__).resolve().parents[2] / "docs/adoption.md").read_text()
    block = page.split("```text\n")[1].split("```")[0]
    assert block in adoption_text(week.report())


def test_a_wrong_one_costs_instead_of_saving(week: Week) -> None:
    right, wrong = week.trouble(1, "m1"), week.trouble(2, "m2")
    for incident, machine, outcome in ((right, "m1", "confirmed"), (wrong, "m2", "no-fault-found")):
        week.ledger.append(kinds.OUTCOME, {"machine": machine, "outcome": outcome}, job="llm", incident=incident, time_s=week.end_s)
    found = week.report()
    assert [item.answer for item in found.would] == ["yes", "no"]
    assert found.saved_gpu_s == pytest.approx(128 * (3600.0 - 930.0) - 128 * 930.0)
    (tried,) = found.tried
    assert (tried.right, tried.wrong, tried.unanswered) == (1, 1, 0)
    assert 'approval = "required"' in adoption_text(found)


def test_what_other_settings_would_change_is_weighed_by_the_answers(week: Week) -> None:
    week.trouble(1, "m1")
    wrong = week.trouble(2, "m2", confidence=0.5)
    week.ledger.append(kinds.OUTCOME, {"machine": "m2", "outcome": "no-fault-found"}, job="llm", incident=wrong, time_s=week.end_s)
    (tried,) = week.report(break_even=2.0).tried
    assert (tried.unanswered, tried.wrong, tried.spared, tried.missed) == (1, 0, 1, 0)
    assert [name for name, _ in tried.changes] == [wrong]


def test_under_approval_each_eviction_waits_for_a_yes(week: Week) -> None:
    week.trouble(1, "m1")
    assert "1 eviction, each after an operator's yes, right" in adoption_text(week.report(approval="required"))
    assert "operator" not in adoption_text(week.report(approval="none"))


def test_settings_of_another_job_are_refused_and_not_left_out(week: Week) -> None:
    week.trouble(1, "m1")
    with pytest.raises(BadInputError, match="those of other, and the decisions are of llm"):
        read_adoption(week.ledger.events, 8 * DAY_S, "newest", None, {"other": PolicyConfig()})


def test_a_job_that_is_only_watched_has_a_report_too(tmp_path: Path) -> None:
    week = Week(tmp_path / "ledger.db", registered=False)
    week.trouble(1, "m1")
    week.trouble(2, "m2", reason="no_standby", priced=False)
    found = week.report()
    assert [item.machines for item in found.would] == [("m1",)] and [item.stopped_by for item in found.held] == ["no_standby"]
    assert found.held[0].saved_gpu_s == pytest.approx(128 * (3600.0 - 930.0))
    assert [name for name, what in found.tried[0].changes if "would be evicted" in what] == [found.held[0].incident]
    week.ledger.close()


def test_what_lies_outside_the_period_or_was_done_is_left_out(week: Week) -> None:
    week.trouble(1, "m1")
    assert read_adoption(week.ledger.events, 60.0, "newest", None, {}).would == ()
    assert "no decision" in adoption_text(read_adoption(week.ledger.events, DAY_S, "newest", "another", {}))


def test_an_answer_to_something_else_is_refused(week: Week) -> None:
    name = week.trouble(1, "m1")
    found = week.report()
    with pytest.raises(BadInputError, match="decide for one"):
        find_answered(found, [name], [name])
    with pytest.raises(BadInputError, match="no eviction"):
        find_answered(found, ["gone-1"], [])


def test_a_yes_goes_into_the_ledger_once(week: Week, capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong = week.trouble(1, "m1"), week.trouble(2, "m2")
    words = ["report", "--adoption", "--until", "newest", "--since", "8d", "--ledger", str(week.path), "--format", "json"]
    for _ in range(2):
        assert main([*words, "--yes", right, "--no", wrong, "--until", "2023-11-20T00:00:00Z"]) == 0
    document = json.loads(capsys.readouterr().out.split("\n}\n")[0] + "\n}")
    assert (document["right"], document["wrong"], document["not_told"]) == (1, 1, 0)
    outcomes = [(event.incident, event.payload["outcome"]) for event in week.ledger.events(kinds=[kinds.OUTCOME])]
    assert outcomes == [(right, "confirmed"), (wrong, "no-fault-found")]


def test_the_command_that_is_printed_works_as_it_stands(week: Week, capsys: pytest.CaptureFixture[str]) -> None:
    name = week.trouble(1, "m1")
    assert main(["report", "--adoption", "--since", "3000d", "--ledger", str(week.path)]) == 0
    command = next(line for line in capsys.readouterr().out.splitlines() if "no answer yet: minder" in line)
    words = shlex.split(command.partition("no answer yet: minder ")[2].removesuffix(" (or --no)"))
    assert main(words) == 0  # of a period that the incident is not in
    assert [event.incident for event in week.ledger.events(kinds=[kinds.OUTCOME])] == [name]


def test_it_asks_and_takes_a_skip(week: Week, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    names = [week.trouble(1, "m1"), week.trouble(2, "m2")]
    answers = iter(["y", "skip"])
    monkeypatch.setattr("typer.prompt", lambda *words, **more: next(answers))
    words = ["report", "--adoption", "--ask", "--since", "8d", "--until", "2023-11-20T00:00:00Z", "--ledger", str(week.path)]
    assert main(words) == 0
    assert "Right: 1, wrong: 0, no answer yet: 1." in capsys.readouterr().out
    assert [event.incident for event in week.ledger.events(kinds=[kinds.OUTCOME])] == names[:1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--out says where"),
        (["--yes", "x"], "go with --adoption"),
        (["--adoption", "--format", "xml"], "use text or json"),
        (["--adoption", "--since", "soon"], "--since"),
    ],
)
def test_bad_input_is_one_line(words: list[str], message: str, week: Week, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *words, "--ledger", str(week.path)]) == 2
    assert message in capsys.readouterr().err
