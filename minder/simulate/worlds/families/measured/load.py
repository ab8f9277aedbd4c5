"""How happenings move the load of a job: its pace, and which machines wait or idle for what share of the time.

Legend: M machines, U units, T scrapes, G seconds of the world's grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from minder.simulate.worlds.families.measured.kinds import ENDING
from minder.simulate.worlds.families.measured.sketch import Happening, Sketch, rng_for

__all__ = ["Load", "Pull", "Span", "bear", "bouts", "checkpoints", "repeated", "stops_at"]

_GRID_S = 0.5


@dataclass(frozen=True, slots=True)
class Span:
    """From start to end in seconds; in bouts of on_s in every period_s, if period_s is not 0."""

    start: float
    end: float
    period_s: float = 0.0
    on_s: float = 0.0

    def covers(self, times: np.ndarray) -> np.ndarray:
        """Which of these times lie in it."""
        inside = (times >= self.start) & (times < self.end)
        return inside & ((times - self.start) % self.period_s < self.on_s) if self.period_s else inside


@dataclass(frozen=True, slots=True)
class Pull:
    """For `share` of the time in the span these units do not work but wait in a collective ("wait") or stand still ("idle")."""

    span: Span
    units_U: np.ndarray
    to: str
    share: float


@dataclass(slots=True)
class Load:
    """A job's pace (1: as planned) and all pulls on its units. held_back: the units that work more slowly than planned."""

    sketch: Sketch
    paces: list[tuple[Span, float]] = field(default_factory=list)
    pulls: list[Pull] = field(default_factory=list)
    held_back: list[tuple[Span, np.ndarray, float]] = field(default_factory=list)

    def progress(self, times: np.ndarray) -> np.ndarray:
        """Seconds of work at the planned pace that were done until these times."""
        grid_G = np.arange(-200.0, self.sketch.duration_s + 70.0, _GRID_S)
        pace_G = np.ones_like(grid_G)
        for span, pace in self.paces:
            pace_G[span.covers(grid_G)] *= pace
        done_G = np.concatenate([[0.0], np.cumsum(pace_G)[:-1]]) * _GRID_S
        return np.asarray(np.interp(times, grid_G, done_G))

    def shares(self, times_UT: np.ndarray, window_s: float) -> tuple[np.ndarray, np.ndarray]:
        """(U, T) each: the shares of the window before each time in which a unit waits, and in which it idles."""
        wait_UT, idle_UT = np.zeros_like(times_UT), np.zeros_like(times_UT)
        for pull in self.pulls:
            at_XT = times_UT[pull.units_U]
            share_XT = sum(pull.span.covers(at_XT - window_s * part) for part in (0.0, 0.25, 0.5, 0.75)) * (pull.share / 4)
            into_UT = wait_UT if pull.to == "wait" else idle_UT
            into_UT[pull.units_U] = 1 - (1 - into_UT[pull.units_U]) * (1 - share_XT)
        return wait_UT * (1 - idle_UT), idle_UT

    def units(self, who: tuple[int, ...], card: int = -1) -> np.ndarray:
        """(U,): the units of these machines, or one card of each."""
        cards = self.sketch.cards
        chosen_U = np.repeat(np.isin(np.arange(self.sketch.count), who), cards)
        return chosen_U & (np.arange(self.sketch.units) % cards == card) if card >= 0 else chosen_U

    def pull(self, span: Span, units_U: np.ndarray, to: str, share: float = 1.0) -> None:
        """One more pull."""
        self.pulls.append(Pull(span, units_U, to, share))

    def hold_back(self, span: Span, units_U: np.ndarray, pace: float) -> None:
        """These units work more slowly, so the job's pace falls and all others wait for the rest of the time."""
        self.paces.append((span, pace))
        self.held_back.append((span, units_U, pace))
        self.pull(span, ~units_U, "wait", 1.0 - pace)

    def stand_still(self, span: Span, units_U: np.ndarray, spin: bool = False) -> None:
        """These units stop, all others wait for them, until the collective's time limit ends the job."""
        limit = span.start + float(rng_for(self.sketch.seed, "time limit").uniform(420, 1400))
        until = Span(span.start, min(span.end, limit))
        self.paces.append((span, 0.0))
        self.pull(until, ~units_U, "wait")
        self.pull(until, units_U, "wait" if spin else "idle", 0.9 if spin else 1.0)
        if limit < span.end:
            self.pull(Span(limit, span.end), np.ones_like(units_U), "idle")

    def all_idle(self, span: Span, share: float = 1.0) -> None:
        """The job makes no progress, and its units idle for this share of the time."""
        self.paces.append((span, 1.0 - share))
        self.pull(span, np.ones(self.sketch.units, dtype=bool), "idle", share)


