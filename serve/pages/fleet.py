"""The first page: which incidents are open, how the jobs are, and what minder itself does not see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from minder.act.controller.reporting.status import status_age_s
from minder.record.api.incidents import IncidentSummary
from minder.record.api.jobs import Job
from minder.record.incidents import kinds
from minder.record.incidents.timeline import describe
from minder.record.store.events import EventQuery
from serve.access import sees
from serve.action_items import action_items
from serve.decisions import QuestionsWanted, questions_page
from serve.job_status import job_status
from serve.pages.render import fragment, show
from serve.pages.session import Seen, Visitor
from serve.routes.incidents import Wanted, incidents_page
from serve.routes.jobs import jobs_page
from serve.routes.maintenance import maintenance_page
from serve.routes.pauses import pauses_page
from serve.state import Service, service_of

__all__ = ["Health", "health_of", "router"]

router = APIRouter()
_STALE_S = 15.0
_SLOW_TICK_S = 2.0
_RECENT_S = 24 * 3600.0
_MOST_JOBS = 200
_MOST_OPEN = 100
_MOST_TROUBLES = 8
_MOST_ACTIONS = 12


@dataclass(frozen=True, slots=True)
class Health:
    """How a job's controller is. word: "fresh", "silent", "over" or "unknown". troubles: what it says of itself.
    dry_run: it evicts no machine; None where it does not say. ahead: its last word is dated later than now. no_steps: why no step
    is known, and what to do. work: how fast it works, by the best ten minutes of its code; None where its steps carry no work."""

    word: str
    heard_s: float | None
    troubles: tuple[str, ...] = ()
    step: int | None = None
    message: str = ""
    dry_run: bool | None = None
    ahead: bool = False
    no_steps: str = ""
    work: Mapping[str, Any] | None = None


def health_of(service: Service, job: str, phase: str) -> Health:
    """Silence is never health: a status that is no longer written, or that cannot be seen, says so."""
    status = job_status(service, job)
    if status is None:
        return Health("over" if phase in ("finished", "failed") else "unknown", None)
    heard_s = float(status.get("now_s") or 0.0)
    over = status.get("phase") in ("finished", "failed") and phase in ("finished", "failed")
    now_s = service.clock.now_s()
    fresh = status_age_s(status, now_s) <= _STALE_S
    step = status.get("step")
    known = isinstance(step, (int, float)) and step >= 0
    return Health(
        "over" if over else "fresh" if fresh else "silent",
        heard_s,
        _troubles(status),
        int(step) if known and step is not None else None,
        str(status.get("message") or ""),
        said if isinstance(said := status.get("dry_run"), bool) else None,
        heard_s > now_s + _STALE_S,
        str(status.get("no_steps") or "") if fresh and not over else "",
        status.get("work") if fresh and not over else None,
    )


def _troubles(status: Mapping[str, Any]) -> tuple[str, ...]:
    errors, failing = status.get("errors") or {}, status.get("failing") or {}
    said = [f"{_part(part)} fails now ({error}); its silence means nothing" for part, error in failing.items()]
    said += [f"{_part(part)} failed {count} times" for part, count in errors.items()]
    tick = status.get("tick") or {}
    took_s, planned_s = float(tick.get("took_s") or 0.0), float(tick.get("planned_s") or 1.0)
    if took_s > max(_SLOW_TICK_S, planned_s):
        said.append(
            f"a tick takes {took_s:.1f} s and not {planned_s:g}: verdicts come so much later, give the controller a core of its own"
        )
    said += [
        f"telemetry of {machine} is not believed: {why}" for machine, why in list((status.get("not_judged") or {}).items())[:_MOST_TROUBLES]
    ]
    waiting = status.get("undecided") or 0
    return (*said, *([f"{waiting} conclusions wait to be decided"] if waiting else []))


def _part(name: str) -> str:
    """
    >>> _part("rule:stall")
    'rule stall'
    """
    return name.replace("rule:", "rule ", 1)


@dataclass(frozen=True, slots=True)
class Row:
    """A job in the table."""

    job: Job
    health: Health


@router.get("/")
def fleet(request: Request, visitor: Seen) -> Response:
    return show(request, visitor, "fleet.html", **_values(service_of(request), visitor))


@router.get("/parts/fleet")
def fleet_now(request: Request, visitor: Seen) -> Response:
    """What changes of it; polled."""
    return fragment(request, visitor, "parts/fleet.html", **_values(service_of(request), visitor))


def _values(service: Service, visitor: Visitor) -> dict[str, Any]:
    caller = visitor.caller
    actions = action_items(service, caller)
    jobs = jobs_page(service, caller, _MOST_JOBS)
    opened = incidents_page(service, caller, Wanted(state="open"), _MOST_OPEN, None)
    return {
        "actions": actions[:_MOST_ACTIONS],
        "more_actions": max(0, len(actions) - _MOST_ACTIONS),
        "rows": [Row(job, health_of(service, job.name, job.phase)) for job in jobs.items],
        "more_jobs": jobs.next is not None,
        "open": _worst_first(opened.items),
        "more_open": opened.next is not None,
        "questions": [item for item in questions_page(service, caller, QuestionsWanted(state="waiting")).items if item.open],
        "approved": [item for item in questions_page(service, caller, QuestionsWanted(state="approved")).items if item.controller],
        "pauses": pauses_page(service, caller).items,
        "windows": [window for window in maintenance_page(service, caller).items if window.active],
        "troubles": _recent_troubles(service, visitor),
        "unlisted": sorted(name for name in service.settings.jobs if sees(caller, name) and name not in {job.name for job in jobs.items}),
    }


def _worst_first(items: tuple[IncidentSummary, ...]) -> list[IncidentSummary]:
    order = {"evict": 0, "page": 1, "watch": 2}
    return sorted(items, key=lambda item: order.get(item.tier or "", 3))


def _recent_troubles(service: Service, visitor: Visitor) -> list[tuple[float, str, str]]:
    """What minder itself could not do in the last day: (time, job, in words), newest first."""
    query = EventQuery(kinds=(kinds.DEGRADED, kinds.SOURCE_ERROR), limit=5 * _MOST_TROUBLES, newest_first=True)
    since_s = service.clock.now_s() - _RECENT_S
    found = [event for event in service.events.select(query) if event.time_s >= since_s and sees(visitor.caller, event.job)]
    return [(event.time_s, event.job or "", describe(event)) for event in found[:_MOST_TROUBLES]]
