"""What everything shares that tests a job while it stands (minder.act.controller.diagnosing, .replaying): what it writes, and what ends it.

One operation holds a job at a time: the intent of the newest one in the ledger says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

from minder.act.controller.state import JobState
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
from minder.wire.fleet import Fleet

__all__ = ["HeldJob", "Holds", "MakeContext", "Suspends"]

_SUSPEND_S = 15.0  # by then a launcher has ended its workers
MakeContext = Callable[[JobState, Sequence[str], float], PolicyContext]


class Suspends(Protocol):
    """Ends a job's workers, and starts them again."""

    def suspend(self, decision: Decision, incident: str | None) -> None: ...

    def resume_suspended(self, operation_id: str, incident: str | None, reason: str) -> StartResult: ...


class Holds(Protocol):
    """One operation, as far as it is written down."""

    decision: Decision
    incident: str
    event_id: int


class HeldJob:
    """The ledger's side of it. Every method raises LedgerError."""

    def __init__(self, state: JobState, ledger: Ledger, config: PolicyConfig, clock: Clock, context: MakeContext) -> None:
        self.state, self.ledger, self.config, self.clock, self._context = state, ledger, config, clock, context

    def ended_because(self, run: Holds, action: Literal["diagnose", "replay"]) -> str:
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

    def phase(self, run: Holds, phase: str, state: str, detail: str = "") -> None:
        """Once; none ends that did not begin."""
        seen = {(event.payload.get("phase"), event.payload.get("state")) for event in self.own(run, kinds.RECOVERY_PHASE)}
        if (phase, state) not in seen and (state == "begin" or (phase, "begin") in seen):
            self.append(run, kinds.RECOVERY_PHASE, {"phase": phase, "state": state, "detail": detail})

    def complete(self, run: Holds, outcome: Literal["done", "failed"], detail: str) -> None:
        """Once."""
        name = run.decision.operation_id
        if self.ledger.result(name) is None:
            self.ledger.complete(name, ActionResult(name, self.clock.now_s(), outcome, detail))

    def say_verdicts(self, run: Holds, verdicts: Sequence[Verdict], source: str) -> None:
        """In the ledger, each once."""
        events = self.ledger.events(since_id=run.event_id, incident=run.incident, kinds=[kinds.VERDICT])
        known = {name for event in events if source in (event.payload.get("sources") or ()) for name in event.payload.get("machines") or ()}
        for verdict in verdicts:
            if not known & set(verdict.machines):
                self.ledger.append(kinds.VERDICT, verdict, job=self.state.name, incident=run.incident)

    def append(self, run: Holds, kind: str, payload: Mapping[str, Any]) -> None:
        self.ledger.append(kind, payload, job=self.state.name, incident=run.incident, operation_id=run.decision.operation_id)

    def own(self, run: Holds, kind: str) -> list[LedgerEvent]:
        return [event for event in self.events(kind, run.event_id) if event.operation_id == run.decision.operation_id]

    def events(self, kind: str, since_id: int = 0) -> list[LedgerEvent]:
        return self.ledger.events(since_id=since_id, job=self.state.name, kinds=[kind])

    def intent(self, operation_id: str) -> LedgerEvent:
        return next(event for event in self.events(kinds.INTENT) if event.operation_id == operation_id)
