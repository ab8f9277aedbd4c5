"""What the ledger knows of each machine that was ever evicted or barred. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minder.incidents import kinds
from minder.incidents.history import find_bars
from minder.types import LedgerEvent

__all__ = ["MACHINE_KINDS", "MachineRecord", "fold_machines"]

MACHINE_KINDS = (kinds.INTENT, kinds.RESULT, kinds.BARRED, kinds.UNBARRED, kinds.OUTCOME)


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """`evictions` counts those that happened; `outcome` is the last one told."""

    machine: str
    evictions: int = 0
    last_eviction_s: float | None = None
    incident: str | None = None
    job: str | None = None
    barred_in: tuple[str, ...] = ()
    outcome: str | None = None


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
            records[machine] = replace(old, outcome=str(event.payload.get("outcome"))) if event.kind == kinds.OUTCOME else old
    jobs = sorted({event.job for event in events if event.kind == kinds.BARRED and event.job})
    bars = find_bars(events)
    everywhere = {machine for owner, machine in bars if owner is None}
    for machine, record in records.items():
        barred_in = tuple(job for job in jobs if machine in everywhere or (job, machine) in bars)
        records[machine] = replace(record, barred_in=(*(("every job",) if machine in everywhere else ()), *barred_in))
    return records
