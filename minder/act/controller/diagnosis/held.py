"""What everything shares that tests a job while it stands (`diagnosing`, `replaying`): what it writes, and what ends it.

One operation holds a job at a time: the intent of the newest one in the ledger says which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from minder.act.controller.backlog import Item
from minder.act.controller.state import JobState, open_hold
from minder.act.policy import timing
from minder.act.policy.case import Case
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.recovery.restart import StartResult
from minder.model.clock import Clock
from minder.model.decision import ActionResult, Decision
from minder.model.evidence import Verdict
from minder.model.history import LedgerEvent
from minder.record.incidents import Ledger, kinds
from minder.wire.codec import from_json
from minder.wire.fleet import Fleet

__all__ = ["Held", "HeldJob", "Hold", "MakeContext", "Suspends"]

_SUSPEND_S = 15.0  # by then a launcher has ended its workers
_OVERDUE_S = 30.0  # past the limit: then the job goes on, whatever holds the end up
_ORDERS = (kinds.JOB_REGISTERED, kinds.JOB_ENDED, kinds.INTENT, kinds.GENERATION_STARTED)
MakeContext = Callable[[JobState, Sequence[str], float], PolicyContext]


class Suspends(Protocol):
    """Ends a job's workers, and starts them again."""

    def suspend(self, decision: Decision, incident: str | None) -> None: ...

    def resume_suspended(self, operation_id: str, incident: str | None, reason: str) -> StartResult: ...


@dataclass(slots=True)
class Held:
    """One operation that holds a job. items: what it answers, decided on again afterwards. event_id, since_s: of its intent. begun_s: by
    the monotonic clock. over: the result is in the ledger. given: its items were taken."""

    decision: Decision
    incident: str
    items: list[Item]
    machines: tuple[str, ...]
    generation: int
    event_id: int
    since_s: float
    begun_s: float
    over: bool = field(default=False, kw_only=True)
    given: bool = field(default=False, kw_only=True)

    @property
    def operation_id(self) -> str:
        return self.decision.operation_id


class HeldJob:
    """The ledger's side of it. Every method raises LedgerError."""

    def __init__(self, state: JobState, ledger: Ledger, config: PolicyConfig, clock: Clock, context: MakeContext) -> None:
        self.state, self.ledger, self.config, self.clock, self._context = state, ledger, config, clock, context

    def ended_because(self, run: Held, action: Literal["diagnose", "replay"]) -> str:
        """What a person did that ends it; "" for nothing."""
        now_s, name = self.clock.now_s(), self.state.name
        context, history = self._context(self.state, (), now_s), self.ledger.history(name, now_s)
        ruling = timing.paused(Case(run.decision.verdict, action, run.decision.operation_id, history, context, self.config))
        if ruling.action is not None:
            return ruling.say
        asked = self.ledger.events(since_id=run.event_id, job=name, kinds=(kinds.RESTART_ASKED,))
        return f"{asked[-1].payload.get('by') or 'an operator'} ordered a restart" if asked else ""

    def still_runs(self, fleet: Fleet, machines: Sequence[str], passed_s: float) -> bool:
        """Whether a rank of the job may still run: a launcher tests nothing as long as one does."""
        fleet.refresh(machines)
        views = fleet.views()
        busy = any(worker.state == "running" for name in machines if name in views for worker in views[name].workers)
        return busy and passed_s < _SUSPEND_S

    def phase(self, run: Held, phase: str, state: str, detail: str = "") -> None:
        """Once; none ends that did not begin."""
        seen = {(event.payload.get("phase"), event.payload.get("state")) for event in self.own(run, kinds.RECOVERY_PHASE)}
        if (phase, state) not in seen and (state == "begin" or (phase, "begin") in seen):
            self.append(run, kinds.RECOVERY_PHASE, {"phase": phase, "state": state, "detail": detail})

    def complete(self, run: Held, outcome: Literal["done", "failed"], detail: str) -> None:
        """Once."""
        name = run.decision.operation_id
        if self.ledger.result(name) is None:
            self.ledger.complete(name, ActionResult(name, self.clock.now_s(), outcome, detail))

    def say_verdicts(self, run: Held, verdicts: Sequence[Verdict], source: str) -> None:
        """In the ledger, each once."""
        events = self.ledger.events(since_id=run.event_id, incident=run.incident, kinds=[kinds.VERDICT])
        known = {name for event in events if source in (event.payload.get("sources") or ()) for name in event.payload.get("machines") or ()}
        for verdict in verdicts:
            if not known & set(verdict.machines):
                self.ledger.append(kinds.VERDICT, verdict, job=self.state.name, incident=run.incident)

    def append(self, run: Held, kind: str, payload: Mapping[str, Any]) -> None:
        self.ledger.append(kind, payload, job=self.state.name, incident=run.incident, operation_id=run.decision.operation_id)

    def own(self, run: Held, kind: str) -> list[LedgerEvent]:
        return [event for event in self.events(kind, run.event_id) if event.operation_id == run.decision.operation_id]

    def events(self, kind: str, since_id: int = 0) -> list[LedgerEvent]:
        return self.ledger.events(since_id=since_id, job=self.state.name, kinds=[kind])

    def intent(self, operation_id: str) -> LedgerEvent:
        return next(event for event in self.events(kinds.INTENT) if event.operation_id == operation_id)


