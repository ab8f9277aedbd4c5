"""What the controller must know of the job to go on, how a restarted one learns it from the ledger."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from minder.act.recovery.generation_plan import machine_order
from minder.model.decision import Decision
from minder.model.history import LedgerEvent
from minder.model.observation import JobView
from minder.model.rank_machines import RankMachines
from minder.record.incidents import Ledger, kinds

__all__ = ["JobState", "bar_machines", "ended_runs", "fold_job", "open_hold", "placement_payload"]

_HOLDS: dict[Any, Literal["diagnosing", "replaying"]] = {"diagnose": "diagnosing", "replay": "replaying"}  # action, and phase of the ledger
Phase = Literal["starting", "running", "recovering", "suspended", "diagnosing", "replaying", "finished", "failed"]


@dataclass(slots=True)
class JobState:
    """The job now. `generation` 0: nothing has been started yet. `run` counts the times this job was begun."""

    name: str
    run: int = 0
    generation: int = 0
    rank_machine: Mapping[int, str] = field(default_factory=dict)
    phase: Phase = "starting"
    generation_start_s: float = 0.0
    last_step: float = -math.inf
    barred: set[str] = field(default_factory=set)
    returned_s: dict[str, float] = field(default_factory=dict)  # when an operator called a machine fit: what was said before is over
    incident: str | None = None  # whose recovery the present generation ends
    operation_id: str = ""
    first_step_seen: bool = False
    resumed_from: int | None = None
    update: int = 0  # the version of its code that the present generation runs; 0: as its launchers were started
    skip_batches: str = ""  # batches that the present generation leaves out
    numbers_batches: bool = False  # all its ranks asked which: a step is a batch; not in the ledger
    sized_in: int = 0  # the generation in which the job last got another number of ranks; 0: it never did
    full_machines: int = 0  # at full size, where the job may go on with fewer; 0: its size never changes
    lent_generation: int = 0  # the newest that a group of a replay had: the job's next one is above it
    ended_because: str = ""  # of a failed job, one line
    finished: set[tuple[int, int | None]] = field(default_factory=set)  # (generation, rank) whose script returned; not in the ledger
    spoilt: dict[tuple[int, int], int] = field(default_factory=dict)  # of those, the step from which on the loss was not finite

    def begin_run(self) -> None:
        """The job is begun anew: its generations count from 1 again (above what a launcher remembers that outlived the last run)."""
        self.run += 1
        self.generation, self.phase, self.rank_machine, self.incident = 0, "starting", {}, None
        self.sized_in = self.update = self.lent_generation = 0
        self.last_step, self.resumed_from, self.first_step_seen = -math.inf, None, False

    def sized(self, generation: int, rank_machine: Mapping[int, str]) -> int:
        """`sized_in` once this generation has begun on these machines."""
        return generation if self.rank_machine and len(self.rank_machine) != len(rank_machine) else self.sized_in

    def place(self, generation: int, rank_machine: Mapping[int, str]) -> None:
        """Another generation, on these machines."""
        self.sized_in = self.sized(generation, rank_machine)
        self.generation, self.rank_machine = generation, rank_machine

    @property
    def is_under_way(self) -> bool:
        """A run was begun, has ranks on machines, and is not over: a new controller takes it up."""
        return bool(self.rank_machine) and self.phase not in ("finished", "failed")

    @property
    def is_held(self) -> bool:
        """Its workers are ended so that its machines can be tested."""
        return self.phase in ("suspended", "diagnosing", "replaying")

    def view(self, standbys: Iterable[str], quiet_until_s: float = 0.0) -> JobView:
        return JobView(
            name=self.name,
            generation=self.generation,
            phase=self.phase,
            machines=machine_order(self.rank_machine),
            standbys=tuple(standbys),
            barred=tuple(sorted(self.barred)),
            rank_machine=dict(self.rank_machine),
            quiet_until_s=quiet_until_s,
            generation_start_s=self.generation_start_s,
            had_steps=self.first_step_seen or math.isfinite(self.last_step),
            sized_in=self.sized_in,
            is_short=len(set(self.rank_machine.values())) < self.full_machines,
        )


def fold_job(name: str, events: Iterable[LedgerEvent]) -> JobState:
    """The state that the ledger's events of one job lead to (pure). A finished run leaves generation and bars, no ranks."""
    state = JobState(name)
    for event in events:
        if event.kind == kinds.JOB_REGISTERED:
            state.begin_run()
        elif event.kind == kinds.GENERATION_STARTED:
            _begin_generation(state, event)
        elif event.kind == kinds.INTENT and event.payload.get("action") in _HOLDS:
            state.phase = "suspended"
        elif event.kind == kinds.RECOVERY_PHASE and event.payload.get("phase") in _HOLDS and state.is_held:
            state.phase = _HOLDS[event.payload["phase"]] if event.payload.get("state") == "begin" else "suspended"
        elif event.kind == kinds.REPLAY:
            state.lent_generation = max(state.lent_generation, int(event.payload.get("last_generation") or 0))
        elif event.kind == kinds.FIRST_STEP and event.payload.get("generation") == state.generation:
            state.first_step_seen, state.phase, state.incident = True, "running", None
        elif event.kind == kinds.BARRED:
            state.barred.add(str(event.payload["machine"]))
        elif event.kind == kinds.UNBARRED:
            state.barred.discard(str(event.payload["machine"]))
        elif event.kind == kinds.JOB_ENDED:
            state.phase = _outcome(event)
            state.rank_machine = {}
    return state


