"""What an eviction asks of the engine, step by step: drained, then released or started again elsewhere; then the job steps again.

Every step is an operation of its own in the ledger, written down before it is tried and tried again until the engine answers: also by the
next controller. Calls run beside the tick, since a scheduler may take its time; results are written by it.

A job that its engine starts again is not ours: its own script loads its checkpoint. We write down what was begun and what came of it, and
see it step again.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from minder.act.actuators.contract import Actuator, Engine
from minder.act.controller.evidence import capture_evidence
from minder.act.controller.state import JobState, bar_machines, placement_payload
from minder.act.recovery.restart import StartResult
from minder.model.clock import Clock, format_time
from minder.model.decision import ActionResult, Decision
from minder.model.errors import ActuatorError, EngineUnavailableError, LedgerError
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.endings import begin_run
from minder.wire.codec import from_json
from minder.wire.fleet import Fleet

__all__ = ["ASK", "DRAIN", "FORGO", "RELEASE", "REQUEUE", "EngineActuator", "EngineRecovery", "EngineWork", "drain_operations"]

DRAIN, RELEASE, REQUEUE = "drain", "release", "requeue"
ASK, FORGO = "ask_standbys", "forgo_standbys"
_RETRY_S = 10.0


@dataclass(slots=True)
class _Step:
    operation_id: str  # of this step
    kind: str
    machines: tuple[str, ...]
    owner: str  # the eviction's operation: what the drain's reason carries
    why: str
    incident: str | None
    count: int = 0  # of standbys that are asked for
    until_s: float = math.inf  # they are wanted until then
    restarts: int | None = None  # of a restart that takes no machine away: how often it had been started again
    written: int = 0  # the intent's event id
    tried_s: float = -math.inf
    future: Future[ActionResult] | None = None


class EngineWork:
    """`begin` writes an eviction's steps down and starts them; `tick` takes what came of them and tries again what was not answered.

    steps: which of drain, release and requeue an eviction takes, in order. on_done(owner, results) is called when all of them ended.
    """

    def __init__(self, engine: Engine, ledger: Ledger, job: str, clock: Clock, steps: Sequence[str]) -> None:
        self.engine = engine
        self._ledger = ledger
        self._job = job
        self._clock = clock
        self._kinds = tuple(steps)
        self._steps: list[_Step] = []
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="minder-engine")
        self._degraded = ""
        self.on_say: Callable[[str], None] = lambda text: None
        self.on_done: Callable[[str, Mapping[str, ActionResult]], None] = lambda owner, results: None
        self._results: dict[str, dict[str, ActionResult]] = {}
        self.asked = ""  # for standbys, and what came of it, in words
        self._forgo: dict[str, float] = {}  # what was asked for, and until when it is wanted
        self.restarts: Callable[[], int | None] = lambda: None  # how often the engine has started the job again; None: unknown

    def begin(self, decision: Decision, incident: str | None) -> None:
        """Raises LedgerError before anything is asked. The same decision again begins nothing twice."""
        why = f"{decision.verdict.cause}, confidence {decision.verdict.confidence:.2f}, job {self._job}" + (
            f", {incident}" if incident else ""
        )
        names = []
        restarts = None if decision.action == "evict" else self.restarts()
        for kind in self._kinds if decision.action == "evict" else (REQUEUE,):
            groups = [decision.machines] if kind == REQUEUE else [(machine,) for machine in decision.machines]
            for machines in groups:
                name = f"{decision.operation_id}/{kind}" + ("" if kind == REQUEUE else f"/{machines[0]}")
                names.append(name)
                self._add(_Step(name, kind, tuple(machines), decision.operation_id, why, incident, restarts=restarts))
        if not self.open_steps(decision.operation_id):  # an earlier controller saw all of them end, and died before it said so
            self.on_done(decision.operation_id, {name: result for name in names if (result := self._ledger.result(name)) is not None})
        self._start_next(self._clock.now_s())

    def ask(self, operation_id: str, count: int, deadline_s: float) -> None:
        """Ask for standbys, once an operation; what has not come after the deadline is given up. Raises LedgerError."""
        until_s = self._clock.now_s() + deadline_s
        why = f"{count} standbys are missing, job {self._job}"
        self._add(_Step(operation_id, ASK, (), operation_id, why, None, count=count, until_s=until_s))
        self.asked = f"{self.engine.name} is asked for {count} until {format_time(until_s)}"

    def take_up(self) -> list[str]:
        """Steps that an earlier controller left open. Returns one line for each."""
        lines = []
        for event in self._ledger.events(job=self._job, kinds=[kinds.INTENT]):
            name = str(event.operation_id)
            if event.payload.get("action") == ASK and self._ledger.result(f"{name}/{FORGO}") is None:
                self._forgo[name] = float(event.payload["until_s"])
        for operation in self._ledger.open_operations(self._job):
            payload, owner = operation.intent.payload, operation.intent.payload.get("owner")
            if payload.get("engine") == self.engine.name and isinstance(owner, str):
                machines = tuple(map(str, payload.get("machines") or ()))
                kind, why, incident = str(payload["action"]), str(payload["why"]), operation.intent.incident
                count, until_s = int(payload.get("count") or 0), float(payload.get("until_s") or math.inf)
                step = _Step(operation.operation_id, kind, machines, owner, why, incident, count, until_s)
                self._add(step)
                lines.append(f"{step.kind} of {', '.join(machines) or 'the job'} is tried again after a controller restart")
        return lines

    def tick(self, now_s: float) -> None:
        """Once per tick of the controller, in its thread."""
        for step in [step for step in self._steps if step.future is not None and step.future.done()]:
            self._settle(step)
        for owner in [owner for owner, until_s in self._forgo.items() if until_s <= now_s]:
            self._add(_Step(f"{owner}/{FORGO}", FORGO, (), owner, "its deadline has passed", None))
            del self._forgo[owner]
        self._start_next(now_s)

    def open_steps(self, owner: str) -> list[str]:
        return [step.operation_id for step in self._steps if step.owner == owner]

    def close(self) -> None:
        """What is under way may end; what is not done then stays open in the ledger, and is reported."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for step in list(self._steps):
            if step.future is not None and step.future.done() and not step.future.cancelled():
                with contextlib.suppress(LedgerError):  # it stays open, as is reported below
                    self._settle(step)
        for step in self._steps:
            self.on_say(
                f"{step.kind} of {', '.join(step.machines) or 'the job'} is not done yet: the next controller of this job tries again"
            )

    def _add(self, step: _Step) -> None:
        payload: dict[str, Any] = {
            "action": step.kind,
            "machines": list(step.machines),
            "engine": self.engine.name,
            "owner": step.owner,
            "why": step.why,
        }
        payload |= {} if step.restarts is None else {"restarts": step.restarts}
        payload |= {"count": step.count, "until_s": step.until_s} if step.kind == ASK else {}
        intent = self._ledger.intend(step.operation_id, payload, job=self._job, incident=step.incident).event
        step.written, step.restarts = intent.id, intent.payload.get("restarts")  # as it was when it was first asked for
        known = {item.operation_id for item in self._steps}
        if step.operation_id not in known and self._ledger.result(step.operation_id) is None:
            self._steps.append(step)

    def _start_next(self, now_s: float) -> None:
        """One at a time and in order: a node is drained before anything else is asked for it."""
        if any(step.future is not None for step in self._steps) or not self._steps:
            return
        step = self._steps[0]
        if now_s - step.tried_s >= _RETRY_S:
            step.tried_s = now_s
            if step.kind == DRAIN and self._is_returned(step):
                detail = f"{step.machines[0]} was given back before it could be drained"
                step.future = self._threads.submit(ActionResult, step.operation_id, now_s, "failed", detail)
                return
            step.future = self._threads.submit(self._try, step)

    def _is_returned(self, step: _Step) -> bool:
        """A person gave the machine back while its drain was still owed."""
        later = self._ledger.events(since_id=step.written, job=self._job, kinds=[kinds.UNBARRED])
        return any(event.payload.get("machine") in step.machines for event in later)

    def _try(self, step: _Step) -> ActionResult:
        if step.kind == DRAIN:
            return self.engine.cordon(step.machines[0], step.owner, step.why)
        if step.kind in (ASK, FORGO):
            return ActionResult(step.operation_id, self._clock.now_s(), "done", self._standbys(step))
        detail = self.engine.release(step.machines[0]) if step.kind == RELEASE else self._restart(step)
        return ActionResult(step.operation_id, self._clock.now_s(), "done", detail)

    def _standbys(self, step: _Step) -> str:
        if step.kind == FORGO:
            return self.engine.forgo_standbys(step.owner)
        if self._clock.now_s() > step.until_s:
            raise ActuatorError(f"{self.engine.name} did not answer before {format_time(step.until_s)}: no standby is asked for any more")
        return self.engine.ask_standbys(step.count, step.owner)

    def _restart(self, step: _Step) -> str:
        if step.machines:
            return self.engine.restart_without(step.machines)
        if step.restarts is None:
            raise ActuatorError(f"{self.engine.name} did not tell how often the job had been started again: nothing was done")
        return self.engine.restart(step.restarts)

    def _settle(self, step: _Step) -> None:
        assert step.future is not None
        try:
            result = step.future.result()
        except EngineUnavailableError as error:
            step.future = None
            self._degrade(str(error))
            return
        except ActuatorError as error:
            result = ActionResult(step.operation_id, self._clock.now_s(), "failed", str(error))
        except LedgerError:  # whether we still lead could not be read, so nothing was changed
            step.future = None
            raise
        try:
            self._ledger.complete(
                step.operation_id, ActionResult(step.operation_id, result.time_s, result.outcome, result.detail, result.undo)
            )
        finally:
            settled = result.outcome != "ambiguous"
            step.future = step.future if settled else None
        if not settled:  # the next try reads first
            self._degrade(result.detail)
            return
        self._steps.remove(step)
        self._recover()
        self._tell(step, result)

    def _tell(self, step: _Step, result: ActionResult) -> None:
        self.on_say(f"{self.engine.name}: {result.detail}")
        if step.kind in (ASK, FORGO):
            self.asked = f"{self.engine.name}: {result.detail}"
        if step.kind == ASK and result.outcome == "done":
            self._forgo[step.owner] = step.until_s
        if result.outcome == "failed":
            payload = {"what": self.engine.name, "detail": f"{step.kind}: {result.detail}"}
            self._ledger.append(kinds.DEGRADED, payload, job=self._job, incident=step.incident)
        results = self._results.setdefault(step.owner, {})
        results[step.operation_id] = result
        if not self.open_steps(step.owner):
            self.on_done(step.owner, self._results.pop(step.owner))

    def _degrade(self, detail: str) -> None:
        """Reported once, until it answers again."""
        if not self._degraded:
            self._ledger.append(kinds.DEGRADED, {"what": self.engine.name, "detail": detail}, job=self._job)
            self.on_say(f"{detail}: tried again every {_RETRY_S:.0f} s")
        self._degraded = detail

    def _recover(self) -> None:
        if self._degraded:
            self._degraded = ""
            self._ledger.append(kinds.NOTE, {"text": f"{self.engine.name} answers again"}, job=self._job)


