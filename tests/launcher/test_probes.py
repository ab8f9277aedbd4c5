"""A launcher runs probes where no rank runs: waiting workers leave the devices, and come back; the job's own orders go first."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.standbys.pool import Pool
from minder.act.controller.standbys.standby_tests import StandbyProbing, StandbyTests
from minder.act.controller.state import JobState
from minder.edge.probes.contract import find_programs
from minder.model.clock import SystemClock
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.probes import fold_probes
from minder.wire.client import Endpoint, MachineEndpoints
from minder.wire.fleet import Fleet

Start = Callable[..., Any]
PLAIN = {"PYTHONPATH": str(Path(__file__).parent / "scripts" / "no_torch")}  # workers start without torch: quick
RANK0 = [{"RANK": "0"}]


def order(operation: str, *names: str, wait_s: float = 30.0) -> dict[str, Any]:
    programs = find_programs(names)
    return {"operation": operation, "wait_s": wait_s, "probes": [{"id": name, "sha256": item.sha256} for name, item in programs.items()]}


def test_waiting_workers_end_for_the_probes_and_start_again(launch: Start) -> None:
    launcher = launch("idle.py", env=PLAIN).connect()
    [before] = launcher.wait_states("waiting")
    assert launcher.get("/v1/state")["offers"] == ["probes", "probes beside", "replay"]
    found = launcher.http.post("/v1/probes", json=order("a", "links")).json()
    assert (found["machine"], found["state"]) == ("m1", "done"), found
    [after] = launcher.wait_states("waiting")
    assert after["pid"] != before["pid"], "it had ended, and not only been parked"
    [exit_] = [item for item in launcher.get("/v1/events", since=0)["signals"] if item["kind"] == "exit"]
    assert exit_["data"]["expected"] is True

    assert launcher.post("run", 1, RANK0).status_code == 200
    launcher.wait_states("running")
    found = launcher.http.post("/v1/probes", json=order("b", "links")).json()
    assert found["state"] == "refused" and "ranks 0 of demo run on this machine" in found["detail"]
    assert launcher.http.post("/v1/probes", json={"operation": "c"}).status_code == 400


@pytest.mark.lab
def test_a_job_that_goes_on_ends_the_probes(launch: Start) -> None:
    launcher = launch("idle.py", env=PLAIN).connect()
    launcher.wait_states("waiting")
    assert launcher.http.post("/v1/probes", json=order("a", "memory", "loopback", wait_s=0.0)).json()["state"] == "running"
    assert launcher.post("run", 1, RANK0).status_code == 200
    launcher.wait_states("running")
    found = launcher.http.post("/v1/probes", json=order("a", "memory", "loopback")).json()
    assert found["state"] == "refused" and "ended before their time" in found["detail"]


@pytest.mark.lab
def test_a_test_of_a_standby_leaves_its_workers_waiting_and_is_gone_when_they_get_ranks(launch: Start) -> None:
    launcher = launch("idle.py", env=PLAIN).connect()
    [before] = launcher.wait_states("waiting")
    assert "probes beside" in launcher.get("/v1/state")["offers"]
    found = launcher.http.post("/v1/probes", json={**order("a", "links"), "beside": True}).json()
    assert found["state"] == "done", found
    assert (
        launcher.http.post("/v1/probes", json={**order("b", "memory", "loopback", wait_s=0.0), "beside": True}).json()["state"] == "running"
    )
    [during] = launcher.wait_states("waiting")
    assert launcher.post("run", 1, RANK0).status_code == 200
    [after] = launcher.wait_states("running")
    assert before["pid"] == during["pid"] == after["pid"], "the worker that had waited runs"
    found = launcher.http.post("/v1/probes", json={**order("b", "memory", "loopback"), "beside": True}).json()
    assert found["state"] == "refused" and "ended before their time" in found["detail"]
    found = launcher.http.post("/v1/probes", json={**order("c", "links"), "beside": True}).json()
    assert found["state"] == "refused" and "ranks 0 of demo run" in found["detail"]


@pytest.mark.lab
def test_a_controller_has_a_real_launcher_test_its_standby(launch: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Order, launcher, probe, judgement and ledger, over HTTP."""
    monkeypatch.setattr("minder.act.controller.standbys.standby_tests._SETTLED_S", 0.0)
    launcher = launch("idle.py", env=PLAIN).connect()
    launcher.wait_states("waiting")
    fleet = Fleet([MachineEndpoints("m1", None, Endpoint(str(launcher.http.base_url).rstrip("/"), ""))])
    fleet.start()
    try:
        with Ledger(tmp_path / "ledger.db") as ledger:
            state = JobState("demo", generation=1, phase="running", rank_machine={0: "m0"})
            pool = Pool(state, ledger, fleet, SystemClock(), None, tested=True)
            tests = StandbyTests(state, ledger, fleet, SystemClock(), pool.proofs, StandbyProbing(("links", "loopback"), 3600.0))
            end_s = time.monotonic() + 60.0
            while not ledger.events(kinds=[kinds.PROBES]) and time.monotonic() < end_s:
                pool.tick()
                tests.tick(pool.waiting())
                time.sleep(0.05)
            tests.close()
            (run,) = fold_probes(ledger.events(kinds=[kinds.PROBES]))
        assert (run.machine, run.why, [result.probe for result in run.results]) == ("m1", "standby", ["links", "loopback"])
        assert run.results[1].facts["priority"] == "low" and pool.standbys() == ["m1"]
    finally:
        fleet.stop()
