"""The memory of blame out of one job's events: failures with their identity, trials, and how often it was restarted in vain. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from minder.model.decision import Decision
from minder.model.errors import WireError
from minder.model.evidence import Failure
from minder.model.history import LedgerEvent, PastEviction, Trial
from minder.record.incidents import kinds
from minder.wire.codec import from_json

__all__ = ["MEMORY_S", "BlameFold", "Progress", "is_restart", "restarts_in_a_row"]

MEMORY_S = 86_400.0
_MOST = 10_000  # of one job in a day
_MOST_CURES = 2


@dataclass(slots=True)
class _Effect:
    """What came after a trial. started: a generation began with it. back: its trouble came back; another: something else failed."""

    fingerprints: frozenset[str]
    started: bool = False
    back: bool = False
    another: bool = False


class Progress(NamedTuple):
    """The job got past something. anew: whether restarts are counted anew from there."""

    event_id: int
    time_s: float
    anew: bool


class _Key(NamedTuple):
    """By what a failure is known again within one generation."""

    machine: str
    ranks: tuple[int, ...]
    sort: str
    generation: int
    batch: int | None


class BlameFold:
    """Feed it the job's events in ledger order. progress: what the job got past."""

    def __init__(self) -> None:
        self.progress: list[Progress] = []
        self._failures: deque[tuple[int, Failure]] = deque(maxlen=_MOST)  # with the event that first reported each
        self._trials: dict[str, Trial] = {}
        self._effects: dict[str, _Effect] = {}  # by operation, of trials
        self._written: set[_Key] = set()  # of this run

    def add(self, event: LedgerEvent) -> None:
        """Events of other kinds change nothing."""
        if event.kind == kinds.JOB_REGISTERED:
            self._written.clear()
        elif event.kind == kinds.PROGRESS:
            self.progress.append(Progress(event.id, event.time_s, bool(event.payload.get("anew"))))
        elif event.kind == kinds.INTENT and event.payload.get("action") == "trial" and event.operation_id is not None:
            trial = _trial(event, event.operation_id)
            if trial is not None:
                self._trials[event.operation_id] = trial
                self._effects[event.operation_id] = _Effect(_fingerprints(event))
        elif event.kind == kinds.GENERATION_STARTED and event.operation_id in self._trials:
            trial = self._trials[event.operation_id]
            placed = event.payload.get("rank_machine") or {}
            self._trials[event.operation_id] = replace(trial, exchanged=trial.machine in placed.values())
            self._effects[event.operation_id].started = True
        elif event.kind == kinds.RESULT and event.operation_id in self._trials and event.payload.get("outcome") in ("failed", "dry_run"):
            del self._trials[event.operation_id], self._effects[event.operation_id]  # no ranks were exchanged, and nothing was tried
        elif event.kind == kinds.TRIAL_ENDED and event.operation_id in self._trials:
            finding = str(event.payload.get("finding") or "ended")
            self._trials[event.operation_id] = replace(self._trials[event.operation_id], finding=finding)
        elif event.kind == kinds.VERDICT and _is_remembered(event):
            self._note_failures(event)

    def failures(self, now_s: float) -> tuple[Failure, ...]:
        """Of the last 24 hours, in the ledger's order."""
        return tuple(item for _, item in self._failures if item.time_s > now_s - MEMORY_S)

    def left_behind(self, now_s: float, until_s: float) -> int:
        """How many of them were there when restarts were last counted anew; until_s: of what was written up to then."""
        passed = max((item.event_id for item in self.progress if item.anew and item.time_s <= until_s), default=-1)
        return sum(event_id < passed and item.time_s > now_s - MEMORY_S for event_id, item in self._failures)

    def trials(self, now_s: float) -> tuple[Trial, ...]:
        """Begun within the last 24 hours, or not ended yet."""
        return tuple(item for item in self._trials.values() if item.begun_s > now_s - MEMORY_S or not item.finding)

    @property
    def cured(self) -> frozenset[str]:
        """Trials that were carried out and after which something failed, but neither the ranks that were exchanged, nor the machine that
        they left, nor in the way (fingerprint) that they failed: what the job was restarted for before each of them is put right, and
        what fails now is another trouble."""
        return frozenset(name for name, effect in self._effects.items() if effect.another and not effect.back)

    def _note_failures(self, event: LedgerEvent) -> None:
        """A verdict may be reported again: of one generation each failure counts once."""
        for row in event.payload.get("failures") or ():
            try:
                failure = from_json(Failure, row)
            except WireError:  # written by a version that knows more than this one
                continue
            if _key(failure) not in self._written:
                self._written.add(_key(failure))
                self._failures.append((event.id, failure))
                self._note_effects(failure)

    def _note_effects(self, failure: Failure) -> None:
        """In the order of the ledger, like restarts_in_a_row: times lie where the clock was set back."""
        for name, effect in self._effects.items():
            trial = self._trials[name]
            back = failure.machine == trial.machine or set(failure.ranks) & set(trial.ranks) or failure.fingerprint in effect.fingerprints
            if effect.started and back:
                effect.back = True
            elif effect.started and trial.ranks and failure.kind != "program":
                effect.another = True


