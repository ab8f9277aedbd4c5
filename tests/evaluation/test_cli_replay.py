"""`minder replay` as a user calls it (docs/recordings.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minder.cli import main
from minder.model.clock import parse_time

KEYS = {"recording", "time", "kind", "tier", "machines", "confidence", "cause", "evidence"}
EVIDENCE_KEYS = {"source", "metric", "machine", "device", "observed", "expected", "since"}


def test_lines_have_the_agreed_keys_and_nothing_else_is_on_standard_output(
    long_hang: tuple[Path, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, columns = long_hang
    assert main(["replay", str(folder)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert set(lines[0]) >= KEYS
    assert set(lines[0]["evidence"][0]) >= EVIDENCE_KEYS
    assert (lines[0]["recording"], lines[0]["machines"], lines[0]["kind"]) == ("long-hang", [columns.culprit], "machine")
    assert parse_time(lines[0]["time"]) >= columns.onset_s


@pytest.mark.lab
def test_an_unreadable_recording_is_one_line_and_the_others_are_replayed(
    long_hang: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(tmp_path / "nowhere"), str(long_hang[0])]) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert "nowhere" in captured.err
    assert json.loads(captured.out.splitlines()[0])["recording"] == "long-hang"


@pytest.mark.lab
def test_a_healthy_recording_prints_no_line(healthy: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(healthy[0])]) == 0
    assert capsys.readouterr().out == ""


def test_until_before_the_onset_is_silent_and_a_table_can_be_read(long_hang: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    folder, columns = long_hang
    before = ["replay", str(folder), "--until", "2026-03-02T05:00:00Z"]
    assert main(before) == 0
    assert capsys.readouterr().out == ""
    assert main([*before, "--format", "table"]) == 0
    assert capsys.readouterr().out.split() == ["long-hang", "no", "verdict"]
    assert main(["replay", str(folder), "--format", "table"]) == 0
    assert columns.culprit in capsys.readouterr().out


def test_a_recording_without_data_says_that_nothing_was_judged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """No verdict about nothing is no healthy hour."""
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "job.toml").write_text('machines = ["a", "b", "c"]')
    assert main(["replay", str(tmp_path / "bare")]) == 0
    captured = capfd.readouterr()
    assert captured.out == "" and captured.err == "bare: there is no telemetry: no machine was compared with its peers\n"


@pytest.mark.parametrize("arguments", [["--format", "xml"], ["--until", "yesterday"]])
def test_bad_options_are_one_line_and_status_2(
    long_hang: tuple[Path, Any], arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(long_hang[0]), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1


@pytest.mark.lab
def test_a_folder_of_recordings_stands_for_them_as_in_evaluate(
    long_hang: tuple[Path, Any], healthy: tuple[Path, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where a truth.json lies beside them, which replay never reads."""
    for name, source in (("b", long_hang[0]), ("a", healthy[0])):
        (tmp_path / "set").mkdir(exist_ok=True)
        (tmp_path / "set" / name).symlink_to(source)
    (tmp_path / "set" / "truth.json").write_text("no truth")
    assert main(["replay", str(tmp_path / "set")]) == 0
    captured = capsys.readouterr()
    assert [json.loads(line)["machines"] for line in captured.out.splitlines()] == [[long_hang[1].culprit]] and captured.err == ""
