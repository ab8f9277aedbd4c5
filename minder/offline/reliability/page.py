"""`minder report`: the reliability of a period as one HTML file, with its pictures inside (no script, nothing from elsewhere).

Everything that comes from machines or people is escaped: names, log lines, notes.
"""

from __future__ import annotations

import base64
import html
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from minder.act.recovery.pool_size import DEFAULT_RATE, advise_standbys, given_rate
from minder.model.clock import format_time
from minder.model.errors import BadInputError
from minder.offline.reliability.account import Account
from minder.offline.reliability.advice import advice_notes, advice_rows, rate_from_account
from minder.offline.reliability.failures import Departure, count_failures, find_departures, repeat_offenders
from minder.offline.reliability.pictures import DEPARTURES, HOURS, LOSSES, POOL, account_pictures
from minder.offline.reliability.scheduling import scheduling_times, weigh
from minder.offline.reliability.slow_steps import SlowSteps
from minder.offline.reliability.tables import (
    cause_rows,
    describe_ettr,
    describe_slow_steps,
    incident_rows,
    job_rows,
    slow_step_tables,
    track_rows,
)
from minder.record.incidents import Incident
from minder.record.incidents.report import describe_evidence
from minder.record.incidents.spans import format_span
from minder.record.incidents.track_record import TrackRecord

__all__ = ["render_report", "write_report"]

_EVIDENCE_SHOWN = 4
_COUNTED = (
    "ETTR is the time in which a job made progress, divided by the time from its start to its end. What the ledger does not say is never "
    "taken for progress: &ldquo;at least&rdquo; takes slowed and unknown time for lost. A second is counted once, for the incident that "
    "began first. The formulas are in docs/reliability.md."
)
_STYLE = """body{font:15px/1.45 system-ui,sans-serif;max-width:68rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.2rem}table{border-collapse:collapse;margin:.6rem 0}
td,th{padding:.2rem .9rem .2rem 0;text-align:left;vertical-align:top;border-bottom:1px solid #e5e5e5;overflow-wrap:break-word}
td:last-child{overflow-wrap:anywhere}
.numbers td+td,.numbers th+th{text-align:right}.track th:nth-child(n+4),.track td:nth-child(n+4){text-align:left}
.losses th:nth-child(-n+4),.losses td:nth-child(-n+4){text-align:left}
.wide{overflow-x:auto}.big{font-size:1.15rem}.note{color:#8a3000}
.incidents th,.incidents td:first-child{white-space:nowrap}.incidents td:nth-child(2){min-width:9rem}.incidents td:nth-child(5){width:45%}
img{max-width:100%;height:auto}figure{margin:1rem 0}figcaption{color:#555}ul{margin:.2rem 0;padding-left:1.1rem}"""


def write_report(account: Account, path: Path) -> None:
    """Raises BadInputError where the file cannot be written."""
    try:
        path.write_bytes(render_report(account).encode("utf-8", "replace"))
    except OSError as error:
        raise BadInputError(f"--out {path} cannot be written: {error.strerror}; name a file in a folder that is there") from error


