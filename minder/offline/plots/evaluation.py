"""The figures of an evaluation: delays, faults found by kind, reliability of confidence, and one picture for each confusion.

Shape legend: T grid rows (time), M machines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minder.model.telemetry import Window
from minder.offline.plots.canvas import new_figure, to_png, unit_of
from minder.offline.plots.palette import BLUE, DARK, GREEN, GREY, ORANGE, PALE, RED, SILVER, STYLE

__all__ = ["ConfusionPicture", "draw_confusion", "draw_delays", "draw_kinds", "draw_reliability"]

# As in incident.py: the same colour means the same thing in every picture.
_FOUND, _WRONG, _MISSED, _PEERS, _DARK = GREEN, RED, ORANGE, GREY, DARK
_CULPRIT, _NAMED = RED, BLUE
_STYLE = {**STYLE, "font.size": 10}


@dataclass(frozen=True, slots=True)
class ConfusionPicture:
    """A wrong or missed recording. zero_s: the onset (or, of a healthy one, the first accusation); span_s: unix seconds."""

    title: str
    window: Window
    metrics: tuple[str, ...]
    zero_s: float
    zero_name: str
    span_s: tuple[float, float]
    culprits: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    accusations: tuple[tuple[float, str], ...] = ()  # (unix seconds, who)


def draw_delays(delays_s: Sequence[float], faults: int, limit_s: float) -> bytes:
    """PNG: share of all faults that were found within a time; the line ends at the recall."""
    figure, axis = new_figure(6.4, 3.6, share_x=True, style=_STYLE)
    ordered = sorted(delays_s)
    shares = [(index + 1) / faults for index in range(len(ordered))] if faults else []
    axis.step([0.5, *ordered, limit_s], [0.0, *shares, shares[-1] if shares else 0.0], where="post", color=_FOUND, linewidth=2.2)
    if ordered:
        middle_s = float(np.median(ordered))
        axis.axvline(middle_s, color=_DARK, linewidth=1.0, linestyle=(0, (4, 2)))
        axis.annotate(f"median of the found: {middle_s:.0f} s", (middle_s, 0.03), xytext=(5, 0), textcoords="offset points")
    axis.set_xscale("log")
    ticks = [tick for tick in (1, 2, 5, 10, 20, 60, 120, 420) if tick <= limit_s]
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()
    axis.set_xlim(0.5 if ordered and ordered[0] < 1.0 else 1.0, limit_s)
    axis.set_ylim(0.0, 1.02)
    axis.set_xlabel("seconds after the onset")
    axis.set_ylabel("share of all faults found")
    axis.set_title(f"How soon faults are found ({len(ordered)} of {faults})", loc="left")
    axis.grid(color=PALE, linewidth=0.8)
    return to_png(figure, 110, _STYLE)


def draw_kinds(rows: Sequence[Mapping[str, Any]], title: str) -> bytes:
    """PNG: found, wrong and missed of each group as stacked bars, with the median delay at the end."""
    figure, axis = new_figure(7.2, 0.34 * max(2, len(rows)) + 1.5, share_x=True, style=_STYLE)
    left = np.zeros(len(rows))
    for name, colour, hatch in (("quiet", SILVER, ""), ("found", _FOUND, ""), ("missed", _MISSED, ".."), ("wrong", _WRONG, "//")):
        counts = np.array([row[name] for row in rows], dtype=float)
        if counts.any():
            label = {"quiet": "healthy and quiet", "wrong": "wrong name"}.get(name, name)
            axis.barh(range(len(rows)), counts, left=left, color=colour, hatch=hatch, edgecolor="white", linewidth=0.6, label=label)
        left += counts
    for index, row in enumerate(rows):
        if row["median_delay_s"] is not None:
            axis.annotate(f"{row['median_delay_s']:.0f} s", (left[index], index), xytext=(4, 0), textcoords="offset points", va="center")
    axis.set_yticks(range(len(rows)), [str(row["group"]).replace("_", " ") for row in rows])
    axis.invert_yaxis()
    axis.set_xlim(0.0, 1.1 * max(left, default=1.0))
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel("recordings (at the end: median delay of the found)")
    axis.set_title(title, loc="left")
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return to_png(figure, 110, _STYLE)


def draw_reliability(bins: Sequence[Mapping[str, Any]], error: float | None) -> bytes:
    """PNG: how often verdicts of a confidence were right, with Wilson's interval; on the diagonal, confidence means what it says."""
    figure, axis = new_figure(5.0, 4.2, share_x=True, style=_STYLE)
    low = max(0.0, min([item["low"] for item in bins] + [item["right"]["low"] for item in bins], default=0.0) - 0.05)
    axis.plot([0, 1], [0, 1], color=_PEERS, linewidth=1.2, linestyle=(0, (4, 2)))
    for item in bins:
        right = item["right"]
        axis.plot([item["confidence"]] * 2, [right["low"], right["high"]], color=_NAMED, linewidth=1.6, alpha=0.6)
        axis.plot(item["confidence"], right["value"], "o", color=_NAMED, markersize=5.0 + 2.0 * math.log10(max(1, item["count"])))
        axis.annotate(
            str(item["count"]), (item["confidence"], right["value"]), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=8
        )
    axis.set_xlim(low, 1.02)
    axis.set_ylim(low, 1.08)
    axis.set_xlabel("confidence of the first accusation")
    axis.set_ylabel("share that was right")
    axis.set_title("Does confidence mean what it says?" + ("" if error is None else f"\ncalibration error {error:.3f}"), loc="left")
    axis.grid(color=PALE, linewidth=0.8)
    return to_png(figure, 110, _STYLE)


