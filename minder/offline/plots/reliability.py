"""What jobs lost, and what they may expect: lost time by cause and phase, ETTR of each hour, and simulated variants.

Shape legend: E edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minder.offline.plots.canvas import grid, new_figure, plain, to_png
from minder.offline.plots.palette import BLUE, DARK, GREEN, LIGHT_BLUE, LINES, ORANGE, PINK, RED, SILVER

__all__ = ["HourLine", "PlanPanel", "draw_hours", "draw_losses", "draw_plan"]

# A hatch of its own for each phase: bars can be read without colours.
_PHASES = {
    "start": (SILVER, ""),
    "detect": (RED, ""),
    "localise": (RED, "xx"),
    "decide": (ORANGE, "//"),
    "restart": (BLUE, ""),
    "load": (LIGHT_BLUE, ".."),
    "recompute": (PINK, "\\\\"),
    "save": (GREEN, ""),
    "shrunk": (GREEN, "xx"),
    "stopped": (DARK, ""),
}
_UNITS = ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_MOST_BARS = 12


@dataclass(frozen=True, slots=True)
class HourLine:
    """One job: ETTR of the hour that ends at each edge. times_E: unix seconds."""

    job: str
    times_E: np.ndarray
    ettr_E: np.ndarray


@dataclass(frozen=True, slots=True)
class PlanPanel:
    """One size of job. bars: (variant, ETTR, lowest, highest of 95 % of the repeats, share lost by phase)."""

    title: str
    bars: tuple[tuple[str, float, float, float, Mapping[str, float]], ...]


def draw_losses(by_cause: Mapping[str, Mapping[str, float]], title: str) -> bytes:
    """PNG: unproductive seconds of each cause, split into phases; the largest on top, what does not fit as "others"."""
    rows = _largest(by_cause)
    longest_s = max((sum(phases.values()) for _, phases in rows), default=1.0)
    unit_s, unit = next(((size, name) for size, name in _UNITS if longest_s >= 2.0 * size), _UNITS[-1])
    figure, axis = new_figure(8.6, 0.45 * max(2, len(rows)) + 1.7)
    _stack(axis, [{phase: seconds / unit_s for phase, seconds in phases.items()} for _, phases in rows])
    for index, (_, phases) in enumerate(rows):
        total = sum(phases.values()) / unit_s
        axis.annotate(f"{total:.3g}", (total, index), xytext=(5, 0), textcoords="offset points", va="center")
    axis.set_yticks(range(len(rows)), [plain(name) for name, _ in rows])
    axis.invert_yaxis()
    axis.set_xlim(0.0, 1.12 * longest_s / unit_s)
    axis.set_xlabel(f"unproductive {unit}")
    axis.set_title(plain(title), loc="left")
    _legend(figure, {phase for _, phases in rows for phase in phases})
    return to_png(figure)


def draw_hours(lines: Sequence[HourLine], title: str) -> bytes:
    """PNG: ETTR of a sliding hour over time, one line per job; of many jobs the six with the worst hours."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    shown = sorted(lines, key=lambda line: float(line.ettr_E.min()))[: len(LINES)]
    figure, axis = new_figure(8.6, 3.4)
    for line, (colour, style) in zip(shown, LINES, strict=False):
        axis.plot(line.times_E.astype("datetime64[s]"), line.ettr_E, color=colour, linestyle=style, linewidth=1.9, label=plain(line.job))
    axis.set_ylim(-0.03, 1.03)
    axis.set_ylabel("ETTR of the hour before")
    axis.set_xlabel("time (UTC)")
    locator = AutoDateLocator(maxticks=8)
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    grid(axis)
    axis.set_title(plain(title), loc="left")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return to_png(figure)


def draw_plan(panels: Sequence[PlanPanel], title: str) -> bytes:
    """PNG: what each variant loses, as shares of the time by phase, with its ETTR at the end; one panel per size."""
    bars = max(len(panel.bars) for panel in panels)
    figure, axes = new_figure(9.4, len(panels) * (0.42 * bars + 1.0) + 1.3, len(panels))
    for axis, panel in zip(np.atleast_1d(axes), panels, strict=True):
        _stack(axis, [{phase: 100.0 * share for phase, share in lost.items()} for *_, lost in panel.bars])
        widest = max(100.0 * (1.0 - low) for _, _, low, _, _ in panel.bars)
        for index, (_, ettr, low, high, _) in enumerate(panel.bars):
            axis.plot([100.0 * (1.0 - high), 100.0 * (1.0 - low)], [index, index], color="black", linewidth=1.4)
            end = 100.0 * (1.0 - low)
            axis.annotate(f"ETTR {ettr:.3f}", (end, index), xytext=(6, 0), textcoords="offset points", va="center")
        axis.set_yticks(range(len(panel.bars)), [plain(name) for name, *_ in panel.bars])
        axis.invert_yaxis()
        axis.set_xlim(0.0, 1.17 * widest)
        axis.set_title(plain(panel.title), loc="left", fontsize=11)
        axis.set_xlabel("share of the time lost, % (black: where 95 % of the repeats end)")
    figure.suptitle(plain(title), fontsize=12, fontweight="bold")
    _legend(figure, {phase for panel in panels for *_, lost in panel.bars for phase, share in lost.items() if share})
    return to_png(figure)


def _largest(by_cause: Mapping[str, Mapping[str, float]]) -> list[tuple[str, Mapping[str, float]]]:
    ordered = sorted(by_cause.items(), key=lambda pair: -sum(pair[1].values()))
    if len(ordered) <= _MOST_BARS:
        return ordered
    rest: dict[str, float] = {}
    for _, phases in ordered[_MOST_BARS - 1 :]:
        for phase, seconds in phases.items():
            rest[phase] = rest.get(phase, 0.0) + seconds
    return [*ordered[: _MOST_BARS - 1], ("others", rest)]


def _stack(axis: Any, rows: Sequence[Mapping[str, float]]) -> None:
    left = np.zeros(len(rows))
    for phase, (colour, hatch) in _PHASES.items():
        widths = np.array([row.get(phase, 0.0) for row in rows])
        if widths.any():
            axis.barh(range(len(rows)), widths, left=left, height=0.68, color=colour, hatch=hatch, edgecolor="white", linewidth=0.5)
            left += widths
    grid(axis, "x")


def _legend(figure: Any, phases: set[str]) -> None:
    from matplotlib.patches import Patch

    shown = [(phase, *look) for phase, look in _PHASES.items() if phase in phases]
    marks = [Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=phase) for phase, colour, hatch in shown]
    figure.legend(handles=marks, loc="outside lower center", ncols=max(1, len(marks)), frameon=False, handlelength=1.4, columnspacing=1.2)