def render_report(account: Account) -> str:
    """The whole page."""
    title = f"Reliability, {format_time(account.since_s)[:16]} to {format_time(account.until_s)[:16]} UTC"
    departures = find_departures(account.incidents)
    pictures = account_pictures(account)
    parts = [
        f"<h1>{_text(title)}</h1>",
        _summary(account),
        _figure(pictures, HOURS),
        _figure(pictures, LOSSES),
        _losses(account),
        _slow_steps(account.slow_steps),
        _track_record(account.track),
        _scheduling(account),
        _incidents(account.incidents),
        _departures(departures, _figure(pictures, DEPARTURES)),
        _standbys(account),
        _figure(pictures, POOL),
        f"<h2>How this is counted</h2><p>{_COUNTED}</p>",
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{_text(title)}</title>'
    return f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{"".join(parts)}</body></html>\n'


def _summary(account: Account) -> str:
    if not account.jobs:
        return '<p class="big note">Nothing is recorded of any job in this time: that is no data, not health.</p>'
    known = [item for item in account.jobs if item.ettr is not None]
    lines = [f"{_number(len(account.jobs), 'job')}, {_number(len(account.incidents), 'incident')}."]
    if account.ettr is not None:
        lines.append(f"ETTR of all recorded running time {account.ettr:.4f}.")
    if len(known) == 1:
        lines[-1] = f"ETTR {describe_ettr(known[0])}."
    notes = "".join(f'<li class="note">{_text(item.job)}: {_text(note)}</li>' for item in account.jobs for note in item.notes)
    return f'<p class="big">{_text(" ".join(lines))}</p>{_table(job_rows(account.jobs), "numbers")}<ul>{notes}</ul>'


def _figure(pictures: Mapping[str, bytes], caption: str) -> str:
    """Nothing where the period has nothing to show."""
    if caption not in pictures:
        return ""
    source = base64.b64encode(pictures[caption]).decode()
    image = f'<img alt="{_text(caption)}" src="data:image/png;base64,{source}">'
    return f"<figure>{image}<figcaption>{_text(caption)}</figcaption></figure>"


def _losses(account: Account) -> str:
    parts = ["<h2>Unproductive time</h2>"]
    losses = [loss for item in account.jobs for loss in item.losses]
    if account.by_cause:
        parts.append(_table(cause_rows(account.by_cause), "numbers"))
    if losses:
        parts.append(_table(incident_rows(losses), "numbers losses"))
    return "".join(parts) if len(parts) > 1 else parts[0] + "<p>None is recorded.</p>"


def _slow_steps(found: SlowSteps) -> str:
    """The straggler study's questions; one line where no step was traced."""
    heading = "<h2>Slow steps</h2>"
    if not found.studied:
        return f"{heading}<p>Not judged: no job traced its steps, or no trace could be trusted. See docs/step-traces.md.</p>"
    tables = "".join(f"<h3>{_text(title)}</h3>{_table(rows, 'numbers')}" for title, rows in slow_step_tables(found))
    return f"{heading}<p>{_text(describe_slow_steps(found))}</p>{tables}"


def _track_record(track: TrackRecord | None) -> str:
    """The five figures, with what is not known of them."""
    if track is None:
        return ""
    rows = [("figure", "value", "95 %", "not known", "what it means"), *track_rows(track)]
    return f"<h2>Track record</h2>{_table(rows, 'numbers track')}<p>What is not known is not counted: docs/reliability.md.</p>"


def _scheduling(account: Account) -> str:
    """From detection to the first new step, for the sizes that the period's jobs had."""
    times = scheduling_times(account.incidents)
    if not times:
        return "<h2>Scheduling time</h2><p>Not known: no recovery replaced a machine in this time.</p>"
    rows: list[tuple[str, ...]] = [("machines replaced", "recoveries", "mean", "longest")]
    for count, seconds in sorted(times.items()):
        rows.append((str(count), str(len(seconds)), format_span(sum(seconds) / len(seconds)), format_span(max(seconds))))
    sizes = sorted({item.machines for item in account.jobs if item.machines})
    lines = []
    for machines in sizes:
        found = weigh(times, machines, DEFAULT_RATE)
        if found.seconds is not None:
            lines.append(
                f"Weighted average of {machines} machines: {format_span(found.seconds)}; for {found.borrowed:.0%} of the weight no such "
                "recovery was seen, and the nearest stands for it."
            )
    notes = "".join(f"<p>{_text(line)}</p>" for line in lines)
    return f"<h2>Scheduling time</h2>{_table(rows, 'numbers')}{notes}"


def _incidents(incidents: Sequence[Incident]) -> str:
    if not incidents:
        return "<h2>Incidents</h2><p>None is recorded.</p>"
    rows = ["<tr><th>incident</th><th>machines</th><th>cause</th><th>done</th><th>evidence</th></tr>"]
    for item in sorted(incidents, key=lambda incident: incident.opened_s, reverse=True):
        shown = [describe_evidence(evidence) for evidence in item.evidence[:_EVIDENCE_SHOWN]]
        if len(item.evidence) > _EVIDENCE_SHOWN:
            shown.append(f"and {len(item.evidence) - _EVIDENCE_SHOWN} more: minder incidents show {item.id}")
        evidence_list = "".join(f"<li>{_text(line)}</li>" for line in shown)
        who = ", ".join(item.machines) or "no machine"
        verdict = item.verdict
        cause = "-" if verdict is None else f"{verdict.cause}, {verdict.tier}, confidence {verdict.confidence:.2f}"
        opened = (item.id, f"{format_time(item.opened_s)[:19]}Z", f"{item.state}, down {format_span(item.timings.downtime_s)}")
        cells = (*(_text(part) for part in (who, cause, _done(item))), f"<ul>{evidence_list}</ul>")
        first = "<br>".join(_text(part) for part in opened)
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in (first, *cells)) + "</tr>")
    return f'<h2>Incidents</h2><div class="wide"><table class="incidents">{"".join(rows)}</table></div>'


