"""What a job's machines measure: every machine a line among its peers, where data is missing, and how noise compares with differences.

Shape legend: T grid rows (time), M machines, K metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minder.model.telemetry import Window
from minder.offline.plots.canvas import grid, new_figure, plain, to_png, unit_of
from minder.offline.plots.palette import BLUE, DARK, LINES, MAP, RED

__all__ = ["draw_gaps", "draw_noise", "draw_telemetry"]

_PRESENT = ("noise", "apart")
_LOOKS = {"noise": (BLUE, "o", "over time, of one machine"), "apart": (RED, "D", "between machines, standing")}


def draw_telemetry(
    window: Window, metrics: Sequence[str], groups: Mapping[str, str], title: str, marks: Mapping[str, float] | None = None
) -> bytes:
    """PNG: one panel per metric, one line per machine, its colour and style those of its group. marks: what happened, unix seconds."""
    figure, axes = new_figure(9.4, 1.7 * len(metrics) + 1.5, len(metrics), share_x=True)
    zero_s = float(window.times_T[0])
    looks = dict(zip(dict.fromkeys(groups[machine] for machine in window.machines), LINES, strict=False))
    for axis, metric in zip(np.atleast_1d(axes), metrics, strict=True):
        values_TM = window.values_TMK[:, :, window.metrics.index(metric)]
        for column, machine in enumerate(window.machines):
            colour, style = looks.get(groups[machine], LINES[-1])
            axis.plot((window.times_T - zero_s) / 60.0, values_TM[:, column], color=colour, linestyle=style, linewidth=0.9, alpha=0.8)
        _mark(axis, marks or {}, zero_s)
        axis.set_title(plain(metric), loc="left", fontsize=11, pad=3)
        unit_of(axis, metric)
        grid(axis)
    np.atleast_1d(axes)[-1].set_xlabel("minutes since the recording's begin")
    figure.suptitle(plain(title), fontsize=12.5, fontweight="bold")
    _legend(figure, looks, tuple(marks or {}))
    return to_png(figure)


def draw_gaps(window: Window, title: str) -> bytes:
    """PNG: machine by time, how many of the metrics have a value: dark columns are pauses of the monitoring, dark rows dead exporters."""
    share_MT = np.isfinite(window.values_TMK).mean(axis=2).T
    figure, axis = new_figure(9.4, max(2.6, 0.24 * len(window.machines) + 1.5))
    minutes = float(window.times_T[-1] - window.times_T[0]) / 60.0
    image = axis.imshow(
        100.0 * share_MT,
        aspect="auto",
        cmap=MAP,
        vmin=0.0,
        vmax=100.0,
        interpolation="nearest",
        extent=(0.0, minutes, len(window.machines) - 0.5, -0.5),
    )
    axis.set_yticks(range(len(window.machines)), [plain(name) for name in window.machines], fontsize=9)
    axis.set_xlabel("minutes since the recording's begin")
    axis.set_title(plain(title), loc="left", fontweight="bold")
    figure.colorbar(image, ax=axis, label="metrics with a value, %")
    return to_png(figure)


def draw_noise(described: Mapping[str, Mapping[str, float]], title: str) -> bytes:
    """PNG: of each metric how much one machine moves over time, and how far machines stand apart all the while (realism.describe)."""
    names = sorted(described, key=lambda name: -np.nan_to_num(described[name]["noise"]))
    figure, axis = new_figure(9.4, 0.36 * max(3, len(names)) + 1.6)
    for kind in _PRESENT:
        colour, sign, label = _LOOKS[kind]
        percent = [max(100.0 * described[name][kind], 0.01) for name in names]
        axis.scatter(percent, range(len(names)), s=60, color=colour, marker=sign, label=label, zorder=3)
    for row, name in enumerate(names):
        alike = described[name]["alike"]
        shown = "-" if not np.isfinite(alike) else f"{alike:.2f}"
        axis.annotate(shown, (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=10, color=DARK)
    axis.annotate("peers'\ncorrelation", (1.01, 1.01), xycoords="axes fraction", va="bottom", fontsize=9.5, color=DARK)
    axis.set_yticks(range(len(names)), [plain(name) for name in names])
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xlabel("standard deviation, % of the level (log)")
    axis.set_title(plain(title), loc="left", fontweight="bold")
    axis.xaxis.set_major_formatter(_percent())
    grid(axis, "both")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return to_png(figure)


def _percent() -> Any:
    from matplotlib.ticker import FormatStrFormatter

    return FormatStrFormatter("%g")


def _mark(axis: Any, marks: Mapping[str, float], zero_s: float) -> None:
    for number, time_s in enumerate(marks.values()):
        axis.axvline((time_s - zero_s) / 60.0, color="black", linewidth=1.4, linestyle=((0, (4, 2)), "-", ":")[number % 3])


def _legend(figure: Any, looks: Mapping[str, Any], marks: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    shown = [Line2D([], [], color=colour, linestyle=style, linewidth=1.8, label=plain(name)) for name, (colour, style) in looks.items()]
    styles = ((0, (4, 2)), "-", ":")
    shown += [Line2D([], [], color="black", linewidth=1.4, linestyle=styles[n % 3], label=plain(name)) for n, name in enumerate(marks)]
    figure.legend(handles=shown, loc="outside lower center", ncols=4, frameon=False)
