"""ETTR, and where the rest of the time went: of each job in a period, out of the ledger's events (pure).

What the ledger does not say is never taken for progress: a job without a recorded run has no ETTR, and time about which nothing
is known is counted apart (docs/reliability.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minder.model.history import LedgerEvent
from minder.offline.reliability.losses import IncidentTime, time_incident
from minder.offline.reliability.runs import RUN_KINDS, Run, find_runs
from minder.offline.reliability.sliding import SlidingHour, slide_hour
from minder.offline.reliability.slow_steps import SlowSteps, add_up, count_slow_steps
from minder.offline.reliability.stretches import Span, Stretch, clip, count_once, cut_out, fill_gaps, sum_spans
from minder.record.incidents import Incident, fold_incident, kinds
from minder.record.incidents.spans import format_span
from minder.record.incidents.track_record import TRACK_KINDS, TrackRecord, TrackRecordFold

__all__ = ["ACCOUNT_KINDS", "Account", "IncidentLoss", "JobAccount", "account_jobs", "newest_event_s"]

_OWN_KINDS = (
    *RUN_KINDS,
    kinds.VERDICT,
    kinds.DECISION,
    kinds.INTENT,
    kinds.AMBIGUOUS,
    kinds.RESULT,
    kinds.RECOVERY_PHASE,
    kinds.BARRED,
    kinds.UNBARRED,
    kinds.OUTCOME,
    kinds.NOTE,
    kinds.CLOSED,
    kinds.STEP_STUDY,
    kinds.WORK,
)
ACCOUNT_KINDS = tuple(dict.fromkeys((*_OWN_KINDS, *TRACK_KINDS)))
_QUIET_S = 86_400.0


@dataclass(frozen=True, slots=True)
class IncidentLoss:
    """What one incident cost in the period; seconds, each counted once even where incidents overlap."""

    incident: Incident
    cause: str
    by_phase: Mapping[str, float]
    lost_s: float
    slowed_s: float
    gpu_s: float | None


@dataclass(frozen=True, slots=True)
class JobAccount:
    """One job in the period. Seconds. `ettr` is None where no run of it is recorded; `ettr_low` takes slowed and unknown time for lost.

    relative_mfu: the mean over its hours of work a second by the best ten minutes of the same code; None where its steps carry no work.
    """

    job: str
    runs: int
    running_s: float
    lost_s: float
    slowed_s: float
    unknown_s: float
    ettr: float | None
    ettr_low: float | None
    gpu_s: float | None
    machines: int
    machine_s: float
    hour: SlidingHour
    losses: tuple[IncidentLoss, ...]
    stretches: tuple[Stretch, ...]
    notes: tuple[str, ...]
    slow_steps: SlowSteps = field(default_factory=SlowSteps)
    relative_mfu: float | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """All jobs of a period. incidents: opened in it, oldest first. by_cause: cause to phase to seconds. track: the five figures."""

    since_s: float
    until_s: float
    jobs: tuple[JobAccount, ...]
    incidents: tuple[Incident, ...] = ()
    by_cause: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    track: TrackRecord | None = None

    @property
    def ettr(self) -> float | None:
        """Of all jobs with recorded runs, by time."""
        known = [item for item in self.jobs if item.ettr is not None]
        ran_s = sum(item.running_s for item in known)
        return 1.0 - sum(item.lost_s for item in known) / ran_s if ran_s else None

    @property
    def slow_steps(self) -> SlowSteps:
        """What the what-if studies of all jobs say."""
        return add_up(item.slow_steps for item in self.jobs)

    @property
    def by_phase(self) -> dict[str, float]:
        return _add(phases for phases in self.by_cause.values())


def newest_event_s(events: Sequence[LedgerEvent]) -> float | None:
    """Unix seconds of the newest event; None without events."""
    return max((event.time_s for event in events), default=None)


def account_jobs(events: Sequence[LedgerEvent], since_s: float, until_s: float, job: str | None = None) -> Account:
    """events: of ACCOUNT_KINDS, of every job, in ledger order; later ones too: what was found out afterwards counts. `job`: only this."""
    incidents: dict[str, list[LedgerEvent]] = defaultdict(list)
    of_jobs: dict[str, list[LedgerEvent]] = defaultdict(list)
    for event in events:
        if event.incident:
            incidents[event.incident].append(event)
        if event.job:
            of_jobs[event.job].append(event)
    folded = [(fold_incident(found), found) for found in incidents.values()]
    jobs = []
    for name in sorted(of_jobs if job is None else {job} & set(of_jobs)):
        own = [(incident, found) for incident, found in folded if incident.job == name]
        if (account := _account_job(name, of_jobs[name], own, (since_s, until_s))) is not None:
            jobs.append(account)
    by_cause: dict[str, dict[str, float]] = {}
    for stretch in (stretch for item in jobs for stretch in item.stretches):
        phases = by_cause.setdefault(stretch.cause, {})
        phases[stretch.phase] = phases.get(stretch.phase, 0.0) + stretch.seconds
    opened = [item for item, _ in folded if since_s <= item.opened_s <= until_s and job in (None, item.job)]
    fold = TrackRecordFold()
    for event in events:
        fold.add(event)
    track = fold.record(since_s, until_s, None if job is None else (job,))
    return Account(since_s, until_s, tuple(jobs), tuple(sorted(opened, key=lambda item: item.opened_s)), by_cause, track)


def _account_job(
    name: str, events: Sequence[LedgerEvent], incidents: Sequence[tuple[Incident, list[LedgerEvent]]], period: Span
) -> JobAccount | None:  # fmt: skip
    """None where nothing of the job lies in the period."""
    runs = find_runs([event for event in events if event.kind not in (kinds.STEP_STUDY, kinds.WORK)], period[1])
    steps_s = sorted(event.time_s for event in events if event.kind == kinds.FIRST_STEP)
    timed = [time_incident(incident, found, steps_s, period[1]) for incident, found in incidents]
    stepped, stepless, unknown, stopped = _lifetime(runs, period)
    lasting = sorted([*stepped, *stepless]) if runs else [period]  # a job that is only watched: its incidents stand for themselves
    lost = count_once(clip([stretch for item in timed for stretch in item.lost], lasting))
    slowed = clip(count_once([stretch for item in timed for stretch in item.slowed]), lasting)
    reporting = [run for run in runs if not run.reports_no_steps]
    starts = [Stretch(run.begin_s, run.end_s if run.first_step_s is None else run.first_step_s, "start", "start") for run in reporting]
    stretches = fill_gaps(lost, clip([*starts, *stopped], lasting)) if runs else lost
    slowed = sorted(set(fill_gaps(stretches, slowed)) - set(stretches), key=lambda item: item.begin_s)
    troubled = clip(stretches, stepless)  # of a run that reports no steps, what an incident took of it is known, and no more
    known = sorted([*stepped, *((item.begin_s, item.end_s) for item in troubled)])
    unknown += cut_out(stepless, troubled)
    slow_steps = count_slow_steps(name, events, runs, period)
    if not known and not stretches and not slowed and not unknown and not slow_steps.studied:
        return None
    running_s, lost_s, slowed_s, unknown_s = sum_spans(known), _seconds(stretches), _seconds(slowed), sum_spans(unknown)
    gpus = _gpus(runs, period)
    return JobAccount(
        job=name,
        runs=sum(run.end_s > period[0] for run in runs),
        running_s=running_s,
        lost_s=lost_s,
        slowed_s=slowed_s,
        unknown_s=unknown_s,
        ettr=1.0 - lost_s / running_s if stepped else None,
        ettr_low=1.0 - (lost_s + slowed_s + unknown_s) / (running_s + unknown_s) if stepped else None,
        gpu_s=None if gpus is None or not running_s else gpus * lost_s,
        machines=max((run.machines for run in runs if run.end_s > period[0]), default=0),
        machine_s=sum(run.machines * max(0.0, min(run.end_s, period[1]) - max(run.begin_s, period[0])) for run in runs),
        hour=slide_hour(known, stretches) if stepped else SlidingHour(np.empty(0), np.empty(0)),
        losses=_losses(timed, stretches, slowed, gpus),
        stretches=tuple(stretches),
        notes=tuple(_notes(runs, timed, period, unknown_s)),
        slow_steps=slow_steps,
        relative_mfu=_relative_mfu(events, period),
    )


def _relative_mfu(events: Sequence[LedgerEvent], period: Span) -> float | None:
    """What was the best ten minutes when an hour was written down may have been beaten since: each rate is taken by the best of all."""
    hours = [event.payload for event in events if event.kind == kinds.WORK and period[0] <= event.time_s <= period[1]]
    best: dict[tuple[Any, Any], float] = {}
    for event in events:
        if event.kind == kinds.WORK:
            key = event.payload.get("update"), event.payload.get("unit")
            best[key] = max(best.get(key, 0.0), _number(event.payload.get("best")))
    shares = [_number(hour.get("rate")) / top for hour in hours if (top := best[hour.get("update"), hour.get("unit")]) > 0.0]
    return sum(shares) / len(shares) if shares else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _lifetime(runs: Sequence[Run], period: Span) -> tuple[list[Span], list[Span], list[Span], list[Stretch]]:
    """Spans in which the job was meant to run and we know of it; those of runs that tell no steps; spans of which nothing is known;
    and the stops after failures.

    A run that failed and was started again was down in between. After a run whose end was not seen nothing is known until the next.
    A run without an end, and without any event in the period, is not known to have run in it.
    """
    known: list[Span] = []
    stepless: list[Span] = []
    unknown: list[Span] = []
    stopped: list[Stretch] = []
    for index, run in enumerate(runs):
        silent = run.end == "running" and run.last_event_s < period[0]
        (unknown if silent else stepless if run.reports_no_steps else known).append((run.begin_s, run.end_s))
        if index + 1 < len(runs):
            gap = (run.end_s, runs[index + 1].begin_s)
            if run.end == "lost":
                unknown.append(gap)
            elif run.end == "failed":
                known.append(gap)
                stopped.append(Stretch(*gap, "stopped", "failed run"))
    return _within(known, period), _within(stepless, period), _within(unknown, period), stopped


def _within(spans: Sequence[Span], period: Span) -> list[Span]:
    cut = [(max(begin_s, period[0]), min(end_s, period[1])) for begin_s, end_s in spans]
    return [(begin_s, end_s) for begin_s, end_s in cut if begin_s < end_s]


def _losses(
    timed: Sequence[IncidentTime], stretches: Sequence[Stretch], slowed: Sequence[Stretch], gpus: int | None
) -> tuple[IncidentLoss, ...]:  # fmt: skip
    of_incident: dict[str | None, list[Stretch]] = defaultdict(list)
    for stretch in stretches:
        of_incident[stretch.incident].append(stretch)
    found = []
    for item in timed:
        own = of_incident[item.incident.id]
        by_phase = _add({stretch.phase: stretch.seconds} for stretch in own)
        slowed_s = _seconds([stretch for stretch in slowed if stretch.incident == item.incident.id])
        lost_s = _seconds(own)
        if lost_s or slowed_s:
            found.append(IncidentLoss(item.incident, item.cause, by_phase, lost_s, slowed_s, None if gpus is None else gpus * lost_s))
    return tuple(found)


def _notes(runs: Sequence[Run], timed: Sequence[IncidentTime], period: Span, unknown_s: float) -> list[str]:
    """What a reader must know before believing the numbers."""
    notes = []
    if not runs:
        notes.append("only watched: the ledger does not say when it ran, so it has no ETTR; the times of its incidents are counted")
    elif unknown_s:
        why = ["a run reported no steps"] if any(run.reports_no_steps for run in runs) else []
        why += ["the end of a run was not seen, or its controller wrote nothing"] if _lifetime(runs, period)[2] else []
        notes.append(f"of {format_span(unknown_s)} nothing is known: {'; '.join(why)}")
    last = runs[-1] if runs else None
    if last and last.end == "running" and period[0] <= last.last_event_s < period[1] - _QUIET_S:
        silent = format_span(period[1] - last.last_event_s)
        notes.append(f"no event for {silent}, and no end of its run: if its controller is dead, --until newest leaves that time out")
    unclear = sum(not item.recompute_known for item in timed)
    if unclear:
        notes.append(f"the time of repeated steps is not known for {unclear} of its incidents: lost time is at least what is shown")
    if (still := sum(item.incident.closed_s is None for item in timed)) and runs:
        notes.append(f"open incidents: {still}; their time is counted to the end of the period or of the run")
    return notes


def _gpus(runs: Sequence[Run], period: Span) -> int | None:
    """Of the newest run in the period."""
    known = [run.gpus for run in runs if run.end_s > period[0] and run.gpus]
    return known[-1] if known else None


def _seconds(stretches: Iterable[Stretch]) -> float:
    return sum(stretch.seconds for stretch in stretches)


def _add(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for phase, seconds in part.items():
            total[phase] = total.get(phase, 0.0) + seconds
    return total
