"""What the job as a whole goes through: no machine is at fault, and every machine moves. And the job's own calendar."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from minder.simulate.worlds.families.fluid.levers import Effect, hold, pulses
from minder.simulate.worlds.families.fluid.site import Site, stream

__all__ = ["CAUSES", "TERMINAL", "Calendar", "Cause", "draw_calendar", "draw_cause"]

CAUSES: Mapping[str, str] = MappingProxyType(
    {
        "storage_slow": "the shared storage gives less than the job reads",
        "network_congestion": "other traffic fills the switches",
        "data_loading_slow": "batches cost more processor time on every machine",
        "restart": "the job stops, loads its checkpoint and goes on",
        "restart_exchanged": "the job restarts with one machine left out and a standby in its place",
        "load_shift": "longer sequences: another balance of compute and exchange",
        "evaluation": "no gradients, hardly any exchange, for minutes",
        "user_bug": "the training script fails on every machine within seconds",
        "deadlock": "every machine waits in a collective for ever, by the script's own mistake",
        "job_ends": "the training is done and its processes leave",
        "power_limit": "the site lowers every board's power limit",
        "warm_room": "the cooling of the room gets weaker for all",
        "spasms": "short stalls of everybody, again and again",
    }
)
TERMINAL = frozenset({"user_bug", "deadlock", "job_ends"})


@dataclass(frozen=True, slots=True)
class Cause:
    """What happened to all. left and joined: the machines that a restart exchanged."""

    name: str | None = None
    start_s: float = 0.0
    end_s: float = 0.0
    effects: list[Effect] = field(default_factory=list)
    left: int | None = None
    joined: int | None = None


@dataclass(frozen=True, slots=True)
class Calendar:
    """The job's own habits. checkpoints_s: when one begins; volume_s: seconds that one takes when nothing is in the way."""

    checkpoints_s: tuple[float, ...]
    volume_s: float
    effects: list[Effect]
    abort_s: float  # a job that stands this long is ended by its own watchdog


def _job(lever: str, value: float, course_T: np.ndarray, *, add: bool = False) -> Effect:
    return Effect(lever, np.array([0]), value, course_T, add)


def draw_calendar(site: Site) -> Calendar:
    """Start-up, checkpoints and small evaluations of this seed's job."""
    rng = stream(site.seed, 2)
    started, begins, every, volume, small, abort = rng.random(6)
    effects = []
    if started < 0.35:  # the recording sees the job start
        until = 20 + 130 * begins
        effects += [_job("run", 0.0, hold(site.ticks, -9, until))]
        effects += [_job("resident", 0.0, hold(site.ticks, -9, 0.3 * until))]
    every_s = 180 + 900 * every
    times = np.arange(every_s * rng.uniform(0.4, 1.0), site.duration_s, every_s)
    if small < 0.25:  # an evaluation of seconds after every checkpoint
        for at in times:
            effects.append(_job("talk", 0.1, hold(site.ticks, at + 30, at + 30 + 25 * (1 + small), 2)))
    return Calendar(tuple(float(at) for at in times), float(4 + 26 * volume**2), effects, float(240 + 900 * abort))


def _storage_slow(site: Site, rng: np.random.Generator, course_T: np.ndarray) -> list[Effect]:
    return [_job("storage", rng.uniform(0.25, 0.8) / site.storage_room, course_T)]


def _network_congestion(site: Site, rng: np.random.Generator, course_T: np.ndarray) -> list[Effect]:
    switches = np.arange(int(site.switch_M.max()) + 1)
    return [Effect("background", switches, rng.uniform(0.4, 0.85), course_T * rng.uniform(0.7, 1.0, course_T.size), add=True)]


def _data_loading_slow(_: Site, rng: np.random.Generator, course_T: np.ndarray) -> list[Effect]:
    return [_job("cost", rng.uniform(3.0, 6.0), course_T)]


def _restart(_: Site, rng: np.random.Generator, course_T: np.ndarray) -> list[Effect]:
    gone_T = course_T * (np.cumsum(course_T) < course_T.sum() * rng.uniform(0.3, 0.7))
    return [_job("run", 0.0, course_T), _job("resident", 0.0, gone_T)]


def _load_shift(_: Site, rng: np.random.Generator, course_T: np.ndarray) -> list[Effect]:
    return [
        _job("work", rng.choice([rng.uniform(0.3, 0.6), rng.uniform(1.5, 2.5)]), course_T),
        _job("talk", rng.uniform(0.5, 2.0), course_T),
    ]