def open_hold(events: Iterable[LedgerEvent], action: Literal["diagnose", "replay"]) -> LedgerEvent | None:
    """The intent of the diagnosis, or of the replay, that holds the job, from events of JOB_REGISTERED, JOB_ENDED, INTENT and
    GENERATION_STARTED of one job (pure). A generation ends it, its own or that of what was decided after it; so does what holds the job
    next."""
    found: LedgerEvent | None = None
    for event in events:
        if event.kind == kinds.INTENT and event.payload.get("action") == action:
            found = event
        elif event.kind != kinds.INTENT or event.payload.get("action") in kinds.ACTS:
            found = None
    return found


def ended_runs(ledger: Ledger, name: str) -> list[str]:
    """How each run of a job ended, oldest first: "finished" or "failed". Raises LedgerError."""
    return [_outcome(event) for event in ledger.events(job=name, kinds=[kinds.JOB_ENDED])]


def _outcome(event: LedgerEvent) -> Literal["finished", "failed"]:
    return "finished" if event.payload.get("outcome") == "finished" else "failed"


def _begin_generation(state: JobState, event: LedgerEvent) -> None:
    placed: Mapping[str, str] | RankMachines = event.payload.get("rank_machine", {})
    ranks = placed if isinstance(placed, RankMachines) else {int(rank): machine for rank, machine in placed.items()}
    state.generation, state.rank_machine = int(event.payload["generation"]), ranks
    state.sized_in = int(event.payload.get("sized_in") or 0)  # the newest event says it all: not every reader has those before it
    state.update, state.skip_batches = int(event.payload.get("update") or 0), str(event.payload.get("skip_batches") or "")
    state.generation_start_s = event.time_s
    state.phase, state.first_step_seen = "starting", False
    state.full_machines = int(event.payload.get("full_machines") or 0)
    state.incident, state.operation_id = event.incident, event.operation_id or ""
    last_step, resumed = event.payload.get("last_step"), event.payload.get("resumed_from")
    state.last_step = -math.inf if last_step is None else float(last_step)
    state.resumed_from = None if resumed is None else int(resumed)


def bar_machines(state: JobState, ledger: Ledger, decision: Decision, incident: str | None) -> None:
    """Keep the machines of an eviction out of the job, each once. Raises LedgerError."""
    for machine in decision.machines:
        if machine not in state.barred:
            payload = {"machine": machine, "reason": f"{decision.verdict.cause}, confidence {decision.verdict.confidence:.2f}"}
            ledger.append(kinds.BARRED, payload, job=state.name, incident=incident, operation_id=decision.operation_id)
            state.barred.add(machine)


def placement_payload(rank_machine: Mapping[int, str], sized_in: int = 0) -> dict[str, Any]:
    """Ranks and their machines, as GENERATION_STARTED has them, and since when there are so many (JobState.sized_in)."""
    placed = {"machines": list(machine_order(rank_machine)), "rank_machine": {str(rank): machine for rank, machine in rank_machine.items()}}
    return placed | ({"sized_in": sized_in} if sized_in else {})
