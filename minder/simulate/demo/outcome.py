"""What must come out of each fault, and what did (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds

__all__ = ["BLAMELESS", "Outcome", "judge_outcome"]

# What is right for a fault that is not in this table: its machine is accused and evicted.
_QUIET = ("none", "agent-lost", "disk-full", "slow-disk", "slow-store")  # no accusation, no restart
_RESTARTED = ("exception", "crash", "crash-cascade", "oom")  # unknown or the program's: restarted in place, no machine accused
BLAMELESS = (*_QUIET, *_RESTARTED)
_TRIED = ("nan",)  # the machine is accused, and exchanged on trial: neither barred nor evicted


@dataclass(frozen=True, slots=True)
class Outcome:
    """right: the verdicts, evictions and restarts are what the fault demands. Times in seconds after the fault; None: did not happen."""

    fault: str
    machine: str | None
    right: bool
    wrong: tuple[str, ...]
    evicted: tuple[str, ...]
    generations: int
    detect_s: float | None = None
    decide_s: float | None = None
    evict_s: float | None = None
    restart_s: float | None = None
    first_step_s: float | None = None
    steps_lost: int | None = None
    finished: bool = False

    @property
    def downtime_beyond_detection_s(self) -> float | None:
        return None if self.first_step_s is None or self.detect_s is None else self.first_step_s - self.detect_s


def judge_outcome(fault: str, machine: str | None, fault_s: float | None, events: Sequence[LedgerEvent]) -> Outcome:
    """`machine`: the one that the fault was injected into (None: no machine is to blame). `events`: the job's, oldest first."""
    evicted = tuple(dict.fromkeys(str(event.payload["machine"]) for event in events if event.kind == kinds.BARRED))
    generations = sum(event.kind == kinds.GENERATION_STARTED for event in events)
    finished = any(event.kind == kinds.JOB_ENDED and event.payload.get("outcome") == "finished" for event in events)
    accused, tried = _accused(events), _tried(events)
    expected = (machine,) if machine and fault not in BLAMELESS else ()
    gone = (*evicted, *tried) if fault in _TRIED else evicted
    wrong = [f"{name} was accused" + (f", the fault was in {machine}" if expected else "") for name in accused if name not in expected]
    if fault in _QUIET:
        wrong += [f"{generations - 1} restarts"] if generations > 1 else []
    elif fault in _RESTARTED:
        wrong += [] if _job_verdicts(events) else ["no verdict says that the job failed"]
        wrong += [] if generations == 2 else [f"{generations} generations instead of 2"]
    elif machine and machine not in (*accused, *_kept_out(events)):
        wrong.append(f"{machine} was not accused")
    if gone != expected:
        wrong.append(f"evicted {', '.join(gone) or 'no machine'} instead of {', '.join(expected) or 'no machine'}")
    if not finished:
        wrong.append("the job did not run to its end")
    outcome = Outcome(fault, machine, not wrong, tuple(wrong), evicted, generations, finished=finished)
    if fault_s is None or fault in _QUIET:
        return outcome
    times, lost = _times(machine, fault_s, events)
    return replace(outcome, **times, steps_lost=lost)


def _accused(events: Sequence[LedgerEvent]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for event in events:
        payload = event.payload
        if event.kind == kinds.VERDICT and payload.get("kind") in ("machine", "group") and payload.get("tier") in ("page", "evict"):
            names.update(dict.fromkeys(payload["machines"]))
    return tuple(names)


def _tried(events: Sequence[LedgerEvent]) -> tuple[str, ...]:
    """Machines that were exchanged on trial."""
    tried = [event for event in events if event.kind == kinds.INTENT and event.payload.get("action") == "trial"]
    return tuple(dict.fromkeys(str(machine) for event in tried for machine in event.payload.get("machines", ())))


def _kept_out(events: Sequence[LedgerEvent]) -> tuple[str, ...]:
    """Machines that a trial, or the memory of blame, named: the verdicts before name the job."""
    acted = [event for event in events if event.kind == kinds.INTENT and event.payload.get("action") in ("bar", "evict")]
    return tuple(dict.fromkeys(str(machine) for event in acted for machine in event.payload.get("machines", ())))


def _job_verdicts(events: Sequence[LedgerEvent]) -> list[LedgerEvent]:
    return [event for event in events if event.kind == kinds.VERDICT and event.payload.get("kind") == "job"]


def _times(machine: str | None, fault_s: float, events: Sequence[LedgerEvent]) -> tuple[dict[str, Any], int | None]:
    """Seconds from the fault to each milestone, and the steps that had to be done again."""
    first: dict[str, float] = {}
    lost: int | None = None
    for event in events:
        if event.time_s < fault_s - 1.0:
            continue
        mine = event.kind == kinds.VERDICT and (machine in event.payload.get("machines", ()) or event.payload.get("kind") == "job")
        key = "detect_s" if mine else _MILESTONES.get(event.kind)
        if event.kind == kinds.RECOVERY_PHASE:
            done = event.payload.get("phase") == "restart" and event.payload.get("state") == "end"
            key = "restart_s" if done else None
        if key is not None and key not in first:
            first[key] = event.time_s - fault_s
            if event.kind == kinds.FIRST_STEP:
                last, resumed = event.payload.get("last_step"), event.payload.get("resumed_from")
                lost = None if last is None or resumed is None else max(0, int(last) - int(resumed))
    return first, lost


_MILESTONES = {kinds.DECISION: "decide_s", kinds.RESULT: "evict_s", kinds.FIRST_STEP: "first_step_s"}
