"""One schedule, played: the real controller as `build()` wires it, in front of simulated machines, killed and started again.

What is real: rules, judge, policy, recovery, actuator, approvals, pool, the ledger's writes (SQLite) and folds. What is not: network,
processes, telemetry (there is none), stacks (`SimWitnesses` knows the truth), the rendezvous store, time, what is shown (status, metrics);
plain reads of the ledger are answered from memory (ledger_in_memory.py).
"""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from invariants import Watch
from ledger_in_memory import LedgerInMemory
from rendezvous_fake import FakeHost
from schedule import MACHINES, STANDBYS, Action, Schedule
from sim_fleet import PROBES_S, SimClock, SimFleet, SimMachines, address_of

import minder.app.build
from minder.act.controller import recover, step
from minder.act.controller.captures import Connections
from minder.act.controller.orders import job_work
from minder.act.controller.reporting.measures import Measures
from minder.app.build import App
from minder.config import JobConfig, MachineConfig, StandbyConfig
from minder.diagnose.verdicts.live import live_rules
from minder.model.batch_ranges import batch_of_step, parse_ranges
from minder.model.errors import BadInputError, LeaseLostError, LedgerError, MinderError
from minder.model.evidence import CaptureFinding, Evidence, Suspect
from minder.model.observation import Observation, RuleResult
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.orders import order_eviction, order_restart
from minder.record.incidents.skips import order_skip
from minder.record.incidents.updates import order_rollback, order_update, update_payload
from minder.record.store.leases import LeaseStore

__all__ = ["Scene", "play", "simulated"]

JOB = "llm"
POLICY: dict[str, Any] = {
    "cooldown_s": 10.0, "breaker_share": 0.5, "breaker_window_s": 120.0, "restart_hung_after_s": 60.0, "start_limit_s": 120.0,
    "trial_s": 120.0, "diagnose_limit_s": 60.0, "replay_limit_s": 90.0, "progress_steps": 10, "progress_s": 30.0,
    "approval_timeout_s": 45.0, "operation_timeout_s": 300.0,
}  # fmt: skip
CALM_S, QUIET_S = 600.0, 45.0  # after the last action at most, and without anything new
TICK_S, REST_S, BUSY_S = 1.0, 3.0, 20.0  # between two ticks: so long after an action, and later


class KilledError(BaseException):
    """kill -9."""


class Quiet:
    """A source and windows without anything to say."""

    def collect(self, now_s: float) -> list[Any]:
        return []

    def push(self, samples: Any) -> None: ...

    def pop(self, now_s: float) -> None: ...

    def notes(self) -> list[str]:
        return []

    def set_machines(self, machines: Any) -> None: ...

    def close(self) -> None: ...


class Inline:
    """Threads that do their work at once."""

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(work(*arguments))
        return future

    def shutdown(self, **unused: Any) -> None: ...


class SimWitnesses:
    """Stacks that show the truth, a tick after they were asked for."""

    world: SimMachines

    def __init__(self, *unused: Any) -> None:
        self.gpus = True
        self._asked: tuple[int, float] | None = None

    def request(self, requests: frozenset[Any], observation: Observation, since_s: float) -> None:
        if requests & {"stacks", "dumps", "still"} and observation.job is not None:
            self._asked = (observation.job.generation, self.world.clock.now_s())

    def take_flows(self, generation: int) -> Connections:
        return Connections()

    def take_statements(self, generation: int) -> Sequence[CaptureFinding]:
        asked, self._asked = self._asked, None
        if asked is None or asked[0] != generation:
            return ()
        now_s = self.world.clock.now_s()
        held = [item.name for item in self.world.running() if item.frozen]
        stands = self.world.clock.monotonic_s() - self.world.stepped_s > 2.0
        suspects = tuple(_stopped(name, now_s) for name in held)
        return (CaptureFinding(now_s, "stacks", suspects, stands),)

    def close(self) -> None: ...


class SlowRule:
    """What telemetry would say of a slow machine, true or not, while the job steps."""

    name = "slowdown"

    def observe(self, observation: Observation) -> RuleResult:
        world, job = SimWitnesses.world, observation.job
        now_s, monotonic_s = observation.now_s, world.clock.monotonic_s()
        if job is None or monotonic_s - world.stepped_s > 2.0:
            return RuleResult()
        said = [item for item in world.running() if monotonic_s < item.slow_until_s and item.name in job.machines]
        return RuleResult(
            tuple(
                Suspect(
                    now_s, self.name, "machine", (item.name,), "slowdown", 0.95, job.generation_start_s, item.slow_tier,  # type: ignore[arg-type]
                    (Evidence("steps", item.name, "slower than its peers"),),
                )
                for item in said
            )
        )  # fmt: skip


