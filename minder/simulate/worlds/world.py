"""What every family of generators gives: samples as a site would have scraped them, and the truth about them.

A family is one module with `NAME`, `FAULTS`, `CAUSES`, `NUISANCES` and `draw`. Families share this file and nothing else: what is
learned on some of them is judged on others, so a common base class or noise model would make that judgement worth nothing.
Legend: N samples, K metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np

__all__ = ["NO_FAULT", "Family", "Truth", "World"]

NO_FAULT = "none"  # draw(seed, fault=NO_FAULT): the same world, seed for seed and number for number, without its fault


@dataclass(frozen=True, slots=True)
class Truth:
    """What happened. No culprit: every machine is healthy, whatever the job as a whole went through.

    culprits: the faulty machines, one or two. group: machines of one rack, switch or stage that fail together (then culprits is empty).
    fault: one of the family's FAULTS, None if every machine is healthy. onset_s and end_s: UTC seconds; None if there is none.
    cause: one of the family's CAUSES if the job as a whole was hit (storage slow for all, a restart), None if not.
    """

    culprits: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    fault: str | None = None
    onset_s: float | None = None
    end_s: float | None = None
    grey: bool = False
    cause: str | None = None
    nuisances: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class World:
    """One recording of one job.

    times_N: UTC seconds as the machine's own clock stamps them, in any order. machine_N: index into `machines`. device_N: index into
    `devices`, -1 for a row of the whole machine. values_NK: in base units of the catalogue, NaN where nothing was exported.
    stages, racks, switches, roles: by machine; a machine may be missing in each. clock_off_s: by machine, where its clock is wrong.
    """

    family: str
    seed: int
    machines: tuple[str, ...]
    metrics: tuple[str, ...]
    interval_s: float
    step_s: float
    times_N: np.ndarray
    machine_N: np.ndarray
    device_N: np.ndarray
    values_NK: np.ndarray
    truth: Truth
    devices: tuple[str, ...] = ()
    stages: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    roles: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    racks: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    switches: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    clock_off_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


class Family(Protocol):
    """A module of `families`. FAULTS, CAUSES and NUISANCES name what it can draw, each with one sentence."""

    NAME: str
    FAULTS: Mapping[str, str]
    CAUSES: Mapping[str, str]
    NUISANCES: Mapping[str, str]

    def draw(self, seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
        """One world. fault: one of FAULTS, NO_FAULT, or None for the seed's own choice; so with the number of machines and seconds.

        Same arguments, same world, bit for bit. With NO_FAULT all random numbers but the fault's own are the same as without it.
        """
        ...
