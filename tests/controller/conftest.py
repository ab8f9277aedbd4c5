"""A controller among fakes: a fleet of launchers that do what they are told, a judge with a script, a ledger on disk.

What is real: Controller, Recovery, App, Policy, JobTracker, Ledger. What is not: the network, the processes, the rendezvous store.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import minder.app.build
from minder.act.controller import recover
from minder.act.controller.diagnosis.beside import Beside
from minder.act.controller.diagnosis.diagnosing import Diagnosing
from minder.act.controller.diagnosis.held import HeldJob
from minder.act.controller.diagnosis.pair_news import PairNews
from minder.act.controller.diagnosis.pair_rounds import Paths
from minder.act.controller.diagnosis.replaying import Replaying
from minder.act.controller.recover import Recovery, RecoverySettings
from minder.act.controller.reporting.gauges import Gauges, Sight
from minder.act.controller.stages import Stages
from minder.act.controller.state import fold_job
from minder.act.controller.step import Controller
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.policy.ladder import OFFERED, WITH_LAUNCHERS
from minder.act.policy.policy import Policy
from minder.app.build import App
from minder.config import JobConfig, MachineConfig
from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.judge import Judge
from minder.model.clock import FakeClock
from minder.model.decision import ActionResult, Decision
from minder.model.errors import BadInputError, NoAnswerError, WireError
from minder.model.evidence import Evidence, Signal, Verdict
from minder.model.observation import MachineView, Observation, WorkerView
from minder.model.probes import Measurement, ProbeResult
from minder.model.topology import Parallelism
from minder.record.incidents import Ledger
from minder.wire.codec import to_json
from tests.fakes.paper_job import PaperFault, PaperJob

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))

from rendezvous_fake import FakeHost
from replay_fake import ReplayGroups

MACHINES, STANDBYS = ("m0", "m1", "m2", "m3"), ("s0", "s1")


class KilledError(BaseException):
    """kill -9."""


@dataclass
class Launcher:
    """One machine. It starts an operation once, whatever it is told how often."""

    generation: int = -1
    rank: int | None = None
    state: str = "waiting"
    step: int | None = None
    world: int = 0  # ranks of its generation
    operations: list[str] = field(default_factory=list)
    starts: list[tuple[str, int]] = field(default_factory=list)  # (operation, generation) that really started workers
    silent: bool = False
    unheard: bool = False  # since it is polled
    refuses: str = ""
    faults: dict[str, str] = field(default_factory=dict)  # probe to its own word, or "compared" where only a comparison shows it
    probed: dict[str, int] = field(default_factory=dict)  # operation to how often it was asked for
    probes_take: int = 2  # so often it is asked until they are done
    pairs_take: int = 1


class FakeFleet:
    """What minder.wire.fleet.Fleet offers, without a network."""

    def __init__(self, clock: FakeClock, machines: Sequence[str]) -> None:
        self._clock = clock
        self.launchers = {name: Launcher() for name in machines}
        self.signals: list[Signal] = []
        self.captured: list[str] = []
        self.offers: list[str] = []  # of each launcher
        self.groups = ReplayGroups()
        self.unknown: set[str] = set()  # machines without an address
        self.pair_orders: list[Mapping[str, Any]] = []
        self.meetings: list[tuple[str, str, str, str]] = []  # own, peer, role, secret

    @property
    def machines(self) -> tuple[str, ...]:
        return tuple(self.launchers)

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def refresh(self, machines: Iterable[str], timeout_s: float = 1.0) -> None: ...

    def clock_error_s(self) -> float:
        return 0.01

    def refusals(self) -> dict[str, str]:
        return {name: item.refuses for name, item in self.launchers.items() if item.refuses}

    def jobs(self) -> dict[str, tuple[str, ...]]:
        return {}

    def lost(self) -> dict[str, int]:
        return {}

    def drain(self) -> list[Signal]:
        found, self.signals = self.signals, []
        return found

    def launcher_state(self, machine: str) -> Mapping[str, Any]:
        return {"generation": max(0, self.launchers[machine].generation), "offers": self.offers}

    def probes(self, bodies: Mapping[str, Any], part: str = "launcher", wait_s: float = 0.0) -> dict[str, Any]:
        for name, body in bodies.items():
            if body["probes"][0]["id"] == "replay" and not self.launchers[name].silent:
                self.groups.note(str(body["operation"]), name, body["probes"][0]["replay"])
        return {name: self._probe(self.launchers[name], body) for name, body in bodies.items()}

    def _result(self, item: Launcher, probe: Mapping[str, Any]) -> ProbeResult:
        now_s = self._clock.now_s()
        if probe["id"] == "pair":
            return self._pair_result(probe["pair"], now_s)
        if probe["id"] != "replay":
            return probe_result(str(probe["id"]), item, now_s)
        faulty = [name for name, launcher in self.launchers.items() if "replay" in launcher.faults]
        return self.groups.result(probe["replay"], faulty, now_s)

    def address(self, machine: str) -> str:
        if machine in self.unknown:
            raise BadInputError(f"{machine} has no address")
        return f"10.0.0.{1 + self.machines.index(machine)}"

    def _pair_result(self, order: Mapping[str, Any], now_s: float) -> ProbeResult:
        """faults["pair"]: "slow" or "failed" of a machine; a link of two by the other's name."""
        names = {self.address(name): name for name in self.machines if name not in self.unknown}
        ends = {names[order[end]]: self.launchers[names[order[end]]].faults.get("pair", "") for end in ("own", "peer")}
        self.pair_orders.append(order)
        self.meetings.append((order["own"], order["peer"], order["role"], order["secret"]))
        if "failed" in ends.values() or set(ends.values()) == set(ends):
            return ProbeResult("pair", 1, "failed", "no contact", started_s=now_s)
        rates = [1e7 if state == "slow" else 1e9 for state in ends.values()]
        measures = [
            Measurement(f"pair_{way}_bandwidth", rate, "B/s", "higher") for way, rate in zip(("send", "receive"), rates, strict=True)
        ]
        return ProbeResult("pair", 1, "measured", "", tuple(measures), started_s=now_s)

    def _probe(self, item: Launcher, body: Mapping[str, Any]) -> Any:
        if item.silent:
            return NoAnswerError("does not answer")
        if item.state == "running" and not body.get("force"):
            return {"state": "refused", "detail": "ranks run on this machine", "results": []}
        operation = str(body["operation"])
        item.probed[operation] = item.probed.get(operation, 0) + 1
        results = [to_json(self._result(item, probe)) for probe in body["probes"]]
        done = item.probed[operation] >= (item.pairs_take if body["probes"][0]["id"] == "pair" else item.probes_take)
        return {"state": "done" if done else "running", "results": results if done else results[:1]}

    def views(self) -> dict[str, MachineView]:
        now_s = self._clock.now_s()
        found = {}
        for name, item in self.launchers.items():
            first = (1, now_s) if item.step is not None else (None, None)
            worker = WorkerView(
                0, 1, item.rank, item.state, item.generation, item.step, now_s, None, None, None, *first  # type: ignore[arg-type]
            )  # fmt: skip
            age_s = 30.0 if item.silent else 0.1
            heard = not item.refuses and not item.unheard
            found[name] = MachineView(name, age_s if heard else None, age_s if heard else None, (worker,) if heard else ())
        return found

    def capture(self, machines: Iterable[str], what: list[str], deadline_s: float, **more: Any) -> dict[str, Any]:
        wanted = list(machines)
        self.captured += wanted
        return {name: WireError("silent") if self.launchers[name].silent else {"logs": {}} for name in wanted}

    def post_workers(self, bodies: Mapping[str, Mapping[str, Any]], timeout_s: float = 5.0) -> dict[str, Any]:
        return {name: self._take(self.launchers[name], body) for name, body in bodies.items()}

    def _take(self, item: Launcher, body: Mapping[str, Any]) -> Any:
        if item.silent:
            return WireError("does not answer")
        operation, generation = str(body["operation_id"]), int(body["generation"])
        if operation in item.operations:
            return {"outcome": "already_done"}
        if generation < item.generation:
            return WireError("HTTP 409")
        item.operations.append(operation)
        item.generation, item.step = generation, None
        item.state, item.rank = {"parked": "waiting"}.get(str(body["desired"]), "ended"), None
        if body["desired"] == "run":
            item.starts.append((operation, generation))
            item.state, item.rank = "running", int(body["assignments"][0]["env"]["RANK"])
            item.world = int(body["world_size"])
        return {"outcome": "done"}

    def advance(self) -> None:
        """A rank that runs makes two steps, if all ranks of its generation run."""
        running = [item for item in self.launchers.values() if item.state == "running" and not item.silent]
        for item in running:
            if sum(other.generation == item.generation for other in running) >= item.world:
                item.step = (item.step or 0) + 2


