"""What doctor says of the steps of jobs that run now, and of the logs that agents follow."""

from __future__ import annotations

import json
import time
from pathlib import Path

from minder.doctor.steps import look_at_local_steps, look_at_logs, look_at_steps


def status(folder: Path, age_s: float = 0.0, **fields: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    body = {"job": "j", "now_s": time.time() - age_s, "phase": "running", "step": None, "no_steps": "", **fields}
    (folder / "status.json").write_text(json.dumps(body))
    return folder


def test_a_job_without_steps_is_said_with_its_remedy(tmp_path: Path) -> None:
    (found,) = look_at_steps(status(tmp_path, no_steps="no step has been read"))
    assert (found.status, found.seen) == ("missing", "no step has been read") and "--step-pattern" in found.mend
    (found,) = look_at_steps(status(tmp_path, step=12.0))
    assert (found.status, found.seen) == ("ok", "step 12")
    assert look_at_steps(status(tmp_path, age_s=60.0, no_steps="x")) == [], "nobody writes it any more"
    assert look_at_steps(status(tmp_path, phase="finished", no_steps="x")) == []
    assert look_at_steps(tmp_path / "nothing") == []


def test_jobs_of_this_machine_are_found_without_a_configuration(tmp_path: Path) -> None:
    status(tmp_path / "jobs" / "a", step=3.0)
    status(tmp_path / "jobs" / "b", job="b", no_steps="no step has been read")
    assert [finding.status for finding in look_at_local_steps(tmp_path)] == ["ok", "missing"]


def test_logs_that_cannot_be_read_are_named() -> None:
    good = {"path": "/x", "lines": 12, "unnumbered": 12, "step": None, "problem": ""}
    bad = {"path": "/y", "lines": 0, "unnumbered": 0, "step": None, "problem": "Permission denied"}
    (found,) = look_at_logs({"m1": [good]})
    assert found.status == "ok" and "12 of them have a loss without a step" in found.seen
    (found,) = look_at_logs({"m1": [good], "m2": [bad]})
    assert found.status == "missing" and found.seen == "m2: /y Permission denied"
    assert look_at_logs({"m1": []}) == []
