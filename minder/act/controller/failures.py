"""What the controller adds to the memory of blame: the identity of a failure, the progress after it, and the end of a trial.

A machine on trial has no ranks where a standby took them. If the worker that waits there dies as well, no rank can be the reason: the
failure stays with the machine, and it is kept out of the job. Else the trial ends after policy.trial_s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from minder.act.controller.state import JobState
from minder.act.policy.blame import FOLLOWS, OF_NUMBERS, STAYS, Blame
from minder.act.policy.config import PolicyConfig
from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.batch_ranges import batch_of_step, parse_ranges
from minder.model.decision import ActionResult
from minder.model.evidence import Evidence, Failure, Signal, Verdict
from minder.model.history import Trial
from minder.record.incidents import Ledger, kinds

__all__ = ["BlameWatch", "identify"]

_SORTS = {"stall": "hang", "unknown": "hang", "slowdown": "slow"}  # a verdict's cause to the failure that it is about
_UNREAD_S = 3600.0  # of a job whose steps are not read: so long without a failure is progress
_LOOK_S = 5.0  # the ledger is asked for open trials no more often than that
_PARKED_S = 5.0  # after the swap, workers of the machine on trial end because they are asked to


def identify(verdict: Verdict, state: JobState, tracker: JobTracker) -> Verdict:
    """The verdict with its failures' step and generation; a hang or a slowness of a machine gets a failure of its ranks, and so does a
    hang of the whole job in which the ranks of one machine alone stand elsewhere than the others."""
    failures = verdict.failures
    if not failures and verdict.kind != "recovered" and verdict.cause in _SORTS:
        ranks = {machine: tuple(rank for rank, name in state.rank_machine.items() if name == machine) for machine in _meant(verdict)}
        failures = tuple(Failure(verdict.since_s, machine, ranks[machine], _SORTS[verdict.cause]) for machine in ranks)
    if not failures or verdict.kind == "recovered":
        return verdict
    newest = int(tracker.steps.step) if math.isfinite(tracker.steps.step) else None
    stepped = state.first_step_seen
    named = [
        replace(
            item,
            step=newest if item.step is None else item.step,
            generation=state.generation,
            stepped=stepped,
            update=state.update,
        )
        for item in failures
    ]
    batched = [_with_batch(item, state) for item in named]
    return replace(verdict, failures=tuple(batched), evidence=(*verdict.evidence, *_about_batches(batched)))


def _with_batch(failure: Failure, state: JobState) -> Failure:
    """The batch that its step consumed, of numbers that went wrong."""
    if failure.sort not in OF_NUMBERS or failure.step is None or failure.step < 1 or not state.numbers_batches:
        return failure
    return replace(failure, batch=batch_of_step(failure.step, parse_ranges(state.skip_batches)))


def _about_batches(failures: Sequence[Failure]) -> tuple[Evidence, ...]:
    """What the loader says of the step, or that it says nothing."""
    found = next((item for item in failures if item.sort in OF_NUMBERS), None)
    if found is None:
        return ()
    if found.batch is None:
        why = "the loader does not number its batches (minder.skipped_batches); it would tell data from machine"
        return (Evidence("batch", None, f"which batch step {found.step} consumed is not known: {why}"),)
    return (Evidence("batch", None, f"step {found.step} consumed batch {found.batch}"),)


def _meant(verdict: Verdict) -> tuple[str, ...]:
    """Of a verdict on the job: the only machine that its evidence speaks of, if no machine may be evicted for it."""
    if verdict.kind != "job":
        return verdict.machines
    odd = tuple(dict.fromkeys(item.machine for item in verdict.evidence if item.machine is not None))
    return odd if len(odd) == 1 and verdict.tier == "evict" and verdict.cause == "stall" else ()


class BlameWatch:
    """`tick` once per tick, after the first step was noted. Every method raises LedgerError; the next call writes what was not written."""

    def __init__(self, state: JobState, ledger: Ledger, config: PolicyConfig) -> None:
        self._state, self._ledger, self._config = state, ledger, config
        self._generation = -1
        self._failed_step = -math.inf  # at which the generation before ended
        self._passed_s = math.nan  # when this generation was first seen beyond it
        self._noted: set[bool] = set()  # kinds of progress that are written: False in steps, True in time too
        self._looked_s = -math.inf
        self._died: list[Signal] = []  # unexpected ends of workers without a rank, until the ledger was asked whose they are

    def hear(self, signals: Iterable[Signal]) -> None:
        """What ended without a rank and without anybody's wish."""
        self._died += [item for item in signals if item.kind == "exit" and item.rank is None and _is_unexpected(item)]

    def begin(self) -> None:
        """Before the newest step is noted: of a new generation, where the one before had come to."""
        state = self._state
        if state.generation != self._generation:
            self._generation, self._failed_step, self._passed_s, self._noted = state.generation, state.last_step, math.nan, set()

    def tick(self, tracker: JobTracker, now_s: float) -> None:
        """Note progress, and end trials whose time is over."""
        if self._state.generation > 1 and self._state.phase in ("starting", "running"):
            self._note_progress(tracker, now_s)
        if self._died or not 0 <= now_s - self._looked_s < _LOOK_S:
            self._looked_s = now_s
            for trial in self._open_trials(now_s):
                died = [item for item in self._died if item.machine == trial.machine and item.time_s > trial.begun_s + _PARKED_S]
                if died and not trial.exchanged:
                    self._keep_out(trial, died[0], now_s)
                elif now_s - trial.begun_s >= self._config.trial_s:
                    self._end(trial, "did not come back", f"no failure of its kind for {self._config.trial_s:.0f} s: it is a standby again")
            self._died = []

    def end_trials(self, verdict: Verdict, blame: Blame, now_s: float) -> None:
        """A finding about a failure ends the trial that led to it."""
        ranks = {rank for failure in verdict.failures for rank in failure.ranks}
        machines = {failure.machine for failure in verdict.failures}
        for trial in self._open_trials(now_s) if blame.finding else ():
            concerned = trial.partner in machines and ranks & set(trial.ranks) if blame.finding == FOLLOWS else trial.machine in machines
            if concerned:
                self._end(trial, blame.finding, blame.say)

    def _keep_out(self, trial: Trial, died: Signal, now_s: float) -> None:
        """Bar a machine that has no rank in the job: nothing is restarted for it."""
        why = f"its waiting worker, which has no rank, ended too: {died.message or died.data}"
        operation, job = f"bar-{trial.operation_id}", self._state.name
        self._ledger.intend(operation, {"action": "bar", "machines": [trial.machine], "why": why}, job=job, incident=trial.incident)
        payload = {"machine": trial.machine, "reason": f"{STAYS}: {why}"}
        self._ledger.append(kinds.BARRED, payload, job=job, incident=trial.incident, operation_id=operation)
        self._state.barred.add(trial.machine)
        undo = f"minder machine return {trial.machine}"
        self._ledger.complete(operation, ActionResult(operation, now_s, "done", f"{trial.machine} is kept out of {job}", undo))
        self._end(trial, STAYS, why)

    def _open_trials(self, now_s: float) -> list[Trial]:
        return [trial for trial in self._ledger.history(self._state.name, now_s).trials if not trial.finding]

    def _end(self, trial: Trial, finding: str, detail: str) -> None:
        payload = {"machine": trial.machine, "partner": trial.partner, "finding": finding, "detail": detail}
        self._ledger.append(
            kinds.TRIAL_ENDED, payload, job=self._state.name, incident=trial.incident, operation_id=trial.operation_id
        )  # fmt: skip

    def _note_progress(self, tracker: JobTracker, now_s: float) -> None:
        steps, seconds = self._progress(tracker, now_s)
        in_steps = steps is None or steps >= self._config.progress_steps
        anew = in_steps and seconds >= (self._config.progress_s if steps is not None else max(_UNREAD_S, self._config.progress_s))
        for reached, both in ((in_steps and steps is not None, False), (anew, True)):
            if reached and both not in self._noted:
                payload = {"generation": self._generation, "steps": steps, "seconds": round(seconds, 1), "anew": both}
                self._ledger.append(kinds.PROGRESS, payload, job=self._state.name)
                self._noted.add(both)

    def _progress(self, tracker: JobTracker, now_s: float) -> tuple[int | None, float]:
        """(steps past the failed one, seconds since it was passed); (None, seconds of the generation) where steps are not read."""
        if not math.isfinite(tracker.steps.step) or tracker.steps.generation != self._generation:
            return (None, now_s - self._state.generation_start_s) if not self._state.first_step_seen else (0, 0.0)
        first = tracker.steps.first[0] - 1 if tracker.steps.first is not None else 0.0
        base = self._failed_step if math.isfinite(self._failed_step) else first
        if tracker.steps.step > base and math.isnan(self._passed_s):
            self._passed_s = now_s
        return int(tracker.steps.step - base), 0.0 if math.isnan(self._passed_s) else now_s - self._passed_s


def _is_unexpected(signal: Signal) -> bool:
    return (
        not signal.data.get("expected") and not signal.data.get("vanished") and bool(signal.data.get("signal") or signal.data.get("code"))
    )