def _slow(load: Load, happening: Happening, weak: float = 0.92, strong: float = 0.35, card: bool = True) -> None:
    span = Span(happening.start, happening.end)
    pace = weak + (strong - weak) * happening.size
    load.hold_back(span, load.units(happening.who, happening.card if card else -1), pace)


def _bouts(load: Load, happening: Happening) -> None:
    span = bouts(load.sketch, happening)
    load.hold_back(span, load.units(happening.who, happening.card), 0.95 - 0.5 * happening.size)


def bouts(sketch: Sketch, happening: Happening) -> Span:
    """When a throttled machine is throttled."""
    period, part = rng_for(sketch.seed, "bouts").uniform((30.0, 0.2), (140.0, 0.7))
    return Span(happening.start, happening.end, float(period), float(period * part))


# Seconds from the onset of a fault that stops the job until it stands, by the fault's size.
_UNTIL_IT_STANDS: dict[str, Callable[[float], float]] = {
    "early_stall": lambda size: 0.0,
    "ecc_errors": lambda size: 10 + 40 * size,
    "frozen_gauges": lambda size: 0.0,
    "full_disk": lambda size: 0.0,
    "gpu_lost": lambda size: 0.0,
    "group_silent": lambda size: 60 + 90 * size,
    "machine_dead": lambda size: 0.0,
    "memory_leak": lambda size: 60 + 180 * size,
    "stall": lambda size: 0.0,
}


def _stop(load: Load, happening: Happening) -> None:
    spin = bool(rng_for(load.sketch.seed, "spin", happening.name).random() < 0.35) and happening.name in ("stall", "early_stall")
    start = happening.start + _UNTIL_IT_STANDS[happening.name](happening.size)
    load.stand_still(Span(start, np.inf), load.units(happening.who), spin)


def _repeat(load: Load, happening: Happening, lasts_s: float) -> None:
    for start, part in repeated(load.sketch, happening):
        span = Span(start, start + lasts_s * part)
        load.paces.append((span, 0.0))
        load.pull(span, ~load.units(happening.who), "wait")
        load.pull(span, load.units(happening.who), "idle" if happening.name == "recurring_freezes" else "wait")


def repeated(sketch: Sketch, happening: Happening) -> list[tuple[float, float]]:
    """The beginnings of something that comes again and again, each with a factor of its length."""
    rng, now, out = rng_for(sketch.seed, "again", happening.name), happening.start, []
    every = float(rng.uniform(35, 140))
    while now < min(happening.end, sketch.duration_s):
        out.append((now, float(rng.uniform(0.6, 1.4))))
        now += every * float(rng.uniform(0.7, 1.3))
    return out


def stops_at(sketch: Sketch) -> float:
    """From when on the job stands for good, in seconds; inf if it does not."""
    fault, cause = sketch.fault, sketch.cause
    stands = fault.start + _UNTIL_IT_STANDS[fault.name](fault.size) if fault and fault.name in _UNTIL_IT_STANDS else np.inf
    return float(min(stands, cause.start if cause and cause.name in ENDING else np.inf))


def checkpoints(sketch: Sketch) -> list[Span]:
    """When the job writes its checkpoints, until it stands."""
    every, first, lasts = rng_for(sketch.seed, "checkpoints").uniform((150.0, 0.2, 2.0), (700.0, 1.0, 25.0))
    return [Span(start, start + lasts) for start in np.arange(first * every, min(sketch.duration_s, stops_at(sketch) + 1e-6), every)]


