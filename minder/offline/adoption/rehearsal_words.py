"""What a ladder would have done, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from minder.model.clock import format_time
from minder.model.decision import Decision
from minder.offline.adoption.rehearsal import Cost, Rehearsal, Rehearsed
from minder.record.incidents.climbs import rung_of

__all__ = ["rehearsal_json", "rehearsal_lines", "rehearsal_rows"]


def rehearsal_json(found: Rehearsal) -> dict[str, Any]:
    """One document. Times are UTC, ISO 8601; `then` is null in recordings; machine minutes as rehearsal.Cost."""
    return {
        "cost_now": asdict(found.now),
        "cost_then": None if found.then is None else asdict(found.then),
        "decisions": [_item(item) for item in found.items],
        "unknown": list(found.unknown),
    }


def _item(item: Rehearsed) -> dict[str, Any]:
    now = item.now
    return {
        "where": item.where,
        "time": format_time(now.time_s),
        "machines": list(now.machines),
        "trouble": now.trouble,
        "then": None if item.then is None else {"action": item.then.action, "rung": _rung(item.then), "reason": item.then.reason},
        "now": {"action": now.action, "rung": now.rung, "reason": now.reason, "detail": now.detail},
        "passed_over": [asdict(passed) for passed in now.passed_over],
    }


def rehearsal_rows(found: Rehearsal) -> list[tuple[str, ...]]:
    """Every decision as a table, header first."""
    header = ("time", "where", "machines", "trouble", "then", "now", "why")
    return [header, *(_row(item) for item in found.items)]


def _row(item: Rehearsed) -> tuple[str, ...]:
    now, then = item.now, "-" if item.then is None else _words(item.then)
    machines = ", ".join(now.machines) or "the job"
    return (format_time(now.time_s)[:19] + "Z", item.where, machines, now.trouble, then, _words(now), now.detail[:80])


def _words(decision: Decision) -> str:
    return decision.action if decision.reason == "act" else f"{decision.action} ({decision.reason})"


def _rung(decision: Decision) -> str:
    return rung_of({"rung": decision.rung, "action": decision.action})


def rehearsal_lines(found: Rehearsal) -> list[str]:
    """The cost in sentences, and what was assumed."""
    lines = [f"This ladder: {_cost(found.now)}."]
    lines += [] if found.then is None else [f"Then: {_cost(found.then)}."]
    return [*lines, *(f"Assumed: {item}." for item in found.unknown)]


def _cost(cost: Cost) -> str:
    evictions = f"{cost.evictions} evictions ({cost.machines_evicted} machines)"
    tests = "".join(f", {count} {what}" for count, what in ((cost.diagnoses, "diagnoses"), (cost.replays, "replays")) if count)
    rest = f"{cost.restarts} restarts{tests}, {cost.pages} pages, {cost.machine_minutes:g} machine-minutes"
    return f"{evictions}, {cost.trials} trials, {rest}"
