"""What the ledger knows of each machine that was ever evicted or barred. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.trust import DISTRUST_EVICTIONS, DISTRUST_WINDOW_S, TrustFold, distrust_because

__all__ = ["MACHINE_KINDS", "RETEST_PREFIX", "MachineFold", "MachineRecord", "Retest", "fold_machines", "unfit_because"]

MACHINE_KINDS = (kinds.INTENT, kinds.RESULT, kinds.BARRED, kinds.UNBARRED, kinds.OUTCOME, kinds.RETEST_ASKED)

RETEST_PREFIX = "retest-"  # names of these operations begin with it
_HAPPENED = ("done", "already_done")


@dataclass(frozen=True, slots=True)
class Retest:
    """The newest test of a machine that an operator ordered. state: asked, running, passed or failed."""

    operation_id: str
    time_s: float
    state: Literal["asked", "running", "passed", "failed"] = "asked"
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """`evictions` counts those that happened, `unproven_s` has the times of those since it last passed a test; `outcome` is the last one
    reported, `retest` the newest since the machine was barred."""

    machine: str
    evictions: int = 0
    last_eviction_s: float | None = None
    incident: str | None = None
    job: str | None = None
    barred_in: tuple[str, ...] = ()
    outcome: str | None = None
    retest: Retest | None = None
    unproven_s: tuple[float, ...] = ()


def unfit_because(
    record: MachineRecord | None, now_s: float | None = None, most: int = DISTRUST_EVICTIONS, window_s: float = DISTRUST_WINDOW_S
) -> str | None:  # fmt: skip
    """Why a machine should not be given back yet: its newest test failed, or has not ended; or it was evicted again and again and none
    was ordered (now_s: unix seconds; None: that is not asked; most, window_s: as policy.ladder has them). None where it passed, or
    none is needed."""
    if record is not None and record.retest is None and now_s is not None:
        return distrust_because(record.machine, record.unproven_s, now_s, most, window_s)
    if record is None or record.retest is None or record.retest.state == "passed":
        return None
    if record.retest.state == "failed":
        return f"the test of {record.machine} failed: {record.retest.detail}"
    return f"the test of {record.machine} ({record.retest.operation_id}) has not ended yet"


def fold_machines(events: Iterable[LedgerEvent]) -> dict[str, MachineRecord]:
    """Machine to record, from events of MACHINE_KINDS in ledger order."""
    fold = MachineFold()
    for event in events:
        fold.add(event)
    return fold.records(None)


@dataclass(slots=True)
class _Kept:
    """What one job's events (None: those of no job) say of one machine; ids order what several jobs say."""

    first_id: int
    incident: str | None
    job: str | None
    evictions: int = 0
    evicted: LedgerEvent | None = None  # the newest intent that was carried out, without its payload
    outcome: tuple[int, str] = (0, "")
    barred: bool = False
    barred_id: int = 0
    retest: Retest | None = None
    retest_id: int = 0


