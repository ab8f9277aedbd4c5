"""A job that we only watch: whose rank is where, and when it was started again."""

from __future__ import annotations

from typing import Any

from minder.act.controller.reading.watched import WatchedJob
from minder.act.controller.state import JobState
from minder.model.evidence import Signal
from minder.model.observation import MachineView, WorkerView

EXPECTED = {0: "m0", 1: "m1", 2: "m2"}


def view(machine: str, *workers: WorkerView, age_s: float | None = 0.2) -> MachineView:
    return MachineView(machine, age_s, None, workers)


def process(pid: int, rank: int | None, count: int = -1, job: str = "run-1", slot: int = -1, **fields: Any) -> WorkerView:
    return WorkerView(slot, pid, rank, "running", count, job=job, **fields)


def three(first_pid: int, count: int = 0, job: str = "run-1") -> dict[str, MachineView]:
    return {f"m{rank}": view(f"m{rank}", process(first_pid + rank, rank, count, job)) for rank in range(3)}


def test_ranks_follow_the_processes_and_not_the_configuration() -> None:
    watched, state = WatchedJob("llm", EXPECTED), JobState("llm")
    views = {"m0": view("m0", process(1, 2)), "m1": view("m1", process(2, 0)), "m2": view("m2", process(3, 1))}
    assert watched.follow(state, views, 100.0) == ""
    assert state.rank_machine == {0: "m1", 1: "m2", 2: "m0"}
    assert (state.generation, state.phase, state.generation_start_s) == (1, "running", 100.0)


def test_machines_that_were_not_heard_of_keep_their_configured_ranks() -> None:
    watched, state = WatchedJob("llm", EXPECTED), JobState("llm")
    views = three(10)
    views["m2"] = view("m2", age_s=None)
    watched.follow(state, views, 100.0)
    assert state.rank_machine == EXPECTED


def test_other_pids_are_a_restart_told_once() -> None:
    watched, state = WatchedJob("llm", EXPECTED), JobState("llm")
    watched.follow(state, three(10), 100.0)
    told = watched.follow(state, three(20, count=1), 130.0)
    assert "started again" in told and "0, 1, 2" in told
    assert (state.generation, state.generation_start_s) == (2, 130.0)
    assert watched.follow(state, three(20, count=1), 131.0) == ""
    assert state.generation == 2


def test_ranks_that_come_back_one_after_the_other_are_one_restart() -> None:
    watched, state = WatchedJob("llm", EXPECTED), JobState("llm")
    old, new = three(10), three(20, count=1)
    watched.follow(state, old, 100.0)
    for now_s, back in ((110.0, ["m1"]), (112.0, ["m1", "m0"]), (115.0, ["m0", "m1", "m2"])):
        views = {machine: new[machine] if machine in back else old[machine] for machine in old}
        watched.follow(state, views, now_s)
        assert state.generation == 2
    assert watched.owns("m2", 22) and not watched.owns("m2", 12)


def test_a_process_that_counts_its_restarts_itself_is_a_restart_too() -> None:
    watched, state = WatchedJob("llm", EXPECTED), JobState("llm")
    watched.follow(state, three(10, count=3), 100.0)
    watched.follow(state, three(10, count=4), 110.0)
    assert state.generation == 2


def test_an_agent_that_sees_nothing_for_a_while_is_no_restart() -> None:
    """An agent that was restarted, or does not answer: the same processes are the same generation."""
    watched, state = WatchedJob("llm", EXPECTED), JobState("llm")
    watched.follow(state, three(10), 100.0)
    for empty in (view("m1"), view("m1", age_s=30.0)):
        assert watched.follow(state, {**three(10), "m1": empty}, 105.0) == ""
        assert watched.follow(state, three(10), 110.0) == ""
    assert (state.generation, state.phase) == (1, "running")


def test_all_processes_gone_is_between_generations_unless_nobody_can_tell() -> None:
    watched, state = WatchedJob("llm", EXPECTED), JobState("llm")
    watched.follow(state, three(10), 100.0)
    silent = {machine: view(machine, age_s=60.0) for machine in EXPECTED.values()}
    watched.follow(state, silent, 104.0)
    assert state.phase == "running", "agents that do not answer say nothing about the processes"
    gone = {machine: view(machine) for machine in EXPECTED.values()}
    assert watched.follow(state, gone, 105.0) == "no process of the job is left"
    assert state.phase == "recovering"
    assert "started again" in watched.follow(state, three(20), 120.0)
    assert (state.generation, state.phase) == (2, "running")


