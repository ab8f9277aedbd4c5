"""What follows a decision where the engine starts the job again: evidence, drain, requeue; then the job's new processes are waited for.

The job is not ours: its own script loads its checkpoint. We write down what was begun and what came of it, and see it step again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from minder.act.controller.engine_work import EngineWork
from minder.act.controller.evidence import capture_evidence
from minder.act.controller.state import JobState
from minder.act.recovery.placement import machine_order
from minder.act.recovery.restart import StartResult
from minder.model.clock import Clock
from minder.model.decision import ActionResult, Decision
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.endings import begin_run
from minder.wire.codec import from_json
from minder.wire.fleet import Fleet

__all__ = ["EngineRecovery"]


class EngineRecovery:
    """The part of `Recovery` that the controller needs, for a job that is only watched. work: its steps are drain and requeue."""

    def __init__(self, state: JobState, ledger: Ledger, fleet: Fleet, work: EngineWork, clock: Clock, evidence_deadline_s: float) -> None:
        self._state = state
        self._ledger = ledger
        self._fleet = fleet
        self._work = work
        self._clock = clock
        self._evidence_deadline_s = evidence_deadline_s
        self._generation = 0
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
        """Begin; the engine may take its time, so what came of it is told later. A restart that takes no machine away comes here only
        where the configuration leaves it to us: the policy pages for all others."""
        begun_s = time.monotonic()
        self._ledger.intend(decision.operation_id, decision, job=self._state.name, incident=incident)
        if incident is not None:
            self.on_phase("capturing evidence")
            capture_evidence(self._state, self._ledger, self._fleet, decision, incident, self._evidence_deadline_s)
        for machine in decision.machines:
            if machine not in self._state.barred:
                reason = f"{decision.verdict.cause}, confidence {decision.verdict.confidence:.2f}"
                payload = {"machine": machine, "reason": reason}
                self._ledger.append(kinds.BARRED, payload, job=self._state.name, incident=incident, operation_id=decision.operation_id)
                self._state.barred.add(machine)
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
        if self._begun is not None and self._generation and state.generation > self._generation:
            operation_id, incident = self._begun
            payload = {
                "generation": state.generation,
                "machines": list(machine_order(state.rank_machine)),
                "rank_machine": {str(rank): machine for rank, machine in state.rank_machine.items()},
                "reason": f"started again by {self._work.engine.name}",
            }
            self._ledger.append(kinds.GENERATION_STARTED, payload, job=state.name, incident=incident, operation_id=operation_id)
            state.incident, state.operation_id, self._begun = incident, operation_id, None
        self._generation = state.generation

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
