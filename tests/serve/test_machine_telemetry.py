"""A machine's telemetry in a window: from what the service can reach, and what to set where it can reach nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.config import parse_config
from minder.ingest.sources.jobfile import RecordedJob
from minder.ingest.sources.recorder import Recorder
from minder.model.telemetry import Sample
from minder.model.topology import Parallelism
from minder.record.incidents import Ledger, kinds
from serve.state import Service
from tests.serve.browsing import send_token, token_of

As = Callable[..., dict[str, str]]
NOW_S = 1_700_000_000.0


def configure(service: Service, folder: Path, **more: Any) -> None:
    service.settings.jobs["llm"] = parse_config({"name": "llm", "machines": [{"name": "m1"}, {"name": "m2"}], **more}, "job.toml")
    service.settings.status_files["llm"] = folder / "status.json"


def test_where_nothing_is_reached_it_says_what_to_set(http: httpx.Client, as_: As, service: Service, tmp_path: Path) -> None:
    headers = as_()
    found = http.get("/v1/machines/m1/telemetry", headers=headers).json()
    assert (found["source"], found["metrics"], found["scores"]) == ("none", {}, []) and "telemetry.url" in found["no_data"]
    configure(service, tmp_path)
    assert "record_dir" in http.get("/v1/machines/m1/telemetry", headers=headers).json()["no_data"]
    for query, status in (("from=soon", 422), ("minutes=0", 422), ("from=2023-01-01&to=2023-02-01", 422), ("job=other", 404)):
        assert http.get(f"/v1/machines/m1/telemetry?{query}", headers=headers).status_code == status, query
    assert http.get("/v1/machines/m9/telemetry", headers=headers).status_code == 404
    assert http.get("/v1/machines/m1/telemetry", headers=as_(jobs=("other",))).status_code == 404


def test_the_controllers_last_minutes_and_what_an_incident_kept(
    http: httpx.Client, as_: As, service: Service, tmp_path: Path, ledger: Ledger
) -> None:
    configure(service, tmp_path)
    times = [NOW_S - 10.0, NOW_S - 5.0]
    panel = {"low": [1.0, 1.0], "middle": [2.0, 2.0], "high": [3.0, 3.0], "lines": {"m1": [9.0, None]}}
    (tmp_path / "live.json").write_text(json.dumps({"machines": 2, "times": times, "metrics": {"gpu_power_draw_watts": panel}}))
    (tmp_path / "scores.jsonl").write_text(f'{{"time_s":{NOW_S - 60},"m1":0.4,"m2":1.2}}\n')
    found = http.get("/v1/machines/m1/telemetry", headers=as_()).json()
    assert (found["source"], found["peers"], found["times"]) == ("live", 1, times) and found["scores"] == [[NOW_S - 60, 0.4]]
    assert found["metrics"]["gpu_power_draw_watts"] == {
        "unit": "W",
        "line": [9.0, None],
        **{key: panel[key] for key in ("low", "middle", "high")},
    }
    assert "telemetry.url" in found["no_data"], "of the rest of the hour nothing is known"
    assert http.get("/v1/machines/m2/telemetry", headers=as_()).json()["source"] == "none", "it does not stand out"
    excerpt = {"fault_s": NOW_S - 895.0, "verdict_s": NOW_S - 890.0, "peers": 1, "times": [NOW_S - 900.0, NOW_S - 890.0]}
    kept = {key: [0.9, 0.9] for key in ("low", "middle", "high")} | {"line": [0.9, 0.1]}
    data = excerpt | {"metrics": {"cpu_usage_ratio": kept}}
    ledger.append(kinds.EVIDENCE, {"machine": "m2", "what": "telemetry", "data": data}, incident="llm-1", job="llm", time_s=NOW_S - 880.0)
    found = http.get("/v1/machines/m2/telemetry", headers=as_()).json()
    assert found["source"] == "ledger" and found["metrics"]["cpu_usage_ratio"]["line"] == [0.9, 0.1]
    assert http.get("/v1/machines/m2/telemetry?minutes=5", headers=as_()).json()["source"] == "none"


def test_the_page_draws_the_window_out_of_the_recording(http: httpx.Client, service: Service, tmp_path: Path) -> None:
    with Recorder(tmp_path / "r", RecordedJob("llm", ("m1", "m2"), (), 1, Parallelism(data=2), 1.0, {})) as recorder:
        for second in range(60):
            power = {"m1": 500.0, "m2": 120.0}
            recorder.append_samples([Sample(NOW_S - 60 + second, name, {"gpu_power_draw_watts": value}) for name, value in power.items()])
    configure(service, tmp_path, record_dir=str(tmp_path / "r"))
    assert send_token(http, token_of(service)).status_code == 303
    page = http.get("/machines/m2?minutes=15").text
    assert 'hx-get="/machines/m2/window?minutes=15"' in page and "Evictions" in page and "/incidents/llm-1" in page
    part = http.get("/machines/m2/window?minutes=15").text
    assert part.count("<svg") == 1 and "m2 had 120 W on average, 120 W at the end; its 2 peers had" in part and "recording" in part
    refused = http.get("/machines/m2/window?from=soon")
    assert refused.status_code == 200 and "from is no time" in refused.text


@pytest.mark.parametrize("url", ["http://127.0.0.1:9"])
def test_a_prometheus_that_does_not_answer_is_named(http: httpx.Client, as_: As, service: Service, tmp_path: Path, url: str) -> None:
    configure(service, tmp_path, telemetry={"url": url})
    found = http.get("/v1/machines/m1/telemetry", headers=as_()).json()
    assert found["source"] == "none" and url in found["no_data"]
