"""Parts of a window: some of its rows, or some of its machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from minder.model.telemetry import Window

__all__ = ["cut_rows", "keep_machines", "rows_of"]


def cut_rows(window: Window, begin: int, end: int) -> Window:
    """Rows begin .. end - 1, without copying."""
    rows = slice(begin, end)
    return replace(
        window,
        times_T=window.times_T[rows],
        values_TMK=window.values_TMK[rows],
        present_TM=window.present_TM[rows],
        device_TMK=None if window.device_TMK is None else window.device_TMK[rows],
        low_TMK=None if window.low_TMK is None else window.low_TMK[rows],
        high_TMK=None if window.high_TMK is None else window.high_TMK[rows],
    )


def rows_of(window: Window) -> Iterator[Window]:
    """Windows of one row each, without copying."""
    return (cut_rows(window, t, t + 1) for t in range(len(window.times_T)))


def keep_machines(window: Window, machines: Sequence[str]) -> Window:
    """Only these machines (those that the window has), in the window's order; the window itself if nothing falls away."""
    wanted = set(machines)
    places = [index for index, name in enumerate(window.machines) if name in wanted]
    if len(places) == len(window.machines):
        return window
    return replace(
        window,
        machines=tuple(window.machines[index] for index in places),
        values_TMK=window.values_TMK[:, places],
        present_TM=window.present_TM[:, places],
        device_TMK=None if window.device_TMK is None else window.device_TMK[:, places],
        low_TMK=None if window.low_TMK is None else window.low_TMK[:, places],
        high_TMK=None if window.high_TMK is None else window.high_TMK[:, places],
    )