def restarts_in_a_row(actions: Iterable[PastEviction], progress: Iterable[Progress], cured: Collection[str] = ()) -> int:
    """Restarts and trials without progress between them. One after a generation that made progress in steps counts no further; progress in
    steps and in time begins the count anew, and so does a trial that put the trouble right (`cured`, operations): two machines that fail
    one after the other are two troubles. Of such trials two count without progress between them: what then still fails, on ever other
    machines, is no machine's. In the order of the ledger: the clock may have been set back in between.

    >>> restart = PastEviction(10.0, "llm", (), "restart", "a", True, 1)
    >>> restarts_in_a_row([restart, replace(restart, event_id=2)], []), restarts_in_a_row([restart], [Progress(2, 5.0, True)])
    (2, 0)
    """
    count, stepped, cures = 0, False, 0
    marks = [(item.event_id, "anew" if item.anew else "steps") for item in progress]
    done = [(action.event_id, "cure" if action.operation_id in cured else "restart" if is_restart(action) else "") for action in actions]
    for _, what in sorted([*marks, *done], key=lambda item: item[0]):
        if what in ("anew", "steps"):
            count, stepped, cures = (0 if what == "anew" else count), True, 0
        elif what == "cure" and cures < _MOST_CURES:
            count, stepped, cures = 0, False, cures + 1
        else:
            count += what in ("restart", "cure") and not (stepped and count)
            stepped = False
    return count


def is_restart(action: PastEviction) -> bool:
    """Whether it counts as a restart. A diagnosis or a replay does where it started the job again itself: else what followed it counts."""
    return action.action in ("restart", "trial") or (action.action in ("diagnose", "replay") and action.resumed)


def _is_remembered(event: LedgerEvent) -> bool:
    """Of numbers also what only pages: the same batch may do it again."""
    grave = event.payload.get("tier") == "evict" or event.payload.get("cause") == "numeric"
    return grave and event.payload.get("kind") != "recovered"


def _key(failure: Failure) -> _Key:
    return _Key(failure.machine, failure.ranks, failure.sort, failure.generation, failure.batch)


def _fingerprints(event: LedgerEvent) -> frozenset[str]:
    """How the machine on trial had failed; a failure without structure has none, and is known from others by who fails."""
    try:
        decision = from_json(Decision, event.payload.get("decision"))
    except WireError:
        return frozenset()
    return frozenset(item.fingerprint for item in decision.verdict.failures if item.fingerprint)


def _trial(event: LedgerEvent, operation_id: str) -> Trial | None:
    try:
        decision = from_json(Decision, event.payload.get("decision"))
    except WireError:
        return None
    if not decision.machines or not decision.replacements:
        return None
    machine = decision.machines[0]
    ranks = tuple(dict.fromkeys(rank for item in decision.verdict.failures if item.machine == machine for rank in item.ranks))
    return Trial(operation_id, machine, decision.replacements[0], ranks, event.time_s, False, event.incident)
