"""Maintenance windows over HTTP, what the policy makes of them, standby pools, and models."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.act.controller.reporting.status import write_status
from minder.act.controller.state import fold_job
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.policy.policy import Policy
from minder.model.clock import FakeClock
from minder.model.evidence import Verdict
from minder.model.observation import JobView, MachineView
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.proofs import Proof
from serve.state import Service
from tests.serve.browsing import send_token, token_of

As = Callable[..., dict[str, str]]
NOW_S = 1_700_000_000.0
VERDICT = Verdict(NOW_S, "machine", "evict", ("m1",), "explicit", 0.98, NOW_S - 5.0)


def act(http: httpx.Client, headers: dict[str, str], path: str, body: dict[str, Any], key: str = "k") -> httpx.Response:
    return http.post(path, headers=headers | {"Idempotency-Key": key}, json=body)


def decide(ledger: Ledger, now_s: float = NOW_S, **more: Any) -> tuple[str, str, str]:
    view = JobView("llm", 2, "running", ("m1", "m3", "m4", "m5"), ("s1", "s2"), (), {0: "m1"}, 0.0, NOW_S - 900.0)
    racks = {"m1": {"rack": "r1"}, "m3": {"rack": "r2"}, "s1": {"rack": "r3"}}
    context = PolicyContext(now_s=now_s, job=view, standbys_ready=("s1", "s2"), domains=racks, gpus=4, since_checkpoint_s=1.0)
    (decision,) = Policy(PolicyConfig(dry_run=False)).decide([replace(VERDICT, **more)], ledger.history("llm", now_s), context)[:1]
    return decision.action, decision.reason, ", ".join(decision.replacements) or decision.detail


def test_a_window_stops_what_touches_it_while_it_holds(http: httpx.Client, ledger: Ledger, as_: As, clock: FakeClock) -> None:
    headers = as_("operator", name="alice")
    assert decide(ledger) == ("evict", "act", "s1")
    body = {"begin": "2023-11-14T22:14:00Z", "seconds": 600, "racks": ["r1"], "reason": "switch firmware"}  # in 40 s
    first = act(http, headers, "/v1/maintenance", body)
    assert first.status_code == 201 and act(http, headers, "/v1/maintenance", body).json() == first.json()
    assert decide(ledger) == ("evict", "act", "s1")
    action, reason, detail = decide(ledger, NOW_S + 41.0)
    assert (action, reason) == ("page", "paused") and "maintenance of rack r1" in detail and detail.endswith("switch firmware")
    assert decide(ledger, NOW_S + 41.0, machines=("m3",))[:2] == ("evict", "act")
    assert decide(ledger, NOW_S + 641.0)[:2] == ("evict", "act")
    (window,) = http.get("/v1/maintenance", headers=as_()).json()["items"]
    assert (window["active"], window["racks"], window["by"]) == (False, ["r1"], "alice")
    clock.sleep(41.0)
    assert http.get("/v1/maintenance", headers=as_()).json()["items"][0]["active"]
    assert act(http, headers, f"/v1/maintenance/{window['id']}/end", {"reason": "done"}, "e").status_code == 201
    assert decide(ledger, NOW_S + 42.0)[:2] == ("evict", "act")
    assert act(http, headers, f"/v1/maintenance/{window['id']}/end", {"reason": "done"}, "e2").status_code == 404


def test_a_standby_that_people_work_on_is_not_taken(http: httpx.Client, ledger: Ledger, as_: As) -> None:
    for name, then in (("s1", ("evict", "act", "s2")), ("s2", ("page", "no_standby", "0 standbys are ready, 1 needed"))):
        act(http, as_("operator"), "/v1/maintenance", {"seconds": 600, "machines": [name], "reason": "dust"})
        assert decide(ledger) == then


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"seconds": 600, "reason": "x"}, 422),
        ({"seconds": 600, "machines": ["m1"]}, 422),
        ({"seconds": 0, "machines": ["m1"], "reason": "x"}, 422),
        ({"seconds": 60, "machines": ["m1"], "reason": "x", "begin": "2020-01-01T00:00:00Z"}, 422),
        ({"seconds": 60, "machines": ["m1"], "reason": "x", "begin": "2040-01-01T00:00:00Z"}, 422),
        ({"seconds": 60, "machines": ["m1"], "reason": "x", "begin": "soon"}, 422),
    ],
)
def test_windows_that_make_no_sense(http: httpx.Client, as_: As, body: dict[str, Any], status: int) -> None:
    assert act(http, as_("operator"), "/v1/maintenance", body).status_code == status


def test_a_token_for_some_jobs_plans_for_those(http: httpx.Client, as_: As) -> None:
    headers = as_("operator", jobs=("llm",))
    assert act(http, headers, "/v1/maintenance", {"seconds": 60, "machines": ["m1"], "reason": "x"}, "1").status_code == 403
    assert act(http, headers, "/v1/maintenance", {"seconds": 60, "jobs": ["vision"], "reason": "x"}, "2").status_code == 403
    assert act(http, headers, "/v1/maintenance", {"seconds": 60, "jobs": ["llm"], "reason": "x"}, "3").status_code == 201
    assert act(http, as_("viewer"), "/v1/maintenance", {"seconds": 60, "jobs": ["llm"], "reason": "x"}).status_code == 403
    assert http.get("/v1/maintenance", headers=as_(jobs=("vision",))).json()["items"] == []


def told(ledger: Ledger, path: Path, now_s: float, *waiting: str) -> None:
    """What a controller writes that sees these standbys wait at the barrier."""
    state = fold_job("llm", ledger.events(job="llm"))
    views = {name: MachineView(name, 0.5, 0.5, ()) for name in ("m1", "a", "b", "c", "d")}
    write_status(path, now_s, state, views, {"standbys": list(waiting), "dry_run": False, "step": 7})


def test_standbys_are_ready_only_where_a_controller_says_so(
    http: httpx.Client, ledger: Ledger, service: Service, as_: As, tmp_path: Path
) -> None:
    ledger.append(kinds.JOB_REGISTERED, {"machines": ["m1"], "standbys": ["a", "b", "c", "d"]}, job="llm")
    ledger.append(kinds.GENERATION_STARTED, {"generation": 9, "rank_machine": {"0": "m1", "1": "b"}}, job="llm")
    ledger.append(kinds.BARRED, {"machine": "c"}, job="llm")

    def states() -> dict[str, str]:
        return {item["machine"]: item["state"] for item in http.get("/v1/standbys?job=llm", headers=as_()).json()["items"]}

    assert states() == {"a": "unknown", "b": "in use", "c": "barred", "d": "unknown"}
    path = tmp_path / "status.json"
    service.settings.status_files["llm"] = path
    told(ledger, path, NOW_S - 2.0, "a")
    assert states() == {"a": "ready", "b": "in use", "c": "barred", "d": "not ready"}
    act(http, as_("operator"), "/v1/maintenance", {"seconds": 600, "machines": ["a"], "reason": "dust"})
    assert states()["a"] == "maintenance"
    told(ledger, path, NOW_S - 60.0, "d")
    assert states()["d"] == "unknown"
    assert http.get("/v1/standbys?job=llm", headers=as_(jobs=("vision",))).status_code == 403


def test_the_pages_call_nobody_ready_whom_nobody_has_seen_lately(
    http: httpx.Client, ledger: Ledger, service: Service, tmp_path: Path
) -> None:
    ledger.append(kinds.JOB_REGISTERED, {"machines": ["m1"], "standbys": ["a", "d"]}, job="llm")
    ledger.append(kinds.GENERATION_STARTED, {"generation": 9, "rank_machine": {"0": "m1"}}, job="llm")
    assert send_token(http, token_of(service)).status_code == 303

    def shown() -> tuple[str, str]:
        return re.sub(r"<[^>]*>", "", http.get("/standbys").text), re.sub(r"<[^>]*>", "", http.get("/jobs/llm").text)

    assert "no data of a, d: this service sees no status" in shown()[0]
    path = service.settings.status_files["llm"] = tmp_path / "status.json"
    told(ledger, path, NOW_S - 2.0, "a")
    assert "1 ready a" in shown()[0] and re.search(r"standbys ready\s*a\b", shown()[1])
    told(ledger, path, NOW_S - 60.0, "a")
    assert "no data of a, d: the controller has been silent since" in shown()[0] and re.search(r"standbys ready\s*no data", shown()[1])
    told(ledger, path, NOW_S + 3600.0, "a")  # written before a clock was set back
    assert "no data of a, d" in shown()[0] and re.search(r"standbys ready\s*no data", shown()[1])
    assert "whether it still writes cannot be known" in shown()[1] and "like its peers: 0" in shown()[1]
    ledger.append(kinds.JOB_ENDED, {"outcome": "finished"}, job="llm")
    told(ledger, path, NOW_S - 60.0, "a")
    assert "No job runs" in shown()[0] and "standbys ready" not in shown()[1] and "Telemetry before the job ended" in shown()[1]


def test_models_without_a_registry_say_so(http: httpx.Client, as_: As, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MINDER_STATE_DIR", str(tmp_path))
    found = http.get("/v1/models", headers=as_()).json()
    assert (found["registry"], found["champion"], found["challengers"]) == ("none", None, []) and "minder train" in found["detail"]
    assert not (tmp_path / "mlflow.db").exists()


def test_the_page_of_a_short_job_says_how_many_machines_it_has_and_what_is_missing(
    http: httpx.Client, ledger: Ledger, service: Service, tmp_path: Path
) -> None:
    ledger.append(kinds.JOB_REGISTERED, {"machines": ["m1", "m2"], "standbys": []}, job="llm")
    ledger.append(kinds.GENERATION_STARTED, {"generation": 9, "rank_machine": {"0": "m1"}, "full_machines": 2}, job="llm")
    path = service.settings.status_files["llm"] = tmp_path / "status.json"
    size = {"machines": 1, "full": 2, "least": 1, "says": "goes on with 1 of 2 machines"}
    pool = {"wanted": 1, "low": 1, "high": 2, "ready": 0, "short": 1, "basis": "the published rate", "tail": 2, "tail_name": "switch s1"}
    state = fold_job("llm", ledger.events(job="llm"))
    extra = {"standbys": [], "size": size, "pool": pool | {"says": "0 of 1 standbys are ready; slurm is asked for 1"}}
    write_status(path, NOW_S - 2.0, state, {"m1": MachineView("m1", 0.5, 0.5, ())}, extra)
    assert send_token(http, token_of(service)).status_code == 303
    shown = re.sub(r"<[^>]*>", "", http.get("/jobs/llm").text)
    assert "the job goes on with 1 of 2 machines (at least 1)" in shown
    assert "1 (1 to 2; the published rate; switch s1 holds 2 machines of the job)" in shown and "slurm is asked for 1" in shown


def test_what_probes_prove_of_a_standby_is_shown_as_its_controller_says(
    http: httpx.Client, ledger: Ledger, service: Service, as_: As, tmp_path: Path
) -> None:
    ledger.append(kinds.JOB_REGISTERED, {"machines": ["m1"], "standbys": ["a", "b", "c"]}, job="llm")
    state = fold_job("llm", ledger.events(job="llm"))
    proven = {"a": Proof("passed", NOW_S - 600.0), "b": Proof("failed", NOW_S - 60.0, "gemm: 2 <wrong> products"), "c": Proof()}
    views = {name: MachineView(name, 0.5, 0.5, ()) for name in ("m1", "a", "b", "c")}
    service.settings.status_files["llm"] = tmp_path / "status.json"
    extra = {"standbys": ["a", "c"], "proven": proven, "dry_run": False, "step": 7}
    write_status(service.settings.status_files["llm"], NOW_S - 1.0, state, views, extra)
    items = {item["machine"]: item for item in http.get("/v1/standbys?job=llm", headers=as_()).json()["items"]}
    assert {name: (item["state"], item["proof"]) for name, item in items.items()} == {
        "a": ("ready", "passed"), "b": ("not ready", "failed"), "c": ("untested", "unknown"),
    }  # fmt: skip
    assert (items["a"]["tested_s"], items["b"]["proof_detail"], items["c"]["tested_s"]) == (NOW_S - 600.0, "gemm: 2 <wrong> products", None)
    assert send_token(http, token_of(service)).status_code == 303
    page = http.get("/standbys").text
    assert "failed: skipped" in page and "not yet judged" in page and "2 &lt;wrong&gt; products" in page
