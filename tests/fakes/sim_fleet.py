"""Machines that do not exist, on a clock that only moves when a caller sleeps on it: launchers, agents, workers that step, standbys.

`SimMachines` outlives every controller; each controller looks at it through a `SimFleet` of its own, as through minder.wire.fleet.Fleet.
What is wrong with a machine is a fact here (`faults`), so that an invariant can ask whether an evicted machine was ill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from replay_fake import ReplayGroups

from minder.model.batch_ranges import SKIP_BATCHES, batch_of_step, consumed_alike, parse_ranges
from minder.model.clock import FakeClock
from minder.model.errors import NoAnswerError, WireError
from minder.model.evidence import Signal
from minder.model.observation import MachineView, WorkerView
from minder.model.probes import Measurement, ProbeResult
from minder.wire.codec import to_json

__all__ = ["SimClock", "SimFleet", "SimMachine", "SimMachines", "address_of"]

T = TypeVar("T")
STEP_S, LOAD_S, RETURN_S, ECHO_S, PROBES_S, BESIDE_S = 1.0, 4.0, 2.0, 0.5, 12.0, 6.0
ECC = ("RuntimeError", "CUDA error: uncorrectable ECC error encountered")
BUG = ("KeyError", "'loss_scale'")
NOT_FINITE = ("NonFiniteGradient", "this rank's own gradient is not finite")
_KEPT = 30  # checkpoints
_SLICE_S = 1.0


class SimClock(FakeClock):
    """While a caller sleeps the machines go on."""

    def __init__(self) -> None:
        super().__init__()
        self.on_passed: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        while seconds > 0:
            super().sleep(min(seconds, _SLICE_S))
            seconds -= _SLICE_S
            self.on_passed()


@dataclass
class SimMachine:
    """One machine with its agent, its launcher and one worker. faults: "hang", "crash", "oom", "ecc", with how many of them are left;
    "disk" and "bits", which stay. tests: operation to when its probes began, in this launcher's life."""

    name: str
    pid: int = 1
    up: bool = True
    agent_silent_until_s: float = 0.0
    launcher_back_s: float | None = None  # when its launcher, or its next worker, stands again
    generation: int = 0
    rank: int | None = None
    world: int = 0  # ranks of its generation
    state: str = "waiting"
    step: int | None = None
    step_s: float | None = None
    first: tuple[int, float] | None = None
    operations: set[str] = field(default_factory=set)
    log: list[Signal] = field(default_factory=list)  # of this launcher's life
    lives: int = 0  # launchers so far
    faults: dict[str, int] = field(default_factory=dict)
    was_ill: bool = False
    frozen: bool = False
    back_s: float = 0.0  # when a lost one is there again
    tests: dict[str, float] = field(default_factory=dict)
    loaded_s: float = 0.0  # when its worker has loaded its checkpoint
    probe_fails_until_s: float = 0.0
    probe_ran_s: float | None = None  # what its launcher runs now began then
    update: int = 0  # the version of the code that its worker runs
    here: set[int] = field(default_factory=set)  # versions that lie on its disk
    warm: bool = False  # asked for processes of a version beside its ranks
    skipped: str = ""  # batches that its worker was asked to leave out
    asked: int = 0  # the generation in which its loader asked for them
    slow_until_s: float = 0.0  # it is said to slow the job down
    slow_tier: str = ""  # by a rule that may evict, or page
    slow_link: bool = False  # pair tests show it

    @property
    def has_full_disk(self) -> bool:
        return "disk" in self.faults

    def begin_again(self, now_s: float) -> None:
        """Its launcher is started anew: it has forgotten all, and its worker ended with the old one."""
        self.lives += 1
        self.generation, self.rank, self.state, self.frozen, self.asked = 0, None, "starting", False, 0
        self.step, self.step_s, self.first = None, None, None
        self.operations, self.log, self.launcher_back_s, self.tests = set(), [], now_s + RETURN_S, {}

    def aim(self, body: Mapping[str, Any], now_s: float) -> None:
        self.probe_ran_s = None if body["desired"] == "run" else self.probe_ran_s
        self.loaded_s = now_s + LOAD_S
        self.generation, self.frozen = int(body["generation"]), False
        self.step, self.step_s, self.first = None, None, None
        self.pid += 1
        self.state, self.rank = {"parked": "waiting"}.get(str(body["desired"]), "ended"), None
        if body["desired"] == "run":
            self.update = int((body.get("program") or {}).get("update") or 0)
            environment = body["assignments"][0]["env"]
            self.state, self.rank, self.skipped = "running", int(environment["RANK"]), environment.get(SKIP_BATCHES, "")
            self.world = int(body["world_size"])


