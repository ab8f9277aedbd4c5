"""Relative MFU: how fast the job works, by the best ten minutes of the same code (docs/reliability.md).

Model FLOPs a sample or token are the same in every step of one version, so they cancel out: neither they nor a device's peak need be known.
Where steps carry no samples or tokens, nothing is known.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from minder.model.history import LedgerEvent
from minder.model.observation import WorkerView
from minder.record.incidents import kinds

__all__ = ["WINDOW_S", "WorkRate"]

WINDOW_S = 600.0  # what counts as sustained
_EVERY_S, _NOTED_S = 5.0, 3600.0


class WorkRate:
    """`note` once per tick. past: WORK events of the job, by which the best window outlives a controller; note_down: into the ledger."""

    def __init__(self, past: Callable[[], Sequence[LedgerEvent]], note_down: Callable[[str, dict[str, Any]], None]) -> None:
        self._past: Callable[[], Sequence[LedgerEvent]] | None = past
        self._note_down = note_down
        self._best: dict[tuple[int, str], float] = {}
        self._series: collections.deque[tuple[float, float]] = collections.deque()  # unix seconds, work so far
        self._key: tuple[int, int, str, int] | None = None  # generation, update, unit, machines
        self._noted_s: float | None = None
        self._shown: dict[str, Any] | None = None

    def note(self, now_s: float, workers: Iterable[WorkerView], generation: int, update: int, machines: int) -> None:
        """workers: of all machines. update: the number of the job's version; machines: how many it has. Raises LedgerError."""
        if self._past is not None:
            self._recall(self._past())
            self._past = None
        known = [item for item in workers if item.generation in (generation, -1) and item.work is not None and item.work_unit]
        if not known or not machines:
            self._shown = None
            return
        newest = max(known, key=lambda item: item.work or 0.0)
        self._add(now_s, float(newest.work or 0.0), (generation, update, str(newest.work_unit), machines))
        self._judge(now_s)

    def status(self) -> Mapping[str, Any] | None:
        """unit, rate (a second and machine), best and relative (both None until the first ten minutes); None where steps carry no work."""
        return self._shown

    def move(self, by_s: float) -> None:
        """The wall clock was set forward by so much."""
        self._series = collections.deque((time_s + by_s, work) for time_s, work in self._series)
        self._noted_s = None if self._noted_s is None else self._noted_s + by_s

    def _recall(self, events: Iterable[LedgerEvent]) -> None:
        for event in events:
            update, unit, best = (event.payload.get(name) for name in ("update", "unit", "best"))
            if isinstance(update, int) and isinstance(unit, str) and isinstance(best, (int, float)):
                self._best[update, unit] = max(float(best), self._best.get((update, unit), 0.0))

    def _add(self, now_s: float, work: float, key: tuple[int, int, str, int]) -> None:
        """A new generation, version, unit or size begins a new series: the time between is lost time, which ETTR counts."""
        if key != self._key or (self._series and (work < self._series[-1][1] or now_s < self._series[-1][0])):
            self._series.clear()
            self._key = key
        if not self._series or now_s - self._series[-1][0] >= _EVERY_S:
            self._series.append((now_s, work))
        while len(self._series) > 1 and now_s - self._series[1][0] >= WINDOW_S:
            self._series.popleft()

    def _judge(self, now_s: float) -> None:
        assert self._key is not None
        _, update, unit, machines = self._key
        (begin_s, first), (end_s, last) = self._series[0], self._series[-1]
        span_s = end_s - begin_s
        rate = (last - first) / span_s / machines if span_s > 0 else None
        if rate is not None and span_s >= WINDOW_S:
            self._best[update, unit] = max(rate, self._best.get((update, unit), 0.0))
        best = self._best.get((update, unit))
        relative = None if rate is None or not best or span_s < WINDOW_S else rate / best
        self._shown = {"update": update, "unit": unit, "machines": machines, "rate": rate, "best": best, "relative": relative}
        if relative is not None and (self._noted_s is None or now_s - self._noted_s >= _NOTED_S):
            self._noted_s = now_s
            self._note_down(kinds.WORK, {**self._shown, "window_s": WINDOW_S})
