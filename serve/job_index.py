"""What the ledger says of jobs, read once: of what replaces what was before, only the newest is kept in memory."""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from minder.act.controller.state import JobState, fold_job
from minder.model.history import LedgerEvent
from minder.model.rank_machines import RankMachines
from minder.record.incidents import kinds
from minder.record.store.events import EventQuery, EventStore
from minder.record.store.follow import EventFollower

__all__ = ["JOB_KINDS", "JobIndex", "JobPast"]

_REPLACED = (kinds.GENERATION_STARTED, kinds.FIRST_STEP, kinds.JOB_ENDED)
_WATCHES = (kinds.JOB_WATCHED, kinds.JOB_UNWATCHED)
_LASTING = (kinds.JOB_REGISTERED, kinds.BARRED, kinds.UNBARRED, *_WATCHES)
JOB_KINDS = (*_LASTING, *_REPLACED)


@dataclass(frozen=True, slots=True)
class JobPast:
    """What a job's events lead to; not to be changed. registered: its newest registration. machines: by rank, each once.
    watched: the event by which it is registered to be watched, None where it does not."""

    registered: LedgerEvent | None
    state: JobState
    machines: tuple[str, ...]
    watched: LedgerEvent | None = None


@dataclass(slots=True)
class _Kept:
    runs: list[LedgerEvent] = field(default_factory=list)
    registered: LedgerEvent | None = None
    newest: dict[str, LedgerEvent] = field(default_factory=dict)
    bars: dict[str, tuple[int, bool]] = field(default_factory=dict)  # machine to its newest event's number, and whether it bars
    watched: LedgerEvent | None = None

    def add(self, event: LedgerEvent) -> None:
        if event.kind == kinds.JOB_REGISTERED:
            self.registered = _sharing(event)
            self.runs.append(dataclasses.replace(event, payload={}))
        elif event.kind in _WATCHES:
            self.watched = event if event.kind == kinds.JOB_WATCHED else None
        elif event.kind in _REPLACED:
            self.newest[event.kind] = _sharing(event)
        else:
            machine = sys.intern(str(event.payload["machine"]))
            if self.bars.get(machine, (0, False))[0] <= event.id:
                self.bars[machine] = (event.id, event.kind == kinds.BARRED)

    def fold(self, name: str) -> JobPast:
        state = fold_job(name, sorted((*self.runs, *self.newest.values()), key=lambda event: event.id))
        state.barred |= {machine for machine, (_, is_barred) in self.bars.items() if is_barred}  # whichever run it was in
        machines = tuple(dict.fromkeys(machine for _, machine in sorted(state.rank_machine.items())))
        return JobPast(self.registered, state, machines, self.watched)


def _sharing(event: LedgerEvent) -> LedgerEvent:
    """With each text once in memory: decoded JSON has a machine's name anew for each of 200,000 ranks."""
    payload = _shared(event.payload)
    if "rank_machine" in payload:
        payload["rank_machine"] = RankMachines.of({int(rank): machine for rank, machine in payload["rank_machine"].items()})
    return dataclasses.replace(event, payload=payload)


def _shared(value: Any) -> Any:
    if isinstance(value, str):
        return sys.intern(value)
    if isinstance(value, dict):
        return {key: _shared(item) for key, item in value.items()}
    return [_shared(item) for item in value] if isinstance(value, list) else value


class JobIndex:
    """Pasts by job name; safe for several threads."""

    def __init__(self, events: EventStore) -> None:
        self._events = events
        self._kept: dict[str, _Kept] = {}
        self._pasts: dict[str, JobPast] = {}
        self._read_id: int | None = None
        self._lock = threading.Lock()

    def pasts(self) -> dict[str, JobPast]:
        """Every job that the ledger knows, as it is now."""
        with self._lock:
            changed = set()
            for event in self._new():
                if event.job is not None:
                    self._kept.setdefault(event.job, _Kept()).add(event)
                    changed.add(event.job)
            self._pasts |= {name: self._kept[name].fold(name) for name in changed}
            return dict(self._pasts)

    def _new(self) -> Iterator[LedgerEvent]:
        """Each kind oldest first. The first time, what was replaced since is not read at all."""
        if self._read_id is None:
            lasting = EventFollower(self._events, _LASTING)
            yield from lasting.new()
            yield from self._events.newest_by_job(_REPLACED)  # one that is newer than the lasting ones comes once more: no harm
            self._read_id = lasting.read_id
        for event in self._events.select(EventQuery(since_id=self._read_id, kinds=JOB_KINDS)):
            yield event
            self._read_id = event.id
