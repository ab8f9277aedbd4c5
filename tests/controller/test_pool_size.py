"""How many standbys a job should have, what is said of those that are missing, and the engine that is asked for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.act.actuators.slurm.engine import SlurmEngine
from minder.act.controller.engine.work import ASK, DRAIN, FORGO, EngineWork
from minder.act.controller.standbys.pool_size import PoolSize, largest_domain
from minder.act.controller.state import JobState
from minder.act.recovery.pool_size import DEFAULT_RATE, PoolConfig
from minder.model.clock import FakeClock
from minder.record.incidents import Ledger, kinds
from tests.fakes.slurm_fake import FakeSlurm

BEGUN_S, DAY_S = 1_000_000.0, 86_400.0


class Bench:
    """A job of 256 machines, 32 behind each switch, in a ledger of its own."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock(BEGUN_S)
        self.ledger = Ledger(path, clock=self.clock)
        self.state = JobState("llm", 1, 1, {rank: f"m{rank}" for rank in range(256)}, "running", BEGUN_S, first_step_seen=True)
        self.domains = {f"m{rank}": {"switch": f"leaf-{rank // 32}"} for rank in range(256)}
        self.machines = list(self.state.rank_machine.values())
        self.write(kinds.JOB_REGISTERED, machines=self.machines)
        self.works: list[EngineWork] = []

    def write(self, kind: str, incident: str | None = None, operation_id: str | None = None, **payload: Any) -> None:
        self.ledger.append(kind, payload, job="llm", incident=incident, operation_id=operation_id)

    def size(self, work: EngineWork | None = None, least: int | None = None, **settings: Any) -> PoolSize:
        return PoolSize(self.state, self.ledger, self.clock, self.domains, PoolConfig(**settings), work=work, least=least)

    def work(self, slurm: FakeSlurm, script: str | None = "standby.sh") -> EngineWork:
        made = EngineWork(SlurmEngine(7, slurm, self.clock.now_s, standby_script=script), self.ledger, "llm", self.clock, (DRAIN,))
        self.works.append(made)
        return made

    def shown(self, size: PoolSize, ready: int, untested: int = 0) -> dict[str, Any]:
        size.tick(ready, untested)
        found = size.status(ready, untested)
        assert found is not None
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "ledger.db")
    yield made
    for work in made.works:
        work.close()
    made.ledger.close()


def test_without_a_count_the_published_rate_holds_and_says_so(bench: Bench) -> None:
    found = bench.shown(bench.size(), 2)
    assert (found["wanted"], found["short"], found["rate"], found["says"]) == (2, 0, pytest.approx(DEFAULT_RATE), "")
    assert "the published rate: nothing is counted yet" in found["basis"]


def test_what_the_ledger_counts_corrects_it(bench: Bench) -> None:
    bench.clock.sleep(30 * DAY_S)
    for index in range(60):
        decision = {"action": "evict", "reason": "act", "machines": [f"m{index}"]}
        for incident in (f"i{index}", f"j{index}"):  # noted with each incident that it answers
            bench.write(kinds.DECISION, incident, f"evict-{index}", **decision)
    found = bench.shown(bench.size(), 2)
    assert (found["failures"], found["machine_days"]) == (60, pytest.approx(256 * 30))
    assert found["rate"] == pytest.approx(61 / (7680 + 1 / DEFAULT_RATE)) and found["rate_low"] < found["rate"] < found["rate_high"]
    assert found["wanted"] > 2 and found["short"] == found["wanted"] - 2


def test_the_switch_is_the_tail_and_can_be_covered(bench: Bench) -> None:
    found = bench.shown(bench.size(), 2)
    assert (found["tail"], found["tail_name"]) == (32, "switch leaf-7")
    assert bench.shown(bench.size(cover="switch"), 2)["wanted"] == 32


def test_without_a_named_switch_the_rack_counts_and_without_any_nothing_is_known() -> None:
    assert largest_domain({"a": {"rack": "r1"}, "b": {"rack": "r1"}}, {"a", "b"}) == (2, "rack r1")
    assert largest_domain({}, {"a"}) == (None, "")


