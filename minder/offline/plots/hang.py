"""A job that hangs, in two pictures: where its processes stand, and how far each rank came in its collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minder.offline.plots.canvas import grid, new_figure, plain, to_png
from minder.offline.plots.palette import BLUE, DARK, GREEN, GREY, LIGHT_BLUE, ORANGE, PINK, RED, SILVER

__all__ = ["draw_collectives", "draw_stacks"]

_KINDS = {
    "collective": (BLUE, ""),
    "point to point": (LIGHT_BLUE, "//"),
    "data loading": (ORANGE, "\\\\"),
    "checkpoint": (PINK, ".."),
    "compute": (GREEN, "xx"),
    "idle": (SILVER, ""),
    "other": (RED, ""),
}
_FRAMES = 5


def draw_stacks(document: Mapping[str, Any], title: str) -> bytes:
    """PNG of what `minder stacks` answers: a bar per group of processes that stand in the same place, its innermost frames beside it."""
    groups: Sequence[Mapping[str, Any]] = document["groups"]
    suspects = {(item["machine"], item["pid"]) for item in document["suspects"]}
    figure, axis = new_figure(9.4, 0.95 * len(groups) + 1.9)
    for row, group in enumerate(groups):
        colour, hatch = _KINDS.get(group["kind"], (GREY, ""))
        axis.barh(row, group["size"], height=0.5, color=colour, hatch=hatch, edgecolor="white")
        frames = " < ".join(group["frames"][:_FRAMES])
        who = ", ".join(group["processes"][:4]) + (f" and {group['size'] - 4} more" if group["size"] > 4 else "")
        accused = any(name == f"{machine}:pid{pid}" for name in group["processes"] for machine, pid in suspects)
        stack = plain(f"{group['kind']}: {frames}")
        axis.annotate(stack, (0.05, row - 0.31), va="bottom", fontsize=10, color=DARK)
        axis.annotate(
            plain(who) + ("   <- suspect" if accused else ""), (group["size"], row), xytext=(6, 0), textcoords="offset points", va="center",
            fontsize=10, fontweight="bold" if accused else "normal", color=RED if accused else DARK,
        )  # fmt: skip
    axis.set_ylim(len(groups) - 0.5, -0.8)
    axis.set_xlim(0.0, 1.9 * max((group["size"] for group in groups), default=1))
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_yticks([])
    axis.set_xlabel("processes in this place (text: innermost frames first)")
    axis.set_title(plain(title), loc="left", fontweight="bold")
    return to_png(figure)


def draw_collectives(progress: Mapping[int, tuple[int, int] | None], suspects: Sequence[int], title: str) -> bytes:
    """PNG: of each rank the last operation that it launched and the last that it completed, in one process group.

    progress: rank to (launched, completed), None where the rank has no dump. Counts begin at the least of them, which the axis names.
    """
    known = [pair for pair in progress.values() if pair is not None]
    base = min((completed for _, completed in known), default=0) - 1
    figure, axis = new_figure(9.4, 0.38 * max(3, len(progress)) + 1.7)
    for row, (rank, pair) in enumerate(sorted(progress.items())):
        if pair is None:
            axis.annotate("no dump", (0.1, row), va="center", fontsize=10, color=RED)
            continue
        launched, completed = pair
        axis.barh(row, completed - base, height=0.62, color=BLUE)
        axis.barh(row, launched - completed, left=completed - base, height=0.62, color=ORANGE, hatch="//", edgecolor="white")
        if rank in suspects:
            place = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
            axis.annotate("holds the others up", (launched - base, row), color=RED, fontweight="bold", fontsize=10, **place)
    axis.set_yticks(range(len(progress)), [f"rank {rank}" for rank in sorted(progress)])
    axis.invert_yaxis()
    most = max((launched for launched, _ in known), default=base + 1)
    axis.set_xlim(0.0, 1.45 * max(1, most - base))
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel(f"operations since number {base}")
    axis.set_title(plain(title), loc="left", fontweight="bold")
    grid(axis, "x")
    _legend(figure)
    return to_png(figure)


def _legend(figure: Any) -> None:
    from matplotlib.patches import Patch

    marks = [Patch(color=BLUE, label="completed"), Patch(facecolor=ORANGE, hatch="//", edgecolor="white", label="launched, not completed")]
    figure.legend(handles=marks, loc="outside lower center", ncols=2, frameon=False)
