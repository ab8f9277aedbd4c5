"""What one incident cost its job, phase by phase (pure). All times are unix seconds."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from minder.model.history import LedgerEvent
from minder.offline.reliability.stretches import Span, Stretch, rename
from minder.record.incidents import Incident, kinds
from minder.record.incidents.fold import steps_taken_again

__all__ = ["IncidentTime", "time_incident"]

_STEPS_ON = ("slowdown", "unknown")  # the job still makes steps while a machine is suspected of these
_HAPPENED = ("done", "already_done", "failed", "ambiguous")


@dataclass(frozen=True, slots=True)
class IncidentTime:
    """lost: no progress. slowed: the job may have made steps, and the ledger does not say how fast. cause: the verdict's.

    recompute_known is False where steps were repeated and their number or length is not in the ledger.
    """

    incident: Incident
    cause: str
    lost: tuple[Stretch, ...]
    slowed: tuple[Stretch, ...]
    recompute_known: bool = True


def time_incident(incident: Incident, events: Sequence[LedgerEvent], steps_s: Sequence[float], until_s: float) -> IncidentTime:
    """Split an incident's time. events: its own; steps_s: first steps of all its job's generations, sorted; `until_s` ends what is open.

    It ends with its own first new step, with its closing, or with the first step of any later generation of the job (faults that
    are handled together share one restart), whichever is first; accused again after that, it costs time again. An incident with
    no action is lost time if its cause stops a job and more than a watch was asked for; else it is slowed time.
    """
    cause = incident.verdict.cause if incident.verdict else "unknown"
    times = incident.timings
    acted_s = times.acted_s if _acted(incident) else None
    before: list[Stretch] = []
    named = _named(events)
    for begin_s, detected_s in _accusations(incident, events):
        if before and begin_s < before[-1].end_s and detected_s <= before[-1].end_s:
            continue  # the same trouble, accused again
        end_s = _end(incident, steps_s, detected_s, until_s)
        decided_s = end_s if acted_s is None else min(acted_s, end_s)
        begin_s = max([begin_s, *(item.end_s for item in before[-1:])])
        named_s = min((time_s for time_s in named if time_s >= detected_s), default=detected_s)
        milestones = [("detect", detected_s), ("localise", min(named_s, decided_s)), ("decide", decided_s)]
        before += _chain(begin_s, milestones, decided_s, cause, incident.id)
    after: list[Stretch] = []
    known = True
    if acted_s is not None:
        end_s = _end(incident, steps_s, acted_s, until_s)
        restarted_s = times.restarted_s if times.restarted_s is not None and not _restarting(events) else end_s
        after = rename(_chain(acted_s, [("restart", restarted_s), ("load", end_s)], end_s, cause, incident.id), _tests(events), "localise")
        repeated_s = _repeated(events)
        known = repeated_s is not None
        if repeated_s:
            after.append(Stretch(end_s, min(until_s, end_s + repeated_s), "recompute", cause, incident.id))
    stops = cause not in _STEPS_ON and incident.verdict is not None and incident.verdict.tier != "watch"
    lost, slowed = ([*before, *after], []) if stops else (after, before)
    return IncidentTime(incident, cause, tuple(lost), tuple(slowed), known)


def _accusations(incident: Incident, events: Sequence[LedgerEvent]) -> list[tuple[float, float]]:
    """(since when, detected) of the incident's verdicts, in order: it may have been left open while the job went on, and come back."""
    found = []
    for event in events:
        if event.kind == kinds.VERDICT and event.payload.get("kind") != "recovered":
            since_s = event.payload.get("since_s")
            began_s = float(since_s) if isinstance(since_s, (int, float)) else event.time_s
            found.append((min(began_s, event.time_s), event.time_s))
    return found or [(incident.opened_s, incident.opened_s)]


def _named(events: Sequence[LedgerEvent]) -> list[float]:
    """When verdicts named a machine or a group."""
    found = [event for event in events if event.kind == kinds.VERDICT and event.payload.get("kind") in ("machine", "group")]
    return [event.time_s for event in found if event.payload.get("machines")]


def _tests(events: Sequence[LedgerEvent]) -> list[Span]:
    """When the job stood for tests of its machines; one that has not ended ends with the last event."""
    found: list[Span] = []
    begun_s = math.inf
    for event in events:
        if event.kind != kinds.RECOVERY_PHASE or event.payload.get("phase") != "diagnose":
            continue
        if event.payload.get("state") == "begin":
            begun_s = event.time_s
        elif event.time_s > begun_s:
            found, begun_s = [*found, (begun_s, event.time_s)], math.inf
    if begun_s < events[-1].time_s:
        found.append((begun_s, events[-1].time_s))
    return found


def _acted(incident: Incident) -> bool:
    """A dry run is no action; an intent whose result was not written is one."""
    return incident.timings.acted_s is not None and (not incident.results or any(item.outcome in _HAPPENED for item in incident.results))


def _restarting(events: Sequence[LedgerEvent]) -> bool:
    """A restart has begun, and its end is not written: the start of its generation is not it."""
    phases = [event.payload for event in events if event.kind == kinds.RECOVERY_PHASE and event.payload.get("phase") == "restart"]
    return bool(phases) and phases[-1].get("state") == "begin"


def _end(incident: Incident, steps_s: Sequence[float], since_s: float, until_s: float) -> float:
    later = steps_s[bisect_left(steps_s, since_s) :]
    closed = [] if incident.closed_s is None else [incident.closed_s]
    return max(min([until_s, *closed, *later[:1]]), min(since_s, until_s))


def _chain(begin_s: float, milestones: Sequence[tuple[str, float]], limit_s: float, cause: str, incident: str) -> list[Stretch]:
    """One stretch per phase, each from the milestone before it, none beyond the limit; empty ones are left out."""
    found = []
    for phase, time_s in milestones:
        end_s = min(max(time_s, begin_s), limit_s)
        if end_s > begin_s:
            found.append(Stretch(begin_s, end_s, phase, cause, incident))
            begin_s = end_s
    return found


def _repeated(events: Sequence[LedgerEvent]) -> float | None:
    """Seconds of steps that were taken again; None where that is not known."""
    payloads = [event.payload for event in events if event.kind == kinds.FIRST_STEP]
    if not payloads:
        return 0.0
    lost = steps_taken_again(payloads[-1])
    step_s = payloads[-1].get("step_seconds")
    if lost == 0:
        return 0.0
    return None if lost is None or step_s is None else float(lost) * float(step_s)
