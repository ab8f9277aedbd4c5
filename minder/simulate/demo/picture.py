"""incident.png of a demo: its recording and its incident become what `minder.offline.plots` draws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from minder.ingest.sources.recording import read_recording
from minder.ingest.windows import align_recording
from minder.model.errors import LabError
from minder.model.telemetry import Window
from minder.offline.plots.incident import IncidentPicture, draw_incident
from minder.offline.plots.panels import choose_metrics
from minder.record.incidents import Incident
from minder.simulate.demo.milestones import Milestone

__all__ = ["draw_picture"]

_BEFORE_S, _AFTER_S = 15.0, 12.0


def draw_picture(recording: Path, path: Path, title: str, incidents: Sequence[Incident], milestones: Sequence[Milestone]) -> None:
    """Write the PNG. Raises RecordingError for an unreadable recording, LabError for one without telemetry."""
    recorded = read_recording(recording)
    window = align_recording(recorded, machines=(*recorded.job.machines, *recorded.job.standbys))
    if not len(window.times_T):
        raise LabError(f"{recording} holds no telemetry: there is nothing to draw")
    accused = tuple(dict.fromkeys(name for incident in incidents for name in incident.machines))
    evicted = tuple(dict.fromkeys(name for incident in incidents for name in incident.evicted))
    suspects = evicted or accused
    replacements = tuple(dict.fromkeys(name for incident in incidents for name in incident.replacements))
    span_s = _span_s(window, milestones)
    since_s, until_s = (milestones[0].time_s, milestones[-1].time_s) if milestones else span_s
    prefix = f"{recorded.job.name}-"
    picture = IncidentPicture(
        title=title,
        window=_renamed(window, prefix),
        metrics=choose_metrics(window, suspects, _named(incidents[:1]), since_s, until_s),
        span_s=span_s,
        suspects=_short(suspects, prefix),
        replacements=_short(replacements, prefix),
        others=_short([name for name in accused if name not in suspects], prefix),
        peers=_short([name for name in recorded.job.machines if name not in accused], prefix),
        moments=tuple((item.label, item.time_s) for item in milestones),
    )
    draw_incident(picture, path)


def _span_s(window: Window, milestones: Sequence[Milestone]) -> tuple[float, float]:
    """Around the incident; the whole run where there is none."""
    begin_s, end_s = float(window.times_T[0]), float(window.times_T[-1])
    if not milestones:
        return begin_s, max(end_s, begin_s + 1.0)
    first_s, last_s = milestones[0].time_s, milestones[-1].time_s
    return max(begin_s, first_s - _BEFORE_S), max(min(end_s, last_s + _AFTER_S), last_s + 2.0)


def _named(incidents: Sequence[Incident]) -> list[str]:
    return list(dict.fromkeys(item.metric for incident in incidents for item in incident.evidence if item.metric))


def _short(machines: Sequence[str], prefix: str) -> tuple[str, ...]:
    return tuple(name.removeprefix(prefix) for name in machines)


def _renamed(window: Window, prefix: str) -> Window:
    return Window(window.times_T, _short(window.machines, prefix), window.metrics, window.values_TMK, window.present_TM)
