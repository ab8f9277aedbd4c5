"""An incident for a reader: as text at three in the morning, or as one JSON document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from minder.model.clock import format_time
from minder.model.decision import Decision
from minder.model.evidence import Evidence
from minder.model.history import Approval
from minder.record.incidents.brief import as_it_is, brief
from minder.record.incidents.record import Incident
from minder.record.incidents.spans import format_span
from minder.record.incidents.words import cause_words, size_words, sources_of, tier_words
from minder.wire.codec import to_json

__all__ = ["AFTERWARDS", "describe_evidence", "incident_json", "incident_report", "incident_rows", "left_to_a_person"]

AFTERWARDS = "A returned machine becomes a standby: its launcher starts the workers again, and it takes the next place that falls free."
_DURATIONS = ("time_to_detect_s", "time_to_decide_s", "capture_s", "evict_s", "restart_s", "to_first_step_s", "downtime_s")
_LABELS = ("detect", "decide", "capture", "evict", "restart", "first new step", "downtime in all")


def incident_json(incident: Incident) -> dict[str, Any]:
    """Every field of the record, times also as ISO 8601, durations in seconds."""
    document: dict[str, Any] = to_json(incident)
    document["opened"] = format_time(incident.opened_s)
    document["closed"] = None if incident.closed_s is None else format_time(incident.closed_s)
    document["durations"] = {name: getattr(incident.timings, name) for name in _DURATIONS}
    document["timeline"] = [{"time": format_time(time_s), "what": line} for time_s, line in incident.timeline]
    return document


def incident_rows(incidents: Sequence[Incident]) -> list[tuple[str, ...]]:
    """A header and one row per incident, newest first, for a table."""
    rows: list[tuple[str, ...]] = [("incident", "opened", "job", "state", "machines", "cause", "done", "downtime", "right?")]
    for item in sorted(incidents, key=lambda incident: incident.opened_s, reverse=True):
        rows.append(
            (
                item.id,
                format_time(item.opened_s)[:19] + "Z",
                item.job or "-",
                item.state,
                ", ".join(item.machines) or "no machine",
                item.verdict.cause if item.verdict else "-",
                _done(item),
                format_span(item.timings.downtime_s),
                ", ".join(dict.fromkeys(item.outcomes.values())) or "-",
            )
        )
    return rows


def _done(incident: Incident) -> str:
    if incident.decision is None:
        return "-"
    action, reason = incident.decision.action, incident.decision.reason
    return action if reason == "act" else f"{action} ({reason})"


def incident_report(
    incident: Incident, *, stages: bool = False, approvals: Sequence[Approval] = (), place: Callable[[str], str] = as_it_is
) -> str:
    """Now, in the morning, undo; then what happened, why we think so, what was done, when: as plain text. stages: also what the policy
    asked, one by one. place: makes of a command one that works where the reader is."""
    return "\n".join(_report(incident, stages, approvals, place)) + "\n"


def _report(incident: Incident, stages: bool, approvals: Sequence[Approval], place: Callable[[str], str]) -> Iterator[str]:
    yield f"Incident {incident.id}: {_headline(incident)}"
    closed = f"closed {format_time(incident.closed_s)} by {incident.closed_by}" if incident.closed_s is not None else incident.state
    yield f"  job {incident.job or '-'}, opened {format_time(incident.opened_s)}, {closed}"
    said = brief(incident, None, approvals, place)
    yield ""
    yield f"Now: {said.now}"
    yield f"In the morning: {said.morning}"
    for step in said.steps:  # a line of its own: it is copied whole
        yield f"Undo: {step.command}"
        yield f"  it {step.does}"
    if not said.steps:
        yield f"Undo: {said.undo}"
    yield from _section("Evidence for", [describe_evidence(item) for item in incident.evidence])
    yield from _section("Evidence against", [describe_evidence(item) for item in incident.against])
    yield from _section("Captured before anything was ended", incident.captured)
    yield from _section("Decision", _decision_lines(incident.decision, stages))
    yield from _section("Left to a person", left_to_a_person(incident), nothing="")
    yield from _section("Done", [_result_line(item.outcome, item.operation_id, item.detail) for item in incident.results])
    yield from _section("Was it right?", _outcome_lines(incident, place))
    yield from _section("How long it took", _time_lines(incident))
    yield from _section("Notes", incident.notes, nothing="")
    yield from _section("Timeline", _timeline_lines(incident))


def _section(title: str, lines: Sequence[str], nothing: str = "none") -> Iterator[str]:
    if lines or nothing:
        yield ""
        yield title
        yield from (f"  {line}" for line in lines or [nothing])


def _headline(incident: Incident) -> str:
    verdict = incident.verdict
    if verdict is None:
        return "no verdict is recorded"
    blame = f"{', '.join(verdict.machines) or 'the job'} {cause_words(verdict.cause, bool(verdict.machines), sources_of(verdict))}"
    unnamed = "" if verdict.machines or verdict.tier == "evict" else ", no machine to blame"
    return f"{blame}{unnamed} ({tier_words(verdict.tier, bool(verdict.machines))}, confidence {verdict.confidence:.2f})"


def describe_evidence(item: Evidence) -> str:
    """One piece of evidence in words.

    >>> describe_evidence(Evidence("telemetry", "node-2", metric="gpu_power_draw_watts", observed=131.2, expected=548.0))
    'node-2: gpu_power_draw_watts is 131.2, expected 548 (telemetry)'
    """
    said = item.message
    if item.metric and item.observed is not None:
        wanted = "" if item.expected is None else f", expected {item.expected:.6g}"
        measured = f"{item.metric} is {item.observed:.6g}{wanted}"
        said = f"{measured}; {said}" if said else measured
    who = item.machine or "the job"
    since = "" if item.since_s is None else f", since {format_time(item.since_s)}"
    return f"{who}{f' {item.device}' if item.device else ''}: {said or item.metric or 'suspected'} ({item.source}{since})"


def _decision_lines(decision: Decision | None, stages: bool) -> list[str]:
    if decision is None:
        return []
    action = "nothing is done:" if decision.action == "none" else decision.action
    lines = [f"{action} {', '.join(decision.machines)}".strip() + f" ({decision.reason}): {decision.detail}"]
    if decision.replacements:
        lines.append(f"in their place: {', '.join(decision.replacements)}")
    if size := size_words(decision):
        lines.append(f"size: {size.removeprefix('; ')}")
    if decision.price:
        lines.append(f"price: {decision.price.acting_gpu_s:.0f} GPU-s by acting, {decision.price.waiting_gpu_s:.0f} GPU-s by waiting")
    return [*lines, *_rung_lines(decision), *_jobs_lines(decision), *(f"stage {line}" for line in decision.stages if stages)]


def _rung_lines(decision: Decision) -> list[str]:
    """Its place on the ladder, and what was passed over for it."""
    if not decision.rung:
        return []
    passed = ", ".join(f"{item.rung} ({item.reason.replace('_', ' ')})" for item in decision.passed_over)
    return [f"rung: {decision.rung}, for a trouble of kind {decision.trouble or '?'}" + (f"; passed over: {passed}" if passed else "")]


def _jobs_lines(decision: Decision) -> list[str]:
    return [f"jobs affected: {', '.join(decision.jobs_affected)}"] if len(decision.jobs_affected) > 1 else []


def left_to_a_person(incident: Incident) -> list[str]:
    """What was not done about a machine that is still in the job, beside what was: a restart in place mends no machine."""
    pages = [item for item in incident.decisions if item.action == "page" and item.machines]
    left = {(item.machines, item.reason): item for item in pages if not set(item.machines) & set(incident.evicted)}
    if incident.decision is not None:
        left.pop((incident.decision.machines, incident.decision.reason), None)
    return [line for item in left.values() for line in (f"{', '.join(item.machines)}: {item.detail} ({item.reason})", *_jobs_lines(item))]


def _result_line(outcome: str, operation_id: str, detail: str) -> str:
    return f"{operation_id}: {outcome.replace('_', ' ')}" + (f", {detail}" if detail else "")


def _outcome_lines(incident: Incident, place: Callable[[str], str]) -> list[str]:
    lines = [f"{machine}: {outcome}" for machine, outcome in incident.outcomes.items()]
    unknown = [machine for machine in incident.evicted if machine not in incident.outcomes]
    commands = [place(f"minder machine outcome {machine} confirmed") for machine in unknown]
    lines += [f"not known yet; when it is: {command} (or no-fault-found)" for command in commands]
    return lines or ["no machine was evicted"]


def _time_lines(incident: Incident) -> list[str]:
    durations = [(label, getattr(incident.timings, name)) for label, name in zip(_LABELS, _DURATIONS, strict=True)]
    lines = [
        f"{label}: {format_span(seconds)}"
        for label, seconds in durations
        if seconds is not None and (label != "evict" or incident.evicted)  # of a restart in place the same time is shown as restart
    ]
    tested = (("end the workers for the tests", "suspend"), ("test all machines", "diagnose"), ("replay on groups", "replay"))
    lines += [f"{label}: {format_span(seconds)}" for label, name in tested if (seconds := incident.timings.phases.get(name)) is not None]
    if incident.steps_lost is not None:
        lines.append(f"steps done twice: {incident.steps_lost}")
    if incident.gpu_seconds_lost is not None:
        lines.append(f"GPU-seconds lost: {incident.gpu_seconds_lost:.0f}")
    return lines


def _timeline_lines(incident: Incident) -> list[str]:
    begin_s = incident.timings.fault_s if incident.timings.fault_s is not None else incident.opened_s
    return [f"{format_time(time_s)[11:23]}  {time_s - begin_s:+8.1f} s  {line}" for time_s, line in incident.timeline]
