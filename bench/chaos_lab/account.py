"""What each recovery cost, phase by phase, and the job's ETTR, as minder's own report counts them from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minder.model.history import LedgerEvent
from minder.offline.reliability.account import account_jobs

__all__ = ["ettr", "recoveries"]


def recoveries(events: Sequence[LedgerEvent], since_s: float, until_s: float) -> list[dict[str, Any]]:
    """A row for each incident that was opened in the period: {incident, cause, action, reason, machines, lost_s, phases, steps_lost}."""
    account = account_jobs(events, 0.0, until_s)
    rows = []
    for loss in (loss for job in account.jobs for loss in job.losses):
        incident = loss.incident
        if not since_s <= incident.opened_s <= until_s:
            continue
        decision = incident.decision
        rows.append({
            "incident": incident.id, "cause": loss.cause, "machines": list(incident.machines), "evicted": list(incident.evicted),
            "action": None if decision is None else decision.rung or decision.action,
            "reason": None if decision is None else decision.reason, "state": incident.state, "lost_s": round(loss.lost_s, 1),
            "phases": {phase: round(seconds, 1) for phase, seconds in loss.by_phase.items()}, "steps_lost": incident.steps_lost,
        })  # fmt: skip
    return rows


def ettr(events: Sequence[LedgerEvent], until_s: float) -> dict[str, Any]:
    """{ettr, ettr_low, running_s, lost_s, phases} of the job so far."""
    account = account_jobs(events, 0.0, until_s)
    jobs = account.jobs[:1]
    numbers = {name: getattr(job, name) for job in jobs for name in ("ettr", "ettr_low", "running_s", "lost_s")}
    rounded = {name: None if value is None else round(value, 4) for name, value in numbers.items()}
    return rounded | {"phases": {phase: round(seconds, 1) for phase, seconds in account.by_phase.items()}}
