"""One row on its way through the stages, and the job that it is of. K metrics, M machines, X machines that stand out."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from minder.diagnose.detectors.outliers import Outliers, PipelineStages
from minder.diagnose.detectors.peers import Ordered
from minder.diagnose.detectors.phases import Phase
from minder.diagnose.detectors.presence import RowStatus
from minder.diagnose.detectors.strength import Strength
from minder.diagnose.detectors.traits import TraitTable
from minder.model.evidence import Scores

__all__ = ["Layout", "Row"]


@dataclass(frozen=True, slots=True)
class Layout:
    """What holds until machines or metrics change. start_z: deviation from which on anything counts, in usual sizes; lone_share: of what
    convicts, that one row may add where a family is heard alone. renamed: the metrics have changed places."""

    machines: tuple[str, ...]
    traits: TraitTable
    stages: PipelineStages
    start_z: float
    lone_share: float
    renamed: bool = False

    @property
    def staged(self) -> bool:
        """Whether there are pipeline stages to compare machines within."""
        return len(self.stages.members) > 1


@dataclass(slots=True)
class Row:
    """What came in, and what each stage has said of it, in the order of the stages. What a stage that is left out would have said stays as
    it is here.

    deviating_KM: index into `devices` of each machine's farthest device, -1 for none. calm: no machine is odd or was, so that no score
    changes. skewed_M: whose oddness came from a clock that is off. apart_M: who stands apart in a cause of slowness, where that was asked.
    given_M: who is given time to come back. works_on_M: whose GPUs rest while the host works; None: no machine's.
    """

    layout: Layout
    time_s: float
    raw_KM: np.ndarray
    present_M: np.ndarray
    devices: tuple[str, ...] = ()
    deviating_KM: np.ndarray | None = None
    status: RowStatus = field(init=False)
    scaled_KM: np.ndarray = field(init=False)
    ordered: Ordered = field(init=False)
    center_K: np.ndarray = field(init=False)
    phase: Phase = field(init=False)
    distances: dict[str, np.ndarray] = field(init=False)
    level_M: np.ndarray | None = None
    level: float = np.nan
    far_off: Collection[str] = ()
    standstill_KM: np.ndarray | None = None
    outliers: Outliers = field(init=False)
    afterwards_X: np.ndarray | None = None
    strength: Strength = field(init=False)
    apart_M: np.ndarray | None = None
    given_M: np.ndarray | None = None
    works_on_M: np.ndarray | None = None
    recurring_x: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=int))
    calm: bool = False
    skewed_M: np.ndarray | None = None
    ranked_M: np.ndarray = field(init=False)
    scores: Scores = field(init=False)
    barred_M: np.ndarray | None = None

    @property
    def traits(self) -> TraitTable:
        return self.layout.traits
