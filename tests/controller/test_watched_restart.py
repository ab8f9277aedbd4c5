"""What stood against a watched job is over once its owner started it again: told at once, and closed in the ledger."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.reading.watched import WatchedJob
from minder.act.controller.stages import Stages
from minder.act.controller.state import JobState
from minder.act.controller.step import Controller
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.policy.policy import Policy
from minder.app.build import App
from minder.config import JobConfig, MachineConfig
from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.judge import Judge
from minder.model.clock import FakeClock
from minder.model.evidence import Verdict
from minder.model.observation import MachineView, WorkerView
from minder.record.incidents import Ledger, kinds

MACHINES = ("m0", "m1", "m2")


class AgentFleet:
    """Three agents and no launcher. `pid`: of rank 0, the others follow."""

    machines = MACHINES

    def __init__(self) -> None:
        self.pid = 100
        self.step: int | None = None

    def views(self) -> dict[str, MachineView]:
        workers = {name: WorkerView(-1, self.pid + rank, rank, "running", -1, self.step) for rank, name in enumerate(MACHINES)}
        return {name: MachineView(name, 0.2, None, (worker,)) for name, worker in workers.items()}

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def lost(self) -> dict[str, int]:
        return {}

    def drain(self) -> list[Any]:
        return []

    def clock_error_s(self) -> float:
        return 0.01


class Silent:
    def collect(self, now_s: float) -> list[Any]:
        return []

    def push(self, samples: Any) -> None: ...

    def pop(self, now_s: float) -> None: ...

    def notes(self) -> list[str]:
        return []

    def close(self) -> None: ...


class OneVerdict(Judge):
    def __init__(self) -> None:
        super().__init__([])
        self.verdicts: list[Verdict] = []

    def judge(self, observation: Any) -> Any:
        found, self.verdicts = self.verdicts, []
        return found, frozenset()


class Engine:
    """Asked for a restart on account of an incident: the job's next generation is its."""

    def __init__(self, state: JobState) -> None:
        self._state, self._generation = state, 0

    def tick(self, now_s: float) -> None:
        if self._state.generation > self._generation > 0:
            self._state.incident = "llm-1"
        self._generation = self._state.generation


class Watching:
    """One `minder watch`, on a ledger that outlives it."""

    def __init__(self, ledger: Path, folder: Path, clock: FakeClock) -> None:
        self.clock, self.fleet, self.judge, self.told = clock, AgentFleet(), OneVerdict(), list[Verdict]()
        state = JobState("llm", rank_machine=dict(enumerate(MACHINES)))
        context: Callable[..., Any] = lambda state, standbys, now_s: PolicyContext(now_s, state.view(standbys), ())  # noqa: E731
        source: Any = Silent()
        fleet: Any = self.fleet
        stages = Stages(
            fleet, source, source, self.judge, Policy(PolicyConfig()), None, JobTracker(), context,
            watched=WatchedJob("llm", dict(enumerate(MACHINES))), engine=Engine(state),
        )  # fmt: skip
        self.ledger = Ledger(ledger, clock=clock)
        self.controller = Controller(state, stages, self.ledger, clock, folder)
        self.controller.on_verdict = self.told.append
        config = JobConfig(name="llm", machines=tuple(MachineConfig(name=name) for name in MACHINES))
        self.app = App(config, self.controller, fleet, self.ledger, None, state, threading.Event(), clock)
        self.app.begin()

    def tick(self) -> None:
        self.clock.sleep(1.0)
        self.controller.step(self.clock.now_s())

    def accuse(self, *machines: str, kind: Any = "machine") -> None:
        self.judge.verdicts = [Verdict(self.clock.now_s(), kind, "page", machines, "stall", 0.8, self.clock.now_s())]
        self.tick()


@pytest.fixture
def watching(tmp_path: Path, empty_ledger: Path) -> Callable[[], Watching]:
    import shutil

    shutil.copy(empty_ledger, tmp_path / "ledger.db")
    clock = FakeClock()
    return lambda: Watching(tmp_path / "ledger.db", tmp_path, clock)


@pytest.mark.parametrize(("machines", "kind"), [(("m1",), "machine"), ((), "job")])
def test_a_restart_ends_what_stood_at_once(watching: Callable[[], Watching], machines: tuple[str, ...], kind: str) -> None:
    watch = watching()
    watch.tick()
    watch.accuse(*machines, kind=kind)
    assert [item.state for item in watch.ledger.incidents(job="llm")] == ["open"]
    watch.fleet.pid = 200
    watch.tick()
    assert [(item.kind, item.machines) for item in watch.told] == [(kind, machines), ("recovered", machines)]
    assert [item.state for item in watch.ledger.incidents(job="llm")] == ["closed"]
    watch.fleet.pid = 300
    watch.tick()
    assert len(watch.told) == 2


def test_what_an_earlier_watcher_left_open_ends_with_the_next_restart(watching: Callable[[], Watching]) -> None:
    first = watching()
    first.tick()
    first.accuse("m1")
    first.app.close()
    second = watching()
    second.tick()
    assert [item.state for item in second.ledger.incidents(job="llm")] == ["open"]
    second.fleet.pid = 200
    second.tick()
    assert [item.state for item in second.ledger.incidents(job="llm")] == ["closed"]


def test_a_job_that_runs_on_keeps_its_incident(watching: Callable[[], Watching]) -> None:
    watch = watching()
    watch.tick()
    watch.accuse("m1")
    watch.tick()
    assert [item.kind for item in watch.told] == ["machine"]
    assert [event.payload["kind"] for event in watch.ledger.events(kinds=[kinds.VERDICT])] == ["machine"]


def test_a_job_that_steps_by_the_time_it_is_seen_again_ends_the_incident_with_that_step(watching: Callable[[], Watching]) -> None:
    watch = watching()
    watch.tick()
    watch.accuse("m1")
    watch.fleet.pid, watch.fleet.step = 200, 41
    watch.tick()
    (first,) = watch.ledger.events(kinds=[kinds.FIRST_STEP])
    assert (first.incident, first.payload["step"], first.payload["generation"]) == ("llm-1", 41, 2)
