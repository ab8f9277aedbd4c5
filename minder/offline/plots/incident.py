"""The picture of one incident: the suspect among its peers, above the timeline of what minder did.

Shape legend: T grid rows (time), M machines.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minder.model.metrics import find_metric
from minder.model.telemetry import Window
from minder.offline.plots.palette import BLUE, DARK, DIM, GREEN, GREY, PALE, PINK, RED

__all__ = ["IncidentPicture", "draw_incident"]

# Okabe and Ito's palette: distinguished by colour-blind readers, and in grey print by their brightness.
_SUSPECT, _REPLACEMENT, _PEERS, _DONE, _OTHER = RED, BLUE, GREY, GREEN, PINK
_TITLES = {
    "steps_total": "Training steps done",
    "step_seconds": "Time of a training step",
    "job_cpu_ratio": "Processor time of the training process",
    "job_busy_ratio": "Training process not sleeping",
    "job_run_delay_ratio": "Training process waiting for a processor",
    "job_alive_age_seconds": "Since the training process last ran",
    "job_processes": "Training processes",
    "job_memory_bytes": "Memory of the training process",
    "tcp_receive_queue_bytes": "Data received and not read by the training process",
    "tcp_send_queue_bytes": "Data sent and not taken by the peer",
    "tcp_throughput_bytes_per_second": "Network traffic",
    "tcp_round_trip_seconds": "Round trip of the job's connections",
    "tcp_retransmits_per_second": "Retransmitted segments",
    "cpu_throttled_ratio": "Processor time refused by a quota",
    "processes_stopped": "Stopped processes",
}
_UNITS = {"job_cpu_ratio": "cores", "steps_total": "steps", "job_processes": "processes", "job_run_delay_ratio": "s per s"}
_PREFIXED = ("B", "B/s", "s", "W", "Hz")
_CARD = {"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none"}  # a text stays legible over a line
_WORDS = {"ratio": "share", "1": "count", "1/s": "per second"}


@dataclass(frozen=True, slots=True)
class IncidentPicture:
    """What to draw. metrics: one panel each, top to bottom. moments: (what ended then, unix seconds), oldest first; the first is zero.

    span_s: the time axis, unix seconds. Without moments zero is the axis' begin.
    """

    title: str
    window: Window
    metrics: tuple[str, ...]
    span_s: tuple[float, float]
    suspects: tuple[str, ...] = ()
    replacements: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # accused too, by another verdict
    peers: tuple[str, ...] = ()
    moments: tuple[tuple[str, float], ...] = ()

    @property
    def zero_s(self) -> float:
        return self.moments[0][1] if self.moments else self.span_s[0]


def draw_incident(picture: IncidentPicture, path: Path) -> None:
    """Write a PNG. Works without a screen."""
    import matplotlib

    with matplotlib.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure = _figure(picture)
        figure.savefig(path, dpi=150, facecolor="white")


def _figure(picture: IncidentPicture) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    bars = max(0, len(picture.moments) - 1)
    heights = [1.5] * len(picture.metrics) + ([0.34 * bars + 0.2] if bars else [])
    figure = Figure(figsize=(10.0, sum(heights) * 1.12 + 1.7), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    for axis, metric in zip(axes, picture.metrics, strict=False):
        _panel(axis, picture, metric)
    if bars:
        _timeline(axes[-1], picture)
    begin_s, end_s = (time_s - picture.zero_s for time_s in picture.span_s)
    axes[-1].set_xlim(begin_s, end_s)
    axes[-1].set_xlabel(f"seconds since {picture.moments[0][0] if picture.moments else 'the beginning'}")
    figure.suptitle(picture.title, fontsize=14, fontweight="bold")
    _legend(figure, picture)
    return figure


def _panel(axis: Any, picture: IncidentPicture, metric: str) -> None:
    window = picture.window
    values_TM = window.values_TMK[:, :, window.metrics.index(metric)]
    times_T = window.times_T - picture.zero_s
    shown_T = (window.times_T >= picture.span_s[0]) & (window.times_T <= picture.span_s[1])
    times_T, values_TM = times_T[shown_T], values_TM[shown_T]
    peers_TM = values_TM[:, _columns(window, picture.peers)]
    if peers_TM.shape[1]:
        low_T, middle_T, high_T = _band(peers_TM)
        axis.fill_between(times_T, low_T, high_T, color=_PEERS, alpha=0.35, linewidth=0)
        axis.plot(times_T, middle_T, color=DIM, linewidth=1.4)
    drawn = ((picture.others, _OTHER, (0, (1, 1))), (picture.replacements, _REPLACEMENT, (0, (5, 2))), (picture.suspects, _SUSPECT, "-"))
    for names, colour, style in drawn:
        for column in _columns(window, names):
            axis.plot(times_T, values_TM[:, column], color=colour, linewidth=2.6, linestyle=style, marker=".", markersize=5)
    _moment_lines(axis, picture)
    axis.set_title(_TITLES.get(metric, metric.replace("_", " ")), loc="left", fontsize=11, pad=3)
    axis.set_title(metric, loc="right", fontsize=9, color=DIM, pad=3)
    _scale(axis, metric, values_TM)


def _columns(window: Window, machines: Sequence[str]) -> list[int]:
    return [window.machines.index(machine) for machine in machines if machine in window.machines]


def _band(values_TM: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lowest, median and highest machine of each row; NaN where no machine has data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmin(values_TM, axis=1), np.nanmedian(values_TM, axis=1), np.nanmax(values_TM, axis=1)


def _scale(axis: Any, metric: str, values_TM: np.ndarray) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator

    entry = find_metric(metric)
    unit = _UNITS.get(metric) or (entry.unit if entry else "")
    if unit in _PREFIXED:
        axis.yaxis.set_major_formatter(EngFormatter(unit=unit, sep=" "))
    else:
        axis.set_ylabel(_WORDS.get(unit, unit))
    axis.yaxis.set_major_locator(MaxNLocator(4, integer=unit in ("steps", "processes", "count")))
    axis.grid(axis="y", color=PALE, linewidth=0.8)
    axis.set_axisbelow(True)
    high = np.nanmax(values_TM) if np.isfinite(values_TM).any() else 0.0
    if not (entry and entry.counter):  # a total says nothing by its height
        axis.set_ylim(bottom=0.0, top=None if high > 0 else 1.0)


def _moment_lines(axis: Any, picture: IncidentPicture) -> None:
    for index, (_, time_s) in enumerate(picture.moments):
        if index == 0:
            axis.axvline(0.0, color="black", linewidth=1.6, linestyle=(0, (4, 2)))
        elif index == len(picture.moments) - 1:
            axis.axvline(time_s - picture.zero_s, color=_DONE, linewidth=1.8)


def _timeline(axis: Any, picture: IncidentPicture) -> None:
    """One bar per stretch, from the moment before; its name and when it ended beside it."""
    span_s = picture.span_s[1] - picture.span_s[0]
    before_s = 0.0
    rows = picture.moments[1:]
    for row, (what, time_s) in enumerate(rows):
        end_s = time_s - picture.zero_s
        colour = _DONE if row == len(rows) - 1 else DARK
        axis.barh(row, max(end_s - before_s, 0.004 * span_s), left=before_s, height=0.62, color=colour)
        axis.annotate(
            f"{what} {end_s:.1f} s", (max(end_s, before_s), row), xytext=(8, 0), textcoords="offset points", va="center", bbox=_CARD
        )
        before_s = max(end_s, before_s)
    _moment_lines(axis, picture)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)


def _legend(figure: Any, picture: IncidentPicture) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks: list[Any] = []
    if picture.suspects:
        marks.append(Line2D([], [], color=_SUSPECT, linewidth=2.6, marker=".", label=f"{', '.join(picture.suspects)} (suspect)"))
    if picture.replacements:
        label = f"{', '.join(picture.replacements)} (takes its place)"
        marks.append(Line2D([], [], color=_REPLACEMENT, linewidth=2.6, linestyle=(0, (5, 2)), marker=".", label=label))
    if picture.others:
        label = f"{', '.join(picture.others)} (accused too)"
        marks.append(Line2D([], [], color=_OTHER, linewidth=2.6, linestyle=(0, (1, 1)), marker=".", label=label))
    if picture.peers:
        name = f"{len(picture.peers)} peers" if picture.suspects else f"{len(picture.peers)} machines"
        marks.append(Patch(color=_PEERS, alpha=0.5, label=f"{name}: lowest to highest, median"))
    if picture.moments:
        marks.append(Line2D([], [], color="black", linewidth=1.6, linestyle=(0, (4, 2)), label=picture.moments[0][0]))
    if len(picture.moments) > 1:
        marks.append(Line2D([], [], color=_DONE, linewidth=1.8, label=picture.moments[-1][0]))
    figure.legend(handles=marks, loc="outside lower center", ncols=3, frameon=False, fontsize=11)
