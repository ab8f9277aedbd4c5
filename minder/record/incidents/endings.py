"""The end of a job's run is the end of its incidents: nothing can follow them any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from minder.record.incidents import kinds
from minder.record.incidents.ledger import Ledger

__all__ = ["ENDS", "begin_run", "closing_payload", "end_run"]

End = Literal["finished", "given_up", "gone"]
ENDS: Mapping[End, str] = {
    "finished": "the end of the job",
    "given_up": "giving the job up",
    "gone": "the next run of the job: the one before was gone",
}  # what `closed by` goes on with


def closing_payload(why: End, note: str = "") -> dict[str, Any]:
    """Payload of CLOSED for an incident whose job is over."""
    return {"by": ENDS[why], "why": why, **({"note": note} if note else {})}


def end_run(ledger: Ledger, job: str, outcome: Literal["finished", "failed"], detail: str = "", time_s: float | None = None) -> None:
    """Write that the run ended, then that its open incidents did. Raises LedgerError; the next run's begin_run writes what was left."""
    ledger.append(kinds.JOB_ENDED, {"outcome": outcome, **({"detail": detail} if detail else {})}, job=job, time_s=time_s)
    _close_open(ledger, job, "finished" if outcome == "finished" else "given_up", time_s)


def begin_run(ledger: Ledger, job: str, registered: Mapping[str, Any]) -> None:
    """Write that a run begins. Incidents that are open yet are of a run whose end was not seen. Raises LedgerError."""
    _close_open(ledger, job, "gone", None)
    ledger.append(kinds.JOB_REGISTERED, registered, job=job)


def _close_open(ledger: Ledger, job: str, why: End, time_s: float | None) -> None:
    for incident in ledger.open_incidents(job):
        ledger.append(kinds.CLOSED, closing_payload(why), job=job, incident=incident.id, time_s=time_s)
