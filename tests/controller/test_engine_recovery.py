"""A watched job that Slurm starts again: what is written when, and that a controller that dies in between changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.act.actuators.slurm.engine import SlurmEngine
from minder.act.controller.engine.work import DRAIN, REQUEUE, EngineRecovery, EngineWork
from minder.act.controller.state import JobState
from minder.model.clock import FakeClock
from minder.model.decision import Decision
from minder.model.evidence import Verdict
from minder.record.incidents import Ledger, kinds
from tests.fakes.slurm_fake import FakeJob, FakeSlurm


class Agents:
    """As much of a fleet as evidence needs."""

    machines = ("n1", "n2", "n3", "n4")

    def __init__(self) -> None:
        self.asked: list[str] = []

    def capture(self, machines: list[str], what: list[str], deadline_s: float) -> dict[str, Any]:
        self.asked += machines
        return {machine: {"stacks": []} for machine in machines}


class Bench:
    def __init__(self, path: Path) -> None:
        self.slurm = FakeSlurm(Agents.machines)
        self.slurm.jobs[7] = FakeJob(["n1", "n2", "n3"])
        self.clock, self.agents = FakeClock(1000.0), Agents()
        self.ledger = Ledger(path, clock=self.clock)
        self.works: list[EngineWork] = []
        verdict = Verdict(990.0, "machine", "evict", ("n2",), "stall", 0.95, 980.0)
        self.incident = self.ledger.open_incident(verdict, job="llm")
        self.decision = Decision("evict-0a", 1000.0, "evict", ("n2",), "act", "", verdict, replacements=("n4",))

    def controller(self) -> EngineRecovery:
        """A new one, as after a restart: it knows the ledger, and what the agents show."""
        engine = SlurmEngine(7, self.slurm, self.clock.now_s)
        engine.job._sleep = lambda seconds: None
        work = EngineWork(engine, self.ledger, "llm", self.clock, (DRAIN, REQUEUE))
        self.works.append(work)
        self.state = JobState("llm", generation=1, rank_machine={0: "n1", 1: "n2", 2: "n3"}, phase="running")
        return EngineRecovery(self.state, self.ledger, self.agents, work, self.clock, 10.0)  # type: ignore[arg-type]

    def settle(self, recovery: EngineRecovery, until: Callable[[], Any]) -> None:
        end_s = time.monotonic() + 10.0
        while not until():
            assert time.monotonic() < end_s
            recovery.tick(self.clock.now_s())
            time.sleep(0.005)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.ledger.events(incident=self.incident)]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "ledger.db")
    yield made
    for work in made.works:
        work.close()
    made.ledger.close()


def test_evidence_first_then_the_drain_then_the_requeue_then_the_result(bench: Bench) -> None:
    recovery = bench.controller()
    recovery.tick(bench.clock.now_s())
    recovery.carry_out(bench.decision, bench.incident)
    bench.settle(recovery, lambda: bench.ledger.result("evict-0a"))
    result = bench.ledger.result("evict-0a")
    assert result is not None and result.outcome == "done" and result.undo == "minder machine return n2 --config job.toml"
    assert bench.agents.asked == ["n2", "n1", "n3"]
    assert bench.slurm.jobs[7].nodes == ["n1", "n3", "n4"] and bench.slurm.nodes["n2"].states == {"DRAIN"}
    told = bench.kinds()
    assert told.index(kinds.INTENT) < told.index(kinds.EVIDENCE) < told.index(kinds.BARRED) < told.index(kinds.RESULT)
    assert kinds.GENERATION_STARTED not in told, "its new processes have not been seen yet"
    bench.state.generation, bench.state.rank_machine = 2, {0: "n1", 1: "n3", 2: "n4"}
    recovery.tick(bench.clock.now_s())
    (started,) = bench.ledger.events(kinds=[kinds.GENERATION_STARTED])
    assert started.incident == bench.incident and started.payload["machines"] == ["n1", "n3", "n4"]
    assert bench.state.incident == bench.incident, "its first step closes the incident"
    assert bench.ledger.incident(bench.incident).evicted == ("n2",)


@pytest.mark.parametrize("answered", [0, 1, 2, 3, 4, 5, 6, 7])
def test_killed_at_any_call_it_is_finished_once_by_the_next(bench: Bench, answered: int) -> None:
    """The first controller dies when Slurm has answered so many calls."""
    answer, left = bench.slurm.call, [answered]

    def counted(words: Any) -> str:
        if left[0] == 0:
            raise SystemExit
        left[0] -= 1
        return answer(words)

    bench.slurm.call = counted  # type: ignore[method-assign]
    first = bench.controller()
    first.carry_out(bench.decision, bench.incident)
    end_s = time.monotonic() + 0.3
    while time.monotonic() < end_s and left[0]:
        first.tick(bench.clock.now_s())
        time.sleep(0.01)
    bench.works[0]._threads.shutdown(wait=True)
    bench.works[0]._steps.clear()
    bench.slurm.call = answer  # type: ignore[method-assign]
    second = bench.controller()
    assert second.take_up()
    bench.settle(second, lambda: bench.ledger.result("evict-0a"))
    assert bench.slurm.jobs[7].nodes == ["n1", "n3", "n4"] and bench.slurm.jobs[7].restarts == 1
    assert bench.slurm.nodes["n2"].reason.startswith("minder evict-0a: ")
    assert len(bench.ledger.events(kinds=[kinds.BARRED])) <= 2 and bench.ledger.open_operations("llm") == []
    assert bench.controller().take_up() == []


def test_killed_between_the_last_step_and_the_result_it_is_finished_too(bench: Bench) -> None:
    first = bench.controller()
    first.carry_out(bench.decision, bench.incident)
    bench.works[0].on_done = lambda owner, results: None
    bench.settle(first, lambda: not bench.works[0].open_steps("evict-0a"))
    assert bench.ledger.result("evict-0a") is None
    assert bench.controller().take_up()
    result = bench.ledger.result("evict-0a")
    assert result is not None and result.outcome == "done" and bench.slurm.jobs[7].restarts == 1


def test_a_requeue_that_is_refused_is_told_and_failed(bench: Bench) -> None:
    bench.slurm.jobs[7].requeue = False
    recovery = bench.controller()
    said: list[str] = []
    recovery.on_phase = said.append
    recovery.carry_out(bench.decision, bench.incident)
    bench.settle(recovery, lambda: bench.ledger.result("evict-0a"))
    result = bench.ledger.result("evict-0a")
    assert result is not None and result.outcome == "failed" and "--requeue" in result.detail
    assert "the job was not started again" in said[-1] and bench.slurm.jobs[7].nodes == ["n1", "n2", "n3"]


BLAMELESS = Decision("restart-1", 1000.0, "restart", (), "act", "", Verdict(990.0, "job", "evict", (), "stall", 0.9, 980.0))


def test_a_restart_without_a_machine_is_one_requeue_that_drains_nothing(bench: Bench) -> None:
    recovery = bench.controller()
    bench.works[-1].restarts = lambda: 0
    recovery.carry_out(BLAMELESS, bench.incident)
    bench.settle(recovery, lambda: bench.ledger.result("restart-1"))
    assert bench.slurm.jobs[7].restarts == 1 and not any(node.states for node in bench.slurm.nodes.values())
    assert bench.agents.asked == ["n1", "n2"], "evidence first, of two machines"
    again = bench.controller()
    bench.works[-1].restarts = lambda: 1
    again.carry_out(BLAMELESS, bench.incident)
    assert bench.slurm.jobs[7].restarts == 1, "the same decision again requeues nothing"


def test_where_slurm_did_not_tell_its_restarts_nothing_is_requeued(bench: Bench) -> None:
    recovery = bench.controller()
    recovery.carry_out(BLAMELESS, bench.incident)
    bench.settle(recovery, lambda: bench.ledger.result("restart-1"))
    result = bench.ledger.result("restart-1")
    assert result is not None and result.outcome == "failed" and bench.slurm.jobs[7].restarts == 0


def test_budgets_begin_anew_with_another_slurm_job_and_with_nothing_else(bench: Bench) -> None:
    for run in ("slurm 7", "slurm 7", "slurm 8"):
        bench.controller().register(run, {"n1": True, "n4": False})
    events = bench.ledger.events(kinds=[kinds.JOB_REGISTERED])
    assert [event.payload["run"] for event in events] == ["slurm 7", "slurm 8"] and events[0].payload["standbys"] == ["n4"]