def _stopped(machine: str, now_s: float) -> Suspect:
    evidence = (Evidence("stacks", machine, "stopped"),)
    return Suspect(now_s, "stacks", "machine", (machine,), "stall", 0.9, now_s, "evict", evidence)


class Scene:
    """The machines, the ledger and the leading controller. `play()` it once."""

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self.schedule, self._location = schedule, folder / "ledger.db"
        self.clock = SimClock()
        self.world = SimMachines(self.clock, (*MACHINES, *STANDBYS))
        SimWitnesses.world = self.world
        at = {"agent": "http://127.0.0.1:9", "launcher": "http://127.0.0.1:9"}
        machines = tuple(
            MachineConfig(name=name, standby=name in STANDBYS, job_address=address_of(name, self.world.by_name), **at)
            for name in (*MACHINES, *STANDBYS)
        )
        policy = {**POLICY, "approval": schedule.approval, "approval_on_timeout": schedule.on_timeout}
        policy |= {
            "ladder": {"order": schedule.ladder, "slow_machines": schedule.slow},
            "rollback": schedule.rollback,
            "skip_batches": schedule.skip,
        }
        policy["max_skipped_batches"] = 2
        sizes = {"min_machines": schedule.least or None, "grow_after_s": schedule.grow_s, "checkpoints_any_size": True}
        sizes["checkpoints_compatible"] = True  # there are none
        standby = StandbyConfig(probe_every_s=30.0, probes=("links",), alignment=False)
        self._config = JobConfig(
            name=JOB, machines=machines, state_dir=str(folder), policy=policy, start_deadline_s=30.0, standby=standby, **sizes
        )
        self.watch = Watch(schedule, self._config.policy_config(True), self.world)
        self.world.on_effect, self.world.on_probes = self._effect, self._probed
        self._memory = LedgerInMemory()
        self._leader: Ledger | None = None  # the one whose lease holds
        self._leases = LeaseStore(self._location)
        self.people = Ledger(self._location, clock=self.clock)  # what operators write
        self._observe(self.people)
        self.app: App | None = None  # who leads
        self._acting: App | None = None
        self._dies: tuple[str, int] | None = None  # on what, and how many of it are left
        self._starts_s = math.inf
        self._unwritable_until_s = 0.0
        self._names = itertools.count(1)
        self._takes_s: dict[str, float] = {}  # machine to when its launcher takes updates again
        self.phase = "starting"
        self.trace: list[str] = []  # one line a verdict, a decision, an action

    def play(self) -> list[str]:
        """What did not hold, one line each."""
        self._start()
        begun_s = self.clock.monotonic_s() + 8.0
        for action in self.schedule.actions:
            self._until(begun_s + action.at_s)
            self._say(f"{action.name} {action.machine} {action.amount:g} {action.flag}")
            self._do(action)
        self._until(self.clock.monotonic_s() + BUSY_S)
        self._calm_down()
        end_s = self.clock.monotonic_s() + CALM_S
        while self.clock.monotonic_s() < end_s and not self._is_settled():
            self._until(self.clock.monotonic_s() + QUIET_S / 3)
        self.watch.end(self.people.events(), self.phase)
        self.people.close()
        self._leases.close()
        if self.app is not None:
            self.app.close()
        return self.watch.broken

    def _until(self, end_s: float) -> None:
        begun_s = self.clock.monotonic_s()
        while self.clock.monotonic_s() < end_s and self.phase not in ("finished", "failed"):
            pace_s = TICK_S if self.clock.monotonic_s() < begun_s + BUSY_S else REST_S
            self.clock.sleep(min(pace_s, end_s - self.clock.monotonic_s()))
            self.world.refused = {name for name in self.world.refused if self.clock.monotonic_s() < self._takes_s[name]}
            if self.clock.monotonic_s() >= self._starts_s:
                self._starts_s = math.inf
                self._start()
            if self.app is not None:
                self._run(self.app, self.app.controller._step_or_wait)
            self.watch.tick()

    def _is_settled(self) -> bool:
        """The job is over, or steps and nothing has been written for a while: nothing more will happen."""
        now_s = self.clock.monotonic_s()
        steps = now_s - self.world.stepped_s < 2.0 and now_s - self.watch.wrote_s > QUIET_S
        return self.phase in ("finished", "failed") or (steps and self.app is not None)

    def _say(self, text: str) -> None:
        self.trace.append(f"{self.clock.monotonic_s():7.1f} {text}")

    # the controller

    def _start(self) -> None:
        """A new controller process, which leads. One that cannot begin ends, and is started again."""
        ledger = Ledger(self._location, clock=self.clock)
        ledger.fence(self._leases.take(JOB, f"controller {next(self._names)}", self._leases.read(JOB)))
        self._leader = ledger
        self._observe(ledger)
        app = self.app = minder.app.build.build(self._config, act=True, clock=self.clock, ledger=ledger)
        app.controller._retests._threads = Inline()  # type: ignore[assignment]
        app.controller._standby_tests._threads = Inline()  # type: ignore[assignment]
        app.controller._stages.updates._threads = Inline()  # type: ignore[union-attr]
        app.controller.on_say = self._say
        self._run(app, app.begin, begins=True)

    def _run(self, app: App, work: Callable[[], Any], begins: bool = False) -> None:
        """What this controller does, until it ends, is killed, or another leads."""
        self._acting = app
        over = begins
        try:
            work()
            over = False
        except KilledError:
            self._say("killed")
            over = True
        except LeaseLostError:
            self._say("it leads no longer")
            if app is self.app:
                self.watch.fail("the leader may write", "")
        except MinderError as error:
            self._say(f"it cannot begin: {error}")
        finally:
            self._acting = None
        if app is self.app:
            self.phase = app.state.phase
            if over:
                self.app, self._starts_s = None, self.clock.monotonic_s() + 3.0
        if app is not self.app:
            app.ledger.close()

    def _observe(self, ledger: Ledger) -> None:
        """Every write is a place to die at, and may be refused."""
        store: Any = ledger._store

        def watched(write: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                if ledger is not self.people and self.clock.monotonic_s() < self._unwritable_until_s:
                    raise LedgerError("the disk is full")
                event = write(*arguments)
                self._memory.add(event)
                self.watch.wrote(event)
                if ledger is not self.people:
                    self._count("write")
                    self._count("rival")
                return event

            return call

        def check_fence() -> None:  # leases change hands in this file alone
            if ledger is not self._leader:
                real_check()

        for name in ("insert", "insert_first"):
            setattr(store, name, watched(getattr(store, name)))
        real_check, store.check_fence = store.check_fence, check_fence
        self._memory.answer_for(store)

    def _count(self, what: str) -> None:
        """The controller may be killed here; or stopped, while another takes the lease, and go on."""
        if self._dies is None or self._dies[0] != what or self._acting is not self.app:
            return
        self._dies = (what, self._dies[1] - 1)
        if self._dies[1] > 0:
            return
        self._dies = None
        if what != "rival":
            raise KilledError
        self._say("another takes the lease")
        self._leases.take(JOB, "a rival", self._leases.read(JOB))
        self._leader = None
        self.app, self._starts_s = None, self.clock.monotonic_s() + 1.0

    def _effect(self, machine: str, body: Any) -> None:
        self._say(f"asked {machine} {body['desired']} {body['generation']} {body['operation_id']}")
        self.watch.effect(machine, body, self._acting is self.app)
        self._count("effect")

    def _probed(self, machine: str, body: Any) -> None:
        self.watch.probed(machine, body, self._acting is self.app)
        self._count("probe")

    # what happens

    def _do(self, action: Action) -> None:
        with suppress(BadInputError):
            getattr(self, f"_do_{action.name}")(action)

    def _do_hang(self, action: Action) -> None:
        self._give(action, "hang")

    def _do_crash(self, action: Action) -> None:
        self._give(action, "crash")

    def _do_oom(self, action: Action) -> None:
        """The kernel kills its process for memory, once or twice."""
        self._give(action, "oom")

    def _do_ecc(self, action: Action) -> None:
        self._give(action, "ecc")

    def _do_disk(self, action: Action) -> None:
        """Full: only its test shows it. Its processes die of it, once or twice, and say nothing of the reason."""
        self._give(action, "crash")
        self.world.by_name[action.machine].faults["disk"] = 1

    def _do_bits(self, action: Action) -> None:
        """Computes other bits: only a replay shows it. Its processes die of it, so many times, and say nothing of the reason."""
        self._give(action, "crash")
        self.world.by_name[action.machine].faults["bits"] = 1

    def _do_slow_probes(self, action: Action) -> None:
        """Beyond the limit of a diagnosis, with 100 s."""
        self.world.probes_s = action.amount

    def _give(self, action: Action, fault: str) -> None:
        item = self.world.by_name[action.machine]
        item.faults[fault], item.was_ill = int(action.amount), True

    def _do_rank_crash(self, action: Action) -> None:
        self.world.rank_faults[int(action.amount)] = int(action.flag)

    def _do_deadlock(self, action: Action) -> None:
        self.world.stands = True

    def _do_lost(self, action: Action) -> None:
        self.world.lose(action.machine, action.amount)

    _do_standby_died = _do_lost

    def _do_no_standby(self, action: Action) -> None:
        """All that stand by are lost at once, those that others left the job as well."""
        for item in self.world.by_name.values():
            if item.up and not self.world.holder(item.name):
                self.world.lose(item.name, action.amount)

    def _do_standby_fails(self, action: Action) -> None:
        """Its probes find a fault for so long: it takes no ranks meanwhile, and comes back by a probe that passes."""
        self.world.by_name[action.machine].probe_fails_until_s = self.clock.monotonic_s() + action.amount

    def _do_launcher(self, action: Action) -> None:
        if self.world.by_name[action.machine].up:
            self.world.by_name[action.machine].begin_again(self.clock.monotonic_s())

    def _do_agent_silent(self, action: Action) -> None:
        self.world.by_name[action.machine].agent_silent_until_s = self.clock.monotonic_s() + action.amount

    def _do_kill(self, action: Action) -> None:
        self._dies = (action.flag, int(action.amount))

    def _do_rival(self, action: Action) -> None:
        self._dies = ("rival", int(action.amount))

    def _do_unwritable(self, action: Action) -> None:
        self._unwritable_until_s = self.clock.monotonic_s() + action.amount

    def _do_pause(self, action: Action) -> None:
        target = JOB if action.flag == "job" else None
        until_s = self.clock.now_s() + action.amount
        self.people.append(kinds.PAUSE, {"scope": action.flag, "target": target, "until_s": until_s, "reason": "a look"}, job=target)

    def _do_unpause(self, action: Action) -> None:
        self.people.append(kinds.UNPAUSE, {"scope": "everything", "target": None})

    def _do_maintenance(self, action: Action) -> None:
        now_s = self.clock.now_s()
        window = {"id": f"w{next(self._names)}", "from_s": now_s, "until_s": now_s + action.amount, "machines": [action.machine]}
        self.people.append(kinds.MAINTENANCE, window | {"racks": [], "jobs": [], "reason": "fans", "by": "ann"})

    def _do_answer(self, action: Action) -> None:
        for item in self.people.approvals(JOB):
            if item.state == "waiting":
                self.people.answer_approval(item.decision.operation_id, action.flag, by="ann", reason="looked at it")  # type: ignore[arg-type]

    def _do_order(self, action: Action) -> None:
        order_restart(self.people, JOB, "ann", "it looks odd", self.clock.now_s())

    def _do_evict(self, action: Action) -> None:
        order_eviction(self.people, action.machine, JOB, "ann", "its fan is loud", self.clock.now_s())

    def _do_return(self, action: Action) -> None:
        """An operator has repaired it, and says so."""
        self.world.by_name[action.machine].faults.clear()
        if action.machine in self.people.history(JOB).barred:
            self.people.append(kinds.UNBARRED, {"machine": action.machine, "by": "ann", "note": "repaired"})

    def _do_retest(self, action: Action) -> None:
        payload = {"machine": action.machine, "reason": "a look", "by": "ann"}
        self.people.append(kinds.RETEST_ASKED, payload, job=JOB, operation_id=f"retest-{next(self._names)}")

    def _do_update(self, action: Action) -> None:
        """amount: 1: urgent. flag: a bad one fails a few steps in, a broken one before the barrier."""
        payload = update_payload("", (0, 0), {"NCCL_DEBUG": f"X{next(self._names)}"}, None, bool(action.amount), "another rate")
        number = order_update(self.people, JOB, payload, "ann").to
        self.world.bad |= {number} if action.flag == "bad" else set()
        self.world.broken |= {number} if action.flag == "broken" else set()

    def _do_take_back(self, action: Action) -> None:
        """An operator's rollback; amount: 1: urgent."""
        order_rollback(self.people, JOB, None, bool(action.amount), "it was no good", "ann")

    def _do_refuses(self, action: Action) -> None:
        """Its launcher takes no version of the code for so long; what runs on it runs on."""
        self.world.refused.add(action.machine)
        self._takes_s[action.machine] = self.clock.monotonic_s() + action.amount

    def _do_bad_batch(self, action: Action) -> None:
        """amount: so many steps ahead. flag: the rank that has it in its part, -1: all."""
        world = self.world
        ahead = batch_of_step(world.step + int(action.amount), parse_ranges(world.skipped))
        world.bad_batches[ahead] = int(action.flag)

    def _do_skip(self, action: Action) -> None:
        """A person leaves out the batch so many steps ahead, or behind."""
        batch = max(0, self.world.step + int(action.amount))
        order_skip(self.people, JOB, str(batch), False, "it looks odd", "ann")

    def _do_unskip(self, action: Action) -> None:
        order_skip(self.people, JOB, None, True, "it was no good idea", "ann")

    def _do_slow(self, action: Action) -> None:
        """A rule says for so long that the machine slows the job down. flag: what that rule may do alone; "link": its link is slow indeed,
        "none": it is, and no rule says so."""
        item = self.world.by_name[action.machine]
        item.slow_link = item.slow_link or action.flag in ("link", "none")
        item.was_ill = item.was_ill or item.slow_link
        if action.flag != "none":
            item.slow_until_s = self.clock.monotonic_s() + action.amount
            item.slow_tier = "page" if action.flag == "page" else "evict"

    def _do_clock(self, action: Action) -> None:
        self.clock.set_forward(action.amount)

    def _calm_down(self) -> None:
        """All that people, disks and networks did is over; what is ill stays ill."""
        self._say("all is calm")
        self._unwritable_until_s = 0.0
        self._dies = None
        self.world.refused.clear()
        self.world.probes_s = PROBES_S
        for item in self.world.by_name.values():
            item.agent_silent_until_s = 0.0
            self.world.bring_back(item.name)
        self._do_unpause(Action(0.0, "unpause"))
        for event in self.people.events(kinds=(kinds.MAINTENANCE,)):
            self.people.append(kinds.MAINTENANCE_ENDED, {"id": event.payload["id"], "reason": "done", "by": "ann"})


@contextmanager
def simulated() -> Iterator[Path]:
    """Everything that is no part of the product is put in place; yields an empty ledger."""
    names = {
        (recover, "RendezvousHost"): FakeHost,
        (minder.app.build, "StepTraces"): lambda *unused: None,
        (minder.app.build, "live_rules"): lambda *given: [*live_rules(*given), SlowRule()],
        (minder.app.build, "build_source"): lambda admission: Quiet(),
        (minder.app.build, "open_aligner"): lambda admission: Quiet(),
        (minder.app.build, "Fleet"): lambda *unused, **more: SimFleet(SimWitnesses.world),
        (step, "Captures"): SimWitnesses,
        (job_work.CheckpointLook, "saved"): lambda look: tuple(SimWitnesses.world.saved),
        (step.Controller, "write_status"): lambda *unused: None,
        (Measures, "ran"): lambda *unused: None,
    }
    base = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=base)))
        Ledger(folder / "ledger.db").close()
        for (where, name), stand_in in names.items():
            stack.enter_context(patch.object(where, name, stand_in))
        yield folder / "ledger.db"


def play(schedule: Schedule, empty_ledger: Path, change: Callable[[Scene], None] = lambda scene: None) -> Scene:
    """Within `simulated()`. change: what to break in the scene before it is played."""
    with tempfile.TemporaryDirectory(dir=empty_ledger.parent) as folder:
        shutil.copy(empty_ledger, Path(folder) / "ledger.db")
        scene = Scene(schedule, Path(folder))
        change(scene)
        scene.play()
        return scene