class MachineFold:
    """The records out of events that come one by one, in ledger order. What it holds grows with machines, not with events."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str | None, _Kept]] = {}
        self._begun: dict[str, tuple[LedgerEvent, tuple[str, ...]]] = {}  # evictions without a result yet, by operation
        self._tested: dict[str, tuple[str, str | None]] = {}  # operation of a test to its machine and job
        self._barring: set[str] = set()  # jobs that ever barred a machine
        self._trust = TrustFold()

    def add(self, event: LedgerEvent) -> None:
        operation = event.operation_id or ""
        self._trust.add(event)
        if event.kind == kinds.RETEST_ASKED:
            if operation:
                self._ask_test(event, operation)
        elif operation.startswith(RETEST_PREFIX):
            self._note_test(event, operation)
        elif event.kind == kinds.INTENT and event.payload.get("action") == "evict" and operation:
            machines = tuple(map(str, event.payload.get("machines") or ()))
            self._begun[operation] = (replace(event, payload={}), machines)
        elif event.kind == kinds.RESULT and event.payload.get("outcome") in _HAPPENED:
            self._count_eviction(operation)
        elif event.kind == kinds.BARRED:
            kept = self._of(str(event.payload.get("machine")), event)
            kept.barred, kept.barred_id = True, event.id
            self._barring |= {event.job} if event.job else set()
        elif event.kind == kinds.UNBARRED:
            for job, kept in self._kept.get(str(event.payload.get("machine")), {}).items():
                kept.barred = kept.barred and event.job not in (None, job)
        elif event.kind == kinds.OUTCOME:
            self._of(str(event.payload.get("machine")), event).outcome = (event.id, str(event.payload.get("outcome")))

    def records(self, jobs: Collection[str] | None) -> dict[str, MachineRecord]:
        """Of every machine, as far as these jobs (None: all) know of it."""
        found = ((machine, self.record(machine, jobs)) for machine in self._kept)
        return {machine: record for machine, record in found if record is not None}

    def record(self, machine: str, jobs: Collection[str] | None) -> MachineRecord | None:
        """Of one machine; None where these jobs know nothing of it."""
        own = [kept for job, kept in self._kept.get(machine, {}).items() if jobs is None or job is None or job in jobs]
        if not own:
            return None
        first = min(own, key=lambda kept: kept.first_id)
        evicted = max((kept.evicted for kept in own if kept.evicted is not None), key=lambda event: event.id, default=None)
        outcome_id, outcome = max(kept.outcome for kept in own)
        tested = max(own, key=lambda kept: kept.retest_id)
        newest = evicted if evicted is not None else first
        return MachineRecord(
            machine,
            evictions=sum(kept.evictions for kept in own),
            last_eviction_s=evicted.time_s if evicted is not None else None,
            incident=newest.incident,
            job=newest.job,
            barred_in=self._barred_in(own, jobs),
            outcome=outcome if outcome_id > (evicted.id if evicted is not None else 0) else None,
            unproven_s=self._trust.evicted_s.get(machine, ()),  # in every job: a machine's record is the ledger's
            retest=tested.retest if tested.retest_id > max(kept.barred_id for kept in own) else None,
        )

    def _barred_in(self, own: Iterable[_Kept], jobs: Collection[str] | None) -> tuple[str, ...]:
        barring = {kept.job for kept in own if kept.barred}
        if None not in barring:
            return tuple(sorted(job for job in barring if job))
        return ("every job", *sorted(job for job in self._barring if jobs is None or job in jobs))

    def _of(self, machine: str, event: LedgerEvent) -> _Kept:
        of_jobs = self._kept.setdefault(machine, {})
        if event.job not in of_jobs:
            of_jobs[event.job] = _Kept(event.id, event.incident, event.job)
        return of_jobs[event.job]

    def _count_eviction(self, operation: str) -> None:
        """Once an operation, however often its result was written."""
        if operation not in self._begun:
            return
        event, machines = self._begun.pop(operation)
        for machine in machines:
            kept = self._of(machine, event)
            kept.evictions += 1
            if kept.evicted is None or kept.evicted.id < event.id:
                kept.evicted = event

    def _ask_test(self, event: LedgerEvent, operation: str) -> None:
        machine = str(event.payload.get("machine"))
        kept = self._of(machine, replace(event, incident=None))
        kept.retest, kept.retest_id = Retest(operation, event.time_s), event.id
        self._tested[operation] = (machine, event.job)

    def _note_test(self, event: LedgerEvent, operation: str) -> None:
        begun = event.kind == kinds.INTENT and event.payload.get("action") == "retest"
        if operation not in self._tested or not (begun or event.kind == kinds.RESULT):
            return
        machine, job = self._tested[operation]
        kept = self._kept[machine][job]
        if kept.retest is None or kept.retest.operation_id != operation:
            return
        passed = event.payload.get("outcome") in _HAPPENED
        state: Literal["running", "passed", "failed"] = "running" if begun else "passed" if passed else "failed"
        detail = "" if begun else str(event.payload.get("detail") or "")
        kept.retest = Retest(operation, event.time_s, state, detail)
