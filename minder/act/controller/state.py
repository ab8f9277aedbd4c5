"""What the controller must know of the job to go on, how a restarted one learns it from the ledger, and how a run ends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from minder.act.recovery.placement import machine_order
from minder.model.evidence import Signal
from minder.model.history import LedgerEvent
from minder.model.observation import JobView
from minder.record.incidents import Ledger, kinds

__all__ = ["JobState", "ended_runs", "fold_job", "incidents_of_restart", "note_finished", "spoilt_because"]

Phase = Literal["starting", "running", "recovering", "finished", "failed"]


@dataclass(slots=True)
class JobState:
    """The job now. `generation` 0: nothing has been started yet. `run` counts the times this job was begun."""

    name: str
    run: int = 0
    generation: int = 0
    rank_machine: dict[int, str] = field(default_factory=dict)
    phase: Phase = "starting"
    generation_start_s: float = 0.0
    last_step: float = -math.inf
    barred: set[str] = field(default_factory=set)
    returned_s: dict[str, float] = field(default_factory=dict)  # when an operator called a machine fit: what was said before is over
    incident: str | None = None  # whose recovery the present generation ends
    operation_id: str = ""
    first_step_seen: bool = False
    resumed_from: int | None = None
    ended_because: str = ""  # of a failed job, one line
    finished: set[tuple[int, int | None]] = field(default_factory=set)  # (generation, rank) whose script returned; not in the ledger
    spoilt: dict[tuple[int, int], int] = field(default_factory=dict)  # of those, the step from which on the loss was not finite

    def begin_run(self) -> None:
        """The job is begun anew: its generations count from 1 again (above what a launcher remembers that outlived the last run)."""
        self.run += 1
        self.generation, self.phase, self.rank_machine, self.incident = 0, "starting", {}, None
        self.last_step, self.resumed_from, self.first_step_seen = -math.inf, None, False

    @property
    def is_under_way(self) -> bool:
        """A run was begun, has ranks on machines, and is not over: a new controller takes it up."""
        return bool(self.rank_machine) and self.phase not in ("finished", "failed")

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
        )


def fold_job(name: str, events: Iterable[LedgerEvent]) -> JobState:
    """The state that the ledger's events of one job lead to (pure). A finished run leaves generation and bars, no ranks."""
    state = JobState(name)
    for event in events:
        if event.kind == kinds.JOB_REGISTERED:
            state.begin_run()
        elif event.kind == kinds.GENERATION_STARTED:
            _begin_generation(state, event)
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


def ended_runs(ledger: Ledger, name: str) -> list[str]:
    """How each run of a job ended, oldest first: "finished" or "failed". Raises LedgerError."""
    return [_outcome(event) for event in ledger.events(job=name, kinds=[kinds.JOB_ENDED])]


def _outcome(event: LedgerEvent) -> Literal["finished", "failed"]:
    return "finished" if event.payload.get("outcome") == "finished" else "failed"


def _begin_generation(state: JobState, event: LedgerEvent) -> None:
    placed: Mapping[str, str] = event.payload.get("rank_machine", {})
    state.generation = int(event.payload["generation"])
    state.rank_machine = {int(rank): machine for rank, machine in placed.items()}
    state.generation_start_s = event.time_s
    state.phase, state.first_step_seen = "starting", False
    state.incident, state.operation_id = event.incident, event.operation_id or ""
    last_step, resumed = event.payload.get("last_step"), event.payload.get("resumed_from")
    state.last_step = -math.inf if last_step is None else float(last_step)
    state.resumed_from = None if resumed is None else int(resumed)


def incidents_of_restart(events: Iterable[LedgerEvent]) -> list[str]:
    """The incidents that were acted on since the job's last first step and are not closed, from events of DECISION, FIRST_STEP and
    CLOSED (pure): the next first step ends them all."""
    found: dict[str, None] = {}
    for event in events:
        if event.kind == kinds.FIRST_STEP:
            found.clear()
        elif event.kind == kinds.CLOSED:
            found.pop(event.incident or "", None)
        elif event.incident is not None and event.payload.get("action") in kinds.ACTS:
            found[event.incident] = None
    return list(found)


def note_finished(state: JobState, signals: Iterable[Signal]) -> None:
    """Take in the ranks of this generation whose script returned with 0."""
    for signal in signals:
        if signal.kind == "exit" and signal.data.get("code") == 0 and signal.generation == state.generation:
            state.finished.add((state.generation, signal.rank))
            step = signal.data.get("nonfinite_since")
            if isinstance(step, int) and signal.rank is not None:
                state.spoilt[state.generation, signal.rank] = step


def spoilt_because(state: JobState) -> str:
    """Why a run whose ranks have all returned is no success: the ranks whose loss was not finite first. "" where none had one at its end.

    >>> spoilt_because(JobState("j", generation=1, rank_machine={0: "a", 1: "b"}, spoilt={(1, 0): 8, (1, 1): 7}))
    'the loss of rank 1 on b was not finite from step 7 on, and that of 1 other rank later: its checkpoints since then are spoilt'
    """
    found = {rank: step for (generation, rank), step in state.spoilt.items() if generation == state.generation}
    if not found:
        return ""
    first = min(found.values())
    ranks = sorted(rank for rank, step in found.items() if step == first)
    later = len(found) - len(ranks)
    machine = state.rank_machine.get(ranks[0])
    where = f" on {machine}" if machine is not None and len(ranks) == 1 else ""
    who = f"rank {ranks[0]}{where}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:8]))}"
    others = f", and that of {later} other rank{'s' if later > 1 else ''} later" if later else ""
    return f"the loss of {who} was not finite from step {first} on{others}: its checkpoints since then are spoilt"
