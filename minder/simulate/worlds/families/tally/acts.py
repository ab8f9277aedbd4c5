"""Acts: what a fault, a cause or a nuisance does to the account of some machines, to their kernel's counters, or to an exporter.

Times in seconds since the recording began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

__all__ = ["Act", "level", "pulses"]

_INF = float("inf")
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Act:
    """at: places of the machines, None for all. shape: flat, ramp (over period_s) or wave (on for 0.55 of each period_s).

    times: factor of the seconds of a way. adds: seconds added to a way in each step. more: factor of the work itself.
    counters: factor, and what is added, a second for a counter, at once for a gauge. totals: events a second of a counter that a site
    sees as a total. share: of the machine's GPUs, from the first, that are hit. stall: the way in which these machines stay while the
    rest waits for them. halt: the way in which all machines stay. exporter: the one that misbehaves ("all" for the agent), by `trick`.
    """

    at: tuple[int, ...] | None
    start_s: float
    end_s: float = _INF
    shape: str = "flat"
    period_s: float = 60.0
    times: Mapping[int, float] = field(default_factory=dict)
    adds: Mapping[int, float] = field(default_factory=dict)
    more: float = 1.0
    counters: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    totals: Mapping[str, float] = field(default_factory=dict)
    share: float = 1.0
    stall: int | None = None
    halt: int | None = None
    exporter: str = ""
    trick: str = ""


def level(act: Act, times: np.ndarray | float) -> np.ndarray:
    """How strong the act is at times in seconds: 0 outside, 1 at full strength."""
    since = np.asarray(times, dtype=np.float64) - act.start_s
    inside = (since >= 0) & (np.asarray(times) < act.end_s)
    if act.shape == "ramp":
        return np.asarray(inside * np.clip(since / act.period_s, 0.0, 1.0))
    if act.shape == "wave":
        return np.asarray(inside & (np.mod(since, act.period_s) < 0.55 * act.period_s), dtype=np.float64)
    return np.asarray(inside, dtype=np.float64)


def pulses(rng: np.random.Generator, start_s: float, until_s: float, gaps: Span, lasts: Span) -> list[Span]:
    """Start and end of stretches that come again and again, in seconds; gaps and lasts: least and most seconds."""
    found: list[Span] = []
    while start_s < until_s and len(found) < 90:
        end_s = start_s + float(rng.uniform(*lasts))
        found.append((start_s, end_s))
        start_s = end_s + float(rng.uniform(*gaps))
    return found
