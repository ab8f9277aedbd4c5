"""One recording while it is being made: what the job does at each time, what deviates, what the monitoring loses.

Legend: T ticks of true time, M machines, K metrics, S states.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from minder.model.evidence import Signal
from minder.simulate.cluster.fault_plan import FaultPlan
from minder.simulate.cluster.levels import STATES, MetricModel
from minder.simulate.cluster.recipe import Recipe
from minder.simulate.cluster.shape import JobShape
from minder.simulate.cluster.streams import Streams

__all__ = ["TRAIN", "Phase", "Scene", "new_scene"]

TRAIN = -1  # the mode of a machine that is in its iteration


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase that the whole job shares, in seconds since the start."""

    name: str
    begin_s: float
    end_s: float


@dataclass
class Scene:
    """The state that concepts write into.

    mode_TM: the state (index into STATES) of a machine, TRAIN while it iterates. depth_TM: how completely. pace_T: steps, relative to
    an undisturbed job. wait_TM: share of time in which a machine waits for others. activity_TM: work relative to its usual. gain_TMK:
    what multiplies a metric. silent_TM: nothing is scraped. skew_M: seconds that a machine's clock is ahead. signals: what the
    machines report, times in seconds since the start. frozen: sensors (machine, metric, from tick, to tick) that repeat themselves.
    before: pace_T and wait_TM without the fault.
    """

    recipe: Recipe
    shape: JobShape
    streams: Streams
    models: tuple[MetricModel, ...]
    duration_s: float
    fault: FaultPlan | None
    mode_TM: np.ndarray
    depth_TM: np.ndarray
    pace_T: np.ndarray
    wait_TM: np.ndarray
    activity_TM: np.ndarray
    gain_TMK: np.ndarray
    silent_TM: np.ndarray
    skew_M: np.ndarray
    phases: list[Phase] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    frozen: list[tuple[int, int, int, int]] = field(default_factory=list)
    nuisances: tuple[str, ...] = ()
    before: tuple[np.ndarray, np.ndarray] = (np.empty(0), np.empty((0, 0)))

    @property
    def ticks(self) -> int:
        return len(self.pace_T)

    @property
    def machines(self) -> int:
        return len(self.shape.machines)

    @property
    def tick_s(self) -> float:
        return self.recipe.tick_s

    @property
    def time_T(self) -> np.ndarray:
        """Seconds since the start."""
        return np.arange(self.ticks) * self.tick_s

    def span(self, begin_s: float, lasts_s: float = np.inf) -> slice:
        """The ticks of a time span; at least one inside the recording."""
        first = min(max(int(begin_s / self.tick_s), 0), self.ticks - 1)
        last = self.ticks if not np.isfinite(lasts_s) else max(first + 1, int((begin_s + lasts_s) / self.tick_s))
        return slice(first, min(last, self.ticks))

    def of(self, *groups: str) -> list[int]:
        """Indices of the metrics of these groups."""
        return [k for k, model in enumerate(self.models) if model.group in groups]

    def gain(self, rows: slice, machine: int, metrics: list[int], factor: float | np.ndarray) -> None:
        """Multiply metrics of a machine; factor: one number, or one per tick of `rows`."""
        shaped = np.asarray(factor, dtype=np.float64).reshape(-1, 1)
        for k in metrics:
            self.gain_TMK[rows, machine, k] *= shaped[:, 0]

    def enter(self, state: str, rows: slice, machines: np.ndarray | list[int] | slice, depth: float = 1.0) -> None:
        """Put machines into a state for a time."""
        self.mode_TM[rows, machines] = STATES.index(state)
        self.depth_TM[rows, machines] = depth

    def quiet_spot(self, rng: np.random.Generator, lasts_s: float, margin_s: float = 60.0) -> float | None:
        """A time for a job-wide phase that has ended a while before the onset; None where there is none."""
        last_s = (self.fault.onset_s if self.fault else self.duration_s) - lasts_s - margin_s
        return float(rng.uniform(margin_s, last_s)) if last_s > margin_s else None


def new_scene(recipe: Recipe, shape: JobShape, streams: Streams, models: tuple[MetricModel, ...], duration_s: float) -> Scene:
    """A job that trains from beginning to end and nothing else."""
    ticks, machines = int(duration_s / recipe.tick_s), len(shape.machines)
    return Scene(
        recipe, shape, streams, models, duration_s, None,
        mode_TM=np.full((ticks, machines), TRAIN, dtype=np.int8), depth_TM=np.ones((ticks, machines)), pace_T=np.ones(ticks),
        wait_TM=np.zeros((ticks, machines)), activity_TM=np.ones((ticks, machines)), gain_TMK=np.ones((ticks, machines, len(models))),
        silent_TM=np.zeros((ticks, machines), dtype=bool), skew_M=np.zeros(machines),
    )  # fmt: skip
