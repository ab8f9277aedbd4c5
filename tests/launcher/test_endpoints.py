"""What the controller relies on: tokens, idempotent operations, generations that are over, the life of a worker."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from minder.wire.tokens import write_token

Start = Callable[..., Any]
PLAIN = {"PYTHONPATH": str(Path(__file__).parent / "scripts" / "no_torch")}  # workers start without torch: quick
RANK0 = [{"RANK": "0"}]


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def _wait_gone(pid: int, limit_s: float = 10.0, *, reaped: bool = False) -> None:
    deadline_s = time.monotonic() + limit_s
    while Path(f"/proc/{pid}").exists() if reaped else not _gone(pid):
        assert time.monotonic() < deadline_s, f"process {pid} is still there"
        time.sleep(0.02)


@pytest.mark.lab
def test_token_is_asked_for_everywhere(launch: Start, tmp_path: Path) -> None:
    token = write_token(tmp_path / "token")
    launcher = launch("idle.py", options=["--token-file", str(tmp_path / "token")], env=PLAIN).connect(token)
    assert launcher.get("/v1/state")["slots"] == 1
    base = str(launcher.http.base_url)
    for method, path in (("GET", "/v1/state"), ("GET", "/v1/events"), ("GET", "/v1/traces"), ("POST", "/v1/workers")):
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            assert httpx.request(method, base + path, headers=headers).status_code == 401


def test_operation_is_done_once_and_old_generations_are_refused(launch: Start) -> None:
    launcher = launch("idle.py", env=PLAIN).connect()
    launcher.wait_states("waiting")
    stolen = launcher.post("run", 3, [{**RANK0[0], "LD_PRELOAD": "/tmp/x.so"}], operation_id="start")
    assert stolen.status_code == 400 and "LD_PRELOAD is refused" in stolen.json()["error"]
    assert [worker["state"] for worker in launcher.workers()] == ["waiting"], "nothing was started"
    assert launcher.post("run", 3, RANK0, operation_id="start").json()["outcome"] == "done"
    [before] = launcher.wait_states("running")
    assert launcher.post("run", 3, RANK0, operation_id="start").json()["outcome"] == "already_done"
    refused = launcher.post("ended", 2)
    assert refused.status_code == 409 and "generation 2 is over" in refused.json()["error"]
    assert launcher.get("/v1/traces", since=0)["steps"] == [], "it traces nothing"
    [after] = launcher.workers()
    assert (after["pid"], after["state"], after["generation"]) == (before["pid"], "running", 3)
    assert launcher.logs().count("script runs as rank 0 of generation 3") == 1


@pytest.mark.parametrize(
    ("body", "hint"),
    [
        ("no json", "JSON"),
        ("[]", "expected an object"),
        ('{"generation": 1, "desired": "run"}', "operation_id"),
        ('{"operation_id": "a", "generation": 1, "desired": "dance"}', "dance"),
        ('{"operation_id": "a", "generation": "one", "desired": "run"}', "generation"),
        ('{"operation_id": "a", "generation": -1, "desired": "parked"}', "generation is -1"),
        ('{"operation_id": "a", "generation": 1, "desired": "run", "assignments": [{"slot": 9}]}', "slots [9]"),
        ('{"operation_id": "a", "generation": 1, "desired": "run"}', "without assignments"),
        ('{"operation_id": "a", "generation": 1, "desired": "ended", "grace_s": -1}', "grace_s"),
        (
            '{"operation_id": "a", "generation": 1, "desired": "ended", "assignments": [{"slot": 0, "env": {"LD_A": ""}}]}',
            "LD_A",
        ),
        ('{"operation_id": "a", "generation": 1, "desired": "parked", "assignments": [{"slot": 1, "env": {"HOME": "x"}}]}', "HOME"),
    ],
)
def test_bad_requests_say_what_is_wrong(body: str, hint: str) -> None:
    import asyncio

    from minder.edge.launcher.endpoints import build_endpoints
    from minder.edge.launcher.updates import Updates

    class Supervisor:
        class settings:
            job, machine, slots, allow_env, command = "demo", "m1", 2, (), ("train.py",)
            env, run_dir, probe_folder, allow_updates = dict[str, str](), Path("no-such-run"), None, None

        updates = Updates(settings)  # type: ignore[arg-type]

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app=build_endpoints(Supervisor(), None))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://launcher") as client:
            return await client.post("/v1/workers", content=body)

    answer = asyncio.run(ask())
    assert answer.status_code == 400 and hint in answer.json()["error"]


def test_worker_life_from_standby_to_end(launch: Start) -> None:
    launcher = launch("idle.py", env=PLAIN).connect()
    [waiting] = launcher.wait_states("waiting")
    assert waiting["rank"] is None
    launcher.post("run", 0, [{"RANK": "5"}])
    [running] = launcher.wait_states("running")
    assert (running["pid"], running["rank"]) == (waiting["pid"], 5)
    entry = launcher.register()
    assert entry["workers"][0]["pid"] == running["pid"] and entry["workers"][0]["rank"] == 5
    assert entry["launcher_pid"] == launcher.process.pid
    launcher.post("parked", 1)
    [parked] = launcher.wait_for(lambda workers: workers[0]["state"] == "waiting" and workers[0]["pid"] != running["pid"])
    launcher.post("ended", 2)
    launcher.wait_states("ended")
    _wait_gone(parked["pid"])
    launcher.post("run", 3, RANK0)
    [again] = launcher.wait_states("running")
    assert again["generation"] == 3


@pytest.mark.parametrize("script", ["idle.py", "brief.py"], ids=["it ran when it was ended", "it had finished its part"])
@pytest.mark.lab
def test_an_ended_slot_that_is_wanted_again_waits_at_the_barrier_without_a_new_launcher(launch: Start, script: str) -> None:
    """What a controller asks for when an evicted machine is returned; the same words as of old, so that any launcher knows them."""
    launcher = launch(script, env=PLAIN).connect()
    launcher.wait_states("waiting")
    launcher.post("run", 4, [{"RANK": "5"}])
    [worker] = launcher.wait_states("running" if script == "idle.py" else "exited")
    launcher.post("ended", 4, grace_s=0)
    launcher.wait_for(lambda workers: workers[0]["state"] in ("ended", "exited"))
    answer = launcher.post("parked", 6, operation_id="rejoin-17")
    assert answer.json() == {"outcome": "done", "generation": 6}
    [waiting] = launcher.wait_states("waiting")
    assert waiting["pid"] not in (None, worker["pid"]) and waiting["rank"] is None
    assert launcher.post("parked", 6, operation_id="rejoin-17").json()["outcome"] == "already_done"
    assert launcher.wait_states("waiting")[0]["pid"] == waiting["pid"], "asked twice, started once"


@pytest.mark.lab
def test_dead_worker_is_told_once_and_its_place_is_warm_again(launch: Start) -> None:
    launcher = launch("idle.py", env=PLAIN).connect()
    launcher.wait_states("waiting")
    launcher.post("run", 0, RANK0)
    [running] = launcher.wait_states("running")
    os.kill(running["pid"], signal.SIGKILL)
    [death] = [event for event in launcher.wait_events("exit") if event["kind"] == "exit"]
    assert death["data"].pop("code_version")
    assert death["data"] == {"slot": 0, "finished": False, "code": None, "signal": 9, "expected": False}
    assert death["generation"] == 0 and "SIGKILL" in death["message"]
    [fresh] = launcher.wait_states("waiting")
    assert fresh["pid"] != running["pid"] and fresh["rank"] is None


@pytest.mark.lab
def test_exits_keep_their_order(launch: Start) -> None:
    launcher = launch("idle.py", options=["--slots", "3"], env=PLAIN).connect()
    workers = launcher.wait_states("waiting", "waiting", "waiting")
    for slot in (2, 0, 1):
        os.kill(workers[slot]["pid"], signal.SIGKILL)
        _wait_gone(workers[slot]["pid"], reaped=True)  # what ends between two looks of the launcher is a tie, and has no order
    exits = [event for event in launcher.wait_events("exit", "exit", "exit") if event["kind"] == "exit"]
    assert [event["data"]["slot"] for event in exits] == [2, 0, 1]
    assert [event["time_s"] for event in exits] == sorted(event["time_s"] for event in exits)


@pytest.mark.lab
def test_script_that_fails_is_reported_before_it_exits(launch: Start) -> None:
    launcher = launch("idle.py", "fail", env=PLAIN).connect()
    launcher.wait_states("waiting")
    launcher.post("run", 0, RANK0)
    found = [event for event in launcher.wait_events("exception", "exit") if event["kind"] in ("exception", "exit")]
    assert [event["kind"] for event in found] == ["exception", "exit"]
    assert found[0]["data"]["type"] == "KeyError" and found[0]["data"]["victim"] is False
    assert found[1]["data"]["code"] == 1
    assert "the script's own mistake" in launcher.logs()


@pytest.mark.parametrize(
    ("how", "type_name", "victim", "end"),
    [("handled", "KeyError", False, {"code": 1, "signal": None}), ("abort", "DistBackendError", True, {"code": None, "signal": 6})],
    ids=["sys.exit in an except", "C++"],
)
def test_an_end_without_an_exception_of_python_says_why(launch: Start, how: str, type_name: str, victim: bool, end: dict[str, Any]) -> None:
    launcher = launch("idle.py", how, env=PLAIN).connect()
    launcher.wait_states("waiting")
    launcher.post("run", 0, RANK0)
    found = [event for event in launcher.wait_events("exception", "exit") if event["kind"] in ("exception", "exit")]
    assert [event["kind"] for event in found] == ["exception", "exit"] and found[0]["time_s"] < found[1]["time_s"]
    assert (found[0]["data"]["type"], found[0]["data"]["victim"]) == (type_name, victim)
    assert end.items() <= found[1]["data"].items()


@pytest.mark.lab
def test_exit_code_of_the_script_is_kept(launch: Start) -> None:
    launcher = launch("idle.py", "exit", env=PLAIN).connect()
    launcher.wait_states("waiting")
    launcher.post("run", 0, RANK0)
    [death] = [event for event in launcher.wait_events("exit") if event["kind"] == "exit"]
    assert death["data"]["code"] == 7 and not death["data"]["finished"]


@pytest.mark.lab
def test_steps_in_the_log_become_heartbeats(launch: Start) -> None:
    launcher = launch("idle.py", "log", env=PLAIN).connect()
    launcher.wait_states("waiting")
    launcher.post("run", 0, RANK0)
    [found] = launcher.wait_for(lambda workers: (workers[0]["step"] or 0) > 20)
    assert found["loss"] == 2.5


def test_killed_launcher_takes_its_workers_with_it(launch: Start) -> None:
    launcher = launch("idle.py", options=["--slots", "2"], env=PLAIN).connect()
    workers = launcher.wait_states("waiting", "waiting")
    os.kill(workers[1]["pid"], signal.SIGSTOP)
    launcher.process.kill()
    launcher.process.wait()
    for worker in workers:
        _wait_gone(worker["pid"])


@pytest.mark.lab
def test_terminated_launcher_ends_its_workers_and_its_entry(launch: Start) -> None:
    launcher = launch("idle.py", env=PLAIN).connect()
    launcher.wait_states("waiting")
    launcher.post("run", 0, RANK0)
    [worker] = launcher.wait_states("running")
    launcher.process.terminate()
    assert launcher.process.wait(15) in (0, -signal.SIGTERM)
    assert _gone(worker["pid"]) and not (launcher.run_dir / "jobs" / "demo.json").exists()


@pytest.mark.lab
def test_children_of_a_worker_end_with_it(launch: Start, tmp_path: Path) -> None:
    launcher = launch("family.py", str(tmp_path / "child"), env=PLAIN).connect()
    launcher.wait_states("waiting")
    launcher.post("run", 0, RANK0)
    launcher.wait_for(lambda workers: (tmp_path / "child").exists() and (tmp_path / "child").read_text() != "")
    child = int((tmp_path / "child").read_text())
    launcher.post("ended", 1, grace_s=0.2)
    launcher.wait_states("ended")
    _wait_gone(child)


@pytest.mark.lab
def test_a_rank_that_saves_on_sigterm_still_has_its_children_and_is_signalled_once(launch: Start, tmp_path: Path) -> None:
    saved, child = tmp_path / "saved", tmp_path / "child"
    launcher = launch("saves.py", str(saved), str(child), env=PLAIN).connect()
    launcher.wait_states("waiting")
    launcher.post("run", 0, RANK0)
    launcher.wait_for(lambda workers: child.exists() and child.read_text() != "")
    for _ in range(2):
        launcher.post("ended", 1, grace_s=20.0)
    launcher.wait_states("ended")
    assert saved.read_text() == "saved with its child\n"
    _wait_gone(int(child.read_text()))


def test_worker_that_ignores_sigterm_is_killed_after_its_grace(launch: Start, tmp_path: Path) -> None:
    launcher = launch("family.py", str(tmp_path / "child"), "stubborn", env=PLAIN).connect()
    launcher.wait_states("waiting")
    launcher.post("run", 0, RANK0)
    launcher.wait_for(lambda workers: (tmp_path / "child").exists())
    launcher.post("ended", 1, grace_s=0.3)
    [death] = [event for event in launcher.wait_events("exit") if event["kind"] == "exit"]
    assert death["data"]["signal"] == 9 and death["data"]["expected"] is True
