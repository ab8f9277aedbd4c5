"""Real ranks in a real all-reduce lose a peer, and come back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.lab
IN_PLACE = {"MINDER_TEST_IN_PLACE": "1"}


def _start(launch: Any, host: Any, *, in_place: bool, env: dict[str, str] | None = None, world: int = 2) -> Any:
    options = ["--slots", str(world), "--barrier", "script" if in_place else "bootstrap"]
    launcher = launch("allreduce.py", options=options, env={**(IN_PLACE if in_place else {}), **(env or {})}).connect()
    launcher.wait_states(*["waiting"] * world)
    assert launcher.post("run", 0, host(0, world)).json() == {"outcome": "done", "generation": 0}
    return launcher


def test_killed_rank_restarts_and_its_peer_stays_in_its_process(launch: Callable[..., Any], host_generation: Any) -> None:
    launcher = _start(launch, host_generation, in_place=True)
    before = launcher.wait_steps(4, generation=0)
    os.kill(before[1]["pid"], signal.SIGKILL)
    found = launcher.wait_events("exit", "exception", "waiting", "waiting", "waiting", "waiting")
    [death] = [event for event in found if event["kind"] == "exit"]
    assert (death["rank"], death["data"]["signal"], death["data"]["code"], death["data"]["expected"]) == (1, 9, None, False)
    [victim] = [event for event in found if event["kind"] == "exception"]
    assert victim["rank"] == 0 and victim["data"]["victim"] is True
    after = launcher.wait_states("waiting", "waiting")
    assert after[0]["pid"] == before[0]["pid"] and after[1]["pid"] != before[1]["pid"]
    launcher.post("run", 1, host_generation(1, 2))
    launcher.wait_steps(4, generation=1)
    assert [note["sum"] for note in launcher.notes()] == [1.0] * 4


def test_survivor_of_a_stopped_peer_is_interrupted_inside_the_all_reduce(launch: Callable[..., Any], host_generation: Any) -> None:
    launcher = _start(launch, host_generation, in_place=True)
    before = launcher.wait_steps(4, generation=0)
    os.kill(before[1]["pid"], signal.SIGSTOP)
    launcher.post("parked", 1, grace_s=3.0)
    after = launcher.wait_for(lambda workers: workers[0]["state"] == "waiting" and workers[1]["pid"] not in (None, before[1]["pid"]))
    assert after[0]["pid"] == before[0]["pid"]
    launcher.wait_states("waiting", "waiting")
    events = launcher.get("/v1/events", since=0)["signals"]
    assert [event["data"]["expected"] for event in events if event["kind"] == "exit"] == [True]
    assert not [event for event in events if event["kind"] == "exception" and not event["data"]["victim"]]
    launcher.post("run", 2, host_generation(2, 2))
    launcher.wait_steps(4, generation=2)


def test_one_who_was_called_back_while_it_met_its_peers_meets_fresh_ones(launch: Callable[..., Any], host_generation: Any) -> None:
    """Generation 1 is given up: rank 1 never comes to it. In generation 2 rank 1 is a process that has met nobody yet."""
    launcher = _start(launch, host_generation, in_place=True)
    before = launcher.wait_steps(4, generation=0)
    os.kill(before[1]["pid"], signal.SIGKILL)
    launcher.wait_states("waiting", "waiting")
    launcher.post("run", 1, host_generation(1, 2)[:1])
    launcher.wait_states("running", "waiting")
    time.sleep(2.0)  # it waits for the other now; nothing that it does there can be seen from outside
    launcher.post("run", 2, host_generation(2, 2))
    after = launcher.wait_steps(4, generation=2)
    assert after[0]["pid"] == before[0]["pid"] and after[1]["pid"] != before[1]["pid"]


def test_sleeping_python_is_interrupted(launch: Callable[..., Any], host_generation: Any) -> None:
    launcher = _start(launch, host_generation, in_place=True, env={"MINDER_TEST_FAULT": "sleep:0"})
    before = launcher.wait_steps(4, generation=0)
    launcher.post("run", 1, host_generation(1, 2), grace_s=20.0)
    after = launcher.wait_steps(4, generation=1)
    assert [worker["pid"] for worker in after] == [worker["pid"] for worker in before]


def test_own_exception_is_told_apart_from_the_peers(launch: Callable[..., Any], host_generation: Any) -> None:
    launcher = _start(launch, host_generation, in_place=True, env={"MINDER_TEST_FAULT": "exception:1"})
    before = launcher.workers()
    found = launcher.wait_events("exception", "exception", "waiting", "waiting", "waiting", "waiting")
    by_rank = {event["rank"]: event for event in found if event["kind"] == "exception"}
    assert by_rank[1]["data"]["type"] == "ValueError" and by_rank[1]["data"]["victim"] is False
    assert "a bug of the script" in by_rank[1]["message"] and "allreduce.py" in by_rank[1]["data"]["traceback_tail"]
    assert by_rank[0]["data"]["victim"] is True
    assert by_rank[1]["time_s"] <= by_rank[0]["time_s"]
    launcher.post("run", 1, host_generation(1, 2))
    after = launcher.wait_steps(4, generation=1)
    assert [worker["pid"] for worker in after] == [worker["pid"] for worker in before]


def test_unchanged_script_goes_on_with_warm_spares(launch: Callable[..., Any], host_generation: Any) -> None:
    options = ["--slots", "2", "--warm-spares"]
    launcher = launch("allreduce.py", options=options).connect()
    launcher.wait_states("waiting", "waiting")
    launcher.post("run", 0, host_generation(0, 2))
    before = launcher.wait_steps(4, generation=0)
    spares = [launcher.run_dir / "heartbeats" / f"demo-{slot}.spare" for slot in range(2)]
    launcher.wait_for(lambda workers: all(path.exists() for path in spares))
    os.kill(before[1]["pid"], signal.SIGKILL)
    launcher.wait_events("exit")
    launcher.post("run", 1, host_generation(1, 2))
    after = launcher.wait_steps(4, generation=1)
    assert not {worker["pid"] for worker in before} & {worker["pid"] for worker in after}
    assert {(note["generation"], note["rank"]) for note in launcher.notes()} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_finished_job_is_done_and_not_started_again(launch: Callable[..., Any], host_generation: Any) -> None:
    launcher = launch("allreduce.py", "6", options=["--slots", "2"]).connect()
    launcher.wait_states("waiting", "waiting")
    launcher.post("run", 0, host_generation(0, 2))
    found = [event for event in launcher.wait_events("exit", "exit") if event["kind"] == "exit"]
    assert all(event["data"]["code"] == 0 and event["data"]["finished"] for event in found)
    assert [worker["state"] for worker in launcher.workers()] == ["exited", "exited"]
