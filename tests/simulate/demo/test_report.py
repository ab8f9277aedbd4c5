from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest

from minder.simulate.demo.report import report_json, report_markdown, report_text, write_report
from minder.simulate.lab.reference import Comparison

EQUAL = Comparison(True, None, 60, "60 losses and the final parameters agree bit for bit")


def test_a_run_that_went_right_says_what_when_and_how_to_undo_it(make_report) -> None:  # type: ignore[no-untyped-def]
    report = make_report(comparison=EQUAL)
    text = report_text(report)
    assert report.right
    assert text.startswith("minder demo: hang in lab-86b2-m2, seed 0: as it must be\n")
    assert "lab-86b2-m2, lab-86b2-s0 in its place; 2 generations; the job ran to its end" in text
    moments = "detected 3.0 s, decided 3.1 s, evidence captured 3.5 s, evicted 3.6 s, restarted 4.4 s, first new step 5.5 s"
    assert moments in text
    assert "bit for bit: 60 steps compared" in text
    assert "its training process has not run for 2.6 s" in text
    assert "its agent still answers" in text
    assert "+0.0 s  fault injected: stopped processes [4711]" in text
    (undo,) = (line for line in text.splitlines() if "minder machine return lab-86b2-m2" in line)
    assert undo.endswith(f" --ledger {report.ledger}") and undo.count("--ledger") == 1
    for name in ("report.md", "report.json", "ledger.db", "recording"):
        assert str(report.folder) in text
        assert name in text


def test_the_command_that_undoes_it_works_as_printed(make_report) -> None:  # type: ignore[no-untyped-def]
    from minder.cli import main
    from minder.record.incidents import Ledger, kinds

    report = make_report(comparison=EQUAL)
    (command,) = report_json(report)["undo"]
    words = shlex.split(command)
    assert words[:2] == ["minder", "machine"]
    assert main(words[1:]) == 0
    with Ledger(report.ledger) as ledger:
        assert [event.payload["machine"] for event in ledger.events(kinds=[kinds.UNBARRED])] == ["lab-86b2-m2"]


def test_every_command_that_the_report_prints_names_the_ledger(make_report) -> None:  # type: ignore[no-untyped-def]
    report = make_report(comparison=EQUAL)
    printed = [line for line in report_text(report).splitlines() if "minder machine " in line or "minder incidents " in line]
    assert {line.partition("minder ")[2].split(" ")[1] for line in printed} >= {"return", "outcome", "show"}
    assert all(line.count(f"--ledger {report.ledger}") == line.count(" minder ") for line in printed)


def test_what_to_type_next_works_as_printed(make_report) -> None:  # type: ignore[no-untyped-def]
    from minder.cli import main

    lines = report_text(make_report(comparison=EQUAL)).splitlines()
    at = lines.index("To look closer")
    commands = [shlex.split(line) for line in lines[at + 1 : lines.index("", at)]]
    assert [words[1:3] for words in commands[:2]] == [["incidents", "show"], ["machine", "outcome"]]
    assert [main(words[1:]) for words in commands] == [0, 0, 0]


def test_times_count_from_the_injection_that_the_demo_knows(make_report) -> None:  # type: ignore[no-untyped-def]
    text = report_text(make_report(comparison=EQUAL))
    assert "downtime in all: 5.5 s" in text, "from the injection, not from the verdict's own estimate half a second later"


def test_another_incident_keeps_its_own_onset(told, make_report) -> None:  # type: ignore[no-untyped-def]
    from minder.model.evidence import Verdict
    from minder.record.incidents import Ledger

    fault_s = told.injected.time_s
    page = Verdict(fault_s + 13.0, "machine", "page", ("lab-86b2-m3",), "slowdown", 0.46, fault_s + 11.0)
    with Ledger(told.ledger_path) as ledger:
        ledger.open_incident(page, job=told.job, time_s=fault_s + 13.0)
    report = make_report(comparison=EQUAL)
    assert report.wrong == ("lab-86b2-m3 was accused, the fault was in lab-86b2-m2",)
    other = report_text(report).split("Incident lab-86b2-2")[1]
    assert "detect: 2.0 s" in other
    assert "fault injected" not in other


def test_stages_of_the_decision_are_in_the_file_and_not_on_the_screen(make_report) -> None:  # type: ignore[no-untyped-def]
    report = make_report(comparison=EQUAL)
    assert "stage budgets: pass" not in report_text(report)
    assert "stage budgets: pass" in report_markdown(report)


@pytest.mark.parametrize(
    ("comparison", "said"),
    [
        (Comparison(False, 31, 30, "step 31, generation 2: loss a instead of b"), "step 31, generation 2: loss a instead of b"),
        (None, "were not compared"),
    ],
)
def test_losses_that_differ_or_were_not_compared_make_the_run_wrong(make_report, comparison, said) -> None:  # type: ignore[no-untyped-def]
    report = make_report(comparison=comparison)
    assert not report.right
    text = report_text(report)
    assert "NOT as it must be" in text
    assert said in next(line for line in text.splitlines() if line.startswith("  wrong"))
    assert report_json(report)["right"] is False


def test_a_plain_script_is_promised_no_equal_losses(make_report) -> None:  # type: ignore[no-untyped-def]
    report = make_report()
    options = replace(report.played.options, plain=True)
    report = replace(report, played=replace(report.played, options=options))
    assert report.right
    assert "not compared: a script that calls no minder function" in report_text(report)
    assert report_json(report)["losses"]["equal"] is None


def test_a_wrong_outcome_is_named(make_report) -> None:  # type: ignore[no-untyped-def]
    report = make_report(comparison=EQUAL)
    outcome = replace(report.played.outcome, right=False, wrong=("lab-86b2-m4 was accused, the fault was in lab-86b2-m2",))
    report = replace(report, played=replace(report.played, outcome=outcome))
    assert not report.right
    assert "lab-86b2-m4 was accused" in report_text(report)


def test_a_quiet_run_has_no_incident(make_report) -> None:  # type: ignore[no-untyped-def]
    report = make_report(comparison=EQUAL, events=())
    outcome = replace(report.played.outcome, fault="none", machine=None, evicted=(), generations=1)
    options = replace(report.played.options, fault="none")
    report = replace(report, played=replace(report.played, outcome=outcome, options=options))
    assert report.milestones == (), "no fault was injected, whatever the clock says"
    text = report_text(report)
    assert "No incident" in text
    assert "evicted         none; 1 generation; the job ran to its end" in text
    document = report_json(report)
    assert document["incidents"] == []
    assert document["injected"] is None


def test_the_documents_in_the_folder_say_the_same(make_report) -> None:  # type: ignore[no-untyped-def]
    report = make_report(comparison=EQUAL)
    report = replace(report, picture=report.folder / "incident.png")
    write_report(report)
    document = json.loads((report.folder / "report.json").read_text())
    assert document == json.loads(json.dumps(report_json(report)))
    assert document["seconds_after_fault"] == {
        "detected": 3.0,
        "decided": 3.1,
        "captured": 3.5,
        "evicted": 3.6,
        "restarted": 4.4,
        "first_step": 5.5,
    }
    assert (document["downtime_s"], document["steps_lost"], document["evicted"]) == (5.5, 1, ["lab-86b2-m2"])
    assert document["losses"]["steps_compared"] == 60
    assert document["incidents"][0]["captured"] == ["stacks of lab-86b2-m2"]
    markdown = (report.folder / "report.md").read_text()
    assert "](incident.png)" in markdown
    assert "captured stacks of lab-86b2-m2" in markdown
