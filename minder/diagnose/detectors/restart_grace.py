"""Who has not come back yet: what all machines stop doing together they do not always take up together.

A job that stood as a whole, as in a restart, is taken up by its machines one by one, minutes apart. After a checkpoint one machine may
write on, or after an outage load on, while the others wait for it in a barrier. The last one stands while the others work, or spin,
or is still silent, and has changed nothing by itself: it stood when all stood. It is given time, unless it was odd before: a minute, and
five where its host is seen to move data as no other does.

One machine may also write for all while the others go straight into the barrier and spin: no rest of all comes first. A host that hangs
moves nothing. So who rests while its host moves what it does in work, or more, and several times what the others' hosts do, by TCP or
between GPUs and host, is given a minute, or five where that is plain. One whose processor only is busier than in work may write, compute or
be caught in its own program: it is a page. Either is given twice as long as it has taken before, where it worked again by itself: that is
the job's habit.
K activity metrics, M machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.baseline import BaselineState
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.peers import median_known
from minder.diagnose.detectors.phases import Phases, PhasesNumbers
from minder.diagnose.detectors.score import ScoreState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.traits import TraitsNumbers, TraitTable

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["RestartGrace", "RestartGraceState"]


@dataclass(frozen=True, slots=True)
class RestartGraceNumbers:
    """Section [restart_grace] of detector.toml: what each number is stands there."""

    long_s: float
    takes_s: float
    writes_s: float
    moves_s: float
    busier: float
    busy: float
    fallen: float
    habit: float
    seen_s: float
    seen_intervals: float
    echo_s: float
    few: float
    at_work: float
    confirm_s: float
    confirm_intervals: float
    most: float
    before_s: float
    before_intervals: float
    half: float


_N = numbers("restart_grace", RestartGraceNumbers)
_PHASES = numbers("phases", PhasesNumbers)
_TRAITS = numbers("traits", TraitsNumbers)

_STOOD = ("waits_M", "works_since_M", "all_stand_since_s")
_RESTED = ("rests_on_M", "rest_since_s", "idled", "all_left_s", "at_most_s")


@dataclass(slots=True)
class RestartGraceState(State):
    waits_M: np.ndarray = per("M")  # 1: stood, or was silent, when all stood, and has not worked since
    works_since_M: np.ndarray = per("M", np.nan)  # of who waited: since when it has been seen at work
    all_stand_since_s: float = np.nan
    rests_on_M: np.ndarray = per("M")  # 1: rested when all rested, and has since
    rest_since_s: float = np.nan
    idled: float = 0.0  # 1: in that rest the common level was that of idle GPUs
    all_left_s: float = np.nan  # when most had left that rest
    at_most_s: float = 0.0  # for how long after that who rests on is given time
    writes_since_M: np.ndarray = per("M", np.nan)  # since when it rests while its host works
    wrote_M: np.ndarray = per("M", -np.inf)  # when its host was last seen to work for it
    works_M: np.ndarray = per("M")  # 1: in the row before it rested while its host worked
    moved_M: np.ndarray = per("M", -np.inf)  # when it was last seen to move as much as in work
    moved_more_M: np.ndarray = per("M", -np.inf)  # and far more
    last_wrote_s: float = -np.inf  # when the last of them was
    wrote_s_M: np.ndarray = per("M")  # for how long, in seconds
    habit_s_M: np.ndarray = per("M")  # for how long at most, where it worked again by itself


class RestartGrace(Stage):
    """Whose newest sample shows nothing, for it is given time to come back."""

    phases: Phases
    baseline: BaselineState
    score: ScoreState
    state: RestartGraceState

    def update(self, row: Row) -> None:
        found_M = np.zeros(len(row.status.silent_M), dtype=bool)
        for in_grace in (self._not_back_M, self._still_idle_M, self._writes_M):
            given_M = in_grace(row)
            if given_M is not None:
                found_M |= given_M
        row.given_M = found_M
        row.strength.support_M[found_M] = 0.0

    def _still_idle_M(self, row: Row) -> np.ndarray | None:
        """Who rests on after a rest of all, as GPUs do whose host still writes or loads, whatever the others do meanwhile."""
        traits, scaled_KM, status, phase, time_s = row.traits, row.scaled_KM, row.status, row.phase, row.time_s
        since_s = self.state.rest_since_s
        if isnan(since_s) and not (phase.idle or phase.stalled):
            return None
        fall_M = self.phases.rest_M(traits, scaled_KM)
        reported_M = ~np.isnan(fall_M) & ~status.silent_M
        rests_M = reported_M & (fall_M > _N.half)
        # before they idle; after it spinning ones may look like it, where only power or SM activity shows
        most_rest = self.state.idled == 0.0 and np.count_nonzero(rests_M) > _N.most * np.count_nonzero(reported_M)
        if phase.idle or (phase.stalled and most_rest):
            since_s = time_s if isnan(since_s) else since_s
            is_long = phase.idle and phase.idle_s >= _N.long_s
            self.state.rests_on_M = np.maximum(self.state.rests_on_M, rests_M | (status.silent_M & is_long))
            self.state.rest_since_s = since_s
            self.state.idled = max(float(phase.idle), self.state.idled)
            self.state.all_left_s = np.nan
            self.state.at_most_s = _N.takes_s if is_long else max(_N.writes_s, self.state.at_most_s)
            return None
        if isnan(since_s):
            return None
        if isnan(self.state.all_left_s):
            if not reported_M.any():
                return None  # nothing is known, and nothing forgotten
            self.state.all_left_s = time_s
        on_M = (self.state.rests_on_M > 0.0) & (rests_M | ~reported_M) & (~status.silent_M | (self.state.at_most_s > _N.writes_s))
        on_M &= time_s - self.state.all_left_s <= self.state.at_most_s
        if not on_M.any():
            self.state.forget(*_RESTED)
            return None
        self.state.rests_on_M = on_M.astype(np.float64)
        was_odd_M = self.score.since_M < since_s - max(_N.before_s, _N.before_intervals * status.interval_s)
        return np.asarray(on_M & ~was_odd_M)

    def _writes_M(self, row: Row) -> np.ndarray | None:
        """Who rests while its host works as no other does: for how long depends on how plainly, and on its habit."""
        traits, scaled_KM, status, phase, time_s = row.traits, row.scaled_KM, row.status, row.phase, row.time_s
        state, seen_s = self.state, max(_N.seen_s, _N.seen_intervals * status.interval_s)
        over = time_s - state.last_wrote_s > max(seen_s, _N.echo_s)
        busy_M, fallen_M = self._processor_M(traits)
        (moves_M, moves_more_M), before_M = self._moves_M(traits, scaled_KM), state.works_M > 0.0
        works_M = (((moves_M & ~fallen_M) | busy_M) & ~self._sends_M(traits, scaled_KM)) | (moves_more_M & ~fallen_M)
        if over and not (works_M.any() or before_M.any()):
            return None
        rests_M, up_M = self.phases.rests_M(traits, scaled_KM, _N.half)
        rests_M &= ~status.silent_M
        works_M &= rests_M
        works_M &= np.count_nonzero(works_M) <= max(1.0, _N.few * len(works_M))  # many at once write a checkpoint of all
        state.works_M = works_M.astype(np.float64)
        works_M &= before_M | moves_more_M  # as all come to rest, one sample of the last who moves as in work is no sign
        state.wrote_M = np.where(works_M, time_s, state.wrote_M)
        state.last_wrote_s = time_s if works_M.any() else state.last_wrote_s
        for seen_M, shows_M in ((state.moved_M, moves_M), (state.moved_more_M, moves_more_M)):
            seen_M[works_M & shows_M & ~fallen_M] = time_s
        ago_M = time_s - state.wrote_M
        writes_M = rests_M & (ago_M <= seen_s)
        ends_M = (state.writes_since_M == state.writes_since_M) & up_M & ~status.silent_M & (not phase.idle)
        state.habit_s_M = np.where(ends_M, np.maximum(state.habit_s_M, state.wrote_s_M), state.habit_s_M)
        state.writes_since_M = np.where(writes_M & (not phase.idle), np.fmin(state.writes_since_M, time_s), np.nan)
        state.wrote_s_M = np.where(writes_M, np.nan_to_num(time_s - state.writes_since_M), state.wrote_s_M)
        # When it works again, what is smoothed of its rest is left for a while.
        over_M = ~rests_M & (ago_M <= _N.echo_s) & (state.wrote_s_M >= seen_s)
        at_most_M = _N.habit * state.habit_s_M
        for seen_M, at_most_s in ((state.moved_M, _N.writes_s), (state.moved_more_M, _N.moves_s)):
            at_most_M = np.maximum(at_most_M, np.where(time_s - seen_M <= seen_s, at_most_s, 0.0))
        row.works_on_M = writes_M
        return np.asarray(over_M | (writes_M & (state.wrote_s_M <= at_most_M)))

    def _moves_M(self, traits: TraitTable, scaled_KM: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Masks (M,) of hosts that move as much as in work, and three times what the others move now; and of those that move ten times
        that, or three times what they do in work."""
        moves_M, more_M = np.zeros(scaled_KM.shape[1], dtype=bool), np.zeros(scaled_KM.shape[1], dtype=bool)
        for k in traits.host_traffic:
            own_M = self.phases.state.common_K[k] + self.baseline.baseline_KM[k]
            with np.errstate(invalid="ignore"):
                beyond_M, kept_M = scaled_KM[k] - median_known(scaled_KM[k]), scaled_KM[k] > own_M - traits.reach_K1[k, 0]
                moves_M |= kept_M & (beyond_M > _N.busier)
                more_M |= kept_M & ((beyond_M > _TRAITS.unit) | ((scaled_KM[k] - own_M > _N.busier) & (beyond_M > _N.busier)))
        return moves_M, more_M

    def _sends_M(self, traits: TraitTable, scaled_KM: np.ndarray) -> np.ndarray:
        """Mask (M,) of machines that send to their peers what they do in work, and several times what these do now: who writes for all
        sends them nothing."""
        sends_M = np.zeros(scaled_KM.shape[1], dtype=bool)
        for k in traits.to_peers:
            own_M = self.phases.state.common_K[k] + self.baseline.baseline_KM[k]
            with np.errstate(invalid="ignore"):
                sends_M |= (scaled_KM[k] > own_M - traits.reach_K1[k, 0]) & (scaled_KM[k] - median_known(scaled_KM[k]) > _N.busier)
        return sends_M

    def _processor_M(self, traits: TraitTable) -> tuple[np.ndarray, np.ndarray]:
        """Masks (M,) of hosts whose processor is busier than in work, and more so than the others'; and of those where it is far less busy:
        what moves there is no work of the host."""
        k = traits.processor
        if k is None:
            return np.zeros(self.state.wrote_M.shape, dtype=bool), np.zeros(self.state.wrote_M.shape, dtype=bool)
        more_M = self.baseline.all_quick.smooth_KM[k]
        own_M = more_M + self.phases.state.shift_K[k]
        with np.errstate(invalid="ignore"):
            return (more_M > _N.busy) & (own_M > _N.busy), np.minimum(more_M, own_M) < -_N.fallen

    def _not_back_M(self, row: Row) -> np.ndarray | None:
        """Machines that stood, or were silent, when all stood for long, and have not worked since; None where there is none."""
        traits, scaled_KM, status, phase, time_s = row.traits, row.scaled_KM, row.status, row.phase, row.time_s
        since_s = self.state.all_stand_since_s
        if isnan(since_s) and not (phase.stalled or phase.idle):
            return None
        level_KM = scaled_KM[traits.activity_K] - self.phases.state.common_K[traits.activity_K][:, None]
        heard_M = ~np.isnan(level_KM).all(axis=0) & ~status.silent_M
        if not heard_M.any():
            return None  # all is silent: nothing is known, and nothing forgotten
        level_M = np.nan_to_num(level_KM).sum(axis=0) / np.maximum(1, (~np.isnan(level_KM)).sum(axis=0))
        stands_M = heard_M & (level_M < _PHASES.stood)
        all_stand = bool(np.count_nonzero(stands_M) > _N.most * np.count_nonzero(heard_M))
        if isnan(since_s):
            if not all_stand:
                return None
            self.state.all_stand_since_s = time_s
            since_s = time_s
        works_M = heard_M & (level_M > _N.at_work)
        began_M = works_M & np.isnan(self.state.works_since_M) & (self.state.waits_M > 0.0)
        works_since_M = np.where(stands_M, np.nan, np.where(began_M, time_s, self.state.works_since_M))
        back_M = time_s - works_since_M >= max(_N.confirm_s, _N.confirm_intervals * status.interval_s)
        waits_M = ((self.state.waits_M > 0.0) | (all_stand & ~works_M)) & ~back_M
        first_s = float(np.nanmin(works_since_M)) if (works_since_M == works_since_M).any() else time_s
        over = not all_stand and first_s - since_s < _N.long_s
        if over or not waits_M.any() or (back_M.any() and time_s - first_s > _N.takes_s):
            self.state.forget(*_STOOD)
            return None
        self.state.works_since_M, self.state.waits_M = works_since_M, waits_M.astype(np.float64)
        return waits_M if back_M.any() and first_s - since_s >= _N.long_s else None