def _evaluation(_: Site, rng: np.random.Generator, course_T: np.ndarray) -> list[Effect]:
    return [_job("talk", rng.uniform(0.02, 0.15), course_T), _job("work", rng.uniform(0.3, 0.7), course_T)]


def _user_bug(site: Site, rng: np.random.Generator, course_T: np.ndarray) -> list[Effect]:
    late = np.maximum.accumulate(course_T)
    leaves_M = rng.integers(0, 12, site.machines)  # tracebacks are not written at the same second
    per_unit = np.arange(site.units) // site.per_machine
    effects = [
        Effect("spin", np.flatnonzero(leaves_M[per_unit] == wait), 0.0, np.roll(late, wait) * (np.arange(late.size) >= wait))
        for wait in range(12)
    ]
    gone_T = np.roll(late, 15) * (np.arange(late.size) >= 15)
    return [*effects, _job("run", 0.0, late), _job("resident", 0.0, gone_T)]


def _deadlock(_: Site, __: np.random.Generator, course_T: np.ndarray) -> list[Effect]:
    return [_job("run", 0.0, np.maximum.accumulate(course_T))]


def _job_ends(site: Site, rng: np.random.Generator, course_T: np.ndarray) -> list[Effect]:
    late = np.maximum.accumulate(course_T)
    wait = int(rng.integers(2, 30))
    return [_job("run", 0.0, late), _job("resident", 0.0, np.roll(late, wait) * (np.arange(site.ticks) >= wait))]


def _power_limit(_: Site, rng: np.random.Generator, course_T: np.ndarray) -> list[Effect]:
    return [_job("power_all", rng.uniform(0.4, 0.7), course_T)]


def _warm_room(site: Site, rng: np.random.Generator, course_T: np.ndarray) -> list[Effect]:
    slow_T = np.convolve(course_T, np.ones(120) / 120)[: site.ticks]
    return [_job("inlet_all", rng.uniform(8.0, 22.0), slow_T, add=True)]


def _spasms(site: Site, rng: np.random.Generator, course_T: np.ndarray) -> list[Effect]:
    inside = np.flatnonzero(course_T)
    window = (float(inside[0]), float(inside[-1]) + 1)
    return [_job("run", 0.0, pulses(rng, window, site.ticks, rng.uniform(40, 120), rng.uniform(4, 25)))]


_DRAW: Mapping[str, Callable[[Site, np.random.Generator, np.ndarray], list[Effect]]] = {
    "storage_slow": _storage_slow,
    "network_congestion": _network_congestion,
    "data_loading_slow": _data_loading_slow,
    "restart": _restart,
    "load_shift": _load_shift,
    "evaluation": _evaluation,
    "user_bug": _user_bug,
    "deadlock": _deadlock,
    "job_ends": _job_ends,
    "power_limit": _power_limit,
    "warm_room": _warm_room,
    "spasms": _spasms,
}


def draw_cause(site: Site, *, chance: float, terminal: bool) -> Cause:
    """The seed's job-wide cause, with this chance. terminal: it may be one after which the job does not run again."""
    rng = stream(site.seed, 3)
    lucky, pick, when, lasts = rng.random(4)
    names = [name for name in CAUSES if terminal or name not in TERMINAL]
    if lucky >= chance:
        return Cause()
    name = names[int(pick * len(names))]
    start = site.duration_s * (0.6 + 0.25 * when if name in TERMINAL else 0.25 + 0.5 * when)
    end = min(start + 40 + 360 * lasts, site.duration_s - 30)
    if name == "warm_room":
        end = site.duration_s - 30
    course_T = hold(site.ticks, start, end, rng.choice([1.0, 3.0, 20.0]) if name not in ("restart", "restart_exchanged") else 1.0)
    if name != "restart_exchanged":
        return Cause(name, start, end, _DRAW[name](site, rng, course_T))
    left, joined = int(rng.integers(0, site.machines - 1)), site.machines - 1
    before_T = (np.arange(site.ticks) < (start + end) / 2) * 1.0
    swap = [Effect(lever, np.array([joined]), 0.0, before_T) for lever in ("member", "counts", "alive")]
    swap += [Effect(lever, np.array([left]), 0.0, 1.0 - before_T) for lever in ("member", "counts", "alive")]
    return Cause(name, start, end, _restart(site, rng, course_T) + swap, left, joined)