_FAULTS: dict[str, Callable[[Load, Happening], None]] = {
    "busy_processor": lambda load, it: _slow(load, it, 0.93, 0.35, card=False),
    "dirty_optics": lambda load, it: _slow(load, it, 0.98, 0.7, card=False),
    "early_stall": _stop,
    "ecc_errors": _stop,
    "flat_clock": lambda load, it: _slow(load, it, 0.995, 0.93),
    "frozen_gauges": _stop,
    "full_disk": _stop,
    "gpu_lost": _stop,
    "group_silent": _stop,
    "group_slow": lambda load, it: _slow(load, it, 0.85, 0.35, card=False),
    "link_flap": lambda load, it: _repeat(load, it, 2 + 12 * it.size),
    "machine_dead": _stop,
    "memory_leak": _stop,
    "nvlink_lane": lambda load, it: _slow(load, it, 0.97, 0.6),
    "pcie_width": lambda load, it: _slow(load, it, 0.97, 0.6),
    "recurring_freezes": lambda load, it: _repeat(load, it, 3 + 27 * it.size),
    "slow_from_start": _slow,
    "slow_gpu": _slow,
    "slow_network": lambda load, it: _slow(load, it, 0.93, 0.4, card=False),
    "slow_storage": lambda load, it: _slow(load, it, 0.9, 0.3, card=False),
    "stall": _stop,
    "throttle_bouts": _bouts,
    "two_slow": _slow,
}


def _bear_cause(load: Load, it: Happening) -> None:
    span, all_U, some = Span(it.start, it.end), np.ones(load.sketch.units, dtype=bool), it.size
    match it.name:
        case "congestion":
            load.paces.append((span, 0.9 - 0.6 * some))
            load.pull(span, all_U, "wait", 0.1 + 0.6 * some)
        case "storage_slow" | "loading_slow":
            load.all_idle(span, 0.1 + 0.75 * some)
        case "evaluation":
            load.all_idle(span, 0.2 + 0.3 * some)
        case "compilation" | "restart" | "job_ends" | "user_bug":
            load.all_idle(span)
        case "deadlock":
            load.paces.append((span, 0.0))
            load.pull(span, all_U, "wait")
        case "power_cap":
            load.paces.append((span, 0.95 - 0.3 * some))
        case "load_shift":
            load.paces.append((span, 0.5 + some))


def _bear_usual(load: Load) -> None:
    """What every job does: stages and machines that wait a little, and checkpoints."""
    sketch = load.sketch
    rng, always = rng_for(sketch.seed, "usual waits"), Span(-1e6, np.inf)
    for stage in range(sketch.stages):
        members = tuple(k for k in range(sketch.count) if sketch.stage_of(k) == stage)
        load.pull(always, load.units(members), "wait", float(rng.uniform(0.0, 0.15 if sketch.stages > 1 else 0.04)))
    writes_on = next((it for it in sketch.nuisances if it.name == "rank0_writes"), None)
    for span in checkpoints(sketch):
        load.all_idle(span, 0.9)
        if writes_on is not None:
            longer = Span(span.end, span.end + 4.0 + 25.0 * writes_on.size)
            load.paces.append((longer, 0.0))
            load.pull(longer, ~load.units((0,)), "wait")
            load.pull(longer, load.units((0,)), "idle")


def bear(sketch: Sketch) -> Load:
    """The job's load through all that happens."""
    load = Load(sketch)
    _bear_usual(load)
    for nuisance in sketch.nuisances:
        if nuisance.name == "evaluation_agent" and nuisance.start - 20.0 < stops_at(sketch):
            load.all_idle(Span(nuisance.start - 20.0, nuisance.end), 0.3)
    if sketch.cause is not None and sketch.cause.start <= stops_at(sketch):
        _bear_cause(load, sketch.cause)
    if sketch.fault is not None:
        _FAULTS[sketch.fault.name](load, sketch.fault)
    return load