def test_a_shortfall_says_what_the_job_does_until_it_is_filled(bench: Bench) -> None:
    assert "0 of 2 standbys are ready; no engine is asked" in bench.shown(bench.size(), 0)["says"]
    assert "the job waits for a standby" in bench.shown(bench.size(), 0)["says"]
    assert "the job goes on with fewer machines, down to 200" in bench.shown(bench.size(least=200), 0)["says"]


def test_one_that_is_to_be_tested_is_not_ready_and_no_other_is_asked_for(bench: Bench) -> None:
    found = bench.shown(bench.size(), 1, 1)
    assert (found["ready"], found["untested"], found["short"]) == (1, 1, 0)
    waits = "1 more waits to be tested and would be used now"
    assert found["says"] == f"1 of 2 standbys are ready, {waits}"
    assert bench.shown(bench.size(), 0, 1)["says"].startswith(f"0 of 2 standbys are ready, {waits}; no engine")
    size = bench.size(bench.work(Submits()))
    for _ in range(4):
        size.tick(0, 2)
        bench.clock.sleep(20.0)
    assert not bench.ledger.events(kinds=[kinds.INTENT])


class Submits(FakeSlurm):
    """Knows sbatch, and which of its jobs waits for nodes."""

    def __init__(self) -> None:
        super().__init__(("n1",))
        self.waiting: dict[str, str] = {}

    def _answer(self, words: list[str]) -> str:
        match words:
            case ["sbatch", "--parsable", name, nodes, _, script]:
                self.waiting[name.partition("=")[2]] = f"{nodes} {script}"
                return "42\n"
            case ["squeue", "-h", "-o", "%i", name, *_]:
                return "42\n" if name.partition("=")[2] in self.waiting else ""
            case ["scancel", "--state=PENDING", name]:
                self.waiting.pop(name.partition("=")[2])
                return ""
        return super()._answer(words)


def settle(bench: Bench, work: EngineWork, until: Callable[[], Any]) -> None:
    end_s = time.monotonic() + 10.0
    while not until():
        assert time.monotonic() < end_s, work.asked
        time.sleep(0.002)
        work.tick(bench.clock.now_s())


def results(bench: Bench) -> list[str]:
    return [str(event.operation_id) for event in bench.ledger.events(kinds=[kinds.RESULT])]


def test_the_engine_is_asked_once_a_generation_and_what_does_not_come_is_forgone(bench: Bench) -> None:
    slurm = Submits()
    work = bench.work(slurm)
    size = bench.size(work, ask_deadline_s=600.0)
    for _ in range(4):
        size.tick(0)
        bench.clock.sleep(20.0)
    assert [event.payload["action"] for event in bench.ledger.events(kinds=[kinds.INTENT])] == [ASK]
    settle(bench, work, lambda: results(bench))
    assert slurm.waiting == {"standbys-llm-1-1": "--nodes=2 standby.sh"} and "asks for 2 standbys" in bench.shown(size, 0)["says"]
    bench.clock.sleep(600.0)
    again = bench.work(slurm)  # another controller takes over before the deadline is seen to
    again.take_up()
    settle(bench, again, lambda: len(results(bench)) == 2)
    assert results(bench)[-1] == f"standbys-llm-1-1/{FORGO}" and not slurm.waiting
    bench.state.generation = 2
    size.tick(0)
    assert len(bench.ledger.events(kinds=[kinds.INTENT])) == 3


def test_an_engine_that_cannot_be_asked_says_how(bench: Bench) -> None:
    work = bench.work(Submits(), script=None)
    size = bench.size(work)
    size.tick(0)
    bench.clock.sleep(40.0)
    size.tick(0)
    settle(bench, work, lambda: results(bench))
    assert "give engine.standby_script" in bench.shown(size, 0)["says"]


@pytest.mark.parametrize("why", ["pause", "no step", "off", "enough"])
def test_nothing_is_asked(bench: Bench, why: str) -> None:
    work = bench.work(Submits())
    size = bench.size(work, ask=why != "off")
    bench.state.first_step_seen = why != "no step"
    if why == "pause":
        until_s = bench.clock.now_s() + 1000.0
        bench.write(kinds.PAUSE, scope="all", target=None, until_s=until_s, reason="a look")
    for _ in range(3):
        size.tick(2 if why == "enough" else 0)
        bench.clock.sleep(40.0)
    assert not bench.ledger.events(kinds=[kinds.INTENT])
