"""Figures that one can point at: the name and the value under the pointer, and machines switched on and off in the legend.

Plotly, for notebooks and pages (extra `notebooks`). Shape legend: T grid rows (time), M machines, P pipeline stages, D data-parallel ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minder.model.errors import MissingExtraError
from minder.model.metrics import find_metric
from minder.model.telemetry import Window
from minder.offline.plots.palette import BLUE, GREEN, GREY, ORANGE, PALE, PINK, RED

__all__ = ["point_scatter", "point_telemetry", "point_workers"]

_COLOURS = (BLUE, GREEN, ORANGE, PINK)
_MOST_TICKS = 16
_SIGNS = ("circle", "diamond", "square", "cross", "triangle-up", "star")


def point_telemetry(window: Window, metric: str, groups: Mapping[str, str], title: str, marked: Sequence[str] = ()) -> Any:
    """A line per machine, coloured by group; those in `marked` stand out."""
    graph = _plotly()
    times = (1000.0 * window.times_T).astype("datetime64[ms]")
    names = list(dict.fromkeys(groups[machine] for machine in window.machines))
    figure = graph.Figure()
    for column, machine in enumerate(window.machines):
        group = groups[machine]
        look = {"color": RED, "width": 3} if machine in marked else {"color": _COLOURS[names.index(group) % len(_COLOURS)], "width": 1}
        values_T = window.values_TMK[:, column, window.metrics.index(metric)]
        figure.add_scatter(
            x=times, y=values_T, name=machine, legendgroup=group, legendgrouptitle_text=group, line=look, connectgaps=False, mode="lines"
        )
    entry = find_metric(metric)
    unit = entry.unit if entry is not None else ""
    return _dressed(figure, title, "time (UTC)", f"{metric}, {unit}" if unit else metric)


def point_scatter(names: Sequence[str], x: Sequence[float], y: Sequence[float], labels: tuple[str, str], title: str) -> Any:
    """A named sign per pair. labels: of the two axes."""
    figure = _plotly().Figure()
    for number, (name, across, up) in enumerate(zip(names, x, y, strict=True)):
        look = {"size": 13, "color": _COLOURS[number % len(_COLOURS)], "symbol": _SIGNS[number % len(_SIGNS)]}
        figure.add_scatter(x=[across], y=[up], name=name, mode="markers", marker=look)
    return _dressed(figure, title, *labels)


def point_workers(worker_PD: np.ndarray, title: str, blamed: Sequence[tuple[int, int]] = ()) -> Any:
    """The heat map of workers (heatmap.py), with the value under the pointer. blamed: (dp_rank, stage), framed."""
    figure = _plotly().Figure()
    shown = "dp rank %{x}, stage %{y}: %{z:.3f} times the ideal step<extra></extra>"
    figure.add_heatmap(z=worker_PD, colorscale="Cividis", zmin=1.0, colorbar_title_text="slowdown", hovertemplate=shown)
    for rank, stage in blamed:
        figure.add_shape(type="rect", x0=rank - 0.5, x1=rank + 0.5, y0=stage - 0.5, y1=stage + 0.5, line={"color": RED, "width": 4})
    for turn, count in ((figure.update_yaxes, worker_PD.shape[0]), (figure.update_xaxes, worker_PD.shape[1])):
        turn(tick0=0, dtick=-(-count // _MOST_TICKS))  # ranks and stages are whole numbers
    figure.update_yaxes(autorange="reversed")
    return _dressed(figure, title, "data-parallel rank", "pipeline stage")


def _dressed(figure: Any, title: str, across: str, up: str) -> Any:
    figure.update_layout(title=title, template="plotly_white", height=420, font_size=14, colorway=list(_COLOURS), hovermode="closest")
    figure.update_xaxes(title_text=across, gridcolor=PALE, linecolor=GREY)
    figure.update_yaxes(title_text=up, gridcolor=PALE, linecolor=GREY)
    return figure


def _plotly() -> Any:
    try:
        from plotly import graph_objects
    except ImportError as error:
        raise MissingExtraError.of("plotly", "notebooks") from error
    return graph_objects
