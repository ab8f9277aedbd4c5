"""GET /metrics of a launcher: what became of its workers, and of what it was asked for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.edge.launcher.metrics import LauncherFigures, Tally, render
from minder.ingest.sources.exposition import parse_exposition
from minder.model.observation import WorkerView
from minder.wire.tokens import write_token

PLAIN = {"PYTHONPATH": str(Path(__file__).parent / "scripts" / "no_torch")}  # workers start without torch: quick
DOCUMENTED = (Path(__file__).resolve().parents[2] / "docs/metrics.md").read_text(encoding="utf-8")


def read(text: str) -> dict[str, float]:
    return {name + "".join(f" {key}={labels[key]}" for key in sorted(labels)): value for name, labels, value in parse_exposition(text)}


def test_workers_are_told_by_state_and_exits_by_how() -> None:
    tally = Tally(Counter({("SIGKILL", "false"): 2}), Counter({"done": 3, "stale": 1}), 1)
    workers = (WorkerView(0, 1, 0, "running", 4), WorkerView(1, 2, None, "waiting", -1))
    found = read(render(LauncherFigures("llm", "m1", 1.5, 4, 2, workers, tally)).decode())
    assert found["minder_launcher_workers state=running"] == 1.0 == found["minder_launcher_workers state=waiting"]
    assert found["minder_launcher_workers state=exited"] == 0.0 and found["minder_launcher_slots"] == 2.0
    assert found["minder_launcher_exits_total expected=false how=SIGKILL"] == 2.0
    assert found["minder_launcher_requests_total outcome=stale"] == 1.0 and found["minder_launcher_register_errors_total"] == 1.0
    assert [name for name in found if f"`{name.split()[0]}`" not in DOCUMENTED] == []
    assert found["minder_launcher_generation"] == 4.0 and found["minder_launcher_start_time_seconds"] == 1.5


@pytest.mark.lab
def test_a_real_launcher_counts_a_worker_that_it_was_told_to_end(launch: Any, tmp_path: Path) -> None:
    token = write_token(tmp_path / "token")
    launcher = launch("idle.py", options=["--token-file", str(tmp_path / "token")], env=PLAIN).connect(token)
    assert httpx.get(f"{launcher.http.base_url}/metrics", trust_env=False).status_code == 401
    launcher.wait_states("waiting")
    launcher.post("ended", 1)
    launcher.wait_states("ended")
    found = read(launcher.http.get("/metrics").text)
    assert sum(value for name, value in found.items() if name.startswith("minder_launcher_exits_total expected=true")) == 1.0
    assert found["minder_launcher_requests_total outcome=done"] == 1.0 and found["minder_launcher_workers state=ended"] == 1.0
