"""Clocks that are off: by how many seconds each machine follows or leads what all machines do together, and its distance at that offset.

At a checkpoint, an evaluation or a restart the common level moves. Around such moves the activity of each machine is compared with the
common one at every offset of up to 15 s; an offset at which it fits, where it does not fit as it stands, is its clock's. Falls and rises
must agree: who stops before the others and stays down has not got a wrong clock. From then on the machine is compared with its peers at
that offset: late ones with where the peers stood, early ones by what they themselves showed. What is odd then is odd by any clock.
Sparse: only machines with an offset have a history. L offsets or past rows, K metrics, M machines.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.peers import has_gaps
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import LAGS, State, per

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Layout, Row

__all__ = ["Activity", "ClockState", "Clocks", "ClocksNumbers", "Timing"]


@dataclass(frozen=True, slots=True)
class ClocksNumbers:
    """Section [clocks] of detector.toml: what each number is stands there."""

    off_s: float
    large: int
    move: float
    noise: float
    most: float
    fade: float
    gain: float
    gain_of_peers: float
    share: float
    fits: float
    still_fits: float
    noise_sizes: float
    plain_move: float
    steep: float
    least_rows: float


_N = numbers("clocks", ClocksNumbers)

_RINGS = ("level_LM", "peers_LM", "common_L", "at", "peers_until", "past")
_HALF = (LAGS - 1) // 2


@dataclass(slots=True)
class ClockState(State):
    level_LM: np.ndarray = per("LM", np.nan)  # each machine's activity in the last rows, a ring
    peers_LM: np.ndarray = per("LM", np.nan)  # and its peers' common one
    common_L: np.ndarray = per("L", np.nan)  # everybody's
    at: float = 0.0  # rows written to it
    misfit_LM: np.ndarray = per("LM")  # by offset: how badly a machine has fitted around common moves
    peers_until: float = 0.0  # rows of which the peers' level is worked out
    falls: float = 0.0  # how many of them were seen
    rises: float = 0.0
    news: float = 0.0  # 1: something was seen since the offsets were last worked out
    off_M: np.ndarray = per("M")  # rows by which a machine is late (early: less than 0), 0 where its clock is right
    past: dict[str, np.ndarray] = field(default_factory=dict)  # machine that is off: (rows, 3, K): own, peers', stage peers' values

    def forget_rows(self) -> None:
        """What is measured has another zero from now on."""
        self.forget(*_RINGS)


class Activity(Stage):
    """Each machine's activity, and everybody's: `row.level_M`, `row.level`; None where none is exported."""

    def update(self, row: Row) -> None:
        watched_K = row.traits.activity_K
        if not watched_K.any() or row.scaled_KM.shape[1] < 3:
            return
        known_K = watched_K & ~np.isnan(row.center_K)
        known = np.count_nonzero(known_K)
        row.level = float(row.center_K[known_K].sum()) / known if known else np.nan
        row.level_M = _means(row.scaled_KM, known_K)


class Timing(Stage):
    """What timing by rows and by stretches of rows have in common."""

    state: ClockState
    patient = True  # concludes only after a move, not while one is compared

    def __init__(self) -> None:
        self._stages: list[np.ndarray] = []
        self._machines: tuple[str, ...] = ()

    def _bounds(self) -> tuple[float, float, float]:
        """(a clock is hardly farther off, in seconds; at its offset, share of the misfit without; the same where it is known to be off)."""
        return _N.off_s, _N.fits, _N.still_fits

    def follow(self, layout: Layout) -> None:
        members = layout.stages.members
        self._stages = [part for part in members if len(part) >= _N.large] if len(members) > 1 else []
        self._machines = layout.machines
        off, metrics = self._off(), len(layout.traits.metrics)
        self.state.past = {name: past for name, past in self.state.past.items() if name in off and past.shape[2] == metrics}

    def _follow_row(self, level_M: np.ndarray, common: float, gap_s: float) -> None:
        """level_M: each machine's activity; common: everybody's."""
        at = int(self.state.at)
        self.state.level_LM[at % LAGS] = level_M
        self.state.common_L[at % LAGS] = common
        self.state.at = at + 1.0
        reach = min(_HALF, max(1, round(self._bounds()[0] / max(gap_s, 0.1))))
        if at < 2 * reach:
            return
        common_L = self.state.common_L[np.arange(at - 2 * reach, at + 1) % LAGS]
        moved = float(common_L.max() - common_L.min())
        compared = moved > _N.move and self._compare(common_L, at, reach)
        if not (compared and self.patient) and self.state.news:
            self._conclude(reach)

    def _peers_LM(self, at: int, reach: int) -> np.ndarray:
        """The peers' levels of the last rows, oldest first; each row is worked out once, when it is first asked for."""
        for row in range(max(int(self.state.peers_until), at - 2 * reach), at + 1):
            level_M, common = self.state.level_LM[row % LAGS], float(self.state.common_L[row % LAGS])
            self.state.peers_LM[row % LAGS] = common
            for part in self._stages:
                known_P = level_M[part][~np.isnan(level_M[part])]
                self.state.peers_LM[row % LAGS, part] = np.median(known_P) if len(known_P) else common
        self.state.peers_until = at + 1.0
        return self.state.peers_LM[np.arange(at - 2 * reach, at + 1) % LAGS]

    def _compare(self, common_L: np.ndarray, at: int, reach: int) -> bool:
        """The row `reach` rows ago, against the peers' level of as many rows before and after it; False if machines differ too much."""
        state, moved = self.state, float(np.ptp(common_L))
        level_M = self.state.level_LM[(at - reach) % LAGS]
        peers_LM = self._peers_LM(at, reach)[::-1]  # the latest first: whom that fits leads by `reach` rows
        with np.errstate(invalid="ignore"):
            apart_LM = np.abs(level_M - peers_LM)
        known_M = apart_LM[reach][~np.isnan(apart_LM[reach])]
        noise = max(_N.noise, _N.noise_sizes * float(np.median(known_M))) if len(known_M) else np.inf
        if not moved > _N.plain_move * noise:
            return False
        misfit_LM = np.minimum(apart_LM / np.float32(noise), np.float32(_N.most))
        misfit_LM[:, np.isnan(misfit_LM).any(axis=0)] = 0.0  # no data speaks for no offset
        total_LM = self.state.misfit_LM.copy()
        total_LM[_HALF - reach : _HALF + reach + 1] *= np.float32(1.0 - _N.fade)
        total_LM[_HALF - reach : _HALF + reach + 1] += misfit_LM
        self.state.misfit_LM = total_LM
        step = float(common_L[reach] - common_L[reach - 1])
        state.falls = state.falls * (1.0 - _N.fade) + (step < -_N.steep * moved)
        state.rises = state.rises * (1.0 - _N.fade) + (step > _N.steep * moved)
        self.state.news = 1.0
        return True

    def _conclude(self, reach: int) -> None:
        self.state.news = 0.0
        if min(self.state.falls, self.state.rises) < _N.least_rows:
            return
        total_LM = self.state.misfit_LM[_HALF - reach : _HALF + reach + 1]
        best_M = np.argmin(total_LM, axis=0)
        fit_M, plain_M = total_LM[best_M, np.arange(total_LM.shape[1])], total_LM[reach]
        gain_M = plain_M - fit_M
        _, fits, still_fits = self._bounds()
        off_M = (fit_M < np.where(self.state.off_M != 0.0, still_fits, fits) * plain_M) & (gain_M > _N.gain)
        off_M &= gain_M > _N.gain_of_peers * float(np.quantile(gain_M, 1.0 - _N.share, method="lower"))
        if np.count_nonzero(off_M) > max(1.0, _N.share * len(off_M)):
            off_M[:] = False
        self.state.off_M = np.where(off_M, best_M - reach, 0.0)
        self.state.past = {name: past for name, past in self.state.past.items() if name in self._off()}

    def _off(self) -> dict[str, tuple[int, int]]:
        """Machines whose clocks are off: (place, rows late)."""
        off_M = self.state.off_M
        return {self._machines[m]: (m, int(off_M[m])) for m in np.flatnonzero(off_M).tolist()}

    def align(self, distances: Mapping[str, np.ndarray], scaled_KM: np.ndarray, but: Collection[str] = ()) -> Collection[str]:
        """Replace, in place, the distances of machines whose clocks are off by those at their offsets; no data until that is known.
        but: machines to leave alone. Returns whose clocks are off."""
        if not self.state.off_M.any():
            return ()
        off = {name: place for name, place in self._off().items() if name not in but}
        for name, (m, late) in off.items():
            rows = [scaled_KM[:, m]] + [scaled_KM[:, m] - distances[key][:, m] for key in ("all", "stage") if key in distances]
            rows += [rows[-1]] * (3 - len(rows))
            newest = np.stack(rows)[None].astype(np.float32)
            past = np.concatenate([self.state.past.get(name, newest[:0]), newest])[-(abs(late) + self._blur() + 1) :]
            self.state.past[name] = past
            for place, key in enumerate(distances, start=1):
                distances[key][:, m] = _at_offset(past[:, 0], past[:, place], late, self._blur())
        return off.keys()

    def _blur(self) -> int:
        """Rows to either side of an offset that it may be wrong by."""
        return 1


