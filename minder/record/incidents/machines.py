"""What the ledger knows of each machine that was ever evicted or barred. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.history import find_bars
from minder.record.incidents.trust import DISTRUST_EVICTIONS, DISTRUST_WINDOW_S, TrustFold, distrust_because

__all__ = ["MACHINE_KINDS", "RETEST_PREFIX", "MachineRecord", "Retest", "fold_machines", "unfit_because"]

MACHINE_KINDS = (kinds.INTENT, kinds.RESULT, kinds.BARRED, kinds.UNBARRED, kinds.OUTCOME, kinds.RETEST_ASKED)

RETEST_PREFIX = "retest-"  # names of these operations begin with it


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


def fold_machines(events: Sequence[LedgerEvent]) -> dict[str, MachineRecord]:
    """Machine to record, from events of MACHINE_KINDS in ledger order."""
    records: dict[str, MachineRecord] = {}
    happened = {
        event.operation_id for event in events if event.kind == kinds.RESULT and event.payload.get("outcome") in ("done", "already_done")
    }
    for event in events:
        if event.kind == kinds.INTENT and event.payload.get("action") == "evict" and event.operation_id in happened:
            for machine in map(str, event.payload.get("machines") or ()):
                old = records.get(machine, MachineRecord(machine))
                records[machine] = replace(
                    old, evictions=old.evictions + 1, last_eviction_s=event.time_s, incident=event.incident, job=event.job, outcome=None
                )
        elif event.kind in (kinds.BARRED, kinds.OUTCOME):
            machine = str(event.payload.get("machine"))
            old = records.get(machine, MachineRecord(machine, incident=event.incident, job=event.job))
            told = {"outcome": str(event.payload.get("outcome"))} if event.kind == kinds.OUTCOME else {"retest": None}
            records[machine] = replace(old, **told)
        else:
            _note_retest(records, event)
    trust = TrustFold()
    for event in events:
        trust.add(event)
    jobs = sorted({event.job for event in events if event.kind == kinds.BARRED and event.job})
    bars = find_bars(events)
    everywhere = {machine for owner, machine in bars if owner is None}
    for machine, record in records.items():
        barred_in = tuple(job for job in jobs if machine in everywhere or (job, machine) in bars)
        barred_in = (*(("every job",) if machine in everywhere else ()), *barred_in)
        records[machine] = replace(record, barred_in=barred_in, unproven_s=trust.evicted_s.get(machine, ()))
    return records


def _note_retest(records: dict[str, MachineRecord], event: LedgerEvent) -> None:
    if event.kind == kinds.RETEST_ASKED and event.operation_id is not None:
        machine = str(event.payload.get("machine"))
        old = records.get(machine, MachineRecord(machine, job=event.job))
        records[machine] = replace(old, retest=Retest(event.operation_id, event.time_s))
        return
    if not (event.operation_id or "").startswith(RETEST_PREFIX):
        return
    begun = event.kind == kinds.INTENT and event.payload.get("action") == "retest"
    if not begun and event.kind != kinds.RESULT:
        return
    for machine, record in records.items():
        if record.retest is not None and record.retest.operation_id == event.operation_id:
            passed = event.payload.get("outcome") in ("done", "already_done")
            state: Literal["running", "passed", "failed"] = "running" if begun else "passed" if passed else "failed"
            detail = "" if begun else str(event.payload.get("detail") or "")
            records[machine] = replace(record, retest=Retest(record.retest.operation_id, event.time_s, state, detail))
            return
