"""What follows a decision, in order: evidence, eviction, the next generation. Every step is in the ledger before it is taken and
can be done twice, so a controller that starts again in the middle simply does it again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from minder.act.actuators.contract import Actuator
from minder.act.controller.diagnosis.doubted import DOUBTED, KINDS, doubted_machines
from minder.act.controller.evidence import capture_evidence
from minder.act.controller.orders.skipping import Skipping
from minder.act.controller.orders.updating import Updating
from minder.act.controller.state import JobState, bar_machines, placement_payload
from minder.act.recovery.generation_plan import GenerationPlan, exchange_machines, machine_order, replace_machines
from minder.act.recovery.groups import plan_groups
from minder.act.recovery.rendezvous import RendezvousHost
from minder.act.recovery.restart import StartResult, start_generation
from minder.model.batch_ranges import SKIP_BATCHES
from minder.model.clock import Clock
from minder.model.decision import ActionResult, Decision
from minder.model.errors import BadInputError, CheckpointError, MinderError, RecoveryError
from minder.model.history import LedgerEvent
from minder.model.replicas import Replicas
from minder.model.topology import Parallelism
from minder.record.incidents import Ledger, kinds
from minder.wire.codec import from_json
from minder.wire.fleet import Fleet

__all__ = ["Recovery", "RecoverySettings"]

_HOLDS = ("diagnose", "replay")  # actions after which the job stands


@dataclass(frozen=True, slots=True)
class RecoverySettings:
    """Deadlines in seconds, and what every worker's environment holds, on any machine and on one. parallelism: of the job, for its replicas
    where it goes on at another size; None: it never does. full_machines: how many it has at full size."""

    state_dir: Path
    rendezvous_address: str
    environment: Mapping[str, str]
    checkpoint_dir: Path | None
    max_restarts: int
    machine_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    evidence_deadline_s: float = 10.0
    start_deadline_s: float = 60.0
    late_deadline_s: float = 120.0
    grace_s: float = 2.0
    parallelism: Parallelism | None = None
    full_machines: int = 0


class Recovery:
    """Carries decisions out. `on_phase(text)` says what goes on, `on_result` what became of an eviction."""

    def __init__(
        self, state: JobState, ledger: Ledger, fleet: Fleet, actuator: Actuator, settings: RecoverySettings, clock: Clock
    ) -> None:  # fmt: skip
        self._state = state
        self._ledger = ledger
        self._fleet = fleet
        self._actuator = actuator
        self._settings = settings
        self._clock = clock
        self.updates: Updating | None = None  # of the job's code; None: it has one version
        self.skipping: Skipping | None = None  # of batches; None: it leaves none out
        self.on_phase: Callable[[str], None] = lambda text: None
        self.on_result: Callable[[ActionResult], None] = lambda result: None

    def prepare(self) -> None:
        """Start what takes seconds to start, while the workers are still on their way to the barrier. A host that outlived the last run
        holds stores of generations whose numbers come again."""
        host = RendezvousHost.ensure(self._settings.state_dir, self._settings.rendezvous_address)
        for generation in host.generations():
            host.close(generation)

    def end(self) -> None:
        """The job is over: its rendezvous stores are not needed any more. Raises RecoveryError."""
        RendezvousHost(self._settings.state_dir, self._settings.rendezvous_address).stop()

    def carry_out(self, decision: Decision, incident: str | None) -> StartResult:
        """Evict (if the decision says so) and restart; of a diagnosis or a replay suspend the job, which
        `diagnosing` or `replaying` goes on with. Raises RecoveryError if the next generation cannot be placed."""
        self._ledger.intend(decision.operation_id, decision, job=self._state.name, incident=incident)
        if decision.action in _HOLDS:
            self.suspend(decision, incident)
            return StartResult(self._state.generation, {}, 0.0)
        self._state.phase = "recovering"
        self._capture(decision, incident)
        if decision.action == "evict":
            self._evict(decision, incident)
        if self.updates is not None:
            self.updates.order_back(decision, incident)
        if self.skipping is not None:
            self.skipping.order(decision, incident)
        reason = f"{decision.action} {', '.join(decision.machines)}".strip()
        reason = reason if decision.update is None else f"rollback to update {decision.update}"
        reason = f"skip of batch {decision.skip}" if decision.skip else reason
        reason += "" if decision.size is None else f": {decision.size.words}"
        result = self.bring_up(self._place(decision), decision.operation_id, incident, reason)
        self._park(decision)
        self._finish(decision)
        return result

    def suspend(self, decision: Decision, incident: str | None) -> None:
        """Evidence, then the end of every worker: one that waits holds the device too. A launcher that is asked twice does it once."""
        self._state.phase = "suspended"
        self._capture(decision, incident)
        why = "groups of its machines replay it" if decision.action == "replay" else "its machines are tested"
        self.on_phase(f"suspending {self._state.name}: {why}")
        body = {"operation_id": f"{decision.operation_id}/suspend", "generation": self._state.generation, "desired": "ended"}
        body |= {"world_size": 0, "assignments": [], "grace_s": self._settings.grace_s}
        if not any(event.payload.get("phase") == "suspend" for event in self._phases(decision.operation_id)):
            self._phase("suspend", "begin", decision.operation_id, incident)
        self._ledger.check_fence()
        machines = machine_order(self._state.rank_machine)
        self._fleet.post_workers({machine: body for machine in machines})  # noqa: C420 - read only

    def _phases(self, operation_id: str) -> list[LedgerEvent]:
        events = self._ledger.events(job=self._state.name, kinds=[kinds.RECOVERY_PHASE])
        return [event for event in events if event.operation_id == operation_id]

    def resume_suspended(self, operation_id: str, incident: str | None, reason: str) -> StartResult:
        """Start a job again as it was that stood to be tested, where nothing else did. Raises RecoveryError."""
        return self.bring_up(self._state.rank_machine, operation_id, incident, reason)

    def open_groups(
        self, operation_id: str, groups: Mapping[str, Mapping[int, str]], after: int, runs: int
    ) -> dict[str, list[GenerationPlan]]:
        """Group to a plan for each of so many meetings, each with a generation and a store of its own, numbered from `after` on. The same
        call gives the same plans. Raises RecoveryError."""
        settings = self._settings
        host = RendezvousHost.ensure(settings.state_dir, settings.rendezvous_address)
        found: dict[str, list[GenerationPlan]] = {name: [] for name in groups}
        for run in range(runs):
            begin, name = after + run * len(groups), f"{operation_id}/{run}"
            plans = plan_groups(
                self._state.name, groups, after=begin, open_store=host.open, operation_id=name, environment=settings.environment
            )
            for group, plan in plans.items():
                found[group].append(replace(plan, machine_environment=settings.machine_environment))
        return found

    def close_groups(self, generations: Iterable[int]) -> None:
        """Their stores: a late rank of theirs meets no other. Raises RecoveryError."""
        host = RendezvousHost.ensure(self._settings.state_dir, self._settings.rendezvous_address)
        for generation in generations:
            host.close(generation)

    def _place(self, decision: Decision) -> dict[int, str]:
        """Rank to machine in the next generation."""
        if decision.size is not None:
            self.on_phase(f"the job {decision.size.words}")
            return self._resize(decision)
        if decision.action != "trial":
            return replace_machines(self._state.rank_machine, decision.machines, decision.replacements)
        self.on_phase(f"trial: {decision.replacements[0]} takes the ranks of {decision.machines[0]}")
        return exchange_machines(self._state.rank_machine, decision.machines[0], decision.replacements[0])

    def _resize(self, decision: Decision) -> dict[int, str]:
        """Whole replicas go, or come. Raises RecoveryError where that cannot be."""
        if self._settings.parallelism is None:
            raise RecoveryError(f"{decision.operation_id} changes the job's size, and min_machines is not set: set it, or add a standby")
        try:
            replicas = Replicas.of(self._settings.parallelism, self._state.rank_machine)
            leaving = set(decision.machines) if decision.action == "evict" else set()
            return dict(replicas.refit(leaving, decision.replacements, decision.joins).rank_machine)
        except BadInputError as error:
            raise RecoveryError(f"the job cannot go on at another size: {error}") from error

    def _park(self, decision: Decision) -> None:
        """Machines that have no ranks any more and were not evicted wait at the barrier, as standbys do. One that does not answer keeps old
        workers, which the new generation's store shuts out."""
        named = set(decision.machines)
        left = self._machines_before() | named if decision.action == "trial" else self._machines_before() - named
        idle = left - set(self._state.rank_machine.values()) - self._state.barred
        generation = self._state.generation
        body = {"generation": generation, "desired": "parked", "world_size": 0, "assignments": [], "grace_s": self._settings.grace_s}
        requests = {machine: {"operation_id": f"{decision.operation_id}/park/g{generation}", **body} for machine in sorted(idle)}
        if requests:
            self._ledger.check_fence()
            self._fleet.post_workers(requests)

    def _machines_before(self) -> set[str]:
        """Machines of the generation before."""
        before: set[str] = set()
        for event in self._ledger.events(job=self._state.name, kinds=[kinds.JOB_REGISTERED, kinds.GENERATION_STARTED]):
            if event.kind == kinds.JOB_REGISTERED:
                before = set()
            elif event.payload["generation"] < self._state.generation:
                before = set(event.payload["rank_machine"].values())
        return before

    def stop(self, decision: Decision, incident: str) -> bool:
        """No restart is left for a job that hangs: evidence, then the end of its workers. True: they were asked to end."""
        self._capture(decision, incident)
        self.on_phase("ending the workers")
        body = {"operation_id": f"stop-{decision.operation_id}", "generation": self._state.generation, "desired": "parked"}
        body |= {"assignments": [], "grace_s": self._settings.grace_s}
        self._ledger.check_fence()
        machines = machine_order(self._state.rank_machine)
        self._fleet.post_workers({machine: body for machine in machines})  # noqa: C420 - read only
        return True

    def _finish(self, decision: Decision) -> None:
        """The next generation is ordered: the operation is over. An old worker that may still run somewhere is shut out by its number;
        an operation that stayed open would hold up every later one."""
        if self._ledger.result(decision.operation_id) is not None:
            return
        detail, undo = "workers restarted in place", ""
        if decision.size is not None and decision.joins:
            detail = f"{', '.join(decision.joins)} joined: the job {decision.size.words}"
        if decision.update is not None:
            detail = f"update {decision.update} of the job's code runs again"
        if decision.skip:
            detail, undo = f"batch {decision.skip} is left out", f"minder job skip {self._state.name} {decision.skip} --undo"
        if decision.action == "evict":
            machines = ", ".join(decision.machines)
            detail = f"the job goes on without {machines}; whether all its old workers ended is not known"
            undo = "; ".join(f"minder machine return {machine}" for machine in decision.machines)
        elif decision.action == "trial":
            detail = f"{decision.replacements[0]} runs the ranks of {decision.machines[0]}, which is on trial: neither barred nor evicted"
        self._ledger.complete(
            decision.operation_id, ActionResult(decision.operation_id, self._clock.now_s(), "done", detail, undo)
        )  # fmt: skip

    def _capture(self, decision: Decision, incident: str | None) -> None:
        if incident is not None:
            self.on_phase("capturing evidence")
            capture_evidence(self._state, self._ledger, self._fleet, decision, incident, self._settings.evidence_deadline_s)

    def _evict(self, decision: Decision, incident: str | None) -> None:
        """Barred first: a controller that ends here finds a machine that takes no ranks, whether or not its workers ended."""
        self.on_phase(f"evicting {', '.join(decision.machines)}")
        bar_machines(self._state, self._ledger, decision, incident)
        if self._ledger.result(decision.operation_id) is None:
            self._ledger.check_fence()
            result = self._actuator.execute(decision)
            self.on_result(result)
            self._ledger.complete(decision.operation_id, result)

    def bring_up(self, rank_machine: Mapping[int, str], operation_id: str, incident: str | None, reason: str) -> StartResult:
        """Start the generation that this operation asks for: the one in the ledger, if it was begun before."""
        plan_event = next(
            (
                event
                for event in self._ledger.events(job=self._state.name, kinds=[kinds.GENERATION_STARTED])
                if event.operation_id == operation_id
            ),
            None,
        )
        again = plan_event is not None
        if plan_event is None:
            plan_event = self._begin_generation(rank_machine, operation_id, incident, reason)
        placed = {int(rank): machine for rank, machine in plan_event.payload["rank_machine"].items()}
        generation = int(plan_event.payload["generation"])
        self._adopt(generation, placed, plan_event.time_s, operation_id, incident)
        self._state.update = int(plan_event.payload.get("update") or 0)
        self._state.skip_batches = str(plan_event.payload.get("skip_batches") or "")
        # what an earlier controller began resumed from what was there then: the generation may have saved newer ones since
        self._state.resumed_from = (
            plan_event.payload.get("resumed_from") if again else self._newest_checkpoint(self._state.update, self._state.skip_batches)
        )
        self.on_phase(f"starting generation {generation}")
        host = RendezvousHost.ensure(self._settings.state_dir, self._settings.rendezvous_address)
        address, port = host.open(generation)
        self._phase("restart", "begin", operation_id, incident)
        plan = GenerationPlan(
            self._state.name, generation, placed, address, port, operation_id, self._environment(), self._settings.max_restarts,
            self._settings.machine_environment, self._program(),
        )  # fmt: skip
        self._ledger.check_fence()
        deliver = None if plan.program is None else self._deliver
        deadlines_s = (self._settings.start_deadline_s, self._settings.late_deadline_s)
        result = start_generation(self._fleet, plan, deadlines_s, self._clock, self._settings.grace_s, deliver)
        said = [f"{machine}: {why}" for machine, why in result.missing.items()]
        said += [f"{len(result.late)} of {len(plan.machines)} machines are still starting"] if result.late else []
        self._phase("restart", "end", operation_id, incident, "; ".join(said))
        host.close_before(generation)
        return result

    def _environment(self) -> Mapping[str, str]:
        found = {} if self.updates is None else self.updates.environment(self._state.update)
        skipped = {SKIP_BATCHES: self._state.skip_batches} if self._state.skip_batches else {}
        doubted = self._doubted()
        left = {DOUBTED: json.dumps(doubted)} if doubted else {}
        return {**self._settings.environment, **found, **skipped, **left}

    def _doubted(self) -> list[str]:
        """Machines out of the job whose state in memory the ranks do not read: what they computed may be wrong."""
        events = self._ledger.events(job=self._state.name, kinds=KINDS)
        return doubted_machines(events, self._state.barred, self._state.rank_machine.values())

    def _program(self) -> Mapping[str, Any] | None:
        """Raises RecoveryError where the ledger does not know the version that this generation runs."""
        return None if self.updates is None or not self._state.update else self.updates.version(self._state.update).program()

    def _deliver(self, machines: Sequence[str]) -> dict[str, Any]:
        return {} if self.updates is None else dict(self.updates.deliver(self._state.update, machines))

    def _begin_generation(self, rank_machine: Mapping[int, str], operation_id: str, incident: str | None, reason: str) -> Any:
        """Its event in the ledger, with a number that no launcher has seen yet. Raises LedgerError."""
        known = [int(self._fleet.launcher_state(machine).get("generation") or 0) for machine in set(rank_machine.values())]
        generation = max([self._state.generation, self._state.lent_generation, *known]) + 1
        last_step = self._state.last_step
        update = {} if self.updates is None else self._choose(set(rank_machine.values()))
        skips = {} if self.skipping is None else self.skipping.choose()
        payload = {
            "generation": generation,
            **placement_payload(rank_machine, self._state.sized(generation, rank_machine)),
            "reason": reason,
            "last_step": None if math.isinf(last_step) else last_step,
            "resumed_from": self._newest_checkpoint(int(update.get("update") or 0), str(skips.get("skip_batches") or "")),
            **update,
            **skips,
            **({"full_machines": self._settings.full_machines} if self._settings.full_machines else {}),
        }
        return self._ledger.append(
            kinds.GENERATION_STARTED, payload, job=self._state.name, incident=incident, operation_id=operation_id
        )  # fmt: skip

    def _choose(self, machines: set[str]) -> dict[str, Any]:
        """The version of the next generation, as its event names it."""
        if self.updates is None:
            return {}
        choice = self.updates.choose(machines)
        if choice.order is not None:
            self.on_phase(f"applying update {choice.version.number}" + (f": {choice.order.note}" if choice.order.note else ""))
        return choice.payload()

    def _adopt(self, generation: int, placed: dict[int, str], started_s: float, operation_id: str, incident: str | None) -> None:
        """The state of the job is that generation's from now on."""
        state = self._state
        state.place(generation, placed)
        state.generation_start_s = started_s
        state.full_machines = self._settings.full_machines
        state.phase, state.first_step_seen = "starting", False
        state.operation_id, state.incident = operation_id, incident

    def _newest_checkpoint(self, update: int, skipped: str) -> int | None:
        """Of those that this version reads, and that have learned from no batch which is left out."""
        folder = self._settings.checkpoint_dir
        if folder is None or not folder.is_dir():
            return None
        from minder.edge.checkpoint.site import newest_site_step

        try:
            return newest_site_step(folder, frozenset() if self.updates is None else self.updates.foreign(update), skipped)
        except (CheckpointError, OSError):
            return None

    def _phase(self, phase: str, state: str, operation_id: str, incident: str | None, detail: str = "") -> None:
        payload = {"phase": phase, "state": state, "detail": detail}
        self._ledger.append(kinds.RECOVERY_PHASE, payload, job=self._state.name, incident=incident, operation_id=operation_id)

    def resume(self) -> tuple[list[str], StartResult | None]:
        """Finish what an earlier controller had begun, once. Returns one line per operation, and how the last start went.

        An operation is over when its generation is in the ledger; the present generation is sent to its launchers again as
        long as it has not stepped (they know the operation and start nothing twice).
        """
        events = self._ledger.events(job=self._state.name, kinds=[kinds.JOB_REGISTERED, kinds.INTENT, kinds.GENERATION_STARTED])
        begun = max((index for index, event in enumerate(events) if event.kind == kinds.JOB_REGISTERED), default=0)
        started = {event.operation_id for event in events[begun:] if event.kind == kinds.GENERATION_STARTED}
        lines: list[str] = []
        result: StartResult | None = None
        for event in events[begun:]:
            if event.kind != kinds.INTENT or "decision" not in event.payload:
                continue
            decision = from_json(Decision, event.payload["decision"])
            if decision.action not in kinds.ACTS:
                lines.append(f'{decision.operation_id} is left alone: this version does not know what "{decision.action}" is')
                continue
            if event.operation_id in started:
                if event.operation_id == self._state.operation_id:
                    self._park(decision)
                self._finish(decision)
                continue
            if decision.action in _HOLDS:  # `diagnosing` or `replaying` goes on with it, or something else came after it
                continue
            line, again = self._again(decision, event.incident)
            lines.append(line)
            result = again or result
        if (
            not lines
            and not self._state.is_held
            and self._state.generation
            and not self._state.first_step_seen
            and self._state.rank_machine
        ):
            result = self.bring_up(self._state.rank_machine, self._state.operation_id, self._state.incident, "sent again")
            lines.append(f"sent generation {self._state.generation} to its launchers again")
        return lines, result

    def _again(self, decision: Decision, incident: str | None) -> tuple[str, StartResult | None]:
        try:
            result = self.carry_out(decision, incident)
        except MinderError as error:
            return f"could not finish {decision.operation_id}: {error}", None
        return f"finished {decision.operation_id} after a controller restart", result