class Clocks(Timing):
    """Clocks that are off by seconds: their machines' distances are those at their offsets."""

    def update(self, row: Row) -> None:
        if row.level_M is not None:
            self._follow_row(row.level_M, row.level, row.status.gap_s)
        self.align(row.distances, row.scaled_KM, but=row.far_off)


def _means(scaled_KM: np.ndarray, known_K: np.ndarray) -> np.ndarray:
    """(M,): the mean of these metrics, of those that a machine has; NaN where it has none."""
    part_KM = scaled_KM[known_K]
    mean_M = np.full(len(part_KM), 1.0 / max(1, len(part_KM)), dtype=np.float32) @ part_KM
    if has_gaps(mean_M) or not len(part_KM):
        with np.errstate(invalid="ignore"):
            mean_M = np.nansum(part_KM, axis=0) / np.sum(~np.isnan(part_KM), axis=0)
    return np.asarray(mean_M)


def _at_offset(own_HK: np.ndarray, peers_HK: np.ndarray, late: int, blur: int) -> np.ndarray:
    """(K,): the least distance at this offset or `blur` rows beside it; 0 if the peers passed by in between. The newest row is the last."""
    wanted = [lag for lag in range(max(0, abs(late) - blur), abs(late) + blur + 1) if lag < len(own_HK)]
    if abs(late) not in wanted:
        return np.full(own_HK.shape[1], np.nan, dtype=np.float32)
    if late > 0:
        found_HK = own_HK[-1] - np.stack([peers_HK[-1 - lag] for lag in wanted])
    else:
        found_HK = np.stack([own_HK[-1 - lag] for lag in wanted]) - peers_HK[-1]
    least_K = np.abs(found_HK).min(axis=0)
    one_side_K = np.abs(np.sign(found_HK).sum(axis=0)) == len(wanted)
    return np.asarray(np.where(np.isnan(found_HK).any(axis=0), np.nan, np.where(one_side_K, np.sign(found_HK[0]) * least_K, 0.0)))
