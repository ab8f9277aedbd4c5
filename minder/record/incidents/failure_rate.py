"""How often machines had to leave their jobs, and for how long jobs had machines: what a failure rate is made of. Pure.

An eviction that was only written down in a dry run counts, and so does one that was wrong: it takes a standby too. A job whose controller
stopped without an end counts up to its newest event.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds

__all__ = ["FAILURE_KINDS", "FailureFold"]

FAILURE_KINDS = (kinds.JOB_REGISTERED, kinds.GENERATION_STARTED, kinds.FIRST_STEP, kinds.PROGRESS, kinds.DECISION, kinds.JOB_ENDED)
_DAY_S = 86_400.0


@dataclass(slots=True)
class _Job:
    machines: int = 0
    until_s: float = 0.0  # its machines are counted up to here


@dataclass(slots=True)
class FailureFold:
    """failures: machines that left, each once an incident. `read` events of FAILURE_KINDS of every job, in ledger order."""

    failures: int = 0
    _machine_s: float = 0.0
    _jobs: dict[str, _Job] = field(default_factory=dict)
    _left: set[tuple[str | None, str]] = field(default_factory=set)

    def read(self, events: Iterable[LedgerEvent]) -> None:
        for event in events:
            if event.job is None:
                continue
            job = self._jobs.setdefault(event.job, _Job())
            self._count(job, event.time_s)
            if event.kind == kinds.JOB_ENDED:
                job.machines = 0
            elif event.kind in (kinds.JOB_REGISTERED, kinds.GENERATION_STARTED):
                job.machines = len(event.payload.get("machines") or ())
            elif event.kind == kinds.DECISION:
                self._leave(event)

    def machine_days(self, job: str, now_s: float) -> float:
        """Of all jobs; `job` runs until now."""
        own = self._jobs.get(job, _Job())
        return (self._machine_s + own.machines * max(0.0, now_s - own.until_s)) / _DAY_S

    def _count(self, job: _Job, now_s: float) -> None:
        self._machine_s += job.machines * max(0.0, now_s - job.until_s)
        job.until_s = max(job.until_s, now_s)

    def _leave(self, event: LedgerEvent) -> None:
        evicts = event.payload.get("action") == "evict" and event.payload.get("reason") == "act"
        would = event.payload.get("reason") == "dry_run" and event.payload.get("rung") != "reattempt"
        for machine in event.payload.get("machines") or () if evicts or would else ():
            operation = (event.operation_id, str(machine))  # noted with each incident that it answers
            if not {operation, (event.incident, str(machine))} & self._left:
                self.failures += 1
            self._left |= {operation, (event.incident, str(machine))}
