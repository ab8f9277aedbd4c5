"""What an eviction asks of Slurm: written down first, tried until it is answered, finished by the next controller, told when it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from minder.act.actuators.slurm.engine import SlurmEngine
from minder.act.controller.engine.work import DRAIN, RELEASE, REQUEUE, EngineActuator, EngineWork, drain_operations
from minder.model.clock import FakeClock
from minder.model.decision import ActionResult, Decision
from minder.model.errors import LeaseLostError, LedgerError
from minder.model.evidence import Verdict
from minder.record.incidents import Ledger, kinds
from minder.record.store.leases import LeaseStore
from tests.fakes.slurm_fake import FakeJob, FakeSlurm

NODES = ("n1", "n2", "n3", "n4")


def evict(*machines: str) -> Decision:
    verdict = Verdict(100.0, "machine", "evict", machines, "stall", 0.95, 90.0)
    return Decision("evict-0a", 100.0, "evict", machines, "act", "", verdict, replacements=("n4",))


class Bench:
    """A job on n1 to n3 of a Slurm in memory, and a controller's engine work that can be killed and begun again."""

    def __init__(self, path: Path) -> None:
        self.slurm = FakeSlurm(NODES)
        self.slurm.jobs[7] = FakeJob(["n1", "n2", "n3"])
        self.clock = FakeClock(1000.0)
        self.ledger = Ledger(path, clock=self.clock)
        self.said: list[str] = []
        self.done: list[tuple[str, dict[str, ActionResult]]] = []
        self.works: list[EngineWork] = []
        self.confirm: Callable[[], None] = self.ledger.check_fence

    def work(self, *steps: str) -> EngineWork:
        engine = SlurmEngine(7, self.slurm, self.clock.now_s, confirm=lambda: self.confirm())
        engine.job._sleep = lambda seconds: None
        work = EngineWork(engine, self.ledger, "llm", self.clock, steps or (DRAIN,))
        work.on_say = self.said.append
        work.on_done = lambda owner, results: self.done.append((owner, dict(results)))
        self.works.append(work)
        return work

    def settle(self, work: EngineWork, until: Callable[[], Any]) -> None:
        end_s = time.monotonic() + 10.0
        while not until():
            assert time.monotonic() < end_s, self.said
            time.sleep(0.005)
            work.tick(self.clock.now_s())

    def outcomes(self) -> dict[str, str]:
        events = self.ledger.events(kinds=[kinds.RESULT])
        return {str(event.operation_id): str(event.payload["outcome"]) for event in events}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "ledger.db")
    yield made
    for work in made.works:
        work.close()
    made.ledger.close()


def test_the_intent_is_in_the_ledger_before_slurm_is_asked(bench: Bench) -> None:
    seen: list[int] = []
    answer = bench.slurm.call
    bench.slurm.call = lambda words: (seen.append(len(bench.ledger.events(kinds=[kinds.INTENT]))), answer(words))[1]  # type: ignore[method-assign]
    work = bench.work()
    work.begin(evict("n2"), "llm-1")
    bench.settle(work, lambda: bench.done)
    assert set(seen) == {1}
    assert bench.outcomes() == {"evict-0a/drain/n2": "done"}
    assert bench.slurm.nodes["n2"].reason == "minder evict-0a: stall, confidence 0.95, job llm, llm-1"
    (result,) = bench.ledger.events(kinds=[kinds.RESULT])
    assert result.payload["undo"] == "minder machine return n2 --config job.toml"
    assert drain_operations(bench.ledger, "n2") == {"evict-0a"} and drain_operations(bench.ledger, "n1") == set()


def test_a_silent_slurm_is_told_once_and_tried_again_until_it_answers(bench: Bench) -> None:
    bench.slurm.silent = 3
    work = bench.work()
    work.begin(evict("n2"), None)
    for count in range(3):
        bench.settle(work, lambda left=2 - count: bench.slurm.silent == left)
        bench.settle(work, lambda: work._steps[0].future is None)
        work.tick(bench.clock.now_s() + 5.0)
        assert bench.outcomes() == {} and bench.slurm.nodes["n2"].reason == "", "nothing is concluded, and it is not asked at every tick"
        bench.clock.sleep(11.0)
    bench.settle(work, lambda: bench.done)
    assert bench.outcomes() == {"evict-0a/drain/n2": "done"}
    degraded = bench.ledger.events(kinds=[kinds.DEGRADED])
    assert len(degraded) == 1 and degraded[0].payload["what"] == "slurm" and "did not answer" in degraded[0].payload["detail"]
    assert bench.ledger.events(kinds=[kinds.NOTE])[-1].payload["text"] == "slurm answers again"


@pytest.mark.parametrize("asked", [False, True])
def test_a_controller_that_dies_between_intent_and_result_is_followed_by_one_that_finishes_once(bench: Bench, asked: bool) -> None:
    bench.slurm.silent, bench.slurm.lost_answer = (0, True) if asked else (1, False)
    first = bench.work()
    first.begin(evict("n2"), "llm-1")
    first._threads.shutdown(wait=True)  # killed: what Slurm said is never written
    assert bool(bench.slurm.changes) == asked
    second = bench.work()
    assert second.take_up() == ["drain of n2 is tried again after a controller restart"]
    assert second.take_up() != [] and len(second._steps) == 1, "taken up twice, it is one step"
    bench.settle(second, lambda: bench.done)
    assert len(bench.slurm.changes) == 1 and bench.outcomes() == {"evict-0a/drain/n2": "already_done" if asked else "done"}
    assert bench.slurm.nodes["n2"].reason.startswith("minder evict-0a:")
    assert bench.work().take_up() == []


