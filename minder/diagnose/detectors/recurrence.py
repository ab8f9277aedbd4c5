"""A sign of trouble that comes back: short each time, always at the same machine, and at hardly any other.

A link that goes down and up, a process that freezes for seconds: each time the job waits for a moment, the common level is on its way, and
evidence that must last never gathers. Once is chance, three times within ten minutes at the same machine is not. Four signs are plain
enough to be counted one by one:

- it rests while all others spin, and wait for it. Where all have rested within two minutes this says nothing: a checkpoint is written
  on by one machine, or shown later by a clock that is off. One that works on when all rest has shown their checkpoint before them. A
  rest that goes on is one rest, also where the others are not seen to wait in between: until it has worked as they do, none is counted.
  Nor is one in which its host writes for all (`restart_grace`);
- a link of it goes down, and of no other machine but the one at its other end: twice is enough where the job was seen to wait about
  then, three times where it was not, since a spare link may flap without harm; once, where the job came to stand right then, and still
  stands. Bursts of errors are no such sign: dirty links that no job feels have them from the first day on;
- its GPUs say that their hardware slows them, heat or a power brake, and those of no other machine do;
- its clock rate falls far below all others', and comes back.

What comes back at many machines is how the job works. K metrics, M machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.group_state import GroupState
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.phases import Phase, PhaseState
from minder.diagnose.detectors.presence import PresenceState, RowStatus
from minder.diagnose.detectors.restart_grace import RestartGraceState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.traits import SPINNING, TraitTable, any_bit

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Layout, Row

__all__ = ["Recurrence", "RecurrenceState", "often"]


@dataclass(frozen=True, slots=True)
class RecurrenceNumbers:
    """Section [recurrence] of detector.toml: what each number is stands there."""

    limit: float
    forget_s: float
    again_s: float
    again_intervals: float
    rests: float
    all_rest: float
    works: float
    rested_s: float
    lag_rows: float
    felt: float
    few: float
    downs: float
    felt_s: float
    felt_intervals: float
    stands_s: float
    share: float
    second: float
    forgotten: float
    ends: float
    jitters: float
    all_write: float


_N = numbers("recurrence", RecurrenceNumbers)

_DOWNS = "link_downs_total"
_ENDS = 2  # of a cable
_REASONS = "gpu_throttle_reasons"


@dataclass(slots=True)
class RecurrenceState(State):
    recurrences_M: np.ndarray = per("M")  # how often it has shown a sign, forgotten within ten minutes
    sign_s_M: np.ndarray = per("M", -np.inf)  # when it last showed one
    sign_k_M: np.ndarray = per("M", np.nan)  # by which metric, as an index
    worked_M: np.ndarray = per("M", 1.0)  # 1: it has worked as it usually does since its last rest that was counted
    returned_M: np.ndarray = per("M")  # 1: that is why it stands accused, and nothing else has spoken against it as loudly since
    downs_M: np.ndarray = per("M", np.nan)  # how often its links have been down by the last row
    slowed_M: np.ndarray = per("M", np.nan)  # 1: in the last row its GPUs said that they are slowed, 0: they did not
    felt_s: float = -np.inf  # when the job was last seen to wait
    all_rested_s: float = -np.inf
    all_rest_rows: float = 0.0


class Recurrence(Stage):
    """Counts the signs that come back; who has shown enough of them: `row.recurring_x`."""

    phases: PhaseState
    presence: PresenceState
    groups: GroupState
    restart_grace: RestartGraceState
    state: RecurrenceState

    def update(self, row: Row) -> None:
        self.update_recurrence(row.traits, row.scaled_KM, row.phase, row.status, row.time_s, self._falls(row))
        row.recurring_x = self.recurring_x()
        if not len(row.recurring_x):
            row.recurring_x = self.stopped_x(row.traits, row.phase, row.status, row.time_s)

    def follow(self, layout: Layout) -> None:
        if layout.renamed:  # metrics stand under other numbers now
            self.state.forget("sign_k_M")

    def update_recurrence(
        self,
        traits: TraitTable,
        scaled_KM: np.ndarray,
        phase: Phase,
        status: RowStatus,
        time_s: float,
        falls: tuple[int, np.ndarray | None] = (-1, None),
    ) -> None:
        """Counts the signs of one row; all rows count, those in which the common level is on its way above all. falls: as `_falls`."""
        again_s = max(_N.again_s, _N.again_intervals * status.interval_s)
        if self._is_felt(traits):
            self.state.felt_s = time_s
        kept_M = self.state.recurrences_M * np.exp(-status.gap_s / _N.forget_s)
        self.state.recurrences_M = np.where(kept_M > _N.forgotten, kept_M, 0.0)
        waited = time_s - self.state.felt_s <= max(_N.felt_s, _N.felt_intervals * status.interval_s)
        signs = (self._rests(traits, scaled_KM, phase, time_s), self._fails(traits), self._slows(traits), falls)
        weights = (1.0, _N.downs if waited else 1.0, 1.0, 1.0)
        for is_rest, weight, (k, shows_M) in zip((True, False, False, False), weights, signs, strict=True):
            if shows_M is None or status.outage:
                continue
            x = np.flatnonzero(shows_M & ~status.silent_M)
            is_another_x = time_s - self.state.sign_s_M[x] >= again_s
            if is_rest:
                is_another_x &= (self.state.worked_M[x] > 0.0) & np.isnan(self.restart_grace.writes_since_M[x])
                self.state.worked_M[x] = 0.0
            self.state.recurrences_M[x] += is_another_x * weight
            self.state.sign_s_M[x], self.state.sign_k_M[x] = time_s, float(k)

    def recurring_x(self) -> np.ndarray:
        """The machine, as an array of one index or none, at which a sign has come back so often that it is no chance; or the two ends of a
        cable, which showed the last one in the same row."""
        recurrences_M = self.state.recurrences_M
        none_x = np.zeros(0, dtype=int)
        if len(recurrences_M) < 3 or not recurrences_M.max() >= _N.limit:
            return none_x
        first, second, third = np.argsort(-recurrences_M, kind="stable")[:3].tolist()
        found_x, other = np.array([first]), second
        same = self.state.sign_k_M[first] == self.state.sign_k_M[second] and self.state.sign_s_M[first] == self.state.sign_s_M[second]
        if same and recurrences_M[second] >= _N.ends * recurrences_M[first]:
            found_x, other = np.array([first, second]), third
        alone = recurrences_M[other] <= _N.second * recurrences_M[first]
        return found_x if alone and recurrences_M[found_x].sum() >= _N.share * recurrences_M.sum() else none_x

    def stopped_x(self, traits: TraitTable, phase: Phase, status: RowStatus, time_s: float) -> np.ndarray:
        """The machine of which a link went down as the job came to stand, and of no other in minutes, once it has stood since; or the two
        ends of the cable."""
        k, since_s = traits.place.get(_DOWNS), time_s - phase.stands_since_s
        if k is None or not since_s >= _N.stands_s or phase.idle or phase.grace or phase.usual_stand:
            return np.zeros(0, dtype=int)
        before_M = phase.stands_since_s - self.state.sign_s_M  # infinite where there was none
        down_M = (self.state.sign_k_M == k) & (before_M <= _N.felt_s) & (before_M >= -_N.felt_intervals * status.interval_s)
        alone = np.count_nonzero(down_M) <= _ENDS < len(down_M) and not self.state.recurrences_M[~down_M].any()
        return np.flatnonzero(down_M) if alone else np.zeros(0, dtype=int)

    def _rests(self, traits: TraitTable, scaled_KM: np.ndarray, phase: Phase, time_s: float) -> tuple[int, np.ndarray | None]:
        """(metric, mask (M,) of who rests while all others spin and wait)."""
        known = [k for name in SPINNING if (k := traits.place.get(name)) is not None and not np.isnan(self.phases.common_K[k])]
        if not known:
            return -1, None
        host = traits.tcp
        if host is not None and self.phases.center_K[host] - self.phases.common_K[host] > _N.all_write:
            self.state.all_rested_s = time_s  # a checkpoint, shorter than a scrape
        k = known[0]
        with np.errstate(invalid="ignore"):
            self.state.worked_M[self.phases.common_K[k] - scaled_KM[k] < _N.works] = 1.0
        if phase.idle or not self.phases.common_K[k] - self.phases.center_K[k] < _N.all_rest:
            self.state.all_rested_s = time_s
            self.state.all_rest_rows = self.state.all_rest_rows + 1.0
            if self.state.all_rest_rows > _N.lag_rows and self.state.recurrences_M.any():
                early_M = (self.state.sign_k_M == k) & (self.phases.common_K[k] - scaled_KM[k] < _N.all_rest)
                self.state.recurrences_M = np.where(early_M, 0.0, self.state.recurrences_M)
            return k, None
        self.state.all_rest_rows = 0.0
        if time_s - self.state.all_rested_s <= _N.rested_s or self.phases.common_n_K[k] < _N.rested_s:
            return k, None
        with np.errstate(invalid="ignore"):
            rests_M = self.phases.common_K[k] - scaled_KM[k] > _N.rests
            if not rests_M.any() or np.count_nonzero(rests_M) > max(1.0, _N.few * len(rests_M)):
                return k, None
        return k, rests_M if self._is_felt(traits) else None

    def _is_felt(self, traits: TraitTable) -> bool:
        """Whether something that the GPUs do, or send, has fallen for all, and by more than it does from row to row."""
        does_K = traits.works_K1[:, 0] & traits.activity_K
        with np.errstate(invalid="ignore"):
            least_K = np.fmin(_N.felt, -_N.jitters * self.phases.jitter_K[does_K])
            return bool((self.phases.center_K[does_K] - self.phases.common_K[does_K] < least_K).any())

    def _fails(self, traits: TraitTable) -> tuple[int, np.ndarray | None]:
        """(metric, mask (M,) of the one machine of which a link went down, or of the two that share it)."""
        k = traits.place.get(_DOWNS)
        if k is not None:
            downs_M, before_M = self.presence.last_KM[k].astype(np.float64), self.state.downs_M
            self.state.downs_M = np.where(np.isnan(downs_M), before_M, downs_M)
            climbs_M = downs_M > before_M
            if climbs_M.any():
                return k, climbs_M if np.count_nonzero(climbs_M) <= _ENDS else None
        return -1, None

    def _slows(self, traits: TraitTable) -> tuple[int, np.ndarray | None]:
        """(metric, mask (M,) of the one machine whose GPUs say again that they are slowed, while those of no other do)."""
        k = traits.place.get(_REASONS)
        if k is not None:
            slowed_M = any_bit(self.presence.last_KM[k], np.int64(traits.offset_K1[k, 0])) > 0.0
            again_M = slowed_M & (self.state.slowed_M == 0.0)
            self.state.slowed_M = slowed_M.astype(np.float64)
            if again_M.any():
                return k, again_M if np.count_nonzero(slowed_M) == 1 else None
        return -1, None

    def _falls(self, row: Row) -> tuple[int, np.ndarray | None]:
        """(metric, mask (M,) of the one machine whose clock rate stands apart from all others')."""
        if row.apart_M is None or np.count_nonzero(row.apart_M) != 1:
            return -1, None
        k = int(self.groups.grouped_k_M[row.apart_M][0])
        return k, row.apart_M if row.traits.falls_K1[k, 0] else None


def often(metric: str, recurrences: float) -> int:
    """How many times a sign has come, of as many as are not forgotten yet: a link that stopped the job may have gone down once."""
    return max(1 if recurrences <= _N.downs else 2, round(recurrences / _N.downs)) if metric == _DOWNS else max(3, round(recurrences))
