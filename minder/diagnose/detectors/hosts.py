"""Who waits for its host, while the others are as busy as ever, or wait for it and spin; whose memory or disk has run full, or leaks.

A host that is busy is housekeeping, unless the training is slower since about then. K metrics, M machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.baseline import BaselineState
from minder.diagnose.detectors.causes import Causes, CausesNumbers, standing_M
from minder.diagnose.detectors.group_state import GroupState
from minder.diagnose.detectors.minutes import Minutes
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.presence import PresenceState
from minder.diagnose.detectors.score import ScoreState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.together import TogetherNumbers
from minder.diagnose.detectors.traits import SPINNING, TraitTable

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["HostState", "Hosts", "HostsNumbers"]


@dataclass(frozen=True, slots=True)
class HostsNumbers:
    """Section [hosts] of detector.toml: what each number is stands there."""

    as_busy: float
    shows: float
    waits: float
    waits_z: float
    waits_alone: float
    memory_full: float
    disk_full: float
    filled: float


_N = numbers("hosts", HostsNumbers)
_CAUSES = numbers("causes", CausesNumbers)
_TOGETHER = numbers("together", TogetherNumbers)
_MEMORY = "memory_usage_ratio"
_BUSY = (*SPINNING, "job_busy_ratio")  # the share of the time in which GPUs or processes are busy, also where they wait for each other


@dataclass(slots=True)
class HostState(State):
    busy_since_M: np.ndarray = per("M", np.nan)  # since when its host has been plainly busier than all others'


class Hosts(Stage):
    """Who stands apart by its host."""

    presence: PresenceState
    baseline: BaselineState
    score: ScoreState
    minutes: Minutes
    causes: Causes
    groups: GroupState
    state: HostState

    def of_full(self, row: Row, leaks_M: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """(metric, mask (M,)) of who has no memory or no disk left. leaks_M: whose memory is full within minutes."""
        for name, most in ((_MEMORY, _N.memory_full), ("disk_usage_ratio", _N.disk_full)):
            if name in row.traits.place:
                full_M = self._full_M(row.traits.place[name], most)
                yield row.traits.place[name], full_M | leaks_M if name == _MEMORY else full_M

    def of_waiting(self, row: Row) -> Iterator[tuple[int, np.ndarray]]:
        """(metric, mask (M,)) of who waits for its host, of each metric that says how busy GPUs or processes are."""
        traits, phase = row.traits, row.phase
        if not phase.steady or phase.usually_rests:
            return
        for name in _BUSY:
            k = traits.place.get(name, -1)
            if k >= 0 and abs(phase.shift_K[k]) <= _N.as_busy:  # all others are as busy as ever
                waits_M = self._waits_M(k)
                if name in SPINNING:
                    waits_M = waits_M if waits_M.any() else self.causes.alone_M(traits, k)
                    if waits_M.any():
                        waits_M &= self._is_agreed(traits, k, int(np.argmax(waits_M)))
                yield k, waits_M

    def note_busy(self, row: Row, busy_M: np.ndarray) -> None:
        """busy_M: whose hosts are plainly busier than all others' in this row. Since when they are is kept while they are a little."""
        state, hosts_K = self.causes.state, row.traits.hosts_K
        if not busy_M.any() and np.isnan(self.state.busy_since_M).all():
            return
        still_M = (state.place_KM[hosts_K] - state.usual_KM[hosts_K] > _CAUSES.learned * row.traits.reach_K1[hosts_K]).any(axis=0)
        since_M = np.where(busy_M & np.isnan(self.state.busy_since_M), row.time_s, self.state.busy_since_M)
        self.state.busy_since_M = np.where(busy_M | still_M, since_M, np.nan)

    def _waits_M(self, k: int) -> np.ndarray:
        """Mask (M,): the one machine that has fallen by more than `waits`, while no other has moved by a third of it."""
        found_M = np.zeros(len(self.groups.grouped_s_M), dtype=bool)
        of_all = self.baseline.all_slow
        known_M = ~np.isnan(of_all.smooth_KM[k])
        if np.count_nonzero(known_M) < _CAUSES.fewest or not float(np.fmin.reduce(of_all.smooth_KM[k])) < -_N.waits:
            return found_M
        far_M = np.where(known_M, -of_all.smooth_KM[k], 0.0)
        first = int(np.argmax(far_M))
        far, unit = float(far_M[first]), float(of_all.unit_KM[k, first])
        far_M[first] = 0.0
        shows = -float(self.baseline.all_quick.smooth_KM[k, first]) > _N.shows * far  # else it echoes what has ended
        plain = far > max(_N.waits, _N.waits_z * unit, _N.waits_alone * float(np.abs(far_M).max()))
        found_M[first] = shows and plain and far < _CAUSES.goes_on
        return found_M

    def _is_agreed(self, traits: TraitTable, k: int, m: int) -> bool:
        """Whether all that says how busy this machine's GPUs are shows what metric k shows: one reading alone may be broken."""
        below = {}
        for other in [traits.place[name] for name in SPINNING if name in traits.place]:
            apart = float(standing_M(self.causes.state, self.baseline, other)[m])
            if not isnan(apart):
                below[other] = -apart
        return all(share >= _N.shows * below.get(k, 0.0) for share in below.values())

    def _full_M(self, k: int, most: float) -> np.ndarray:
        """Mask (M,): the few machines of which what a host can hold has run full since their usual place was learned."""
        last_M = self.presence.last_KM[k]
        if not (last_M >= most).any():
            return np.zeros(len(last_M), dtype=bool)
        with np.errstate(invalid="ignore"):
            risen_M = self.baseline.all_quick.smooth_KM[k] > np.maximum(_N.filled, self.baseline.all_quick.unit_KM[k])
            full_M = (last_M >= most) & (last_M <= 1.0) & risen_M
        return full_M if np.count_nonzero(full_M) * _TOGETHER.part <= max(len(full_M), 2 * _TOGETHER.part) else np.zeros_like(full_M)

    def slow_M(self, row: Row, busy_M: np.ndarray) -> np.ndarray:
        """Mask (M,): of machines whose hosts are busy those since when the training is slower, where no other machine is convicted: a
        busier host is housekeeping else."""
        since_M = self.state.busy_since_M
        found_M = busy_M & ~np.isnan(since_M)
        claimed = ((self.score.score_M >= self.config.patience_s) & ~busy_M).any()
        slowed = not claimed and found_M.any() and self.minutes.slowed_since(row, float(since_M[found_M].min()))
        return np.asarray(found_M & slowed)
