"""The default detector: online, constant work and memory per grid row, a few passes of array arithmetic over (metrics, machines).

A machine is anomalous as far as it differs from its peers more than it usually does, in several independent ways, for long enough,
while the training is slowed and no other machine differs as much. A row goes through STAGES, in this order; each is a module of this
package, says in its annotations what it works with, and can be left out. Legend: K metrics, M machines.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from minder.diagnose.detectors.absence import Absence
from minder.diagnose.detectors.accumulate import Accumulating, Convicting, Decaying
from minder.diagnose.detectors.baseline import Baseline, Distances, Scale
from minder.diagnose.detectors.baseline_reset import BaselineReset
from minder.diagnose.detectors.clocks import Activity, Clocks
from minder.diagnose.detectors.config import DefaultConfig
from minder.diagnose.detectors.contradiction import Contradiction
from minder.diagnose.detectors.coupling import Coupling
from minder.diagnose.detectors.evidence import needed_z
from minder.diagnose.detectors.explain import Explaining
from minder.diagnose.detectors.first_mover import FirstMover
from minder.diagnose.detectors.groups import CauseGroups
from minder.diagnose.detectors.large_clock_offsets import LargeClockOffsets
from minder.diagnose.detectors.learning import Learning
from minder.diagnose.detectors.minutes import Minutes
from minder.diagnose.detectors.onset import Onset
from minder.diagnose.detectors.outliers import Changed, FindingOutliers, PipelineStages
from minder.diagnose.detectors.persistence import Persistence
from minder.diagnose.detectors.phases import Phases
from minder.diagnose.detectors.presence import Presence
from minder.diagnose.detectors.ranking import Ranking
from minder.diagnose.detectors.recurrence import Recurrence
from minder.diagnose.detectors.restart_grace import RestartGrace
from minder.diagnose.detectors.row import Layout, Row
from minder.diagnose.detectors.skew_correction import SkewCorrection
from minder.diagnose.detectors.stage import Stage, compose
from minder.diagnose.detectors.standstill import Standstill
from minder.diagnose.detectors.state import Moves, State
from minder.diagnose.detectors.strength import Weighing
from minder.diagnose.detectors.traits import TraitTable, with_devices
from minder.model.evidence import Scores
from minder.model.telemetry import Window

__all__ = ["OPTIONAL", "STAGES", "DefaultConfig", "DefaultDetector"]

STAGES: tuple[type[Stage], ...] = (
    Presence,  # what is data, and who is silent
    Scale,  # each value on its metric's scale; the common level
    Phases,  # what all machines do together
    BaselineReset,  # what was usual was a rest
    Distances,  # each machine from its peers
    Activity,  # what each machine does
    LargeClockOffsets,  # compared at the offset of its clock, up to two minutes
    Clocks,  # and up to 15 s
    Baseline,  # distances smoothed at two paces, in usual sizes
    Standstill,  # in sizes of this standstill
    FindingOutliers,  # who, how far, and what of it counts
    Contradiction,  # not what all else of the machine contradicts
    Changed,  # not who came back; who has plainly changed
    Onset,  # who turned odd while all stood
    Weighing,  # how strongly it speaks
    FirstMover,  # who went first
    Absence,  # silence that began with a stall
    Minutes,  # what means over minutes show
    CauseGroups,  # who stands apart together
    Coupling,  # a standstill that no other machine feels
    RestartGrace,  # who is given time to come back
    Recurrence,  # signs that come back
    Decaying,  # what ended leaks away
    SkewCorrection,  # what a clock made of a common move is taken back
    Persistence,  # what stays
    Accumulating,  # evidence grows
    Convicting,  # by minutes instead of seconds
    Ranking,  # and of whom nothing is known, who stands farthest
    Explaining,  # the scores, and why
    Learning,  # what is usual
)
# Without these a row says less, or something else; without the others it says nothing.
OPTIONAL: tuple[type[Stage], ...] = (
    BaselineReset, LargeClockOffsets, Clocks, Standstill, Contradiction, Changed, Onset, Absence, FirstMover, Minutes, CauseGroups,
    Recurrence, Coupling, RestartGrace, SkewCorrection, Persistence, Convicting,
)  # fmt: skip
_VERSION = 9


class DefaultDetector:
    """Detector (contract.py). `stages`: machine to pipeline stage(s); machines of one stage do the same work. without: kinds of stages to
    leave out, of OPTIONAL."""

    def __init__(
        self,
        stages: Mapping[str, object] | None = None,
        config: DefaultConfig | None = None,
        without: Collection[type[Stage]] = (),
    ) -> None:
        self.config = config or DefaultConfig()
        self._stage_of = dict(stages or {})
        self._all, states = compose(STAGES, self.config)
        self._steps = tuple(step for step in self._all if type(step) not in without)
        self._states: dict[str, State] = {type(part).__name__.removesuffix("State"): part for part in states}
        self._machines: tuple[str, ...] = ()
        self._metrics: tuple[str, ...] = ()
        self._layout = self._lay_out()
        self._pending: list[Row] = []

    def score(self, window: Window) -> list[Scores]:
        metrics, values_TKM = with_devices(window)
        self._follow(window.machines, metrics)
        self._pending = [self._score_row(window, t, values_TKM[t]) for t in range(len(window.times_T))]
        return [row.scores for row in self._pending]

    def learn(self, window: Window, anomalous: frozenset[str]) -> None:
        barred_M = np.array([name in anomalous for name in self._machines], dtype=bool) if anomalous else None
        for row in self._pending:
            row.barred_M = barred_M
            for step in self._all:
                step.learn(row)
        self._pending = []

    def state(self) -> dict[str, Any]:
        parts = {name: part.record() for name, part in self._states.items()}
        return {
            "detector": "default",
            "version": _VERSION,
            "machines": list(self._machines),
            "metrics": list(self._metrics),
            "stages": parts,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take back what `state` gave. What another version wrote is a fresh start."""
        self._pending = []
        known = state.get("detector") == "default" and state.get("version") == _VERSION
        self._machines, self._metrics = (tuple(state["machines"]), tuple(state["metrics"])) if known else ((), ())
        for name, part in self._states.items():
            part.forget()
            part.follow(Moves.between(((), self._machines), ((), self._metrics)))
            if known:
                part.load(state["stages"][name], len(self._metrics), len(self._machines))
        self._layout = self._lay_out()

    def _follow(self, machines: Sequence[str], metrics: Sequence[str]) -> None:
        same = machines is self._machines or tuple(machines) == self._machines
        if same and tuple(metrics) == self._metrics:
            return
        moves = Moves.between((self._machines, machines), (self._metrics, metrics))
        renamed = tuple(metrics) != self._metrics
        self._machines, self._metrics = tuple(machines), tuple(metrics)
        for part in self._states.values():
            part.follow(moves)
        self._layout = self._lay_out(renamed)

    def _lay_out(self, renamed: bool = False) -> Layout:
        machines, traits = self._machines, TraitTable(self._metrics)
        several = PipelineStages.of([self._stage_of.get(name) for name in machines])
        informative = int((traits.weight_K1 > 0).sum())
        samples = self.config.lone_samples * np.log(max(2.0, len(machines) * informative))
        lone_share = min(self.config.most_at_once, 1.0 / max(1.0, samples))
        layout = Layout(machines, traits, several, needed_z(len(machines), informative), lone_share, renamed)
        for step in self._all:
            step.follow(layout)
        return layout

    def _score_row(self, window: Window, t: int, raw_KM: np.ndarray) -> Row:
        deviating_KM = None if window.device_TMK is None else window.device_TMK[t].T
        row = Row(self._layout, float(window.times_T[t]), raw_KM, window.present_TM[t], window.devices, deviating_KM)
        for step in self._steps:
            step.update(row)
        return row
