"""The end of a demo, for a reader: as text, as report.md, as one JSON document."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minder.model.clock import format_time
from minder.model.errors import MinderError
from minder.model.history import LedgerEvent
from minder.record.incidents import Incident, fold_incident
from minder.record.incidents.brief import place_command, undo_steps
from minder.record.incidents.report import incident_json, incident_report
from minder.simulate.demo.milestones import LABELS, Milestone, find_milestones
from minder.simulate.demo.play import Played
from minder.simulate.demo.screen import clean

__all__ = ["Report", "report_json", "report_markdown", "report_text", "write_report"]

_LABEL_WIDTH = 16


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a demo and where it lies. not_compared: why the losses were not compared ("" if they were).

    picture: None where there was nothing to draw, and trouble says why.
    """

    played: Played
    ledger: Path
    recording: Path
    lab_mode: str = ""
    telemetry: str = ""
    fault_detail: str = ""
    not_compared: str = ""
    picture: Path | None = None
    trouble: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return self.played.options.out.absolute()

    @property
    def wrong(self) -> tuple[str, ...]:
        """Everything that is not as it must be; empty for a demo that went right."""
        found = list(self.played.outcome.wrong)
        comparison = self.played.comparison
        if comparison is not None and not comparison.equal:
            found.append(f"the losses differ from those of an undisturbed run: {comparison.detail}")
        elif comparison is None and not self.played.options.plain:
            found.append(f"the losses were not compared with those of an undisturbed run: {self.not_compared or 'no reason is known'}")
        return tuple(found)

    @property
    def right(self) -> bool:
        return not self.wrong

    @property
    def milestones(self) -> tuple[Milestone, ...]:
        return find_milestones(self.fault_s, self.played.events)

    @property
    def fault_s(self) -> float | None:
        """When the fault came; None where none was asked for."""
        return None if self.played.options.fault == "none" else self.played.fault_s

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """The run's incidents, oldest first."""
        by_id: dict[str, list[LedgerEvent]] = {}
        for event in self.played.events:
            if event.incident:
                by_id.setdefault(event.incident, []).append(event)
        return tuple(fold_incident(events) for events in by_id.values())

    def place(self, command: str) -> str:
        """A command of minder's with this run's ledger: it works wherever it is pasted."""
        return place_command(command, ledger=str(self.ledger))


def report_text(report: Report, *, complete: bool = False) -> str:
    """The incident report. Without `complete` the decision's single stages are left out and long messages are cut."""
    return "\n".join(_lines(report, complete)) + "\n"


def report_markdown(report: Report) -> str:
    """report.md: the same with the picture, everything complete."""
    picture = [f"![Telemetry and timeline of the incident]({report.picture.name})", ""] if report.picture else []
    lines = [f"# {_headline(report)}", "", *picture, "```text", report_text(report, complete=True).rstrip("\n"), "```"]
    return "\n".join(lines) + "\n"


def report_json(report: Report) -> dict[str, Any]:
    """Everything that the text says, for machines; `incidents` are as `minder incidents show --format json` prints them."""
    played, outcome, comparison = report.played, report.played.outcome, report.played.comparison
    begin_s = report.fault_s
    moments = dict.fromkeys(LABELS) | {item.key: item.time_s for item in report.milestones}
    seconds = {key: None if time_s is None or begin_s is None else round(time_s - begin_s, 3) for key, time_s in moments.items()}
    del seconds["injected"]
    return {
        "fault": outcome.fault,
        "machine": outcome.machine,
        "seed": played.options.seed,
        "right": report.right,
        "wrong": list(report.wrong),
        "job": played.job,
        "lab": {"mode": report.lab_mode, "machines": played.options.machines, "standbys": played.options.standbys},
        "telemetry": report.telemetry,
        "masked": played.options.masked,
        "plain": played.options.plain,
        "injected_at_step": None if outcome.fault == "none" else played.options.injected_at,
        "injected": None if begin_s is None else format_time(begin_s),
        "injection": report.fault_detail,
        "evicted": list(outcome.evicted),
        "replacements": [name for incident in report.incidents for name in incident.replacements],
        "generations": outcome.generations,
        "finished": outcome.finished,
        "seconds_after_fault": seconds,
        "downtime_s": seconds["first_step"],
        "steps_lost": outcome.steps_lost,
        "losses": {
            "equal": None if comparison is None else bool(comparison.equal),
            "steps_compared": 0 if comparison is None else comparison.steps,
            "first_difference": None if comparison is None else comparison.first_difference,
            "detail": _losses(report),
        },
        "undo": [step.command for incident in report.incidents for step in undo_steps(incident, report.place)],
        "incidents": [incident_json(_placed(report, incident)) for incident in report.incidents],
        "trouble": list(report.trouble),
        "files": {name: str(path) for name, path in _files(report)},
        "seconds": round(played.seconds, 1),
    }


def _placed(report: Report, incident: Incident) -> Incident:
    return replace(incident, undo=tuple(report.place(command) for command in incident.undo))


