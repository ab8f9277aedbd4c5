"""What the policy must know of the past, out of ledger events. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minder.incidents import kinds
from minder.incidents.approvals import APPROVAL_KINDS, fold_approvals
from minder.incidents.maintenance import fold_maintenance
from minder.types import History, LedgerEvent, PastEviction, Pause

__all__ = ["HISTORY_KINDS", "RECENT_S", "active_pauses", "barred_machines", "find_barrings", "find_bars", "fold_history", "fold_suspects"]

RECENT_S = 3600.0
HISTORY_KINDS = (
    kinds.JOB_REGISTERED,
    kinds.GENERATION_STARTED,
    kinds.INTENT,
    kinds.RESULT,
    kinds.BARRED,
    kinds.UNBARRED,
    kinds.PAUSE,
    kinds.UNPAUSE,
    kinds.MAINTENANCE,
    kinds.MAINTENANCE_ENDED,
    kinds.APPROVAL_ASKED,
    kinds.APPROVAL_SETTLED,
    kinds.APPROVAL_CLOSED,
)


def fold_history(events: Sequence[LedgerEvent], job: str, now_s: float) -> History:
    """History of `job` at `now_s` from events of every job, in ledger order.

    `actions` holds the job's evictions and restarts since its run began (the last job_registered), and those of all jobs in
    the last hour; dry runs are no actions, failed and ambiguous ones are. `restarts` counts this run's plain restarts.
    `approvals`: what operators were asked about it. `last_restart_s` is the start of the newest generation, if it is not the run's first.
    """
    begun_s = max((event.time_s for event in events if event.kind == kinds.JOB_REGISTERED and event.job == job), default=float("-inf"))
    actions = [action for action in _actions(events) if action.time_s <= now_s]
    own = [action for action in actions if action.job == job and action.time_s >= begun_s]
    recent = [action for action in actions if action not in own and action.time_s >= now_s - RECENT_S]
    started = [event.time_s for event in events if event.kind == kinds.GENERATION_STARTED and event.job == job and event.time_s >= begun_s]
    return History(
        actions=tuple(sorted([*own, *recent], key=lambda action: action.time_s)),
        pauses=active_pauses(events, now_s),
        maintenance=fold_maintenance(events, now_s),
        barred=frozenset(barred_machines(events, job)),
        last_restart_s=started[-1] if len(started) > 1 else None,
        restarts=sum(action.action == "restart" for action in own),
        approvals=tuple(fold_approvals(event for event in events if event.kind in APPROVAL_KINDS and event.job == job)),
    )


def _actions(events: Sequence[LedgerEvent]) -> list[PastEviction]:
    outcomes = {event.operation_id: str(event.payload.get("outcome")) for event in events if event.kind == kinds.RESULT}
    found = []
    for event in events:
        action, operation_id = event.payload.get("action"), event.operation_id
        if event.kind != kinds.INTENT or action not in ("evict", "restart") or operation_id is None:
            continue
        if outcomes.get(operation_id) == "dry_run":
            continue
        machines = tuple(str(machine) for machine in event.payload.get("machines") or ())
        finished = operation_id in outcomes
        found.append(PastEviction(event.time_s, event.job or "", machines, action, operation_id, finished))
    return found


def active_pauses(events: Sequence[LedgerEvent], now_s: float) -> tuple[Pause, ...]:
    """Pauses that hold at `now_s`; a later pause of the same scope and target replaces the earlier one."""
    pauses: dict[tuple[Any, Any], Pause] = {}
    for event in events:
        key = (event.payload.get("scope"), event.payload.get("target"))
        if event.kind == kinds.UNPAUSE and key[0] == "everything":
            pauses.clear()
        elif event.kind == kinds.UNPAUSE:
            pauses.pop(key, None)
        elif event.kind == kinds.PAUSE and (pause := _pause(event.payload)):
            pauses[key] = pause
    return tuple(pause for pause in pauses.values() if pause.until_s > now_s)


def _pause(payload: Mapping[str, Any]) -> Pause | None:
    scope, target, until_s = payload.get("scope"), payload.get("target"), payload.get("until_s")
    if scope not in ("all", "job", "rack") or not isinstance(until_s, (int, float)):
        return None
    return Pause(scope, None if target is None else str(target), float(until_s), str(payload.get("reason", "")))


def barred_machines(events: Sequence[LedgerEvent], job: str | None) -> dict[str, LedgerEvent]:
    """Machines kept out of `job` (None: of any job), with the event that barred each."""
    found = find_bars(events)
    return {machine: event for (owner, machine), event in found.items() if job is None or owner in (None, job)}


def find_barrings(events: Sequence[LedgerEvent], machine: str) -> dict[str | None, LedgerEvent]:
    """Job (None: every job) to the event that bars this machine from it now."""
    return {owner: event for (owner, name), event in find_bars(events).items() if name == machine}


def find_bars(events: Sequence[LedgerEvent]) -> dict[tuple[str | None, str], LedgerEvent]:
    """(job, machine) to the event that bars it now; job None: from every job."""
    barred: dict[tuple[str | None, str], LedgerEvent] = {}
    for event in events:
        machine = str(event.payload.get("machine"))
        if event.kind == kinds.BARRED:
            barred[event.job, machine] = event
        elif event.kind == kinds.UNBARRED:
            for key in [key for key in barred if key[1] == machine and event.job in (None, key[0])]:
                del barred[key]
    return barred


def fold_suspects(events: Sequence[LedgerEvent], since_s: float) -> dict[str, float]:
    """Machines accused (tier page or evict) at or after `since_s` and not recovered since, with the time of the last accusation."""
    suspects: dict[str, float] = {}
    for event in events:
        payload = event.payload
        if event.kind != kinds.VERDICT or event.time_s < since_s:
            continue
        for machine in map(str, payload.get("machines") or ()):
            if payload.get("kind") == "recovered":
                suspects.pop(machine, None)
            elif payload.get("tier") in ("page", "evict"):
                suspects[machine] = event.time_s
    return suspects
