"""How strongly each machine's deviations speak in a row. F families, K metrics, M machines, X machines that stand out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.evidence import family_evidence, loud_metrics, newest_support, single_family_weight, summed
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.phases import Phases
from minder.diagnose.detectors.presence import Presence, RowStatus
from minder.diagnose.detectors.score import ScoreState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.traits import REACHING

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Strength", "Weighing", "waited_M"]


@dataclass(frozen=True, slots=True)
class StrengthNumbers:
    """Section [strength] of detector.toml: what each number is stands there."""

    network: float
    lone: float
    plainly_felt: float
    host: float
    reaches: float


_N = numbers("strength", StrengthNumbers)
_NETWORK = ("fabric", "congestion", "tcp")


@dataclass(slots=True)
class Strength:
    """How strongly each machine's deviations speak; network_M: only the network's metrics do; reached_M: it has plainly changed;
    lone_M: 0..1, 1 if one family speaks alone, 0 from two on that speak alike; single_M: of that family one metric does;
    support_M: 0..1, how much of it the newest sample shows, 1 where no sample speaks; since_update_s_M: seconds since what
    speaks last spoke; clear_M: 0..1, how much of what reaches the training the newest sample shows, whether it is a plain change or not;
    held_M: it stands, and no other machine feels it."""

    total_M: np.ndarray
    network_M: np.ndarray
    reached_M: np.ndarray
    lone_M: np.ndarray
    single_M: np.ndarray
    support_M: np.ndarray
    since_update_s_M: np.ndarray
    clear_M: np.ndarray
    held_M: np.ndarray

    @classmethod
    def none(cls, machines: int) -> Strength:
        kinds = (float, bool, bool, float, bool, float, float, float, bool)
        made = cls(*(np.zeros(machines, dtype=kind) for kind in kinds))
        made.since_update_s_M.fill(np.nan)
        made.support_M.fill(1.0)
        return made


class Weighing(Stage):
    """From deviations to strength: `row.strength`."""

    presence: Presence
    phases: Phases
    score: ScoreState

    def update(self, row: Row) -> None:
        found, outliers, config, traits = Strength.none(len(row.layout.machines)), row.outliers, self.config, row.traits
        row.strength, x = found, outliers.machines_X
        found.reached_M[x] = outliers.reached_X
        if not (len(x) and outliers.counted_KX.any()):
            return
        falls_KX = outliers.z_KX < 0
        since_X = np.where(np.isnan(self.score.since_M[x]), row.time_s, self.score.since_M[x])
        late_X = since_X > self.phases.too_late_s(row.phase, row.status.interval_s)
        outliers.counted_KX *= ~(traits.halts_K1 & falls_KX & late_X)  # watchdogs end the processes of a job that hangs one by one
        families_FX = family_evidence(traits, outliers.counted_KX, falls_KX)
        reaching_X, network_X = (summed(traits, families_FX, names) for names in (REACHING, _NETWORK))
        total_X = families_FX.sum(axis=0)
        found.network_M[x] = network_X > _N.network * total_X
        heard_X = reaching_X + np.minimum(total_X - reaching_X, reaching_X)  # the host's own signs confirm, they do not carry
        loud_KX = loud_metrics(traits, outliers.counted_KX)
        found.lone_M[x], found.support_M[x] = (
            single_family_weight(families_FX),
            newest_support(traits, loud_KX, outliers.support_KX, falls_KX),
        )
        found.since_update_s_M[x] = self.presence.seconds_since_update(row.status, x, loud_KX & (outliers.counted_KX > 0.0))
        found.single_M[x] = (found.lone_M[x] > _N.lone) & (np.count_nonzero(loud_KX, axis=0) == 1)
        found.clear_M[x] = np.minimum(reaching_X, 1.0) * found.support_M[x]
        harmed_X = outliers.harm_X(row.phase)
        joined_X = (harmed_X > 0.0) & self.phases.joined(since_X, row.phase, row.status.interval_s)
        if row.afterwards_X is not None:
            joined_X &= ~row.afterwards_X
        boost_X = np.maximum(np.where(outliers.reached_X, 1.0, config.alone), harmed_X * np.where(joined_X, config.effect_boost, 1.0))
        limit_X = np.where(joined_X & (harmed_X > _N.plainly_felt), config.most, config.most_alone)
        alone_X = np.where(
            joined_X, _N.host * row.phase.sustained * total_X, 0.0
        )  # signs of the host alone: only if the training is slowed
        found.total_M[x] = np.minimum(np.maximum(np.where(reaching_X > _N.reaches, heard_X * boost_X, 0.0), alone_X), limit_X)


def waited_M(strength: Strength, status: RowStatus) -> np.ndarray:
    """Seconds for which the news of this row stand, 0 where there is none."""
    found_M = np.where(status.news_M, status.since_news_M, np.where(status.silent_M, status.gap_s, 0.0))
    return np.where(np.isnan(strength.since_update_s_M) | status.silent_M, found_M, strength.since_update_s_M)