class SimMachines:
    """All machines of one job, one rank on each. rank_faults: rank to how many more generations its program fails in. bad: versions of the
    code whose rank 0 fails a few steps in. broken: versions whose processes end before they reach the barrier. refused: machines whose
    launchers take no version of the code. bad_batches: batch to the rank whose numbers it makes wrong, -1: of all. saved: each checkpoint's
    step, and what its run left out. asks: whether the job's loader leaves batches out when asked to."""

    def __init__(self, clock: SimClock, names: Iterable[str]) -> None:
        self.clock = clock
        self.by_name = {name: SimMachine(name) for name in names}
        self.rank_faults: dict[int, int] = {}
        self.bad: set[int] = set()
        self.broken: set[int] = set()
        self.refused: set[str] = set()
        self.bad_batches: dict[int, int] = {}
        self.saved: list[tuple[int, str]] = []
        self.asks, self.skipped = True, ""
        self.step, self.stands = 0, False  # stands: a deadlock of the program holds the present generation
        self.stepped_s = 0.0
        self.on_effect: Callable[[str, Mapping[str, Any]], None] = lambda machine, body: None
        self.on_probes: Callable[[str, Mapping[str, Any]], None] = lambda machine, body: None
        self.probes_s = PROBES_S
        self.groups = ReplayGroups()
        self._at_s, self._part = clock.monotonic_s(), 0.0
        self._echo: tuple[float, int] | None = None  # when connections break, and those of which generation
        clock.on_passed = self.advance

    def running(self) -> list[SimMachine]:
        """Those of the newest generation that run a rank."""
        newest = max(item.generation for item in self.by_name.values())
        return [item for item in self.by_name.values() if item.up and item.state == "running" and item.generation == newest]

    def holder(self, machine: str) -> bool:
        return any(item.name == machine for item in self.running())

    def advance(self) -> None:
        """Step for as long as has passed if all ranks run; let faults happen; let what was started anew come up."""
        now_s, monotonic_s = self.clock.now_s(), self.clock.monotonic_s()
        passed_s, self._at_s = monotonic_s - self._at_s, monotonic_s
        for item in self.by_name.values():
            if not item.up and monotonic_s >= item.back_s:
                self.bring_back(item.name)
            if (
                item.up
                and item.launcher_back_s is not None
                and monotonic_s >= item.launcher_back_s
                and item.state in ("starting", "exited")
            ):
                item.launcher_back_s, item.state, item.rank = None, "waiting", None
                item.pid += 1
        running = self.running()
        if self._echo is not None and monotonic_s >= self._echo[0]:
            victims, self._echo = [item for item in running if item.generation == self._echo[1]], None
            for item in victims:
                self.fail(item, {"code": 1, "victim": True})
            if victims:
                return
        if (
            not running
            or len(running) < running[0].world
            or self.stands
            or any(item.frozen or item.loaded_s > monotonic_s for item in running)
        ):
            return
        for item in running:
            item.asked = item.generation if self.asks else 0
        self._go_back(running[0].skipped)
        self._part += passed_s / STEP_S
        whole, self._part = int(self._part), self._part % 1.0
        if whole:
            if self._meet_bad_batch(running):
                return
            self.step += whole
            self.saved = [*self.saved[-_KEPT:], (self.step, self.skipped)]
            self.stepped_s = monotonic_s
            for item in running:
                item.step, item.step_s, item.first = self.step, now_s, item.first or (self.step, now_s)
            self._fall_ill(running)

    def _go_back(self, skipped: str) -> None:
        """A run that leaves out other batches goes on from the newest checkpoint that fits."""
        if skipped == self.skipped:
            return
        fits = [step for step, held in self.saved if consumed_alike(step, parse_ranges(held), parse_ranges(skipped))]
        self.step, self.skipped = max(fits, default=0), skipped
        self.saved = [item for item in self.saved if item[0] <= self.step]

    def _meet_bad_batch(self, running: list[SimMachine]) -> bool:
        """The gradient guard of one rank, or of all, stops the step before it is made."""
        step = self.step + 1
        batch = batch_of_step(step, parse_ranges(self.skipped if self.asks else ""))
        if batch not in self.bad_batches:
            return False
        now_s, whose = self.clock.now_s(), self.bad_batches[batch]
        for item in [item for item in running if whose in (-1, item.rank)]:
            fields: dict[str, Any] = {"rank": item.rank, "pid": item.pid, "generation": item.generation}
            item.log.append(Signal(now_s, "nonfinite", item.name, "not finite", data={"what": "gradient", "step": step}, **fields))
            self.fail(item, {}, NOT_FINITE)
        return True

    def _fall_ill(self, running: list[SimMachine]) -> None:
        """A fault shows a few steps into a generation."""
        for item in running:
            if item.first is None or self.step < item.first[0] + 3:
                continue
            if item.faults.get("hang", 0) > 0:
                item.faults["hang"] -= 1
                item.frozen = True
            elif item.faults.get("ecc", 0) > 0:
                item.faults["ecc"] -= 1
                self.fail(item, {}, ECC)
            elif item.faults.get("oom", 0) > 0:
                item.faults["oom"] -= 1
                kill = f"Memory cgroup out of memory: Killed process {item.pid} (python)"
                item.log.append(Signal(self.clock.now_s(), "kernel", item.name, kill, pid=item.pid, data={"what": "oom"}))
                self.fail(item, {"signal": 9})
            elif item.faults.get("crash", 0) > 0:
                item.faults["crash"] -= 1
                self.fail(item, {"code": 3})
            elif item.rank is not None and self.rank_faults.get(item.rank, 0) > 0:
                self.rank_faults[item.rank] -= 1
                self.fail(item, {"code": 3})
            elif item.rank == 0 and item.update in self.bad:
                self.fail(item, {}, BUG)
            else:
                continue
            return

    def fail(self, item: SimMachine, data: dict[str, Any], exception: tuple[str, str] | None = None) -> None:
        """Its worker ends; its peers' connections break a moment later; a fresh worker comes to the barrier."""
        fields: dict[str, Any] = {"rank": item.rank, "pid": item.pid, "generation": item.generation}
        now_s = self.clock.now_s()
        if exception is not None:
            item.log.append(Signal(now_s, "exception", item.name, exception[1], data={"type": exception[0]}, **fields))
            data = {"code": 1}
        item.log.append(Signal(now_s, "exit", item.name, "ended", data=data, **fields))
        item.state, item.step, item.launcher_back_s = "exited", None, self.clock.monotonic_s() + RETURN_S
        if not data.get("victim"):
            self._echo = self.clock.monotonic_s() + ECHO_S, item.generation

    def lose(self, name: str, seconds: float) -> None:
        item, ran = self.by_name[name], self.holder(name)
        generation = item.generation
        item.back_s = self.clock.monotonic_s() + seconds
        item.up, item.was_ill = False, True
        item.begin_again(self.clock.monotonic_s())
        item.launcher_back_s = None
        if ran and len(name) % 2 == 0:  # the peers of some notice at once, those of others hang
            self._echo = self.clock.monotonic_s() + ECHO_S, generation

    def bring_back(self, name: str) -> None:
        item = self.by_name[name]
        if not item.up:
            item.up = True
            item.begin_again(self.clock.monotonic_s())


