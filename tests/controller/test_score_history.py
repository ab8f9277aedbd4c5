"""Scores of past minutes: the highest of each, of one machine, and never more than two files."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

import minder.act.controller.reporting.score_history as score_history
from minder.act.controller.reporting.score_history import ScoreHistory, read_scores

ALWAYS = (0.0, 1e12)


def test_each_minute_keeps_the_highest_score_of_a_machine(tmp_path: Path) -> None:
    history = ScoreHistory(path := tmp_path / "scores.jsonl")
    for second in range(0, 125, 5):
        history.note(1000.0 + second, {"m1": 0.2, "m10": 3.0 if second == 30 else 0.1, "m2": float("nan")})
    assert read_scores(path, "m10", ALWAYS) == [(1060.0, 3.0), (1120.0, 0.1)]
    assert read_scores(path, "m10", (1100.0, 1200.0)) == [(1120.0, 0.1)]
    assert read_scores(path, "m1", ALWAYS) == [(1060.0, 0.2), (1120.0, 0.2)]
    assert read_scores(path, "m2", ALWAYS) == [] == read_scores(tmp_path / "none.jsonl", "m1", ALWAYS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_keeps_two_files_of_bounded_size_and_goes_on_after_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_history, "_MOST_BYTES", 200)
    history = ScoreHistory(path := tmp_path / "scores.jsonl")
    for minute in range(40):
        history.note(60_000.0 + 60.0 * minute, {"m1": float(minute)})
    kept = read_scores(path, "m1", ALWAYS)
    assert len(list(tmp_path.iterdir())) == 2 and 4 < len(kept) < 20 and kept[-1][1] == 39.0
    history.note(100.0, {"m1": 7.0})
    history.note(160.0, {"m1": 7.0})
    assert read_scores(path, "m1", (0.0, 200.0)) == [(160.0, 7.0)]
    ScoreHistory(tmp_path / "no" / "scores.jsonl").note(0.0, {"m1": 1.0})
