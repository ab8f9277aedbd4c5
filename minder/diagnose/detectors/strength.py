"""How strongly each machine's deviations speak in a row. F families, K metrics, M machines, X machines that stand out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.evidence import family_evidence, loneliness, loud_metrics, shown, summed
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.phases import Phases
from minder.diagnose.detectors.presence import Presence, Seen
from minder.diagnose.detectors.score import ScoreState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.traits import REACHING

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Speaking", "Strength", "waited_M"]


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
    shown_M: 0..1, how much of it the newest sample shows, 1 where no sample speaks; told_s_M: seconds since what speaks last spoke;
    clear_M: 0..1, how much of what reaches the training the newest sample shows, whether it is a plain change or not; held_M: it stands,
    and no other machine feels it."""

    total_M: np.ndarray
    network_M: np.ndarray
    reached_M: np.ndarray
    lone_M: np.ndarray
    single_M: np.ndarray
    shown_M: np.ndarray
    told_s_M: np.ndarray
    clear_M: np.ndarray
    held_M: np.ndarray

    @classmethod
    def none(cls, machines: int) -> Strength:
        kinds = (float, bool, bool, float, bool, float, float, float, bool)
        made = cls(*(np.zeros(machines, dtype=kind) for kind in kinds))
        made.told_s_M.fill(np.nan)
        made.shown_M.fill(1.0)
        return made


class Speaking(Stage):
    """From deviations to strength: `row.strength`."""

    presence: Presence
    phases: Phases
    score: ScoreState

    def update(self, row: Row) -> None:
        found, deviants, config, traits = Strength.none(len(row.layout.machines)), row.deviants, self.config, row.traits
        row.strength, x = found, deviants.machines_X
        found.reached_M[x] = deviants.reached_X
        if not (len(x) and deviants.counted_KX.any()):
            return
        falls_KX = deviants.z_KX < 0
        families_FX = family_evidence(traits, deviants.counted_KX, falls_KX)
        reaching_X, network_X = (summed(traits, families_FX, names) for names in (REACHING, _NETWORK))
        total_X = families_FX.sum(axis=0)
        found.network_M[x] = network_X > _N.network * total_X
        heard_X = reaching_X + np.minimum(total_X - reaching_X, reaching_X)  # the host's own signs confirm, they do not carry
        loud_KX = loud_metrics(traits, deviants.counted_KX)
        found.lone_M[x], found.shown_M[x] = loneliness(families_FX), shown(traits, loud_KX, deviants.shown_KX, falls_KX)
        found.told_s_M[x] = self.presence.told_s(row.seen, x, loud_KX & (deviants.counted_KX > 0.0))
        found.single_M[x] = (found.lone_M[x] > _N.lone) & (np.count_nonzero(loud_KX, axis=0) == 1)
        found.clear_M[x] = np.minimum(reaching_X, 1.0) * found.shown_M[x]
        suffers_X = deviants.suffering_X(row.phase)
        since_X = np.where(np.isnan(self.score.since_M[x]), row.time_s, self.score.since_M[x])
        joined_X = (suffers_X > 0.0) & self.phases.joined(since_X, row.phase, row.seen.interval_s)
        if row.afterwards_X is not None:
            joined_X &= ~row.afterwards_X
        boost_X = np.maximum(np.where(deviants.reached_X, 1.0, config.alone), suffers_X * np.where(joined_X, config.effect_boost, 1.0))
        limit_X = np.where(joined_X & (suffers_X > _N.plainly_felt), config.most, config.most_alone)
        alone_X = np.where(joined_X, _N.host * row.phase.lasting * total_X, 0.0)  # signs of the host alone: only if the training is slowed
        found.total_M[x] = np.minimum(np.maximum(np.where(reaching_X > _N.reaches, heard_X * boost_X, 0.0), alone_X), limit_X)


def waited_M(strength: Strength, seen: Seen) -> np.ndarray:
    """Seconds for which the news of this row stand, 0 where there is none."""
    found_M = np.where(seen.news_M, seen.since_news_M, np.where(seen.silent_M, seen.gap_s, 0.0))
    return np.where(np.isnan(strength.told_s_M) | seen.silent_M, found_M, strength.told_s_M)
