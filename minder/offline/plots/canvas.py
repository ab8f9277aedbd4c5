"""A figure without a screen, and what it becomes: bytes of a PNG."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from minder.offline.plots.palette import PALE, STYLE

__all__ = ["grid", "new_figure", "plain", "to_png", "unit_of"]

_PREFIXED = ("B", "B/s", "s", "W", "Hz")


def new_figure(width: float, height: float, rows: int = 1, *, share_x: bool = False, style: Mapping[str, Any] = STYLE) -> tuple[Any, Any]:
    """(figure, axes): one axis, or an array of `rows` of them. width, height: inches."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(dict(style)):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        return figure, figure.subplots(rows, 1, sharex=share_x)


def to_png(figure: Any, dpi: int = 130, style: Mapping[str, Any] = STYLE) -> bytes:
    """The same figure gives the same bytes."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context(dict(style)):
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def grid(axis: Any, which: str = "y") -> None:
    """Pale lines behind everything. which: x, y or both."""
    axis.grid(axis=which, color=PALE, linewidth=0.8)
    axis.set_axisbelow(True)


def plain(text: str) -> str:
    """A name as it is: a dollar sign of its own would begin a formula, and half a surrogate pair has no shape."""
    return text.encode("utf-8", "replace").decode().replace("$", r"\$")


def unit_of(axis: Any, metric: str, ticks: int = 4) -> None:
    """Label a vertical axis with the metric's unit; watts and bytes get their prefixes, a share of 0.8 is no "800 m"."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    from minder.model.metrics import find_metric

    entry = find_metric(metric)
    unit = entry.unit if entry is not None else ""
    axis.yaxis.set_major_locator(MaxNLocator(ticks))
    if unit in _PREFIXED:
        axis.yaxis.set_major_formatter(EngFormatter(unit=unit, sep=" "))
        return
    if unit == "1/s":
        axis.yaxis.set_major_formatter(EngFormatter(sep=" "))
    axis.set_ylabel({"ratio": "share", "1": "count", "1/s": "per second"}.get(unit, unit))