def draw_confusion(picture: ConfusionPicture) -> bytes:
    """PNG: the culprit and who was named, among their peers, with the onset and the accusations."""
    figure, axes = new_figure(8.6, 1.55 * len(picture.metrics) + 1.3, len(picture.metrics), share_x=True, style=_STYLE)
    for axis, metric in zip(np.atleast_1d(axes), picture.metrics, strict=True):
        _confusion_panel(axis, picture, metric)
    last = np.atleast_1d(axes)[-1]
    last.set_xlim(*(time_s - picture.zero_s for time_s in picture.span_s))
    last.set_xlabel(f"seconds since {picture.zero_name}")
    figure.suptitle(picture.title, fontsize=11, fontweight="bold")
    _confusion_legend(figure, picture)
    return to_png(figure, 110, _STYLE)


def _confusion_panel(axis: Any, picture: ConfusionPicture, metric: str) -> None:
    window = picture.window
    shown_T = (window.times_T >= picture.span_s[0]) & (window.times_T <= picture.span_s[1])
    times_T = window.times_T[shown_T] - picture.zero_s
    values_TM = window.values_TMK[shown_T][:, :, window.metrics.index(metric)]
    marked = (*picture.culprits, *picture.named)
    for column, machine in enumerate(window.machines):
        if machine not in marked:
            axis.plot(times_T, values_TM[:, column], color=_PEERS, linewidth=0.6, alpha=0.35)
    named = tuple(name for name in picture.named if name not in picture.culprits)
    for names, colour, style in ((named, _NAMED, (0, (5, 2))), (picture.culprits, _CULPRIT, "-")):
        for machine in names:
            if machine in window.machines:
                axis.plot(times_T, values_TM[:, window.machines.index(machine)], color=colour, linewidth=1.9, linestyle=style)
    axis.axvline(0.0, color="black", linewidth=1.3, linestyle=(0, (4, 2)))
    for time_s, _ in picture.accusations:
        axis.axvline(time_s - picture.zero_s, color=_NAMED, linewidth=1.3)
    axis.set_title(metric, fontsize=9, pad=2, loc="left")
    unit_of(axis, metric, 3)
    axis.grid(axis="y", color=PALE, linewidth=0.8)


def _confusion_legend(figure: Any, picture: ConfusionPicture) -> None:
    from matplotlib.lines import Line2D

    marks = [Line2D([], [], color=_PEERS, linewidth=1.0, label="peers")]
    if picture.culprits:
        marks.append(Line2D([], [], color=_CULPRIT, linewidth=1.9, label=f"{', '.join(picture.culprits[:3])} (at fault)"))
    named = [name for name in picture.named if name not in picture.culprits]
    if named:
        marks.append(Line2D([], [], color=_NAMED, linewidth=1.9, linestyle=(0, (5, 2)), label=f"{', '.join(named[:3])} (named)"))
    marks.append(Line2D([], [], color="black", linewidth=1.3, linestyle=(0, (4, 2)), label=picture.zero_name))
    if picture.accusations:
        marks.append(Line2D([], [], color=_NAMED, linewidth=1.3, label="accusation"))
    figure.legend(handles=marks, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
