"""What can be turned on the plant while it runs, and what exporters may say that is not so.

Legend: T ticks of a second, W the machines, units or switches that an effect is on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from minder.simulate.worlds.families.fluid.site import Site

__all__ = ["Effect", "Levers", "Lie", "hold", "pulses", "ramp"]

# Lever to its axis and its resting value. U: units, M: machines, S: switches, J: the job.
_RESTING: dict[str, tuple[str, float]] = {
    "clock_cap": ("U", 1.0),  # of the nominal clock
    "power_cap": ("U", 1.0),  # of the board's power
    "heat": ("U", 1.0),  # thermal resistance
    "speed": ("U", 1.0),
    "nvlink": ("U", 1.0),
    "pcie": ("U", 1.0),
    "spin": ("U", 1.0),  # a waiting kernel spins
    "present": ("U", 1.0),
    "ecc": ("U", 0.0),  # errors a second
    "feed": ("M", 1.0),  # what the processor can hand to its GPUs
    "cpu": ("M", 0.0),
    "port": ("M", 1.0),
    "loss": ("M", 0.0),  # link errors a second
    "tenant": ("M", 0.0),  # share of the link that other traffic takes
    "read": ("M", 1.0),
    "inlet": ("M", 0.0),
    "alive": ("M", 1.0),
    "member": ("M", 1.0),  # works for the job
    "counts": ("M", 1.0),  # the others wait for it
    "memory": ("M", 0.0),
    "disk": ("M", 0.0),
    "writes": ("M", 1.0),  # checkpoint bytes
    "can_write": ("M", 1.0),
    "background": ("S", 0.0),
    "storage": ("J", 1.0),
    "cost": ("J", 1.0),  # processor work of a batch
    "work": ("J", 1.0),  # compute of a step
    "talk": ("J", 1.0),  # exchange of a step
    "run": ("J", 1.0),
    "resident": ("J", 1.0),
    "inlet_all": ("J", 0.0),
    "power_all": ("J", 1.0),
}


@dataclass(frozen=True, slots=True)
class Effect:
    """One lever goes to `value` as far as `course_T` (0 to 1) says; `add`: by value, else a factor."""

    lever: str
    where_W: np.ndarray
    value: float
    course_T: np.ndarray
    add: bool = False


@dataclass(frozen=True, slots=True)
class Lie:
    """One machine's exporter says what is not so. metric: None for all of the exporter. start_s and end_s: seconds of the recording."""

    exporter: str  # gpu, node, fabric, job, or all
    machine: int
    start_s: float
    end_s: float
    kind: Literal["stuck", "zero", "missing", "silent", "noise", "unit", "reset"]
    metric: str | None = None
    factor: float = 1.0


def hold(ticks: int, start_s: float, end_s: float, rise_s: float = 1.0) -> np.ndarray:
    """(T,) up within rise_s at start_s, and down within a fifth of that at end_s."""
    time_T = np.arange(ticks)
    up_T = np.clip((time_T - start_s) / max(rise_s, 1.0), 0.0, 1.0)
    down_T = np.clip((end_s - time_T) / max(rise_s / 5, 1.0), 0.0, 1.0)
    return np.asarray(np.minimum(up_T, down_T))


def ramp(ticks: int, start_s: float, full_s: float, end_s: float) -> np.ndarray:
    """(T,) a slow climb from start_s to full_s; gone at end_s."""
    return hold(ticks, start_s, end_s, rise_s=full_s - start_s)


def pulses(rng: np.random.Generator, window_s: tuple[float, float], ticks: int, every_s: float, lasts_s: float) -> np.ndarray:
    """(T,) 1 for about lasts_s, again and again about every_s, within the window; the first begins with it."""
    course_T = np.zeros(ticks)
    at = window_s[0]
    while at < window_s[1]:
        until = min(at + lasts_s * rng.uniform(0.6, 1.5), window_s[1])
        course_T[int(at) : max(int(until), int(at) + 1)] = 1.0
        at = until + every_s * rng.uniform(0.5, 1.6)
    return course_T


class Levers:
    """The levers of a site at one tick: `values[name]` is an array over the lever's axis."""

    def __init__(self, site: Site, effects: list[Effect]) -> None:
        sizes = {"U": site.units, "M": site.machines, "S": int(site.switch_M.max()) + 1, "J": 1}
        self.values = {name: np.full(sizes[axis], rest) for name, (axis, rest) in _RESTING.items()}
        self._rest = {name: rest for name, (_, rest) in _RESTING.items()}
        self._effects = [effect for effect in effects if effect.course_T.any()]
        self._touched = sorted({effect.lever for effect in self._effects})

    def turn(self, tick: int) -> dict[str, np.ndarray]:
        """The levers at this tick."""
        for name in self._touched:
            self.values[name].fill(self._rest[name])
        for effect in self._effects:
            share = effect.course_T[tick]
            if share:
                lever = self.values[effect.lever]
                lever[effect.where_W] = (
                    lever[effect.where_W] + share * effect.value
                    if effect.add
                    else lever[effect.where_W] * (1.0 + share * (effect.value - 1.0))
                )
        return self.values