def write_report(report: Report) -> None:
    """report.md and report.json into the run's folder. Raises MinderError if that cannot be."""
    try:
        (report.folder / "report.md").write_text(report_markdown(report), encoding="utf-8")
        (report.folder / "report.json").write_text(json.dumps(report_json(report), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise MinderError(f"the report cannot be written into {report.folder}: {error.strerror}") from error


def _headline(report: Report) -> str:
    played = report.played
    where = f" in {played.outcome.machine}" if played.outcome.machine else ""
    judgement = "as it must be" if report.right else "NOT as it must be"
    return f"minder demo: {played.outcome.fault}{where}, seed {played.options.seed}: {judgement}"


def _lines(report: Report, complete: bool) -> Iterator[str]:
    yield _headline(report)
    for line in report.wrong:
        yield _row("wrong", line)
    yield from _facts(report)
    for incident in report.incidents:
        yield ""
        yield incident_report(_for_reader(report, incident, complete), stages=complete, place=report.place).rstrip("\n")
    if not report.incidents:
        yield ""
        yield "No incident: nothing was found, nothing was done, nothing is to be undone."
    for line in report.trouble:
        yield _row("trouble", line)
    yield from _commands(report)
    yield ""
    yield "Files"
    for name, path in _files(report):
        yield _row(name, str(path))


def _facts(report: Report) -> Iterator[str]:
    played, outcome = report.played, report.played.outcome
    marks = [report.lab_mode, f"telemetry from {report.telemetry}", "fingerprints masked" if played.options.masked else ""]
    marks.append("a script that calls no minder function" if played.options.plain else "")
    yield _row("lab", f"{played.options.machines} machines, {played.options.standbys} standbys, " + ", ".join(filter(None, marks)))
    if outcome.fault != "none":
        where = f" of {outcome.machine}" if outcome.machine else ""
        when = "" if report.fault_s is None else f" at {format_time(report.fault_s)}"
        detail = f": {report.fault_detail}" if report.fault_detail else ""
        yield _row("fault", f"{outcome.fault}{where} after step {played.options.injected_at}{when}{detail}")
    evicted = ", ".join(outcome.evicted) or "none"
    replaced = [name for incident in report.incidents for name in incident.replacements]
    place = f", {', '.join(replaced)} in its place" if replaced else ""
    generations = f"{outcome.generations} generation{'s' if outcome.generations != 1 else ''}"
    yield _row("evicted", f"{evicted}{place}; {generations}; the job {'ran to its end' if outcome.finished else 'did NOT run to its end'}")
    begin_s = report.fault_s
    moments = [item for item in report.milestones if item.key != "injected"]
    if begin_s is not None and moments:
        yield _row("after the fault", ", ".join(f"{item.label} {item.time_s - begin_s:.1f} s" for item in moments))
    if outcome.steps_lost is not None:
        yield _row("steps lost", str(outcome.steps_lost))
    yield _row("losses", _losses(report))


def _commands(report: Report) -> Iterator[str]:
    """What a reader may want to type next, as it works."""
    lines = [report.place(f"minder incidents show {incident.id} --captures") for incident in report.incidents]
    lines += [report.place(f"minder machine outcome {machine} confirmed") for machine in report.played.outcome.evicted]
    lines.append(f"minder replay {shlex.quote(str(report.recording))}")
    yield ""
    yield "To look closer"
    yield from (f"  {line}" for line in lines)


def _losses(report: Report) -> str:
    comparison = report.played.comparison
    if comparison is None and report.played.options.plain:
        return "not compared: a script that calls no minder function is promised no equality bit for bit"
    if comparison is None:
        return f"not compared: {report.not_compared or 'no reason is known'}"
    if not comparison.equal:
        return f"NOT equal to those of an undisturbed run: {comparison.detail}"
    return f"equal to those of an undisturbed run, bit for bit: {comparison.steps} steps compared, and the parameters at the end"


def _for_reader(report: Report, incident: Incident, complete: bool) -> Incident:
    """The demo knows when the fault really came: times count from there, and the timeline begins with it."""
    fault_s = report.fault_s
    if not complete:
        decision = None if incident.decision is None else replace(incident.decision, stages=())
        evidence, against = (
            tuple(replace(item, message=clean(item.message)) for item in part) for part in (incident.evidence, incident.against)
        )
        incident = replace(incident, decision=decision, evidence=evidence, against=against)
    target = report.played.outcome.machine
    other = target is not None and target not in incident.machines  # that one has another cause, whatever it is
    if fault_s is None or other or fault_s > incident.opened_s:
        return incident
    injected = (fault_s, f"fault injected: {report.fault_detail or report.played.outcome.fault}")
    return replace(incident, timings=replace(incident.timings, fault_s=fault_s), timeline=(injected, *incident.timeline))


def _files(report: Report) -> list[tuple[str, Path]]:
    picture = [("picture", report.picture)] if report.picture else []
    named = [("report", report.folder / "report.md"), ("json", report.folder / "report.json"), *picture]
    return [*named, ("ledger", report.ledger), ("recording", report.recording), ("logs", report.folder / "machines")]


def _row(label: str, text: str) -> str:
    return f"  {label:{_LABEL_WIDTH}}{text}"
