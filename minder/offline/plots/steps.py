"""Where the time of a job's steps went: by operation, by step, and what each repair would give back.

Shape legend: T steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from minder.offline.plots.canvas import grid, new_figure, plain, to_png
from minder.offline.plots.palette import BLUE, DARK, GREEN, GREY, ORANGE, RED

__all__ = ["draw_repairs", "draw_slowdowns", "draw_steps"]


def draw_steps(steps: Sequence[int], recorded_T: np.ndarray, simulated_T: np.ndarray, ideal_s: float, title: str) -> bytes:
    """PNG: each traced step as it was recorded, as the replay of its operations takes it, and as the ideal job would. Seconds."""
    figure, axis = new_figure(9.4, 3.6)
    axis.plot(range(len(steps)), recorded_T, color=BLUE, marker="o", markersize=5, linewidth=1.8, label="recorded")
    axis.plot(range(len(steps)), simulated_T, color=ORANGE, linestyle="--", linewidth=1.8, label="replayed from its operations")
    axis.axhline(ideal_s, color=GREEN, linestyle="-.", linewidth=1.8, label="ideal: every operation takes what its peers need")
    every = max(1, len(steps) // 12)
    axis.set_xticks(range(0, len(steps), every), [str(step) for step in steps[::every]])
    axis.set_ylim(0.0, 1.12 * float(max(recorded_T.max(), simulated_T.max(), ideal_s)))
    axis.set_xlabel("step")
    axis.set_ylabel("seconds")
    axis.set_title(plain(title), loc="left", fontweight="bold")
    grid(axis)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return to_png(figure)


def draw_slowdowns(by_kind: Mapping[str, float], whole: float, title: str) -> bytes:
    """PNG: how slow the step is if only one kind of operation keeps its real times and all others are ideal; 1 is ideal."""
    names = sorted(by_kind, key=lambda name: -by_kind[name])
    figure, axis = new_figure(9.4, 0.4 * len(names) + 1.6)
    lost = [round(100.0 * (by_kind[name] - 1.0), 1) + 0.0 for name in names]  # + 0.0: no "-0.0 %"
    axis.barh(range(len(names)), lost, height=0.62, color=[RED if value == max(lost) else BLUE for value in lost])
    for row, value in enumerate(lost):
        axis.annotate(f"{value:+.1f} %", (max(value, 0.0), row), xytext=(5, 0), textcoords="offset points", va="center", fontsize=10)
    axis.axvline(100.0 * (whole - 1.0), color=DARK, linestyle=(0, (4, 2)), linewidth=1.4, label="all as it was")
    axis.set_yticks(range(len(names)), [plain(name) for name in names])
    axis.invert_yaxis()
    axis.set_xlim(min(0.0, *lost), 1.15 * max(100.0 * (whole - 1.0), *lost))
    axis.set_xlabel("how much longer than the ideal step, %, if only this is as it was")
    axis.set_title(plain(title), loc="left", fontweight="bold")
    grid(axis, "x")
    figure.legend(loc="outside lower center", frameon=False)
    return to_png(figure)


def draw_repairs(shares: Mapping[str, float], title: str) -> bytes:
    """PNG: which part of the slowdown goes if one cause is repaired, 0 to 1."""
    names = sorted(shares, key=lambda name: -shares[name])
    figure, axis = new_figure(9.4, 0.5 * len(names) + 1.3)
    values = [round(100.0 * shares[name], 1) + 0.0 for name in names]  # + 0.0: no "-0.0 %"
    axis.barh(range(len(names)), values, height=0.6, color=[GREEN if value == max(values) else GREY for value in values])
    for row, value in enumerate(values):
        axis.annotate(f"{value:.1f} %", (max(value, 0.0), row), xytext=(5, 0), textcoords="offset points", va="center")
    axis.set_yticks(range(len(names)), [plain(name) for name in names])
    axis.invert_yaxis()
    axis.set_xlim(min(0.0, *values), max(110.0, 1.1 * max(values)))
    axis.set_xlabel("part of the slowdown that goes if this is repaired, %")
    axis.set_title(plain(title), loc="left", fontweight="bold")
    grid(axis, "x")
    return to_png(figure)
