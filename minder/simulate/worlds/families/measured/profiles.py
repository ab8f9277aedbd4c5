"""How the metrics of real training jobs look: levels by phase, correlation, time constants.

The numbers in PROFILES were measured on telemetry of eight H100 of one machine at 10 Hz (DDP, gradient accumulation, FSDP with offload,
inference) and of two-node jobs' InfiniBand ports (DDP; TP+EP+DP); that telemetry is not part of this project, only these aggregates are:

- power of two GPUs of a machine correlates at 0.95 (DDP; 0.98 in means of 5 s), 0.56 (accumulation), 0.99 (FSDP), 0.31 (inference, 0.06
  in means of 5 s: GPUs that serve do not move together), SM activity at 0.54 (0.96), 0.33, 0.90, 0.32
- spread between GPUs of the same work: power 1.7 % (DDP), 0.4 % (accumulation), SM activity 0.5 to 3 %, temperature 7 to 12 degrees by slot
- autocorrelation of power in DDP 0.99, 0.74, 0.36 and 0.23 after 0.1, 1, 5 and 10 s; FSDP and the two-node DDP have a cycle of 10 s (0.44
  and 0.95 after 10 s), TP+EP one of 0.3 s (0.93)
- temperature follows power at 0.042 to 0.06 K/W over 28 to 42 degrees with 12 to 30 s

The marginals of A100 sites are quantiles of AcmeTrace (data/README.txt). Legend: Q quantiles.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

__all__ = ["PROFILES", "Profile", "Quantiles", "load_quantiles"]


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of job. Levels are (in its low phase, in its high phase, while it waits); cycle_s: how long low and high take together.

    high: share of a cycle in the high phase. alike: correlation between machines. wander: standard deviation of a level, relative.
    """

    cycle_s: tuple[float, float]
    high: float
    alike: float
    wander: float
    spread: float
    power: tuple[float, float, float]
    duty: tuple[float, float, float]
    sm: tuple[float, float, float]
    tensor: tuple[float, float, float]
    memory: tuple[float, float, float]
    nvlink: tuple[float, float, float]
    pcie: tuple[float, float, float]
    rdma: tuple[float, float, float]


PROFILES: dict[str, Profile] = {
    "ddp": Profile(
        (0.3, 12.0), 0.85, 0.97, 0.031, 0.017, (510.0, 548.0, 300.0), (0.8, 0.86, 1.0), (0.58, 0.65, 0.09), (0.17, 0.2, 0.0),
        (0.29, 0.33, 0.02), (7.4e9, 9.0e9, 1e6), (1.1e7, 1.3e7, 2e6), (4.5e9, 1.9e10, 1e4),
    ),
    "accumulation": Profile(
        (4.0, 40.0), 0.9, 0.6, 0.004, 0.004, (660.0, 692.0, 310.0), (1.0, 1.0, 1.0), (0.82, 0.888, 0.1), (0.46, 0.6, 0.0),
        (0.33, 0.375, 0.02), (1.4e10, 4e7, 1e6), (1.2e7, 7e6, 2e6), (2.4e10, 1e6, 1e4),
    ),
    "fsdp": Profile(
        (5.0, 60.0), 0.3, 0.95, 0.03, 0.013, (122.0, 350.0, 122.0), (0.02, 0.98, 0.0), (0.01, 0.8, 0.0), (0.0, 0.55, 0.0),
        (0.0, 0.38, 0.0), (1e7, 4.5e10, 1e6), (1e6, 6.8e9, 1e6), (1e6, 1.6e10, 1e4),
    ),
    "expert": Profile(
        (0.3, 8.0), 0.55, 0.85, 0.04, 0.02, (330.0, 590.0, 280.0), (0.9, 0.98, 1.0), (0.3, 0.7, 0.08), (0.1, 0.34, 0.0),
        (0.2, 0.36, 0.02), (2.2e10, 6e10, 1e6), (8e6, 1.5e7, 2e6), (3.0e10, 2.2e11, 1e4),
    ),
    "rollout": Profile(
        (3.0, 30.0), 0.8, 0.1, 0.03, 0.026, (195.0, 212.0, 120.0), (0.6, 0.72, 0.0), (0.2, 0.25, 0.0), (0.03, 0.038, 0.0),
        (0.12, 0.155, 0.0), (0.0, 0.0, 0.0), (2.9e7, 3.2e7, 1e6), (1e6, 3e7, 1e4),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A cluster's marginals. at_Q: 0 to 1, values: by metric, in base units."""

    at_Q: np.ndarray
    values: dict[str, np.ndarray]

    def value(self, metric: str, at: np.ndarray | float) -> np.ndarray:
        """The metric's values at these probabilities."""
        return np.asarray(np.interp(at, self.at_Q, self.values[metric]))


@cache
def load_quantiles(site: str) -> Quantiles:
    """The marginals of "kalos" or "seren"."""
    text = (files("minder.simulate.worlds") / "data" / "acme_quantiles.csv").read_text(encoding="utf-8")
    header, *rows = csv.reader(text.splitlines())
    at_Q = np.array([float(percent) / 100.0 for percent in header[2:]])
    return Quantiles(at_Q, {row[1]: np.array([float(value) for value in row[2:]]) for row in rows if row[0] == site})
