"""The score grows by strength squared per second, as far as the machine leads and its newest sample shows it, and leaks where evidence
ends. M machines, x indices of a few of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.clocks import ClocksNumbers
from minder.diagnose.detectors.coupling import CouplingNumbers, CouplingState
from minder.diagnose.detectors.evidence import credit, distinctness
from minder.diagnose.detectors.group_state import GroupState
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.persistence import PersistenceState
from minder.diagnose.detectors.phases import PhaseState
from minder.diagnose.detectors.recurrence import RecurrenceState
from minder.diagnose.detectors.score import ScoreNumbers, ScoreState
from minder.diagnose.detectors.skew_correction import SkewCorrection, SkewCorrectionState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.strength import waited_M
from minder.diagnose.detectors.together import hit_together, together_s

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Accumulating", "Convicting", "Decaying"]


@dataclass(frozen=True, slots=True)
class AccumulateNumbers:
    """Section [accumulate] of detector.toml: what each number is stands there."""

    by_itself: float
    apart_s: float
    first_s: float
    first_intervals: float
    slower_leak: float
    lower_calm: float
    odd: float
    almost: float
    most: float
    plainly_felt: float
    short_rest_s: float
    early_intervals: float
    idle: float
    felt: float
    least_rival: float
    convicted: float
    over: float
    over_out: float
    silent: float


_N = numbers("accumulate", AccumulateNumbers)
_CLOCKS = numbers("clocks", ClocksNumbers)
_COUPLING = numbers("coupling", CouplingNumbers)
_SCORE = numbers("score", ScoreNumbers)


class Decaying(Stage):
    """What ended leaks away; `row.calm` where no machine is odd or was, and all of what follows would leave everything as it is."""

    phases: PhaseState
    coupling: CouplingState
    persistence: PersistenceState
    groups: GroupState
    skew_correction: SkewCorrectionState
    score: ScoreState

    def update(self, row: Row) -> None:
        status, phase, total_M = row.status, row.phase, row.strength.total_M
        score_M, since_M = self.score.score_M, self.score.since_M
        unknown = np.isnan(since_M).all() and np.isnan(self.skew_correction.odd_from_M).all()
        persists = self.persistence.persistence_s_M.any() or self.groups.grouped_s_M.any() or len(row.recurring_x)
        row.calm = bool(unknown and not (total_M.any() or score_M.any() or persists))
        if row.calm:
            return
        if phase.moving and self.phases.moving_since_s == row.time_s:  # its sample came first of all, no more
            first_M = since_M > row.time_s - max(_N.first_s, _N.first_intervals * status.interval_s)
            score_M = np.where(first_M, self.config.kept * score_M, score_M)
        if not phase.moving:
            leak_s = self.config.leak_s * (1.0 + _N.slower_leak * phase.sustained)
            calm_M = (total_M < _SCORE.calm * (1.0 - _N.lower_calm * phase.sustained)) & (status.news_M | status.silent_M)
            score_M = np.where(calm_M, score_M * np.exp(-status.gap_s / leak_s), score_M)
        self.score.score_M = np.where(self.coupling.passed_M > 0.0, 0.0, score_M)
        started_M = np.where(status.silent_M, row.time_s - status.silence_M, row.time_s)
        self.score.since_M = np.where((total_M >= _N.odd * _SCORE.calm) & np.isnan(since_M), started_M, since_M)


class Accumulating(Stage):
    """Adds what this row says."""

    phases: PhaseState
    groups: GroupState
    skew_correction: SkewCorrection
    score: ScoreState

    def update(self, row: Row) -> None:
        strength, status, phase, config, time_s = row.strength, row.status, row.phase, self.config, row.time_s
        if row.calm or not strength.total_M.any():
            return
        score_M, since_M = self.score.score_M, self.score.since_M
        gained_M = self._pace_M(row, since_M) * strength.total_M**2 * self._share_M(row, since_M)
        stands = phase.stalled and not phase.idle and phase.since_move_s >= _CLOCKS.off_s
        unmistakable_M = strength.reached_M & (status.since_news_M >= _N.apart_s) & stands
        at_once_M = np.where(unmistakable_M, config.sure_at_once, config.most_at_once)
        gained_M = np.minimum(gained_M, config.patience_s * (at_once_M + strength.lone_M * (row.layout.lone_share - at_once_M)))
        gained_M *= strength.support_M
        gained_M[self.skew_correction.expected_late_M(time_s, status.interval_s)] = 0.0
        least_M = np.where(strength.network_M, config.links_least_s, config.least_s)
        young_M = time_s - since_M < np.where(strength.single_M, np.maximum(least_M, config.lone_least_s), least_M)
        young_M |= strength.held_M & (time_s - since_M < _COUPLING.held_s)
        limit_M = np.where(young_M, np.maximum(_N.almost * config.patience_s, score_M), _N.most * config.patience_s)
        self.score.score_M = np.minimum(score_M + gained_M, limit_M)

    def _pace_M(self, row: Row, since_M: np.ndarray) -> np.ndarray:
        """Seconds of evidence that this row adds, were it certain."""
        status, phase = row.status, row.phase
        credit_M = credit(waited_M(row.strength, status), hurry=phase.effect >= _N.plainly_felt)
        if status.outage or phase.over or (phase.idle and phase.idle_s < _N.short_rest_s) or (phase.grace and not phase.idle):
            return np.zeros(len(since_M))
        early_M = since_M < self.phases.moving_since_s - max(_N.first_s, _N.early_intervals * status.interval_s)
        # at slow scrapes all samples of the row in which a stall has arrived are of after it, and no clock is so far off
        counts = not phase.moving or (phase.arrived and phase.stalled and not phase.idle and phase.since_move_s >= _CLOCKS.off_s)
        early_M &= ~status.silent_M  # who is silent says the same while all move: a hiccup of all is over in a moment
        return np.asarray(np.where(early_M | counts, _N.idle if phase.idle else 1.0, 0.0) * credit_M)

    def _share_M(self, row: Row, since_M: np.ndarray) -> np.ndarray:
        """How clearly each machine leads; machines that were hit together lead together, alike, after a longer wait."""
        config, phase, status, total_M = self.config, row.phase, row.status, row.strength.total_M
        share_M = distinctness(total_M, None if phase.effect >= _N.felt or phase.idle else row.time_s - since_M)
        if share_M.any() or phase.effect < _N.plainly_felt:
            return share_M
        spoken_M = np.where(status.silent_M, total_M, 0.0) if phase.idle else total_M  # a rest says nothing of work, and silence may of it
        group_M = hit_together(spoken_M, since_M, together_s(config.together_s, status.interval_s), status.silent_M)
        plain = group_M.any() and (row.strength.reached_M | status.silent_M)[group_M].all()
        if plain and row.time_s - float(since_M[group_M].max()) > config.group_least_s:
            self.groups.in_group_M = np.maximum(self.groups.in_group_M, group_M)
            alike_M = total_M[group_M].min() / np.maximum(total_M, _N.least_rival)
            pace = config.group_pace / _N.idle if phase.idle else config.group_pace  # silence in a rest has waited for the rest to last
            return np.where(group_M, pace * alike_M**2, 0.0)
        return share_M


class Convicting(Stage):
    """Whom minutes of what hardly counts in seconds convict: what stays, what is shared, what comes back."""

    persistence: PersistenceState
    groups: GroupState
    recurrence: RecurrenceState
    score: ScoreState

    def update(self, row: Row) -> None:
        if row.calm:
            return
        config, patience_s, total_M = self.config, self.config.patience_s, row.strength.total_M
        score_M, since_M = self.score.score_M, self.score.since_M
        lasting_s, group_s = config.slower * config.lasting_s, config.slower * config.group_least_s
        persistent_x = np.flatnonzero(self.persistence.persistence_s_M >= lasting_s)
        grouped_M = self.groups.grouped_s_M >= group_s
        if row.given_M is not None and grouped_M.any():  # that it rests says nothing yet; what is full does
            grouped_M &= ~row.given_M | np.isin(self.groups.grouped_k_M, np.flatnonzero(~row.traits.does_K1[:, 0]))
        group_x = np.flatnonzero(grouped_M)
        for x, age_s in ((persistent_x, lasting_s), (group_x, group_s), (row.recurring_x, 0.0)):
            score_M[x] = np.maximum(score_M[x], _N.convicted * patience_s)
            since_M[x] = np.where(np.isnan(since_M[x]), row.time_s - age_s, since_M[x])
        returned_M, in_group_M = self.recurrence.returned_M, self.groups.in_group_M
        returned_M[row.recurring_x] = 1.0
        returned_M *= (score_M >= _SCORE.suspicious * patience_s) & (score_M < _N.by_itself * patience_s)
        for x in (group_x, row.recurring_x):
            in_group_M[x] = float(len(x) > 1)
        in_group_M *= score_M >= _SCORE.suspicious * patience_s
        over_M = score_M < _N.over * patience_s
        if row.skewed_M is not None:
            over_M |= row.skewed_M & (score_M < _N.over_out * patience_s)
        self.score.since_M = np.where((total_M < _N.silent) & over_M, np.nan, since_M)