def probe_result(name: str, item: Launcher, now_s: float) -> ProbeResult:
    """No number, and no fault, unless the launcher has one."""
    fault = item.faults.get(name, "")
    if fault in ("", "compared"):
        state = Measurement("state", 0.0 if fault else 1.0, "", "same", bad="fail")
        return ProbeResult(name, 1, "measured", measures=(state,) if name == "links" else (), started_s=now_s, seconds=1.0)
    if fault in ("fast", "slow"):
        speed = Measurement("speed", 1e11 if fault == "fast" else 1e10, "B/s", "higher")
        return ProbeResult(name, 1, "measured", measures=(speed,), started_s=now_s, seconds=1.0)
    return ProbeResult(name, 1, "failed", fault, started_s=now_s, seconds=1.0)


class FakeActuator:
    name = "fake"

    def __init__(self, fleet: FakeFleet, clock: FakeClock) -> None:
        self._fleet, self._clock = fleet, clock
        self.executed: list[str] = []
        self.ambiguous = False

    def execute(self, decision: Decision) -> ActionResult:
        self.executed.append(decision.operation_id)
        bodies = {
            name: {"operation_id": f"{decision.operation_id}/end", "generation": 99, "desired": "ended", "assignments": []}
            for name in decision.machines
        }
        for name in bodies:
            if not self._fleet.launchers[name].silent:
                self._fleet.launchers[name].state = "ended"
        return ActionResult(decision.operation_id, self._clock.now_s(), "ambiguous" if self.ambiguous else "done", "ended")


