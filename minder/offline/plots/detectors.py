"""Detectors against each other in one picture: how soon they speak, and how often they are right."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minder.offline.plots.palette import BLUE, DARK, DIM, GREY, LIGHT_BLUE, PALE, RED, SILVER

__all__ = ["Compared", "draw_detectors"]

# Okabe and Ito's palette; a family of detectors has a colour and a sign of its own, so that the picture can be read without colours.
_FAMILIES = {
    "default": (RED, "*", 190),
    "reference": (BLUE, "o", 62),
    "ablation": (LIGHT_BLUE, "^", 48),
    "classical": (GREY, "s", 40),
}
_LATE_S, _LINE = 170.0, 0.043  # names of slower detectors stand in a column; the height of a line
_STYLE = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False}


@dataclass(frozen=True, slots=True)
class Compared:
    """One detector. f1 and delay_s: (value, low, high) of the 95 % interval; NaN delays (nothing was found) are listed beside the axis.
    family: default, reference, ablation or classical."""

    name: str
    family: str
    f1: tuple[float, float, float]
    delay_s: tuple[float, float, float]


def draw_detectors(compared: Sequence[Compared], title: str) -> bytes:
    """PNG: F1 over the median delay, both with their intervals; the upper left corner is best."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.0, 5.0), dpi=130, layout="constrained")
        axis = figure.subplots()
        shown = [item for item in compared if math.isfinite(item.delay_s[0])]
        for item in shown:
            _draw_one(axis, item)
        _name_all(axis, shown)
        silent = [item.name for item in compared if not math.isfinite(item.delay_s[0])]
        if silent:
            axis.annotate("found nothing: " + ", ".join(silent), (0.01, 0.01), xycoords="axes fraction", fontsize=8, color=DIM)
        axis.set_xscale("log")
        ticks = [5, 10, 20, 40, 60, 120, 240, 420]
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
        axis.set_xlim(min([4.0, *(0.8 * item.delay_s[1] for item in shown if item.delay_s[1] > 0)]), 520.0)
        axis.set_ylim(-0.02, 1.05)
        axis.grid(color=PALE, linewidth=0.6)
        axis.set_axisbelow(True)
        axis.set_xlabel("median delay of the found faults, seconds (log)")
        axis.set_ylabel("F1")
        axis.set_title(title, loc="left")
        looks = [(name, look) for name, look in _FAMILIES.items() if any(item.family == name for item in shown)]
        handles = [axis.scatter([], [], s=40, color=color, marker=sign, label=name) for name, (color, sign, _) in looks]
        axis.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.0, 0.05), frameon=False, fontsize=9)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _draw_one(axis: Any, item: Compared) -> None:
    color, sign, size = _FAMILIES[item.family]
    (delay_s, soon_s, late_s), (f1, low, high) = item.delay_s, item.f1
    axis.plot([soon_s, late_s], [f1, f1], color=color, linewidth=1.0, alpha=0.45)
    axis.plot([delay_s, delay_s], [low, high], color=color, linewidth=1.0, alpha=0.45)
    axis.scatter([delay_s], [f1], s=size, color=color, marker=sign, zorder=3)


def _name_all(axis: Any, shown: Sequence[Compared]) -> None:
    """Names right of their signs, a line apart; of those late ones that crowd, in a column to their left, in the order of their F1."""
    ordered = sorted(shown, key=lambda each: (-each.f1[0], each.name))
    soon = [item for item in ordered if item.delay_s[0] <= _LATE_S]
    late = [item for item in ordered if item.delay_s[0] > _LATE_S]
    for item, y in zip(soon, _apart([item.f1[0] + 0.006 for item in soon]), strict=True):
        _name_one(axis, item, (item.delay_s[0] * 1.09, y), "left")
    for item, y in zip(late, _apart([item.f1[0] for item in late]), strict=True):
        _name_one(axis, item, (_LATE_S, y), "right")


def _name_one(axis: Any, item: Compared, place: tuple[float, float], side: str) -> None:
    line = {"arrowstyle": "-", "color": SILVER, "linewidth": 0.5, "relpos": (1.0, 0.5), "shrinkA": 0.0} if side == "right" else None
    clear = {"facecolor": "white", "linewidth": 0.0, "pad": 0.6}  # no interval goes through a name
    look = {"ha": side, "va": "center", "fontsize": 8, "color": DARK, "arrowprops": line, "bbox": clear}
    axis.annotate(item.name, (item.delay_s[0], item.f1[0]), place, **look)


def _apart(heights: Sequence[float]) -> list[float]:
    """Falling heights, moved as little as it takes to stand a line apart and inside the picture."""
    found: list[float] = []
    for height in heights:
        found.append(min(height, found[-1] - _LINE) if found else min(height, 1.0))
    for index in range(len(found) - 1, -1, -1):
        found[index] = max(found[index], 0.03 if index == len(found) - 1 else found[index + 1] + _LINE)
    return found