def test_another_job_on_the_same_machines_is_none_of_ours() -> None:
    watched, state = WatchedJob("run-1", EXPECTED), JobState("run-1")
    views = three(10)
    for rank in range(3):
        stranger = process(500 + rank, rank, job="other", step=9)
        views[f"m{rank}"] = view(f"m{rank}", stranger, *views[f"m{rank}"].workers)
    watched.follow(state, views, 100.0)
    seen = watched.translate_views(state, views)
    assert [[worker.pid for worker in seen[f"m{rank}"].workers] for rank in range(3)] == [[10], [11], [12]]
    assert watched.names == {"run-1"}


def test_a_job_that_is_called_otherwise_is_the_one_with_the_most_processes() -> None:
    watched, state = WatchedJob("llm", EXPECTED), JobState("llm")
    views = three(10, job="8f3a")
    views["m0"] = view("m0", *views["m0"].workers, process(99, 0, job="small"))
    watched.follow(state, views, 100.0)
    assert watched.owns("m0", 10) and not watched.owns("m0", 99)
    assert watched.names == {"llm", "8f3a"}


def test_the_neighbours_job_is_not_taken_for_ours_while_ours_is_restarting() -> None:
    watched, state = WatchedJob("llm", EXPECTED), JobState("llm")
    neighbour = process(500, 0, job="small")
    views = three(10, job="8f3a")
    views["m0"] = view("m0", *views["m0"].workers, neighbour)
    watched.follow(state, views, 100.0)
    alone = {"m0": view("m0", neighbour), "m1": view("m1"), "m2": view("m2")}
    assert watched.follow(state, alone, 110.0) == "no process of the job is left"
    assert not watched.owns("m0", 500)
    watched.follow(state, alone, 200.0)
    assert watched.owns("m0", 500), "after a while it is what there is"


def test_a_launchers_own_process_before_its_ranks_come_is_no_generation() -> None:
    watched, state = WatchedJob("llm", {0: "m0", 1: "m0"}), JobState("llm")
    watched.follow(state, {"m0": view("m0", process(4, None, job="job"))}, 100.0)
    watched.follow(state, {"m0": view("m0", process(5, 0, 0), process(6, 1, 0))}, 102.0)
    assert state.generation == 1 and watched.owns("m0", 5) and not watched.owns("m0", 4)


def test_processes_without_ranks_fill_their_machines_in_order() -> None:
    watched, state = WatchedJob("llm", {0: "m0", 1: "m0", 2: "m1", 3: "m1"}), JobState("llm")
    views = {"m0": view("m0", process(7, None), process(5, None)), "m1": view("m1", process(8, None), process(9, None))}
    watched.follow(state, views, 100.0)
    workers = watched.translate_views(state, views)["m0"].workers
    assert {worker.pid: worker.rank for worker in workers} == {5: 0, 7: 1}
    assert state.rank_machine == {0: "m0", 1: "m0", 2: "m1", 3: "m1"}


def test_the_rules_see_our_count_of_generations() -> None:
    watched, state = WatchedJob("llm", EXPECTED), JobState("llm")
    watched.follow(state, three(10, count=0), 100.0)
    watched.follow(state, three(20, count=1), 110.0)
    seen = watched.translate_views(state, three(20, count=1))
    assert {worker.generation for one in seen.values() for worker in one.workers} == {2}


def test_signals_of_the_job_carry_our_generation_and_others_do_not_come_through() -> None:
    watched, state = WatchedJob("llm", EXPECTED), JobState("llm")
    watched.follow(state, three(10), 100.0)
    watched.follow(state, three(20, count=1), 110.0)

    def gone(pid: int, time_s: float = 111.0) -> Signal:
        return Signal(time_s, "exit", "m0", rank=0, pid=pid, data={"vanished": True})

    kernel = Signal(111.0, "kernel", "m0", "NVRM")
    found = watched.translate_signals(state, [gone(20), gone(10), gone(4711), gone(20, time_s=50.0), kernel])
    assert [(signal.kind, signal.pid, signal.generation) for signal in found] == [("exit", 20, 2), ("exit", 10, 1), ("kernel", None, None)]
