"""Replay of recordings: the right machine, nobody in a healthy job, and never a look ahead."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from minder.diagnose.load_detector import load_detector
from minder.diagnose.verdicts.signals import ReportRule
from minder.model.clock import format_time, parse_time
from minder.model.errors import RecordingError, RuleFailedError
from minder.model.evidence import Scores, Verdict
from minder.model.observation import Observation, RuleResult
from minder.model.telemetry import Window
from minder.offline.evaluation import replay as replay_module
from minder.offline.evaluation.ahead import score_ahead
from minder.offline.evaluation.replay import replay


def accused(verdicts: list[Verdict]) -> list[tuple[str, ...]]:
    return [item.machines for item in verdicts if item.kind in ("machine", "group") and item.tier in ("evict", "page")]


def test_a_hang_is_named_after_its_onset_and_once(hang: tuple[Path, Any], hang_verdicts: tuple[Verdict, ...]) -> None:
    _, columns = hang
    verdicts = list(hang_verdicts)
    assert accused(verdicts) == [(columns.culprit,)]
    assert columns.onset_s <= verdicts[0].time_s <= columns.onset_s + 120
    assert verdicts[0].since_s >= columns.onset_s - 5


def test_a_healthy_job_accuses_no_machine(healthy: tuple[Path, Any]) -> None:
    assert accused(list(replay(healthy[0]))) == []


@pytest.mark.lab
def test_a_recording_cut_at_the_verdict_gives_the_same_verdict(
    hang: tuple[Path, Any], hang_verdicts: tuple[Verdict, ...], tmp_path: Path
) -> None:
    folder, verdict = hang[0], hang_verdicts[0]
    assert list(replay(folder, verdict.time_s)) == [verdict]
    cut = tmp_path / "hang"
    shutil.copytree(folder, cut)
    frame = pl.read_parquet(cut / "telemetry.parquet")
    limit_ms = round(verdict.time_s * 1000)
    frame.filter(pl.col("timestamp").dt.epoch("ms") <= limit_ms).write_parquet(cut / "telemetry.parquet")
    assert list(replay(cut)) == [verdict]
    frame.filter(pl.col("timestamp").dt.epoch("ms") <= limit_ms - 1000).write_parquet(cut / "telemetry.parquet")
    assert list(replay(cut)) == []
    assert list(replay(folder, verdict.time_s - 0.5)) == []


@pytest.mark.parametrize("seconds", [380, *(pytest.param(seconds, marks=pytest.mark.release) for seconds in (60, 200, 365))])
def test_until_gives_a_prefix_of_the_whole(hang: tuple[Path, Any], hang_verdicts: tuple[Verdict, ...], seconds: int) -> None:
    folder, columns = hang
    until_s = float(columns.times_N[0]) + seconds
    assert list(replay(folder, until_s)) == [item for item in hang_verdicts if item.time_s <= until_s]


def event(time_s: float, kind: str, **fields: Any) -> str:
    return json.dumps({"time": format_time(time_s), "kind": kind, **fields}) + "\n"


def test_an_explicit_signal_is_known_at_the_next_row_and_works_without_telemetry(healthy: tuple[Path, Any], tmp_path: Path) -> None:
    source, columns = healthy
    folder = tmp_path / "xid"
    shutil.copytree(source, folder)
    at_s = float(columns.times_N[0]) + 100.0
    (folder / "events.jsonl").write_text(event(at_s, "xid", machine=columns.machines[2], code=79, message="fallen off the bus"))
    first = next(replay(folder))
    assert (first.machines, first.cause, first.tier) == ((columns.machines[2],), "explicit", "evict")
    assert at_s <= first.time_s <= at_s + columns.interval_s
    (folder / "telemetry.parquet").unlink()
    assert [item.machines for item in replay(folder)] == [(columns.machines[2],)]


def test_a_link_flap_that_heals_accuses_no_machine(healthy: tuple[Path, Any], tmp_path: Path) -> None:
    source, columns = healthy
    folder = tmp_path / "flap"
    shutil.copytree(source, folder)
    at_s = float(columns.times_N[0]) + 100.0
    name = columns.machines[1]
    (folder / "events.jsonl").write_text(
        event(at_s, "link", machine=name, state="down") + event(at_s + 6, "link", machine=name, state="up")
    )
    assert accused(list(replay(folder))) == []


def test_a_recording_with_only_a_job_is_no_data(healthy: tuple[Path, Any], tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    folder.mkdir()
    shutil.copy(healthy[0] / "job.toml", folder / "job.toml")
    assert list(replay(folder)) == []


def test_a_folder_without_a_job_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"job\.toml"):
        list(replay(tmp_path))


def test_a_machine_that_left_the_job_is_not_accused(hang: tuple[Path, Any], tmp_path: Path) -> None:
    source, columns = hang
    folder = tmp_path / "left"
    shutil.copytree(source, folder)
    leaves_s = columns.onset_s - 30.0
    (folder / "events.jsonl").write_text(event(leaves_s, "membership", joined=[], left=[columns.culprit]))
    assert (columns.culprit,) not in accused(list(replay(folder)))


def test_times_in_lines_parse_back() -> None:
    assert parse_time(format_time(1_772_431_951.25)) == 1_772_431_951.25


def test_rows_scored_ahead_are_those_that_the_judge_sees(hang: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a job whose machines change: every row, in blocks, with the scores of single rows."""
    source, columns = hang
    folder, seen = tmp_path / "changing", []
    shutil.copytree(source, folder)
    left, start_s = columns.machines[1], float(columns.times_N[0])
    lines = [event(start_s + 100.0, "membership", joined=[], left=[left]), event(start_s + 290.0, "membership", joined=[left], left=[])]
    (folder / "events.jsonl").write_text("".join(lines))
    make = load_detector("minder-raw")

    class Both:
        def __init__(self, windows: Any) -> None:
            self.ahead, self.live = score_ahead(make({}), windows), make({})

        def score(self, window: Window) -> list[Scores]:
            made, single = self.ahead.score(window), self.live.score(window)
            assert [item.score_M.tolist() for item in made] == [item.score_M.tolist() for item in single]
            seen.extend((len(item.machines), float(item.score_M.max())) for item in made)
            return made

        def learn(self, window: Window, anomalous: frozenset[str]) -> None: ...

    monkeypatch.setattr(replay_module, "score_ahead", lambda detector, windows: Both(windows))
    list(replay(folder, make=make))
    assert {count for count, _ in seen} == {len(columns.machines), len(columns.machines) - 1}
    assert max(score for _, score in seen) > 0.0


def test_a_rule_that_raises_takes_no_verdict_away_but_the_replay_does_not_pass_for_a_whole_one(
    hang: tuple[Path, Any], hang_verdicts: tuple[Verdict, ...], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: ReportRule, observation: Observation) -> RuleResult:
        raise KeyError("severity")

    monkeypatch.setattr(ReportRule, "observe", fail)
    found: list[Verdict] = []
    with pytest.raises(RuleFailedError, match=r"reports \d+ times.*KeyError: 'severity'"):
        for verdict in replay(hang[0]):
            found.append(verdict)
    assert tuple(found) == hang_verdicts
    assert caplog.text.count("Traceback") == 1
