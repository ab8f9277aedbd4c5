"""An account for a reader: as tables, or as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minder.model.clock import format_time
from minder.model.evidence import NOT_JUDGED
from minder.offline.reliability.account import Account, IncidentLoss, JobAccount
from minder.offline.reliability.slow_steps import AGES, CAUSES, SlowSteps, is_mostly_slow, weeks_between
from minder.offline.reliability.stretches import PHASES
from minder.record.api.track_record import DEFINITIONS
from minder.record.incidents.spans import format_span
from minder.record.incidents.track_record import TrackRecord

__all__ = [
    "account_json",
    "account_text",
    "cause_rows",
    "describe_ettr",
    "describe_slow_steps",
    "incident_rows",
    "job_rows",
    "slow_step_tables",
    "track_rows",
]

Rows = list[tuple[str, ...]]


def account_json(account: Account) -> dict[str, Any]:
    """Durations in seconds, times in unix seconds and ISO 8601; null is "not known"."""
    return {
        "since": format_time(account.since_s),
        "until": format_time(account.until_s),
        "ettr": account.ettr,
        "by_phase": account.by_phase,
        "by_cause": {cause: dict(phases) for cause, phases in account.by_cause.items()},
        "jobs": [_job_json(item) for item in account.jobs],
        "slow_steps": _slow_steps_json(account.slow_steps),
    }


def _slow_steps_json(found: SlowSteps) -> dict[str, Any]:
    """Seconds by what the steps were."""
    return {
        "seconds": dict(found.seconds),
        "wasted_s": found.wasted_s,
        "by_week": {week: dict(found.by_week.get(week, {})) for week in weeks_between(found.by_week)},
        "by_hour": {str(hour): dict(seconds) for hour, seconds in sorted(found.by_hour.items())},
        "by_age": {age: dict(found.by_age[age]) for age, _ in AGES if age in found.by_age},
        "by_job": {job: dict(seconds) for job, seconds in sorted(found.jobs.items())},
    }


def describe_slow_steps(found: SlowSteps) -> str:
    """How often, and why, in a few sentences; no share without judged time."""
    whole_s = sum(found.seconds.values())
    judged_s = whole_s - found.seconds.get(NOT_JUDGED, 0.0)
    missing = f"{_share(found.seconds.get(NOT_JUDGED, 0.0), whole_s)} of the running time is not judged: no traced steps, or none to trust."
    if judged_s <= 0:
        return missing if whole_s else ""
    slow = {cause: found.seconds.get(cause, 0.0) for cause in CAUSES}
    slow_s = sum(slow.values())
    causes = ", ".join(
        f"{cause} {_share(seconds, slow_s)}" for cause, seconds in sorted(slow.items(), key=lambda item: -item[1]) if seconds
    )
    said = f"Steps were slow in {_share(slow_s, judged_s)} of the judged time"
    said += f" ({causes} of that)." if causes else "."
    mostly = [mostly_slow for item in found.jobs.values() if (mostly_slow := is_mostly_slow(item)) is not None]
    said += f" Jobs that were slow in at least half of it: {sum(mostly)} of {len(mostly)} judged."
    return f"{said} Ideal steps would have saved {_share(found.wasted_s, judged_s)} of the judged time. {missing}"


def slow_step_tables(found: SlowSteps) -> list[tuple[str, Rows]]:
    """A title and a table each: by week, by the run's age, by hour of the day, by job."""
    parts: list[tuple[str, str, list[tuple[str, Mapping[str, float]]]]] = [
        ("By week", "week", [(week, found.by_week.get(week, {})) for week in weeks_between(found.by_week)]),
        ("By the run's age", "age", [(age, found.by_age[age]) for age, _ in AGES if age in found.by_age]),
        ("By hour of the day (UTC)", "hour", [(f"{hour:02d}", found.by_hour[hour]) for hour in sorted(found.by_hour)]),
        ("By job", "job", sorted(found.jobs.items())),
    ]
    return [(title, _slow_rows(first, rows)) for title, first, rows in parts if rows]


