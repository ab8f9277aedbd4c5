"""status.json: what a terminal shows."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from minder.act.controller.reporting.status import read_status, write_status
from minder.act.controller.state import JobState
from minder.model.evidence import Scores
from minder.model.observation import MachineView, WorkerView


def test_it_holds_roles_scores_and_steps_and_no_nan(tmp_path: Path) -> None:
    state = JobState("llm", generation=2, rank_machine={0: "a"}, phase="running", barred={"b"})
    views = {name: MachineView(name, 0.1, None, (WorkerView(0, 1, 0, "running", 2, 7),)) for name in "abcd"}
    scores = Scores(1.0, ("a", "b"), np.array([6.0, 1.0]), 3.0)
    write_status(tmp_path / "s.json", 5.0, state, views, {"standbys": ["c"], "scores": scores, "loss": math.nan, "step": -math.inf})
    text = (tmp_path / "s.json").read_text()
    assert "NaN" not in text and "Infinity" not in text
    status = read_status(tmp_path / "s.json") or {}
    assert {row["name"]: row["role"] for row in status["machines"]} == {"a": "training", "b": "evicted", "c": "standby", "d": "spare"}
    assert (status["machines"][0]["score"], status["machines"][0]["step"], status["loss"], status["step"]) == (2.0, 7, None, None)
    assert [path.name for path in tmp_path.iterdir()] == ["s.json"]


def test_before_the_first_one_and_from_half_a_file_there_is_none(tmp_path: Path) -> None:
    assert read_status(tmp_path / "s.json") is None
    for text in ("", "{", "[]"):
        (tmp_path / "s.json").write_text(text)
        assert read_status(tmp_path / "s.json") is None
    (tmp_path / "s.json").write_text(json.dumps({"job": "x"}))
    assert read_status(tmp_path / "s.json") == {"job": "x"}
