"""The heat map of a job's workers: pipeline stages by data-parallel ranks, coloured by how much each slows the steps down.

It is read by shape: one cell is a slow worker, a row is a long stage, scattered cells are uneven sequences (arXiv 2505.05713).
Shape legend: P pipeline stages, D data-parallel ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from minder.model.errors import BadInputError
from minder.offline.plots.canvas import plain, to_png
from minder.offline.plots.palette import MAP, PALE, RED

__all__ = ["draw_heatmap", "render_heatmap"]

_STYLE = {"font.size": 11}
_LEAST_TOP = 1.1  # a healthy job stays dark: its colours do not stretch over noise
_WRITTEN_CELLS = 400  # more numbers than this are not read


def draw_heatmap(worker_PD: np.ndarray, path: Path, title: str = "", blamed: Sequence[tuple[int, int]] = ()) -> None:
    """Write `render_heatmap` to a file. Raises BadInputError where the file cannot be written."""
    try:
        path.write_bytes(render_heatmap(worker_PD, title, blamed))
    except OSError as error:
        raise BadInputError(f"picture {path} cannot be written: {error.strerror}; name a file in a folder that is there") from error


def render_heatmap(worker_PD: np.ndarray, title: str = "", blamed: Sequence[tuple[int, int]] = ()) -> bytes:
    """PNG. worker_PD: slowdown of each worker, 1 is ideal, NaN is no data. blamed: (dp_rank, stage), framed."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        return to_png(_figure(worker_PD, title, blamed), 150, _STYLE)


def _figure(worker_PD: np.ndarray, title: str, blamed: Sequence[tuple[int, int]]) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    stages, ranks = worker_PD.shape
    side = min(0.75, 11.0 / ranks, 8.0 / stages)
    figure = Figure(figsize=(max(6.5, side * ranks + 2.6), max(2.8, side * stages + 1.9)), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    finite = worker_PD[np.isfinite(worker_PD)]
    top = max(_LEAST_TOP, float(finite.max())) if finite.size else _LEAST_TOP
    image = axis.imshow(worker_PD, cmap=MAP, vmin=1.0, vmax=top, aspect="equal" if 0.2 < stages / ranks < 5 else "auto")
    axis.set_facecolor(PALE)
    _label(axis, worker_PD.shape)
    if worker_PD.size <= _WRITTEN_CELLS and side >= 0.5:
        _write_numbers(axis, worker_PD, top)
    for rank, stage in blamed:
        _frame(axis, rank, stage)
    bar = figure.colorbar(image, ax=axis, shrink=0.9, extend="min" if finite.size and finite.min() < 0.995 else "neither")
    bar.set_label("slowdown of the step (1 = ideal)")
    figure.suptitle(plain(title), x=0.02, ha="left", fontsize=12, fontweight="bold")
    return figure


def _label(axis: Any, shape: tuple[int, int]) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_xlabel("data-parallel rank")
    axis.set_ylabel("pipeline stage")
    for direction, count in ((axis.xaxis, shape[1]), (axis.yaxis, shape[0])):
        direction.set_major_locator(MaxNLocator(min(count, 16), integer=True, steps=[1, 2, 4, 5, 8, 10]))
    axis.set_xticks(np.arange(0.5, shape[1] - 0.5), minor=True)
    axis.set_yticks(np.arange(0.5, shape[0] - 0.5), minor=True)
    if max(shape) <= 64:
        axis.grid(which="minor", color="white", linewidth=1.0)
    axis.tick_params(which="minor", length=0)
    axis.set_xlim(-0.5, shape[1] - 0.5)
    axis.set_ylim(shape[0] - 0.5, -0.5)


def _write_numbers(axis: Any, worker_PD: np.ndarray, top: float) -> None:
    for (stage, rank), value in np.ndenumerate(worker_PD):
        if np.isfinite(value):
            colour = "black" if (value - 1.0) / (top - 1.0) > 0.55 else "white"
            axis.text(rank, stage, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=10)


def _frame(axis: Any, rank: int, stage: int) -> None:
    from matplotlib.patches import Rectangle

    axis.add_patch(Rectangle((rank - 0.5, stage - 0.5), 1, 1, fill=False, edgecolor=RED, linewidth=3.5, zorder=5))