Run = TypeVar("Run", bound=Held)


class Hold(ABC, Generic[Run]):
    """What holds a job: `tick` once per tick, before the decisions; then `take_items` are to be decided on. what: in words. Every method
    raises LedgerError."""

    action: Literal["diagnose", "replay"]

    def __init__(self, held: HeldJob, recovery: Suspends, what: str) -> None:
        self._held, self._recovery, self._what = held, recovery, what
        self._state, self._ledger, self._config, self._clock = held.state, held.ledger, held.config, held.clock
        self._run: Run | None = None
        self.on_say: Callable[[str], None] = lambda text: None

    @property
    @abstractmethod
    def limit_s(self) -> float:
        """By then it is over, whatever is missing."""

    @property
    def incident(self) -> str:
        """Of what holds the job; "" where nothing does."""
        run = self._present()
        return "" if run is None else run.incident

    @property
    def is_over(self) -> bool:
        """Whether the job stands although it is over."""
        run = self._present()
        return run is not None and run.over

    def begin(self, decision: Decision, items: Sequence[Item], incident: str) -> None:
        """The job was suspended for this decision. items: what it answers, to be decided again afterwards."""
        self._run = self._new_run(decision, list(items), incident, self._held.intent(decision.operation_id), self._clock.monotonic_s())

    def take_up(self) -> str:
        """What an earlier controller had begun; one line, "" for nothing."""
        intent = open_hold(self._ledger.events(job=self._state.name, kinds=_ORDERS), self.action)
        if intent is None or not self._state.is_held:
            return ""
        decision, incident = from_json(Decision, intent.payload["decision"]), str(intent.incident)
        run = self._run = self._new_run(decision, [(decision.verdict, incident)], incident, intent, self._clock.monotonic_s())
        run.begun_s -= min(max(0.0, self._clock.now_s() - intent.time_s), self.limit_s)
        if self._ledger.result(run.operation_id) is not None:
            self._settle_again(run)
            return f"{self._state.name}: its {self._what} had come to an end; what was found is decided on"
        self._recovery.suspend(decision, incident)
        return f"goes on with the {self._what} of {self._state.name} ({run.operation_id})"

    def tick(self) -> None:
        run = self._present()
        if run is None and self._state.is_held:  # the ledger could not be written just when it began
            self.take_up()
        if run is None or run.over:
            return
        why = self._held.ended_because(run, self.action)
        if why or self._passed_s(run) >= self.limit_s:
            self._end(run, why)
        else:
            self._go_on(run)

    def let_go(self) -> None:
        """Another operation holds the job from now on."""
        self._run = None

    def take_items(self) -> list[Item]:
        """What is to be decided now that it is over; once."""
        run = self._present()
        if run is None or not run.over or run.given:
            return []
        run.given = True
        return run.items

    def resume(self) -> StartResult:
        """Start the job again as it was, where nothing else did. Raises RecoveryError."""
        run = self._run
        assert run is not None and run.over
        return self._recovery.resume_suspended(run.operation_id, run.incident, f"goes on after its {self._what}")

    def give_up_overdue(self) -> None:
        """A fault of ours must not keep a job standing: far beyond the limit it is over."""
        run = self._present()
        if run is not None and not run.over and self._passed_s(run) > self.limit_s + _OVERDUE_S:
            self._held.complete(run, "failed", f"not judged: the {self._what} could not be brought to an end")
            run.over, self._state.phase = True, "suspended"

    @abstractmethod
    def _new_run(self, decision: Decision, items: list[Item], incident: str, intent: LedgerEvent, begun_s: float) -> Run:
        """A record of what holds the job from now on."""

    @abstractmethod
    def _go_on(self, run: Run) -> None:
        """What a tick does for one that is not over."""

    @abstractmethod
    def _end(self, run: Run, why: str) -> None:
        """Before all is known: by a person (why), or by the time limit."""

    @abstractmethod
    def _settle_again(self, run: Run) -> None:
        """It is over in the ledger, and an earlier controller has not decided on what was found."""

    def _present(self) -> Run | None:
        """A generation that was started meanwhile, or the job's end, ends it."""
        run = self._run
        if run is not None and (not self._state.is_held or run.generation != self._state.generation):
            self._run = run = None
        return run

    def _passed_s(self, run: Run) -> float:
        return self._clock.monotonic_s() - run.begun_s