class EngineActuator:
    """actuators.contract.Actuator: the workers are ended by `inner`, and the engine is asked at the same time."""

    def __init__(self, inner: Actuator, work: EngineWork, ledger: Ledger, job: str) -> None:
        self.name = f"{inner.name}+{work.engine.name}"
        self._inner = inner
        self._work = work
        self._ledger = ledger
        self._job = job

    def execute(self, decision: Decision) -> ActionResult:
        running = [item for item in self._ledger.open_operations(self._job) if item.operation_id == decision.operation_id]
        self._work.begin(decision, running[0].intent.incident if running else None)
        return self._inner.execute(decision)


def drain_operations(ledger: Ledger, machine: str) -> set[str]:
    """The operations of this ledger that drained, or may have drained, a machine. Raises LedgerError."""
    events = ledger.events(kinds=[kinds.INTENT])
    drained = [event.payload for event in events if event.payload.get("action") == DRAIN and machine in event.payload.get("machines", ())]
    return {str(payload["owner"]) for payload in drained if "owner" in payload}


class EngineRecovery:
    """The part of `Recovery` that the controller needs, for a job that is only watched. work: its steps are drain and requeue."""

    def __init__(self, state: JobState, ledger: Ledger, fleet: Fleet, work: EngineWork, clock: Clock, evidence_deadline_s: float) -> None:
        self._state = state
        self._ledger = ledger
        self._fleet = fleet
        self._work = work
        self._clock = clock
        self._evidence_deadline_s = evidence_deadline_s
        self._generation, self._ranks = 0, 0  # at the last tick
        self._begun: tuple[str, str | None] | None = None  # operation and incident of a requeue whose job has not come back yet
        self.on_phase: Callable[[str], None] = lambda text: None
        self.on_result: Callable[[ActionResult], None] = lambda result: None
        work.on_done = self._finish

    def register(self, run: str, machines: Mapping[str, bool]) -> None:
        """Budgets are counted per run of the job: run is the engine's own name for it. machines: name to whether it is in the job."""
        events = self._ledger.events(job=self._state.name, kinds=[kinds.JOB_REGISTERED])
        if not events or events[-1].payload.get("run") != run:
            placed = {
                "machines": [m for m, inside in machines.items() if inside],
                "standbys": [m for m, inside in machines.items() if not inside],
            }
            begin_run(self._ledger, self._state.name, {**placed, "run": run})

    def carry_out(self, decision: Decision, incident: str | None) -> StartResult:
        """Begin; the engine may take its time, so what came of it is reported later. A restart that takes no machine away comes here only
        where the configuration leaves it to us: the policy pages for all others."""
        begun_s = time.monotonic()
        self._ledger.intend(decision.operation_id, decision, job=self._state.name, incident=incident)
        if incident is not None:
            self.on_phase("capturing evidence")
            capture_evidence(self._state, self._ledger, self._fleet, decision, incident, self._evidence_deadline_s)
        bar_machines(self._state, self._ledger, decision, incident)
        drain = f"drain {', '.join(decision.machines)}, and start the job again without" if decision.machines else "start the job again"
        self.on_phase(f"{self._work.engine.name}: {drain}")
        self._begun = (decision.operation_id, incident)
        self._work.begin(decision, incident)
        return StartResult(self._state.generation, {}, time.monotonic() - begun_s)

    def stop(self, decision: Decision, incident: str) -> bool:
        """The job is its owner's to end."""
        return False

    def take_up(self) -> list[str]:
        """Finish what an earlier controller had begun, once. Returns one line for each."""
        lines = self._work.take_up()
        for operation in self._ledger.open_operations(self._state.name):
            decision = operation.intent.payload.get("decision")
            if decision is not None and operation.decision is not None:
                self.carry_out(from_json(Decision, decision), operation.intent.incident)
                lines.append(f"{operation.operation_id} is finished after a controller restart")
        return lines

    def tick(self, now_s: float) -> None:
        """Once per tick: the engine's answers, and whether the job was started again."""
        self._work.tick(now_s)
        state = self._state
        if state.generation > self._generation and self._ranks and state.rank_machine and len(state.rank_machine) != self._ranks:
            state.sized_in = state.generation
        if self._begun is not None and self._generation and state.generation > self._generation:
            operation_id, incident = self._begun
            payload = {
                "generation": state.generation,
                **placement_payload(state.rank_machine, state.sized_in),
                "reason": f"started again by {self._work.engine.name}",
            }
            self._ledger.append(kinds.GENERATION_STARTED, payload, job=state.name, incident=incident, operation_id=operation_id)
            state.incident, state.operation_id, self._begun = incident, operation_id, None
        self._generation, self._ranks = state.generation, len(state.rank_machine) or self._ranks

    def close(self) -> None:
        self._work.close()

    def _finish(self, owner: str, results: Mapping[str, ActionResult]) -> None:
        """All steps of an eviction ended: so did the eviction."""
        if self._ledger.result(owner) is not None:
            return
        failed = [result.detail for name, result in results.items() if result.outcome == "failed" and name.endswith("/requeue")]
        detail = "; ".join(result.detail for result in results.values())
        undo = "; ".join(result.undo for result in results.values() if result.undo)
        result = ActionResult(owner, self._clock.now_s(), "failed" if failed else "done", detail, undo)
        self.on_result(result)
        self._ledger.complete(owner, result)
        if failed:
            self._begun = None
            self.on_phase(f"the job was not started again: {failed[0]}")
