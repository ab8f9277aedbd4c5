"""What each recovery cost, phase by phase, and the job's ETTR, as minder's own report counts them from the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minder.model.history import LedgerEvent
from minder.offline.reliability.account import account_jobs

__all__ = ["ettr", "recoveries"]


def recoveries(events: Sequence[LedgerEvent], since_s: float, until_s: float) -> list[dict[str, Any]]:
    """A row for each incident that was not over before the period: {incident, cause, action, reason, machines, lost_s, phases, ...}.
    One that stopped no job has no phases."""
    account = account_jobs(events, 0.0, until_s)
    losses = {loss.incident.id: loss for job in account.jobs for loss in job.losses}
    heard = {event.incident for event in events if event.incident and since_s <= event.time_s <= until_s}
    rows = []
    for incident in account.incidents:
        if incident.id not in heard or (incident.closed_s is not None and incident.closed_s < since_s):
            continue  # its machine was given back, which is written of it after its end
        decision, loss = incident.decision, losses.get(incident.id)
        rows.append({
            "incident": incident.id, "cause": "unknown" if incident.verdict is None else incident.verdict.cause, "state": incident.state,
            "machines": list(incident.machines), "evicted": list(incident.evicted),
            "action": None if decision is None else decision.rung or decision.action,
            "reason": None if decision is None else decision.reason, "steps_lost": incident.steps_lost,
            "lost_s": 0.0 if loss is None else round(loss.lost_s, 1),
            "phases": {} if loss is None else {phase: round(seconds, 1) for phase, seconds in loss.by_phase.items()},
        })  # fmt: skip
    return rows


def ettr(events: Sequence[LedgerEvent], until_s: float) -> dict[str, Any]:
    """{ettr, ettr_low, running_s, lost_s, phases} of the job so far."""
    account = account_jobs(events, 0.0, until_s)
    jobs = account.jobs[:1]
    numbers = {name: getattr(job, name) for job in jobs for name in ("ettr", "ettr_low", "running_s", "lost_s")}
    rounded = {name: None if value is None else round(value, 4) for name, value in numbers.items()}
    return rounded | {"phases": {phase: round(seconds, 1) for phase, seconds in account.by_phase.items()}}
