"""GET /v1/metrics: open incidents and the age of each controller's last status, and only of jobs that the token covers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from minder.ingest.sources.exposition import parse_exposition
from serve.state import Service

As = Callable[..., dict[str, str]]
DOCUMENTED = (Path(__file__).resolve().parents[2] / "docs/metrics.md").read_text(encoding="utf-8")


def read(http: httpx.Client, headers: dict[str, str]) -> dict[tuple[str, str], float]:
    text = http.get("/v1/metrics", headers=headers).raise_for_status().text
    return {(name, labels.get("training_job", "")): value for name, labels, value in parse_exposition(text)}


def test_open_incidents_and_silent_controllers_are_told(service: Service, http: httpx.Client, as_: As, tmp_path: Path, clock: Any) -> None:
    status = tmp_path / "status.json"
    status.write_text(json.dumps({"job": "llm", "now_s": clock.now_s() - 40.0}))
    service.settings.status_files.update({"llm": status, "other": tmp_path / "nothing.json"})
    found = read(http, as_("viewer"))
    assert found["minder_service_open_incidents", "llm"] >= 1.0
    assert found["minder_service_controller_status_age_seconds", "llm"] == 40.0
    assert found["minder_service_controller_status_age_seconds", "other"] == float("inf")
    status.write_text(json.dumps({"job": "llm", "now_s": clock.now_s() + 3600.0}))  # a clock was set back: nobody can tell how old it is
    assert read(http, as_("viewer"))["minder_service_controller_status_age_seconds", "llm"] == 3600.0
    names = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name, _ in found}
    assert [name for name in sorted(names) if f"`{name}`" not in DOCUMENTED] == []


def test_a_token_for_one_job_is_told_of_no_other(service: Service, http: httpx.Client, as_: As, tmp_path: Path) -> None:
    service.settings.status_files.update({"llm": tmp_path / "a", "other": tmp_path / "b"})
    found = read(http, as_("viewer", jobs=("other",)))
    assert {job for _, job in found if job} == {"other"}