def test_a_node_is_drained_before_it_is_released(bench: Bench) -> None:
    work = bench.work(DRAIN, RELEASE)
    work.begin(evict("n2"), None)
    bench.settle(work, lambda: bench.done)
    assert [call[2].split("=")[0] for call in bench.slurm.changes] == ["NodeName", "JobId"]
    assert bench.slurm.jobs[7].nodes == ["n1", "n3"]
    assert set(bench.done[0][1]) == {"evict-0a/drain/n2", "evict-0a/release/n2"}


def test_what_slurm_refuses_is_told_and_does_not_stop_the_next_step(bench: Bench) -> None:
    """The batch node cannot be given back; a person is told."""
    work = bench.work(DRAIN, RELEASE)
    work.begin(evict("n1"), None)
    bench.settle(work, lambda: bench.done)
    assert bench.outcomes() == {"evict-0a/drain/n1": "done", "evict-0a/release/n1": "failed"}
    assert "runs the batch script" in bench.ledger.events(kinds=[kinds.DEGRADED])[0].payload["detail"]
    assert bench.slurm.jobs[7].state == "RUNNING"


def test_a_group_is_drained_and_the_job_requeued_once(bench: Bench) -> None:
    bench.slurm.nodes["n5"] = type(bench.slurm.nodes["n1"])()
    work = bench.work(DRAIN, REQUEUE)
    work.begin(evict("n2", "n3"), None)
    bench.settle(work, lambda: bench.done)
    assert bench.slurm.jobs[7].nodes == ["n1", "n4", "n5"] and bench.slurm.jobs[7].restarts == 1
    assert [call[1] for call in bench.slurm.changes] == ["update", "update", "requeue", "update"]


def test_a_machine_that_was_given_back_meanwhile_is_not_drained_after_all(bench: Bench) -> None:
    bench.slurm.silent = 1
    work = bench.work()
    work.begin(evict("n2"), None)
    bench.settle(work, lambda: work._steps[0].future is None)
    bench.ledger.append(kinds.UNBARRED, {"machine": "n2"}, job="llm")
    bench.clock.sleep(11.0)
    bench.settle(work, lambda: bench.done)
    assert bench.slurm.changes == [] and bench.outcomes() == {"evict-0a/drain/n2": "failed"}


def test_workers_are_ended_and_slurm_is_told_whatever_becomes_of_it(bench: Bench) -> None:
    """As an actuator: the eviction itself does not wait for Slurm."""
    bench.slurm.silent = 1000

    class Launchers:
        name = "local"

        def execute(self, decision: Decision) -> ActionResult:
            return ActionResult(decision.operation_id, 1.0, "done", "ended")

    work = bench.work()
    bench.ledger.intend("evict-0a", evict("n2"), job="llm", incident="llm-4")
    actuator = EngineActuator(Launchers(), work, bench.ledger, "llm")
    assert (actuator.name, actuator.execute(evict("n2")).outcome) == ("local+slurm", "done")
    (intent,) = [event for event in bench.ledger.events(kinds=[kinds.INTENT]) if event.payload["action"] == "drain"]
    assert intent.incident == "llm-4", "the drain belongs to the incident"


@pytest.mark.parametrize(("step", "last_look"), [(DRAIN, "sinfo"), (REQUEUE, "scontrol show job 7"), (RELEASE, "scontrol show hostnames")])
def test_who_is_no_leader_any_more_when_all_is_read_changes_nothing(bench: Bench, step: str, last_look: str) -> None:
    """Another controller takes over between the last look at Slurm and the change: Slurm knows no fencing token, the ledger does."""
    leases = LeaseStore(bench.ledger.location)
    bench.ledger.fence(leases.take("llm", "a", None))
    answer = bench.slurm.call

    def call(words: Sequence[str]) -> str:
        if " ".join(words).startswith(last_look) and (held := leases.read("llm")) is not None and held.holder == "a":
            leases.take("llm", "b", held)
        return answer(words)

    bench.slurm.call = call  # type: ignore[method-assign]
    work = bench.work(step)
    work.begin(evict("n2"), "llm-1")
    with pytest.raises(LeaseLostError):
        bench.settle(work, lambda: bench.done)
    assert bench.slurm.changes == [] and bench.done == []
    leases.close()


def test_a_ledger_that_cannot_be_read_for_a_moment_leaves_the_step_to_be_tried_again(bench: Bench) -> None:
    def away() -> None:
        raise LedgerError("the disk is away")

    bench.confirm = away
    work = bench.work()
    work.begin(evict("n2"), "llm-1")
    with pytest.raises(LedgerError, match="away"):
        bench.settle(work, lambda: bench.done)
    assert bench.slurm.changes == []
    bench.confirm = bench.ledger.check_fence
    bench.clock.sleep(60.0)
    bench.settle(work, lambda: bench.done)
    assert len(bench.slurm.changes) == 1 and [result.outcome for result in bench.done[0][1].values()] == ["done"]