def _done(incident: Incident) -> str:
    if incident.decision is None:
        return "nothing was decided"
    action, reason = incident.decision.action, incident.decision.reason
    replaced = f"; in their place {', '.join(incident.replacements)}" if incident.replacements else ""
    return (action if reason == "act" else f"{action} ({reason})") + replaced


def _departures(departures: Sequence[Departure], figure: str) -> str:
    """All departures as a picture, repeat offenders, and evictions that the repair did not confirm."""
    parts = ["<h2>Repeat offenders</h2>", figure]
    offenders = repeat_offenders(departures)
    if offenders:
        rows: list[tuple[str, ...]] = [("machine", "times", "causes", "outcomes", "incidents")]
        for machine, items in offenders:
            outcomes = ", ".join(f"{count} {name}" for name, count in Counter(item.outcome or "unknown" for item in items).items())
            causes = ", ".join(dict.fromkeys(item.cause for item in items))
            rows.append((machine, str(len(items)), causes, outcomes, ", ".join(item.incident for item in items)))
        parts.append(_table(rows))
    else:
        parts.append("<p>No machine left a job more than once in this time.</p>")
    wrong = [item for item in departures if item.outcome == "no-fault-found"]
    examined = sum(item.outcome is not None for item in departures)
    evicted = sum(not item.dry for item in departures)
    parts.append("<h2>False evictions</h2>")
    count = f"{len(wrong)} of {examined} examined had no fault; of {len(departures) - examined} the outcome is unknown."
    parts.append(f"<p>{_number(evicted, 'eviction')}, and {len(departures) - evicted} in a dry run. {count}</p>")
    if wrong:
        found = [(item.machine, item.incident, item.cause, format_time(item.time_s)[:19] + "Z") for item in wrong]
        parts.append(_table([("machine", "incident", "cause", "opened"), *found]))
    if len(departures) > examined:
        parts.append("<p>To record it: minder machine outcome MACHINE confirmed (or no-fault-found).</p>")
    return "".join(parts)


def _standbys(account: Account) -> str:
    """Advice for the sizes that the period's jobs had, or for the usual ones."""
    sizes = sorted({item.machines for item in account.jobs if item.machines}) or [128, 256, 512, 1024]
    usual = given_rate(DEFAULT_RATE)
    parts = ["<h2>Standby pool</h2>"]
    if count_failures(find_departures(account.incidents), account).machine_days > 0:
        counted = rate_from_account(account)
        if counted.rate.has_days:
            parts.append(_table(advice_rows(advise_standbys(sizes, counted.rate), True), "numbers"))
        parts.append("".join(f"<p>{_text(line)}.</p>" for line in advice_notes(counted.rate, 99.0, counted)))
    else:
        parts.append("<p>No run is recorded in this time, so no failure rate can be counted.</p>")
    parts.append(f"<p>With ByteRobust's {DEFAULT_RATE:g} failures per machine and day instead:</p>")
    return "".join(parts) + _table(advice_rows(advise_standbys(sizes, usual), False), "numbers")


def _number(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"


def _table(rows: Sequence[Sequence[str]], kind: str = "") -> str:
    head = "".join(f"<th>{_text(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f'<div class="wide"><table class="{kind}"><tr>{head}</tr>{body}</table></div>'


def _text(value: str) -> str:
    return html.escape(value, quote=True)
