"""What the ledger says of machines, read once: of thousands of evictions only who, when and how it ended is kept in memory."""

from __future__ import annotations

import sys
from collections import OrderedDict

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.machines import MACHINE_KINDS, RETEST_PREFIX, MachineFold, MachineRecord
from minder.record.incidents.retests import PastRetest, fold_retests
from serve.one_reading import OneReading

__all__ = ["MachineIndex"]

_MOST_FOLDS = 32


class MachineIndex:
    """Safe for several threads."""

    def __init__(self, reading: OneReading) -> None:
        self._reading = reading
        self._fold = MachineFold()
        self._newest_id = 0
        self._named: dict[str, list[str]] = {}  # machine to the incidents whose verdicts or actions name it, oldest first
        self._tests: list[LedgerEvent] = []
        self._records: OrderedDict[tuple[str, ...] | None, tuple[int, dict[str, MachineRecord]]] = OrderedDict()
        reading.feed((*MACHINE_KINDS, kinds.VERDICT), self._add)

    def records(self, jobs: tuple[str, ...] | None) -> dict[str, MachineRecord]:
        """Machine to record, as far as these jobs (None: all) know of it. Not to be changed by who is given it."""
        with self._reading.current():
            read_id, records = self._records.pop(jobs, (-1, {}))
            if read_id != self._newest_id:
                records = self._fold.records(jobs)
            self._records[jobs] = (self._newest_id, records)
            if len(self._records) > _MOST_FOLDS:
                self._records.popitem(last=False)
            return records

    def record(self, machine: str, jobs: tuple[str, ...] | None) -> MachineRecord | None:
        """Of one machine; None where these jobs (None: any) know nothing of it."""
        with self._reading.current():
            return self._fold.record(machine, jobs)

    def incidents_naming(self, machine: str) -> list[str]:
        """Incidents with a verdict or an action that names the machine, oldest first."""
        with self._reading.current():
            return list(dict.fromkeys(self._named.get(machine, ())))

    def retests(self, jobs: tuple[str, ...] | None, machine: str) -> list[PastRetest]:
        """Every test of a machine that was ordered from one of these jobs (None: any), oldest first."""
        with self._reading.current():
            return fold_retests([event for event in self._tests if jobs is None or event.job in jobs], machine)

    def _add(self, event: LedgerEvent) -> None:
        if event.kind in (kinds.VERDICT, kinds.INTENT) and event.incident is not None:
            for machine in event.payload.get("machines") or ():
                named = self._named.setdefault(sys.intern(str(machine)), [])
                if not named or named[-1] != event.incident:
                    named.append(sys.intern(event.incident))
        if event.kind == kinds.VERDICT:
            return
        self._fold.add(event)
        self._newest_id = event.id
        if (event.operation_id or "").startswith(RETEST_PREFIX):
            self._tests.append(event)