class ScriptedJudge(Judge):
    """Says what `script(observation)` gives, each (kind, machines, since) once, as the real judge does for an episode."""

    def __init__(self, script: Callable[[Observation], list[Verdict]]) -> None:
        super().__init__([])
        self._script = script
        self._told: set[Any] = set()

    def judge(self, observation: Observation) -> tuple[list[Verdict], frozenset[Any]]:
        found = [item for item in self._script(observation) if (item.kind, item.machines, item.since_s) not in self._told]
        self._told |= {(item.kind, item.machines, item.since_s) for item in found}
        return found, frozenset()


class Quiet:
    """A source and a window maker without anything to say."""

    def collect(self, now_s: float) -> list[Any]:
        return []

    def close(self) -> None: ...

    def push(self, samples: Sequence[Any]) -> None: ...

    def pop(self, now_s: float) -> None: ...

    def notes(self) -> list[str]:
        return []


class World:
    """The machines, which outlive every controller. `life()` is one controller's."""

    def __init__(self, folder: Path, empty_ledger: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.fleet = FakeFleet(self.clock, (*MACHINES, *STANDBYS))
        self.actuator = FakeActuator(self.fleet, self.clock)
        self.policy = PolicyConfig(dry_run=False, breaker_share=0.5, cooldown_s=0.0)
        self.script: Callable[[Observation], list[Verdict]] = lambda observation: []
        self.source: Any = Quiet()
        self.windows: Any = Quiet()
        self.workers_dead = self.hangs = False
        shutil.copy(empty_ledger, folder / "ledger.db")

    def ledger(self) -> Ledger:
        return Ledger(self.folder / "ledger.db", clock=self.clock)

    def config(self) -> JobConfig:
        machines = [MachineConfig(name=name, standby=name in STANDBYS) for name in (*MACHINES, *STANDBYS)]
        return JobConfig(name="llm", machines=tuple(machines), start_deadline_s=0.2)

    def sight(self, app: App, **changes: Any) -> Sight:
        return replace(sight_of(app, self.fleet, self.policy, self.clock), agents=self.fleet.machines, **changes)

    def app(self, die_at: int | None = None) -> App:
        """A new controller process. `die_at`: it is killed right after it wrote that many events."""
        ledger = self.ledger()
        if die_at is not None:
            kill_after(ledger, die_at)
        state = fold_job("llm", ledger.events(job="llm"))
        deadlines = {"evidence_deadline_s": 0.1, "start_deadline_s": 0.3, "late_deadline_s": 6.0}
        settings = RecoverySettings(self.folder, "127.0.0.1", {}, None, 3, **deadlines)  # type: ignore[arg-type]
        recovery = Recovery(state, ledger, self.fleet, self.actuator, settings, self.clock)  # type: ignore[arg-type]
        tracker = JobTracker()

        def context(state: Any, standbys: Sequence[str], now_s: float) -> PolicyContext:
            silent = frozenset(name for name, item in self.fleet.launchers.items() if item.silent)
            facts: dict[str, Any] = {"workers_dead": self.workers_dead or state.phase == "suspended", "hangs": self.hangs}
            facts |= {"machines_lost": silent, "by_launchers": True}
            probing, replays = (WITH_LAUNCHERS - {"replay"} if self.fleet.offers else frozenset()), {"replay"} & set(self.fleet.offers)
            offers = OFFERED | probing | replays
            return PolicyContext(now_s, state.view(standbys), tuple(standbys), gpus=4, expected_restart_s=1.0, offers=offers, **facts)

        held = HeldJob(state, ledger, self.policy, self.clock, context)
        diagnosing = Diagnosing(held, self.fleet, recovery, Paths(self.fleet.address))  # type: ignore[arg-type]
        replaying = Replaying(held, self.fleet, recovery, Parallelism(data=len(MACHINES)))  # type: ignore[arg-type]
        judge = ScriptedJudge(lambda observation: self.script(observation))
        stages = Stages(
            self.fleet, self.source, self.windows, judge, Policy(self.policy), recovery, tracker, context  # type: ignore[arg-type]
        )  # fmt: skip
        beside = Beside(state, ledger, self.fleet, self.clock, self.policy.ladder)  # type: ignore[arg-type]
        stages = replace(stages, admits=getattr(self, "admits", None), diagnosing=diagnosing, beside=beside, replaying=replaying)
        stages = replace(stages, pair_news=PairNews(state, ledger))
        controller = Controller(state, stages, ledger, self.clock, self.folder)
        return App(self.config(), controller, self.fleet, ledger, recovery, state, threading.Event(), self.clock)  # type: ignore[arg-type]

    def tick(self, app: App, times: int = 1) -> None:
        for _ in range(times):
            self.fleet.advance()
            self.clock.sleep(1.0)
            app.controller.step(self.clock.now_s())

    def life(self, ticks: int, die_at: int | None = None) -> App:
        """Begin and tick; a controller that is killed on the way is simply gone."""
        app = self.app(die_at)
        with contextlib.closing(app), contextlib.suppress(KilledError):
            app.begin()
            self.tick(app, ticks)
        return app

    def events(self, *kinds: str) -> list[Any]:
        with self.ledger() as ledger:
            return [event for event in ledger.events() if not kinds or event.kind in kinds]

    def accuse(self, *machines: str, **changes: Any) -> Verdict:
        since_s = 1_700_000_000.0  # the job's start, so that the verdict is the same for every controller
        evidence = tuple(Evidence("test", machine, "made up", since_s=since_s) for machine in machines)
        values = {"kind": "machine", "tier": "evict", "machines": machines, "cause": "explicit", "confidence": 0.95, **changes}
        return Verdict(self.clock.now_s(), since_s=since_s, evidence=evidence, **values)


def sight_of(app: App, fleet: Any, policy: PolicyConfig, clock: FakeClock) -> Sight:
    stages, past = app.controller._stages, partial(app.ledger.history, "llm")
    return Sight(app.state, stages.measures, fleet.views, fleet.refusals, past, policy, clock)


def kill_after(ledger: Ledger, count: int) -> None:
    """The ledger's process dies right after its `count`-th event is on disk."""
    store: Any = ledger._store
    begun = max((event.id for event in ledger.events()), default=0)
    written: set[int] = set()

    def dying(write: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            found = write(*arguments)
            event = found[0] if isinstance(found, tuple) else found
            if event.id > begun:
                written.add(event.id)
            if len(written) == count:
                raise KilledError
            return found

        return call

    for name in ("insert", "insert_once", "insert_first"):
        setattr(store, name, dying(getattr(store, name)))


@pytest.fixture(scope="session")
def empty_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    Ledger(path).close()
    return path


@pytest.fixture
def new_world(tmp_path: Path, empty_ledger: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], World]]:
    """new_world(): machines on which nothing runs yet, each in a folder of its own."""
    monkeypatch.setattr(recover, "RendezvousHost", FakeHost)
    made: list[World] = []

    def make() -> World:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(World(folder, empty_ledger))
        return made[-1]

    yield make


