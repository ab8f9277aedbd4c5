"""A real agent takes orders of probes: with the token, by hash, and not beside a job."""

from __future__ import annotations

import time
from typing import Any

from minder.edge.probes.contract import find_programs


def body(operation: str, *names: str, **more: Any) -> dict[str, Any]:
    programs = find_programs(names)
    probes = [{"id": name, "sha256": program.sha256} for name, program in programs.items()]
    return {"operation": operation, "probes": probes, "wait_s": 30, **more}


def test_an_agent_runs_probes_by_order(bench: Any) -> None:
    agent = bench.agent()
    found = agent.http.post("/v1/probes", json=body("a", "links", "clock", controller_time_s=time.time() - 60.0, round_trip_s=0.01)).json()
    assert (found["machine"], found["state"]) == ("m0", "done"), found
    links, clock = found["results"]
    assert links["state"] in ("measured", "not_applicable")
    (offset,) = [item for item in clock["measures"] if item["name"] == "clock_offset"]
    assert abs(offset["value"] - 60.0) < 10.0 and offset["unit"] == "s"
    assert agent.http.post("/v1/probes", json=body("a", "links", "clock")).json()["results"] == found["results"], "it runs once"

    wrong = body("b", "disk")
    wrong["probes"][0]["sha256"] = "0" * 64
    assert agent.http.post("/v1/probes", json=wrong).json()["state"] == "refused"
    answer = agent.http.post("/v1/probes", json={"operation": "c", "probes": []})
    assert answer.status_code == 400 and answer.text.count("\n") == 1
    assert agent.http.post("/v1/probes", json=body("d", "links"), headers={"Authorization": "Bearer wrong"}).status_code == 401

    bench.register(bench.worker(0))
    found = agent.http.post("/v1/probes", json=body("e", "links")).json()
    assert found["state"] == "refused" and "training processes of testjob run on this machine (ranks 0)" in found["detail"]
    assert agent.http.post("/v1/probes", json=body("f", "links", force=True)).json()["state"] == "done"
