"""`minder evaluate` as a user calls it: a table or one JSON document, and what cannot be evaluated is told without stopping the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minder.cli import main

BEGIN, XID, END = "2026-03-02T06:00:00Z", "2026-03-02T06:12:10Z", "2026-03-02T06:30:00Z"


def write_recording(folder: Path, culprit: str | None = "m1", machines: int = 4) -> None:
    """A job whose kernel log names a machine, or nobody: no telemetry is needed to judge it."""
    folder.mkdir(parents=True)
    names = ", ".join(f'"m{index}"' for index in range(machines))
    layout = f"gpus_per_machine = 1\n[parallelism]\ntensor = 1\npipeline = 1\ndata = {machines}\n"
    (folder / "job.toml").write_text(f'name = "{folder.name}"\nmachines = [{names}]\n{layout}')
    events = [{"time": BEGIN, "kind": "log", "level": "info", "message": "begins"}]
    if culprit is not None:
        events.append({"time": XID, "kind": "xid", "machine": culprit, "code": 79, "message": "GPU has fallen off the bus"})
    events.append({"time": END, "kind": "log", "level": "info", "message": "ends"})
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Three recordings with their truth beside them: found, wrong, healthy and quiet."""
    folder = tmp_path / "set"
    for name, culprit in (("good", "m1"), ("bad", "m2"), ("calm", None)):
        write_recording(folder / name, culprit)
    fault = {"fault": "gpu_card_drop", "machine": "m1", "onset": "2026-03-02T06:12:04Z"}
    truths = [{"recording": "good", **fault}, {"recording": "bad", **fault}, {"recording": "calm", "fault": None}]
    (folder / "truth.json").write_text(json.dumps(truths))
    return folder


def test_one_json_document_with_every_recording(labelled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(labelled), "--format", "json"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert {case["recording"]: case["outcome"] for case in report["cases"]} == {"good": "found", "bad": "wrong", "calm": "quiet"}
    assert report["summary"]["precision"]["value"] == 0.5
    assert captured.err == ""
    (confusion,) = report["confusions"]
    assert confusion["accusations"][0]["machines"] == ["m2"] and 0 <= confusion["accusations"][0]["after_s"] <= 10


def test_the_table_and_the_files(labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(labelled / "good"), str(labelled / "bad"), "--out", str(tmp_path / "out")]) == 0
    assert "2 recordings, 1 found, 1 wrong" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.json", "report.html", "figures"}


def test_what_cannot_be_evaluated_is_told_and_the_rest_is_evaluated(labelled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_recording(labelled / "unlabelled")
    (labelled / "good" / "events.jsonl").write_text("no json\n{}\n")
    paths = [labelled, labelled / "gone"]
    assert main(["evaluate", *map(str, paths), "--format", "json"]) == 2
    captured = capsys.readouterr()
    assert [case["recording"] for case in json.loads(captured.out)["cases"]] == ["bad", "calm"]
    lines = captured.err.splitlines()
    assert len(lines) == 3 and all(line.startswith("minder: ") for line in lines)
    assert any("unlabelled" in line and "truth" in line for line in lines) and any("events.jsonl" in line for line in lines)


def test_a_truth_about_a_machine_that_is_not_in_the_job_is_reported(labelled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = [{"recording": "good", "fault": "hang", "machine": "m77", "onset": XID}, {"recording": "ghost", "fault": None}]
    path = labelled.parent / "other.json"
    path.write_text(json.dumps(truth))
    assert main(["evaluate", str(labelled / "good"), "--truth", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "m77" in captured.err and "ghost" in captured.err and len(captured.err.splitlines()) == 2


@pytest.mark.parametrize(
    "arguments",
    [["--format", "xml"], ["--detector", "crystal-ball"], ["--truth", "gone.json"], ["--detector", "./no/such/folder"], ["--jobs", "0"]],
)
def test_bad_options_are_one_line_and_exit_2(labelled: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(labelled), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1


@pytest.mark.lab
def test_several_processes_find_the_same(labelled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(labelled), "--format", "json"]) == 0
    alone = capsys.readouterr().out
    assert main(["evaluate", str(labelled), "--format", "json", "--jobs", "2"]) == 0
    assert capsys.readouterr().out == alone
