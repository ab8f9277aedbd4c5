"""A standstill that no other machine feels.

The machines of a job wait for each other: one that stands holds all others up within a step or two. Where one shows that nearly all that
it computes and sends has ended, while the others' common level goes on as ever, its clock may be off: it shows a checkpoint that the
others have behind them, or before them. Its evidence is held back for as long as a clock may be off, also while it comes back; it is not
dropped, and what ends unfelt is forgotten. What began with a stop of all was felt: who does not come back from it holds the others up,
unless these work as ever all the same: then it is early. Who worked on while all stood is late: it will show for as long that it stands. A
cause of slowness (errors, congestion, a link's width) is a witness, but not what comes with standing, a lower clock rate, less congestion
or memory that is let go, nor what the machine has worked with for a minute.
Where it is not known both what the others compute and what they send nothing is held back.
K metrics, M machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.baseline import BaselineState
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.peers import has_gaps
from minder.diagnose.detectors.phases import Phase, PhasesNumbers, PhaseState
from minder.diagnose.detectors.presence import RowStatus
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.traits import TraitTable

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Coupling", "CouplingNumbers", "CouplingState"]


@dataclass(frozen=True, slots=True)
class CouplingNumbers:
    """Section [coupling] of detector.toml: what each number is stands there."""

    held_s: float
    witness: float
    felt: float
    stands: float
    down: float
    telling: int
    others: int
    old_s: float
    long_s: float
    long_intervals: float
    forget_s: float
    back_s: float
    back_intervals: float
    most_work: float
    most_stand: float


_N = numbers("coupling", CouplingNumbers)
_PHASES = numbers("phases", PhasesNumbers)


@dataclass(slots=True)
class CouplingState(State):
    alone_s_M: np.ndarray = per("M")  # seconds for which the machine has stood while no other felt it
    felt_M: np.ndarray = per("M")  # 1: it has been down since a stop of all
    held_M: np.ndarray = per("M")  # 1: what it showed in the last row was held back
    down_M: np.ndarray = per("M")  # 1: it has been held back, and is still down
    witness_s_M: np.ndarray = per("M")  # seconds for which a cause of slowness had spoken before it stood
    passed_M: np.ndarray = per("M")  # 1: since this row it is no longer, and no other has felt it
    owes_s_M: np.ndarray = per("M")  # seconds for which it worked on through a stop of the job, and has not stood since
    works_s: float = 0.0  # seconds for which the middle machine has done nearly all as ever


class Coupling(Stage):
    """Whose standstill no other machine feels: `row.strength.held_M`."""

    phases: PhaseState
    baseline: BaselineState
    state: CouplingState

    def update(self, row: Row) -> None:
        traits, x = row.traits, row.outliers.machines_X
        witness_M = np.zeros(len(row.status.silence_M), dtype=bool)
        causes_KX = traits.causes_K1 & ~traits.falls_K1 & (~traits.ends_K[:, None] | (row.outliers.z_KX > 0.0))
        witness_M[x] = (causes_KX & (row.outliers.counted_KX > _N.witness)).any(axis=0)
        row.strength.held_M = self.held_M(traits, row.phase, row.status, witness_M)

    def held_M(self, traits: TraitTable, phase: Phase, status: RowStatus, witness_M: np.ndarray) -> np.ndarray:
        """Mask (M,): whose standstill no other machine feels, or who comes back from one. To be asked once per row. witness_M: a cause of
        slowness speaks, too."""
        does_K = traits.works_K1[:, 0] & traits.activity_K & ~np.isnan(phase.shift_K)
        none_M = np.zeros(len(status.silent_M), dtype=bool)
        does, sends = np.count_nonzero(does_K), np.count_nonzero(does_K & traits.links_K)
        if not 0 < sends < does or len(none_M) < _N.others:
            return none_M
        own_M, known_M = self._own_M(phase, does_K)
        state, moved_K = self.state, self.phases.center_K[does_K] - self.phases.common_K[does_K]
        back, long_s = self._follow_work(moved_K, status), max(_N.long_s, _N.long_intervals * status.interval_s)
        stops = (phase.stalled or phase.idle) and not back
        known = (witness_M, state.witness_s_M, state.alone_s_M, state.felt_M, state.down_M, state.owes_s_M)
        if own_M.min() >= _N.stands and not (stops or any(of_M.any() for of_M in known)):  # as in most rows
            state.held_M, state.passed_M = np.zeros(len(own_M)), np.zeros(len(own_M))
            return none_M
        slowed = phase.harm >= _N.felt and not back  # others that work more than they did feel nothing
        alone = not (stops or phase.grace or slowed or status.outage)
        stands = bool(np.count_nonzero(moved_K < _PHASES.stood) >= _N.most_stand * len(moved_K))
        late_M = self._late_M(own_M, (known_M >= _N.telling) & ~status.silent_M, stands, status.gap_s)
        felt_M = (state.felt_M > 0.0) & (own_M < _N.down) & (not back)
        if stops:
            felt_M |= (own_M < _PHASES.stood) & (state.alone_s_M < long_s)
        state.felt_M = felt_M.astype(np.float64)
        if witness_M.any() or state.witness_s_M.any():
            older_M = np.where(own_M > _N.down, status.gap_s, 0.0)
            state.witness_s_M = np.where(witness_M, np.minimum(state.witness_s_M + older_M, _N.old_s), 0.0)
            witness_M = witness_M & (state.witness_s_M < _N.old_s)
        found_M = alone & (own_M < _N.stands) & (known_M >= _N.telling) & ~felt_M & ~witness_M & ~status.silent_M
        if found_M.any() or state.alone_s_M.any():
            kept_M = state.alone_s_M * np.where(own_M < _PHASES.stood, 1.0, np.exp(-status.gap_s / _N.forget_s))
            state.alone_s_M = np.where(found_M, kept_M + status.gap_s, np.where(kept_M > 1.0, kept_M, 0.0))
        found_M |= late_M
        state.held_M = found_M.astype(np.float64)
        down_M = found_M | ((state.down_M > 0.0) & (own_M < _N.down))
        state.passed_M = ((state.down_M > 0.0) & ~down_M & (not slowed)).astype(np.float64)
        state.down_M = down_M.astype(np.float64)
        return np.asarray(down_M & (alone | late_M | ((state.alone_s_M >= long_s) & ~felt_M)))

    def _follow_work(self, moved_K: np.ndarray, status: RowStatus) -> bool:
        """Whether the job has worked as ever for so long that whatever stands did not stop it. moved_K: how far what the middle machine
        does is from its usual place in this row; what is smoothed of a stop is left for a minute."""
        works = np.count_nonzero(moved_K > _N.down) >= _N.most_work * len(moved_K)
        self.state.works_s = self.state.works_s + status.gap_s if works else 0.0
        return self.state.works_s >= max(_N.back_s, _N.back_intervals * status.interval_s)

    def _late_M(self, own_M: np.ndarray, known_M: np.ndarray, stands: bool, gap_s: float) -> np.ndarray:
        """Mask (M,): who stands for no longer than it worked on through a stop of the job. known_M: whose work is known; stands: the job
        does, in this row."""
        works_M, owes_s_M = own_M > _N.down, self.state.owes_s_M
        if stands:
            self.state.owes_s_M = np.where(works_M, np.where(known_M, owes_s_M + gap_s, owes_s_M), 0.0)
            return np.zeros_like(works_M)
        left_s_M = np.where(works_M, owes_s_M * np.exp(-gap_s / _N.forget_s), owes_s_M - gap_s)
        self.state.owes_s_M = np.where(left_s_M > 1.0, left_s_M, 0.0)
        return np.asarray((owes_s_M > 0.0) & ~works_M)

    def _own_M(self, phase: Phase, does_K: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(M,): how far each machine's own work has moved, scaled, as the mean of these metrics, and how many of them are known."""
        own_KM = self.baseline.all_quick.smooth_KM[does_K] + phase.shift_K[does_K, None]
        if not has_gaps(own_KM):
            return own_KM.sum(axis=0) / len(own_KM), np.full(own_KM.shape[1], len(own_KM))
        known_M = (~np.isnan(own_KM)).sum(axis=0)
        return np.nansum(own_KM, axis=0) / np.maximum(known_M, 1), known_M

    def not_aligned(self, machines: Sequence[str]) -> dict[str, str]:
        """Machine to one line, for those whose standstill no other has felt for so long that a look at the clock is worth it."""
        held_M = (self.state.held_M > 0.0) & (self.state.alone_s_M >= _N.long_s)
        line = "it shows a standstill that no other machine feels: look at its clock, or at what else it runs"
        return {machines[m]: line for m in np.flatnonzero(held_M).tolist()}
