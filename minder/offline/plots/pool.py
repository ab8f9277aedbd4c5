"""Machines that left their jobs over time, and how many standbys the next job needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from minder.offline.plots.canvas import grid, new_figure, plain, to_png
from minder.offline.plots.palette import BLUE, GREEN, GREY, ORANGE, RED

__all__ = ["Advice", "draw_departures", "draw_pool"]

_OUTCOMES = {
    "confirmed": (RED, "o", "fault confirmed"),
    "no-fault-found": (BLUE, "X", "no fault found: a false eviction"),
    None: (GREY, "s", "outcome unknown"),
}
_MOST_ROWS = 30


class Advice(Protocol):
    """One size of job (minder.act.recovery.pool_size.StandbyAdvice). low, high: of the rate's interval."""

    @property
    def machines(self) -> int: ...
    @property
    def standbys(self) -> int: ...
    @property
    def low(self) -> int: ...
    @property
    def high(self) -> int: ...


def draw_departures(departures: Sequence[tuple[str, float, str | None]], title: str, period: tuple[float, float]) -> bytes:
    """PNG: a row per machine, those that left most often on top, a sign per departure. departures: (machine, unix seconds, outcome);
    period: unix seconds of its two ends."""
    count: dict[str, int] = {}
    for machine, _, _ in departures:
        count[machine] = count.get(machine, 0) + 1
    rows = sorted(count, key=lambda machine: (-count[machine], machine))[:_MOST_ROWS]
    figure, axis = new_figure(9.4, 0.27 * max(4, len(rows)) + 1.6)
    for outcome, (colour, sign, label) in _OUTCOMES.items():
        mine = [item for item in departures if item[2] == outcome and item[0] in rows]
        if mine:
            times = np.array([time_s for _, time_s, _ in mine]).astype("datetime64[s]")
            looks: dict[str, Any] = {"s": 62, "color": colour, "marker": sign, "label": label, "zorder": 3, "clip_on": False}
            axis.scatter(times, [rows.index(machine) for machine, _, _ in mine], **looks)
    again = sum(count[machine] > 1 for machine in rows)
    if again:
        axis.axhspan(-0.5, again - 0.5, color=ORANGE, alpha=0.16, zorder=0)
        axis.annotate("more than once", (0.995, 0.0), xycoords=("axes fraction", "data"), ha="right", va="center", fontsize=10)
    axis.set_yticks(range(len(rows)), [plain(machine) for machine in rows], fontsize=9.5)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlim(*np.array(period).astype("datetime64[s]"))
    _dates(axis)
    axis.set_title(plain(title), loc="left", fontweight="bold")
    grid(axis, "both")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return to_png(figure)


def draw_pool(counted: Sequence[Advice], given: Sequence[Advice], title: str) -> bytes:
    """PNG: standbys over machines of a job, by the ledger's own failures with their interval, and by the published rate."""
    figure, axis = new_figure(9.4, 4.0)
    sizes = [item.machines for item in counted]
    low, high = [item.low for item in counted], [item.high for item in counted]
    axis.fill_between(sizes, low, high, color=BLUE, alpha=0.2, linewidth=0, label="95 % of the counted rate")
    looks: tuple[tuple[Sequence[Advice], str, str, str, str], ...] = (
        (counted, BLUE, "-", "o", "by this ledger's failures"),
        (given, GREEN, "--", "D", "by the published 0.0012 failures per machine and day"),
    )
    for advice, colour, style, sign, label in looks:
        numbers = [item.standbys for item in advice]
        axis.plot([item.machines for item in advice], numbers, color=colour, linestyle=style, marker=sign, linewidth=2.0, label=label)
        for item in advice:
            up = 1 if advice is counted else -1
            place = {"xytext": (0, 9 * up), "textcoords": "offset points", "ha": "center", "va": "bottom" if up > 0 else "top"}
            axis.annotate(str(item.standbys), (item.machines, item.standbys), color=colour, fontsize=10.5, **place)
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, [str(size) for size in sizes])
    most = max(item.high for item in [*counted, *given])
    axis.set_ylim(-0.07 * most, 1.15 * most + 1.0)
    axis.set_xlabel("machines of the job")
    axis.set_ylabel("standbys")
    axis.set_title(plain(title), loc="left", fontweight="bold")
    grid(axis)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return to_png(figure)


def _dates(axis: Any) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=10)
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axis.set_xlabel("time (UTC)")
