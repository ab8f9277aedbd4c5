"""One incident as the detector saw it: scores against their threshold, and what other thresholds would have done.

Shape legend: T grid rows (time), M machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minder.offline.plots.canvas import grid, new_figure, plain, to_png
from minder.offline.plots.palette import BLUE, DARK, GREEN, GREY, ORANGE, PALE, RED

__all__ = ["Outcome", "draw_scores", "draw_sweep"]

_LOOKS = {
    "found": (GREEN, "o", "the right machine"),
    "wrong": (RED, "X", "another machine, or too soon"),
    "missed": (ORANGE, "s", "no machine"),
    "quiet": (GREY, "D", "no machine, rightly"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One recording under one setting. outcome: found, wrong, missed or quiet; delay_s: None where no machine was named after an onset."""

    recording: str
    setting: float
    outcome: str
    delay_s: float | None


def draw_scores(
    times_T: np.ndarray, share_TM: np.ndarray, machines: Sequence[str], marked: Sequence[str], marks: Mapping[str, float]
) -> bytes:
    """PNG: each machine's score as a share of the threshold. marked: machines with colours of their own; marks: what happened, unix
    seconds, the first of which is zero."""
    figure, axis = new_figure(9.4, 3.9)
    zero_s = next(iter(marks.values()), float(times_T[0]))
    for column, machine in enumerate(machines):
        if machine not in marked:
            axis.plot(times_T - zero_s, share_TM[:, column], color=GREY, linewidth=0.8, alpha=0.6)
    for number, machine in enumerate(marked):
        colour, style = ((RED, "-"), (BLUE, "--"))[min(number, 1)]
        axis.plot(times_T - zero_s, share_TM[:, list(machines).index(machine)], color=colour, linestyle=style, linewidth=2.4)
    axis.axhline(1.0, color=DARK, linewidth=1.4)
    axis.annotate("the threshold: evidence enough to accuse", (0.01, 1.02), xycoords=("axes fraction", "data"), fontsize=10, color=DARK)
    for number, time_s in enumerate(marks.values()):
        axis.axvline(time_s - zero_s, color="black", linewidth=1.4, linestyle=((0, (4, 2)), "-")[min(number, 1)])
    axis.set_xlabel(f"seconds since {next(iter(marks), 'the begin')}")
    axis.set_ylabel("score, share of the threshold")
    axis.set_ylim(0.0, max(1.25, 1.05 * float(np.nanmax(share_TM, initial=0.0))))
    axis.set_xlim(max(float(times_T[0]) - zero_s, -300.0), float(times_T[-1]) - zero_s)
    grid(axis)
    _legend(figure, marked, len(machines) - len(marked), tuple(marks))
    return to_png(figure)


def draw_sweep(outcomes: Sequence[Outcome], label: str, shipped: float, title: str) -> bytes:
    """PNG: one row per recording, one sign per setting, with the delay beside it. shipped: the setting that minder comes with."""
    recordings = list(dict.fromkeys(item.recording for item in outcomes))
    settings = sorted({item.setting for item in outcomes})
    figure, axis = new_figure(9.4, 0.62 * len(recordings) + 2.0)
    if shipped in settings:
        axis.axvspan(settings.index(shipped) - 0.25, settings.index(shipped) + 0.45, color=PALE, zorder=0)
    for name, (colour, sign, meaning) in _LOOKS.items():
        mine = [item for item in outcomes if item.outcome == name]
        if mine:
            across = [settings.index(item.setting) for item in mine]
            axis.scatter(
                across, [recordings.index(item.recording) for item in mine], s=110, color=colour, marker=sign, label=meaning, zorder=3
            )
    for item in outcomes:
        if item.delay_s is not None:
            place = (settings.index(item.setting), recordings.index(item.recording))
            axis.annotate(f"{item.delay_s:.0f} s", place, xytext=(10, 0), textcoords="offset points", va="center", fontsize=10)
    axis.set_xticks(range(len(settings)), [f"{setting:g}" + ("\n(as shipped)" if setting == shipped else "") for setting in settings])
    axis.set_yticks(range(len(recordings)), [plain(name) for name in recordings])
    axis.set_xlim(-0.5, len(settings) - 0.4)
    axis.set_ylim(len(recordings) - 0.5, -0.5)
    axis.set_xlabel(label)
    axis.set_title(plain(title), loc="left", fontweight="bold")
    figure.legend(loc="outside lower center", ncols=4, frameon=False, title="who is named")
    return to_png(figure)


def _legend(figure: Any, marked: Sequence[str], peers: int, marks: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    looks = ((RED, "-"), (BLUE, "--"))
    shown = [
        Line2D([], [], color=looks[min(n, 1)][0], linestyle=looks[min(n, 1)][1], linewidth=2.4, label=plain(name))
        for n, name in enumerate(marked)
    ]
    shown += [Line2D([], [], color=GREY, linewidth=1.0, label=f"{peers} peers")] if peers else []
    styles: tuple[Any, ...] = ((0, (4, 2)), "-")
    shown += [Line2D([], [], color="black", linewidth=1.4, linestyle=styles[min(n, 1)], label=plain(name)) for n, name in enumerate(marks)]
    figure.legend(handles=shown, loc="outside lower center", ncols=4, frameon=False)