def _slow_rows(first: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> Rows:
    """slow, and each cause: shares of the judged time; not judged: of all."""
    found: Rows = [(first, "ran", "slow", *CAUSES, NOT_JUDGED)]
    for name, seconds in rows:
        whole_s, missing_s = sum(seconds.values()), seconds.get(NOT_JUDGED, 0.0)
        judged_s = whole_s - missing_s
        slow_s = sum(seconds.get(cause, 0.0) for cause in CAUSES)
        shares = [_share(slow_s, judged_s), *(_share(seconds.get(cause, 0.0), judged_s) for cause in CAUSES)]
        found.append((name, format_span(whole_s) if whole_s else "no run", *shares, _share(missing_s, whole_s)))
    return found


def _share(part: float, whole: float) -> str:
    """A dash where there is nothing that it could be a share of."""
    return f"{part / whole:.1%}" if whole > 0 else "-"


def _job_json(item: JobAccount) -> dict[str, Any]:
    worst = item.hour.worst
    return {
        "job": item.job,
        "runs": item.runs,
        "running_s": item.running_s,
        "unproductive_s": item.lost_s,
        "slowed_s": item.slowed_s,
        "unknown_s": item.unknown_s,
        "ettr": item.ettr,
        "ettr_at_least": item.ettr_low,
        "worst_hour": None if worst is None else {"ettr": worst[0], "end": format_time(worst[1])},
        "last_hour": item.hour.last,
        "gpu_seconds_lost": item.gpu_s,
        "relative_mfu": item.relative_mfu,
        "incidents": [_loss_json(loss) for loss in item.losses],
        "notes": list(item.notes),
    }


def _loss_json(loss: IncidentLoss) -> dict[str, Any]:
    return {
        "incident": loss.incident.id,
        "opened": format_time(loss.incident.opened_s),
        "state": loss.incident.state,
        "machines": list(loss.incident.machines),
        "cause": loss.cause,
        "by_phase": dict(loss.by_phase),
        "unproductive_s": loss.lost_s,
        "slowed_s": loss.slowed_s,
        "gpu_seconds_lost": loss.gpu_s,
    }


def account_text(account: Account) -> list[Rows | str]:
    """Tables (a header first) and lines of text, in the order in which they are read."""
    parts: list[Rows | str] = [f"{_day(account.since_s)} to {_day(account.until_s)}", "", job_rows(account.jobs)]
    parts += [f"{item.job}: {note}" for item in account.jobs for note in item.notes]
    if account.by_cause:
        parts += ["", "Unproductive time by cause and phase", cause_rows(account.by_cause)]
    losses = [loss for item in account.jobs for loss in item.losses]
    if losses:
        parts += ["", "By incident", incident_rows(losses)]
    return parts


def track_rows(track: TrackRecord) -> Rows:
    """Figure, value, interval, what is not known, what it means; without a header."""
    median_s, late_s = track.detection_quantile(0.5), track.detection_quantile(0.95)
    detection = "not known" if median_s is None or late_s is None else f"median {format_span(median_s)}, 95 % within {format_span(late_s)}"
    undated = f"{track.undated} incidents do not date their fault"
    rows: Rows = [("detection time", detection, "-", undated, DEFINITIONS["detection"])]
    again = f", {track.again} of them evicted again already" if track.again else ""
    named = (
        ("false isolations", track.isolation, "without an outcome", DEFINITIONS["false_isolation"]),
        ("  by tests", track.by_test, "without a test's word", "The same, by what tests found alone."),
        ("  by people", track.by_person, "without a person's word", "The same, by what people found alone."),
        ("automatic recoveries", track.recovery, "not over, or not seen to end", DEFINITIONS["recovery"]),
        ("returns that held a week", track.returned, f"returned less than a week ago{again}", DEFINITIONS["returned"]),
        ("signals judged", track.signals, "lost while no controller ran: not known", DEFINITIONS["signals"]),
    )
    for name, share, unknown, meaning in named:
        low, high = share.bounds
        value = "not known" if share.value is None else f"{share.value:.1%} ({share.part} of {share.whole})"
        missing = unknown if name == "signals judged" else f"{share.unknown} {unknown}"
        rows.append((name, value, "-" if share.value is None else f"{low:.1%} to {high:.1%}", missing, meaning))
    return rows


def job_rows(jobs: Sequence[JobAccount]) -> Rows:
    rows: Rows = [("job", "ran", "ETTR", "worst hour", "last hour", "unproductive", "slowed", "unknown", "GPU-hours lost", "relative MFU")]
    for item in jobs:
        worst = item.hour.worst
        rows.append(
            (
                item.job,
                _span(item.running_s),
                describe_ettr(item),
                "-" if worst is None else f"{worst[0]:.3f}",
                "-" if item.hour.last is None else f"{item.hour.last:.3f}",
                _span(item.lost_s),
                _span(item.slowed_s),
                _span(item.unknown_s),
                "-" if item.gpu_s is None else f"{item.gpu_s / 3600.0:.1f}",
                "unknown" if item.relative_mfu is None else f"{item.relative_mfu:.2f}",
            )
        )
    return rows


def describe_ettr(item: JobAccount) -> str:
    """The ratio, and how low it may be; "not known" is no number."""
    if item.ettr is None or item.ettr_low is None:
        return "not known"
    return f"{item.ettr:.4f}" + (f" (at least {item.ettr_low:.4f})" if item.ettr_low < item.ettr else "")


def cause_rows(by_cause: Mapping[str, Mapping[str, float]]) -> Rows:
    phases = [phase for phase in PHASES if any(phase in found for found in by_cause.values())]
    rows: Rows = [("cause", *phases, "in all")]
    for cause, found in sorted(by_cause.items(), key=lambda pair: -sum(pair[1].values())):
        rows.append((cause, *(_span(found.get(phase, 0.0)) for phase in phases), _span(sum(found.values()))))
    if len(by_cause) > 1:
        sums = {phase: sum(found.get(phase, 0.0) for found in by_cause.values()) for phase in phases}
        rows.append(("all", *(_span(sums[phase]) for phase in phases), _span(sum(sums.values()))))
    return rows


def incident_rows(losses: Sequence[IncidentLoss]) -> Rows:
    """Newest first; phases that no incident has are left out."""
    phases = [phase for phase in PHASES if any(phase in loss.by_phase for loss in losses)]
    rows: Rows = [("incident", "opened", "state", "cause", *phases, "in all", "slowed")]
    for loss in sorted(losses, key=lambda item: item.incident.opened_s, reverse=True):
        rows.append(
            (
                loss.incident.id,
                format_time(loss.incident.opened_s)[:19] + "Z",
                loss.incident.state,
                loss.cause,
                *(_span(loss.by_phase.get(phase, 0.0)) for phase in phases),
                _span(loss.lost_s),
                _span(loss.slowed_s),
            )
        )
    return rows


def _span(seconds: float) -> str:
    return format_span(seconds) if seconds else "-"


def _day(time_s: float) -> str:
    return format_time(time_s)[:19] + "Z"