def address_of(machine: str, names: Iterable[str]) -> str:
    """On the job's network."""
    return f"10.9.0.{1 + list(names).index(machine)}"


class SimFleet:
    """One controller's view of the machines. dead: nothing that it still asks for reaches anybody."""

    def __init__(self, world: SimMachines) -> None:
        self._world = world
        self._read: dict[str, tuple[int, int]] = {}  # machine to (launcher's life, events read)
        self._heard_s: dict[str, list[float | None]] = {name: [None, None] for name in world.by_name}  # agent, launcher
        self._seen: dict[str, tuple[WorkerView, ...]] = {}
        self._newest: dict[tuple[str, Any], tuple[tuple[Any, ...], Any]] = {}  # machine and kind of record to its fields, and itself

    @property
    def machines(self) -> tuple[str, ...]:
        return tuple(self._world.by_name)

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def refresh(self, machines: Iterable[str], timeout_s: float = 1.0) -> None: ...

    def clock_error_s(self) -> float:
        return 0.01

    def refusals(self) -> dict[str, str]:
        return {}

    def jobs(self) -> dict[str, tuple[str, ...]]:
        return {}

    def names(self, machine: str) -> tuple[str, str]:
        return machine, machine

    def lost(self) -> dict[str, int]:
        return {}

    def drain(self) -> list[Signal]:
        """A launcher's log is read from its beginning, by every controller."""
        found: list[Signal] = []
        for name, item in self._world.by_name.items():
            if self._answers(item):
                life, count = self._read.get(name, (item.lives, 0))
                count = count if life == item.lives else 0
                found += item.log[count:]
                self._read[name] = (item.lives, len(item.log))
        return sorted(found, key=lambda signal: signal.time_s)

    def launcher_state(self, machine: str) -> Mapping[str, Any]:
        item = self._world.by_name[machine]
        offers = ["probes", "probes beside", "replay", "updates", "warm updates"]
        return {"generation": item.generation, "offers": offers + (["skips"] if item.asked == item.generation > 0 else [])}

    def deliver(self, machines: Iterable[str], body: Mapping[str, Any], read: Any, timeout_s: float = 60.0) -> dict[str, Any]:
        return {name: self._receive(self._world.by_name[name], int(body["update"])) for name in machines}

    def warm(self, machines: Iterable[str], body: Mapping[str, Any], timeout_s: float = 5.0) -> dict[str, Any]:
        """Every other question finds them ready."""
        return {name: self._warm(self._world.by_name[name]) for name in machines}

    def _warm(self, item: SimMachine) -> Any:
        if not self._answers(item):
            return NoAnswerError(f"{item.name} does not answer")
        item.warm = not item.warm
        return {"warm": not item.warm}

    def _receive(self, item: SimMachine, update: int) -> Any:
        if not self._answers(item):
            return NoAnswerError(f"{item.name} does not answer")
        if not update:
            return WireError("HTTP 400: update is 0: a number from 1 on")
        if item.name in self._world.refused:
            return WireError(f'launcher of {item.name} at http://m:1: HTTP 400 on /v1/updates: {{"error":"it takes no updates"}}')
        item.here.add(update)
        return {"ready": True}

    def probes(self, bodies: Mapping[str, Mapping[str, Any]], part: str = "launcher", wait_s: float = 0.0) -> dict[str, Any]:
        return {name: self._probe(self._world.by_name[name], body, part) for name, body in bodies.items()}

    def _probe(self, item: SimMachine, body: Mapping[str, Any], part: str) -> Any:
        """A launcher runs none beside ranks, and what it runs is over when the machine is given some."""
        self._world.on_probes(item.name, body)
        operation, monotonic_s = str(body["operation"]), self._world.clock.monotonic_s()
        silent = monotonic_s < item.agent_silent_until_s if part == "agent" else not self._answers(item)
        if silent or not item.up:
            return NoAnswerError(f"{item.name} does not answer")
        if item.state == "running" and not body.get("force"):
            return {"state": "refused", "detail": "ranks run on this machine", "results": []}
        if part == "launcher" and operation in item.tests and item.probe_ran_s != item.tests[operation]:
            return {"state": "refused", "detail": "the probes were ended before their time", "results": []}
        begun_s = item.tests.setdefault(operation, monotonic_s)
        if "replay" in body["probes"][0]:
            self._world.groups.note(operation, item.name, body["probes"][0]["replay"])
        item.probe_ran_s = begun_s if part == "launcher" else item.probe_ran_s
        if monotonic_s - begun_s < (BESIDE_S if body.get("beside") else self._world.probes_s):
            return {"state": "running", "results": []}
        results = [self._result(item, probe) for probe in body["probes"]]
        return {"state": "done", "results": [to_json(result) for result in results]}

    def _result(self, item: SimMachine, asked: Mapping[str, Any]) -> ProbeResult:
        """A full disk is seen, and a fault of the links while it lasts; what kills a job's processes is not. What computes other bits is
        seen by a replay."""
        clock, probe = self._world.clock, str(asked["id"])
        if probe == "pair":
            return self._pair(asked["pair"])
        if probe == "replay":
            faulty = [name for name, other in self._world.by_name.items() if "bits" in other.faults]
            return self._world.groups.result(asked["replay"], faulty, clock.now_s())
        full = probe in ("disk", "space") and "disk" in item.faults
        failed = full or (probe == "links" and clock.monotonic_s() < item.probe_fails_until_s)
        return ProbeResult(probe, 1, "failed" if failed else "measured", "it found a fault" if failed else "", started_s=clock.now_s())

    def _pair(self, order: Mapping[str, Any]) -> ProbeResult:
        """What the machine sends to its peer, and what it receives."""
        links = {address_of(name, self._world.by_name): item.slow_link for name, item in self._world.by_name.items()}
        rates = [1e7 if links[order[end]] else 1e9 for end in ("own", "peer")]
        measures = [
            Measurement(f"pair_{way}_bandwidth", rate, "B/s", "higher") for way, rate in zip(("send", "receive"), rates, strict=True)
        ]
        return ProbeResult("pair", 1, "measured", "", tuple(measures), started_s=self._world.clock.now_s())

    def _answers(self, item: SimMachine) -> bool:
        return item.up and not (item.state == "starting" and item.launcher_back_s is not None)

    def views(self) -> dict[str, MachineView]:
        monotonic_s = self._world.clock.monotonic_s()
        for name, item in self._world.by_name.items():
            heard = self._heard_s[name]
            if item.up and monotonic_s >= item.agent_silent_until_s:
                heard[0] = monotonic_s
            if self._answers(item):
                heard[1] = monotonic_s
                self._seen[name] = (self._worker(item),)
        return {name: self._view(name, monotonic_s) for name in self._world.by_name}

    def _view(self, name: str, monotonic_s: float) -> MachineView:
        agent, launcher = self._heard_s[name]
        ages = (None if agent is None else monotonic_s - agent + 0.1, None if launcher is None else monotonic_s - launcher + 0.1)
        return self._same(name, MachineView, (name, *ages, self._seen.get(name, ())))

    def _worker(self, item: SimMachine) -> WorkerView:
        now_s = self._world.clock.now_s()
        alive_s = (item.step_s or now_s) if item.frozen else now_s
        first = item.first or (None, None)
        fields = (0, item.pid, item.rank, item.state, item.generation, item.step, item.step_s, alive_s, None, None, *first)
        return self._same(item.name, WorkerView, fields)

    def _same(self, name: str, kind: Callable[..., T], fields: tuple[Any, ...]) -> T:
        """A record of these fields; the one before where nothing has changed, since a tick looks eight times."""
        before = self._newest.get((name, kind))
        if before is None or before[0] != fields:
            before = self._newest[name, kind] = (fields, kind(*fields))
        return before[1]

    def capture(self, machines: Iterable[str], what: list[str], deadline_s: float, **options: float) -> dict[str, Any]:
        return {name: {"logs": {}} if self._world.by_name[name].up else NoAnswerError(f"{name} is silent") for name in machines}

    def dumps(self, machines: Iterable[str], deadline_s: float) -> dict[str, Any]:
        return {name: WireError("no dumps") for name in machines}

    def retest(self, machine: str, operation: str, wait_s: float) -> Any:
        item = self._world.by_name[machine]
        return {"state": "passed" if item.up and not any(item.faults.values()) else "failed", "detail": "simulated"}

    def post_workers(self, bodies: Mapping[str, Mapping[str, Any]], timeout_s: float = 5.0) -> dict[str, Any]:
        return {name: self._post(self._world.by_name[name], body) for name, body in bodies.items()}

    def _post(self, item: SimMachine, body: Mapping[str, Any]) -> Any:
        operation, generation = str(body["operation_id"]), int(body["generation"])
        self._world.on_effect(item.name, body)
        if not self._answers(item):
            return NoAnswerError(f"{item.name} does not answer")
        if operation in item.operations:
            return {"outcome": "already_done"}
        if generation < item.generation:
            return WireError("HTTP 409: a generation that is over")
        update = int((body.get("program") or {}).get("update") or 0)
        if update and (update not in item.here or item.name in self._world.refused):
            return WireError("HTTP 400: the code is not here")
        item.operations.add(operation)
        item.aim(body, self._world.clock.monotonic_s())
        if update in self._world.broken and body["desired"] == "run":
            item.state, item.rank, item.launcher_back_s = "starting", None, None
        self._world.stands = False if body["desired"] == "run" else self._world.stands
        return {"outcome": "done"}
