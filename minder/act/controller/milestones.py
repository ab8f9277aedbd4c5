"""The milestones of a generation and of a run: the first step, which ends what the restart was for, and the end of every rank's script."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from minder.act.controller.state import JobState
from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.evidence import Signal
from minder.model.history import LedgerEvent
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.endings import end_run
from minder.record.incidents.fold import paged_for_own_word

__all__ = ["Milestones", "incidents_of_restart", "note_finished", "spoilt_because", "started_without_steps"]


class Milestones:
    """Each once per tick. They raise LedgerError. watches: its owner starts and restarts the job."""

    def __init__(self, state: JobState, ledger: Ledger, tracker: JobTracker, watches: bool) -> None:
        self._state, self._ledger, self._tracker, self._watches = state, ledger, tracker, watches
        self.on_say: Callable[[str], None] = lambda message: None

    def note_first_step(self) -> None:
        state, tracker = self._state, self._tracker
        if state.phase == "recovering" or state.is_held or state.generation == 0 or math.isinf(tracker.steps.step):
            return
        if not state.first_step_seen and tracker.steps.generation == state.generation:
            step, time_s = tracker.steps.first or (tracker.steps.step, tracker.steps.advanced_s)
            payload = {
                "step": int(step),
                "generation": state.generation,
                "resumed_from": state.resumed_from,
                "last_step": None if math.isinf(state.last_step) else int(state.last_step),
                "step_seconds": None if math.isnan(tracker.steps.typical_s) else tracker.steps.typical_s,
                "gpus": len(state.rank_machine),
            }
            if not self._watches or state.incident is not None:
                self._close_others()
                self._ledger.append(kinds.FIRST_STEP, payload, job=state.name, incident=state.incident, time_s=time_s)
            if state.incident is not None:
                self.on_say(f"generation {state.generation} steps again at step {int(step)}")
            state.first_step_seen, state.phase, state.incident = True, "running", None
        state.last_step = max(state.last_step, tracker.steps.step)

    def end_start(self, note: str) -> None:
        state = self._state
        if state.incident is not None:
            self._ledger.append(kinds.CLOSED, {"by": "activity", "note": note}, job=state.name, incident=state.incident)
        self._close_others()
        state.phase, state.incident = "running", None
        self.on_say(note)

    def note_end(self) -> None:
        """The job is over when every rank's script has returned, whether or not a step of it was ever read."""
        state = self._state
        if state.phase not in ("starting", "running") or not state.rank_machine or self._watches:
            return
        if all((state.generation, rank) in state.finished for rank in state.rank_machine):
            state.ended_because = spoilt_because(state)
            state.phase = "failed" if state.ended_because else "finished"
            end_run(self._ledger, state.name, state.phase, state.ended_because)
            self.on_say(f"the job has ended, and failed: {state.ended_because}" if state.ended_because else "the job is finished")

    def _close_others(self) -> None:
        """One restart may end several incidents: two machines at once, or a standby that was bad too. The first step closes them all."""
        events = self._ledger.events(job=self._state.name, kinds=[kinds.DECISION, kinds.FIRST_STEP, kinds.CLOSED])
        for incident in incidents_of_restart(events):
            if incident != self._state.incident:
                payload = {"by": "first new step", "note": f"handled together with {self._state.incident}"}
                self._ledger.append(kinds.CLOSED, payload, job=self._state.name, incident=incident)


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


def incidents_of_restart(events: Iterable[LedgerEvent]) -> list[str]:
    """The incidents that were acted on since the job's last first step and are not closed, from events of DECISION, FIRST_STEP and
    CLOSED (pure): the next first step ends them all, but those whose machine's own word a person was paged for since."""
    found: dict[str, None] = {}
    for event in events:
        if event.kind == kinds.FIRST_STEP:
            found.clear()
        elif event.kind == kinds.CLOSED or paged_for_own_word(event):
            found.pop(event.incident or "", None)
        elif event.incident is not None and event.payload.get("action") in kinds.ACTS:
            found[event.incident] = None
    return list(found)


def started_without_steps(state: JobState, tracker: JobTracker, now_s: float) -> str:
    """One line where the generation is at work and has reported no step, "" where it has, or still starts."""
    if state.phase != "starting" or state.first_step_seen or not state.rank_machine:
        return ""
    works = tracker.works_without_steps(state.generation_start_s, now_s)
    return f"generation {state.generation} is at work; no step of it is read" if works else ""
