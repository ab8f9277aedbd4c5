"""Stretches of lost time, and that no second is counted twice (pure). All times are unix seconds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

__all__ = ["PHASES", "Span", "Stretch", "clip", "count_once", "cut_out", "fill_gaps", "rename", "sum_spans"]

# Where lost time goes, in the order in which an incident runs through it; "start" and "stopped" belong to no incident.
PHASES = ("start", "detect", "localise", "decide", "restart", "load", "recompute", "stopped")

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Time in which a job made no progress; cause: the verdict's, or the phase where there is no incident."""

    begin_s: float
    end_s: float
    phase: str
    cause: str
    incident: str | None = None

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


def sum_spans(spans: Iterable[Span]) -> float:
    """Seconds of spans that do not overlap."""
    return sum(end_s - begin_s for begin_s, end_s in spans)


def clip(stretches: Iterable[Stretch], spans: Sequence[Span]) -> list[Stretch]:
    """What of the stretches lies inside the spans (in order, without overlaps)."""
    found = []
    ends_s = [end_s for _, end_s in spans]
    for stretch in stretches:
        for begin_s, end_s in spans[bisect_right(ends_s, stretch.begin_s) :]:
            if begin_s >= stretch.end_s:
                break
            found.append(replace(stretch, begin_s=max(stretch.begin_s, begin_s), end_s=min(stretch.end_s, end_s)))
    return found


def count_once(stretches: Iterable[Stretch]) -> list[Stretch]:
    """The same stretches without overlaps: a second belongs to the incident that began first."""
    ordered = sorted(stretches, key=lambda item: (item.begin_s, item.end_s))
    began_s: dict[str | None, float] = {}
    for stretch in ordered:
        began_s.setdefault(stretch.incident, stretch.begin_s)
    found: list[Stretch] = []
    reached_s = float("-inf")
    for stretch in sorted(ordered, key=lambda item: item.begin_s if item.incident is None else began_s[item.incident]):
        if stretch.end_s > max(reached_s, stretch.begin_s):
            found.append(replace(stretch, begin_s=max(reached_s, stretch.begin_s)))
            reached_s = stretch.end_s
    return found


def cut_out(spans: Sequence[Span], taken: Sequence[Stretch]) -> list[Span]:
    """What of the spans lies outside `taken` (both in order, without overlaps).

    >>> cut_out([(0, 9)], [Stretch(2, 4, "detect", "stall")])
    [(0, 2), (4, 9)]
    """
    whole = [Stretch(begin_s, end_s, "", "") for begin_s, end_s in spans]
    return [(item.begin_s, item.end_s) for item in fill_gaps(taken, whole) if item not in taken and item.seconds > 0]


def fill_gaps(taken: Sequence[Stretch], others: Iterable[Stretch]) -> list[Stretch]:
    """`taken` (in order, no overlaps), and of the others what lies between; again in order and without overlaps.

    >>> filled = fill_gaps([Stretch(2, 4, "detect", "stall")], [Stretch(0, 9, "start", "start")])
    >>> [(item.begin_s, item.end_s, item.phase) for item in filled]
    [(0, 2, 'start'), (2, 4, 'detect'), (4, 9, 'start')]
    """
    edges = [float("-inf"), *(edge for item in taken for edge in (item.begin_s, item.end_s)), float("inf")]
    between = [(edges[index], edges[index + 1]) for index in range(0, len(edges), 2)]
    return sorted([*taken, *clip(count_once(others), between)], key=lambda item: item.begin_s)


def rename(stretches: Iterable[Stretch], spans: Sequence[Span], phase: str) -> list[Stretch]:
    """The same stretches; what of them lies inside the spans (in order, without overlaps) is of another phase.

    >>> found = rename([Stretch(0, 9, "restart", "crash")], [(2, 4)], "localise")
    >>> [(item.begin_s, item.end_s, item.phase) for item in found]
    [(0, 2, 'restart'), (2, 4, 'localise'), (4, 9, 'restart')]
    """
    found = []
    for stretch in stretches:
        inside = [replace(item, phase=phase) for item in clip([stretch], spans)]
        found += fill_gaps(inside, [stretch])
    return found
