"""Which figures an evaluation gets: three of the whole, and one for each of the first confusions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from minder.ingest.windows import keep_machines
from minder.model.clock import parse_time
from minder.model.errors import RecordingError
from minder.model.telemetry import Window
from minder.offline.evaluation.report import confusion_line
from minder.offline.plots.evaluation import ConfusionPicture, draw_confusion, draw_delays, draw_kinds, draw_reliability
from minder.offline.plots.panels import departure

__all__ = ["CONFUSIONS_SHOWN", "confusion_pictures", "summary_pictures"]

CONFUSIONS_SHOWN = 12
_BEFORE_S, _AFTER_S = 180.0, 480.0
_PANELS = 3
_MACHINES = 64  # more lines than that are a grey wall


def summary_pictures(report: dict[str, Any]) -> dict[str, bytes]:
    """Name to PNG: delay, kinds, sizes, reliability."""
    faults = sum(case["fault"] is not None for case in report["cases"])
    reliability = report["reliability"]
    return {
        "delay": draw_delays(report["delay_s"]["all"], faults, report["limit_s"]),
        "kinds": draw_kinds(report["by_kind"], "By kind of fault"),
        "sizes": draw_kinds(report["by_size"], "By machines in the job"),
        "reliability": draw_reliability(reliability["bins"], reliability["error"]),
    }


def confusion_pictures(report: dict[str, Any]) -> dict[str, bytes]:
    """Recording to PNG, for the first wrong or missed recordings; those without telemetry have none."""
    found = {}
    for item in report["confusions"][:CONFUSIONS_SHOWN]:
        picture = _confusion(item)
        if picture is not None:
            found[item["recording"]] = draw_confusion(picture)
    return found


def _confusion(item: dict[str, Any]) -> ConfusionPicture | None:
    from minder.ingest.sources.recording import read_recording
    from minder.ingest.windows import align_columns

    try:
        recording = read_recording(Path(item["path"]))
    except RecordingError:  # it was there when it was evaluated
        return None
    if not len(recording.frames.times_N):
        return None
    named = tuple(dict.fromkeys(name for each in item["accusations"] for name in each["machines"]))
    moments = [parse_time(item["onset"])] if item["onset"] else [each["time_s"] for each in item["accusations"][:1]]
    zero_s = moments[0]
    until_s = max([zero_s + _AFTER_S] + [each["time_s"] + 60.0 for each in item["accusations"][:1]])
    from_s = min([zero_s - _BEFORE_S] + [each["time_s"] - 60.0 for each in item["accusations"][:1]])
    window = align_columns(recording.frames, recording.interval_s)
    marked = (*item["culprits"], *named)
    peers = [name for name in window.machines if name not in marked][:_MACHINES]
    window = keep_machines(window, [*marked, *peers])
    return ConfusionPicture(
        title=confusion_line(item)[:110],
        window=window,
        metrics=_panels(window, tuple(marked), zero_s, until_s),
        zero_s=zero_s,
        zero_name="the onset" if item["onset"] else "the accusation",
        span_s=(max(from_s, float(window.times_T[0])), min(until_s, float(window.times_T[-1]))),
        culprits=tuple(item["culprits"]),
        named=named,
        accusations=tuple((each["time_s"], ", ".join(each["machines"])) for each in item["accusations"]),
    )


def _panels(window: Window, marked: tuple[str, ...], since_s: float, until_s: float) -> tuple[str, ...]:
    """The metrics in which the marked machines depart the most from their peers after the onset."""
    return tuple(sorted(window.metrics, key=lambda name: -departure(window, name, marked, since_s, until_s))[:_PANELS])