class Paper:
    """A controller as `minder run --act` builds it, on a clock of our own, of a job on paper: four machines, two standbys."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, ledger: Path, **settings: Any) -> None:
        self.clock = FakeClock(time.time())
        self.folder = folder
        self.job = PaperJob(self.clock, (*MACHINES, *STANDBYS), len(MACHINES))
        monkeypatch.setattr(recover, "RendezvousHost", FakeHost)
        monkeypatch.setattr(minder.app.build, "build_source", lambda config: self.job)
        monkeypatch.setattr(minder.app.build, "Fleet", lambda *unused, **more: self.job)
        at = {"agent": "http://127.0.0.1:9", "launcher": "http://127.0.0.1:9"}
        machines = tuple(MachineConfig(name=name, standby=name in STANDBYS, **at) for name in (*MACHINES, *STANDBYS))
        settings = {"policy": {"cooldown_s": 20.0, "breaker_share": 0.5}, **settings}
        config = JobConfig(name="llm", machines=machines, state_dir=str(folder), **settings)
        self.ledger = Ledger(ledger, clock=self.clock)
        self.app = minder.app.build.build(config, act=True, clock=self.clock, ledger=self.ledger)
        self.app.begin()
        self.gauges = Gauges(sight_of(self.app, self.job, PolicyConfig(), self.clock))

    def tick(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.sleep(1.0)
            self.job.advance()
            self.app.controller._step_or_wait()

    def degraded(self) -> set[str]:
        """What the controller's own metrics call degraded now."""
        (family,) = [family for family in self.gauges.collect() if family.name == "minder_controller_degraded"]
        return {sample.labels["what"] for sample in family.samples if sample.value}

    def told(self, *kinds: str) -> list[Any]:
        return [event for event in self.ledger.events() if event.kind in kinds]

    def hit(self, machine: str, kind: Any, seconds: float = 600.0) -> None:
        now_s = self.clock.now_s()
        self.job.faults.append(PaperFault(kind, machine, now_s, now_s + seconds))


@pytest.fixture
def fake_host() -> type[FakeHost]:
    return FakeHost


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Paper]]:
    """paper(ledger=PATH, **settings of job.toml): a job on paper that steps, with what it needs to know of its telemetry learned."""
    made: list[Paper] = []

    def make(ledger: Path = tmp_path / "ledger.db", **settings: Any) -> Paper:
        made.append(Paper(tmp_path, monkeypatch, ledger, **settings))
        made[-1].tick(60)
        return made[-1]

    yield make
    for each in made:
        each.app.close()


@pytest.fixture
def world(new_world: Callable[[], World]) -> World:
    return new_world()


@pytest.fixture
def begun(world: World) -> Iterator[App]:
    app = world.app()
    app.begin()
    world.tick(app, 3)
    yield app
    app.close()
