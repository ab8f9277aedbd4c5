"""What is known of each machine right now: fresh samples apart from held ones, stuck sensors, silence.

A grid row repeats a machine's last sample until the next one comes (minder.ingest.windows). Only a change is news: evidence grows by
news, never by repetition. A value that repeats far longer than this metric usually does is a stuck sensor: no data.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.peers import has_gaps, median_known
from minder.diagnose.detectors.phases import PhasesNumbers
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.traits import TraitTable

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Presence", "PresenceNumbers", "PresenceState", "RowStatus"]


@dataclass(frozen=True, slots=True)
class PresenceNumbers:
    """Section [presence] of detector.toml: what each number is stands there."""

    decay: float
    proof: float
    lively_s: float
    enough: int
    silent_s: float
    silent_intervals: float
    seldom_rows: float
    seldom_s: float
    frozen_s: float
    frozen_intervals: float
    few: float
    freezes: int
    outage: float
    lost: float
    joins_s: float
    held: float
    follows: float
    holes: float
    least_repeats: float
    most_repeats: float
    least_run: float


_N = numbers("presence", PresenceNumbers)
_PHASES = numbers("phases", PhasesNumbers)


@dataclass(slots=True)
class PresenceState(State):
    last_KM: np.ndarray = per("KM", np.nan)  # last raw value
    repeats_KM: np.ndarray = per("KM")  # rows for which it has stood
    changes_K: np.ndarray = per("K")  # decayed count of changed, and of all, values of a metric: how lively it is
    values_K: np.ndarray = per("K")
    top_K: np.ndarray = per("K", -np.inf)  # the highest value ever seen: a power cap, a full link; standing there is natural
    lively_s: float = -np.inf  # time at which these three were last updated
    heard_M: np.ndarray = per("M", np.nan)  # time of the last row with any data
    began_s: float = np.nan  # time of the first row
    joined_M: np.ndarray = per("M", np.nan)  # time of a machine's first data, where the others had been heard for long
    row_s: float = np.nan  # time of the last row
    gap_s: float = np.nan  # usual gap between rows
    news_M: np.ndarray = per("M", np.nan)  # time of the last row with news
    interval_M: np.ndarray = per("M", np.nan)  # usual time between news
    usual_s: float = np.nan  # the median machine's
    moved_M: np.ndarray = per("M", np.nan)  # time of the last row in which anything of what its GPUs do changed
    read_M: np.ndarray = per("M", np.nan)  # time of the last row with any reading of its GPUs


class Presence(Stage):
    """What is known of each machine in this row: `row.status`."""

    state: PresenceState

    def update(self, row: Row) -> None:
        row.status = self.observe_row(row.traits, row.time_s, row.raw_KM, row.present_M)

    def observe_row(self, traits: TraitTable, time_s: float, raw_KM: np.ndarray, present_M: np.ndarray) -> RowStatus:
        """Update what is known by one row. raw_KM in base units; it is kept, and must not be changed afterwards."""
        gap_s = self._row_gap(time_s)
        has_KM = (
            None if _is_whole(traits, raw_KM) else (raw_KM <= traits.limit_K1) & (raw_KM >= traits.least_K1)
        )  # not NaN, not infinite, not absurd
        same_KM = raw_KM == self.state.last_KM
        if has_KM is not None:
            same_KM &= has_KM
        repeating = bool(same_KM.any())
        if not len(raw_KM):
            news_M = np.zeros(len(present_M), dtype=bool)
        elif has_KM is None:
            news_M = ~same_KM.all(axis=0) if repeating else np.ones(len(present_M), dtype=bool)
        else:
            news_M = (has_KM & ~same_KM).any(axis=0)
        stood_KM = self.state.repeats_KM
        self.state.repeats_KM = (self.state.repeats_KM + np.float32(1.0)) * same_KM if repeating else np.zeros_like(raw_KM)
        self.state.last_KM = raw_KM if has_KM is None else np.where(has_KM, raw_KM, self.state.last_KM)
        if time_s - self.state.lively_s >= _N.lively_s:
            self.state.lively_s = time_s
            self._learn_liveliness(traits, raw_KM, has_KM, same_KM)
        stuck_KM = self._stuck(traits, raw_KM) if repeating else None
        usable_KM = has_KM if stuck_KM is None else ~stuck_KM if has_KM is None else has_KM & ~stuck_KM
        since_news_M = self._note_news(time_s, news_M, gap_s)
        if isnan(self.state.began_s):
            self.state.began_s = time_s
        unheard_M = np.isnan(self.state.heard_M)
        if present_M.all() or (has_KM is None and len(raw_KM)):
            self.state.heard_M = np.full(len(present_M), time_s)
        else:
            heard_M = present_M if has_KM is None else present_M | has_KM.any(axis=0)
            self.state.heard_M = np.where(heard_M, time_s, self.state.heard_M)
        if unheard_M.any() and time_s - self.state.began_s >= _N.joins_s:
            self.state.joined_M = np.where(unheard_M & ~np.isnan(self.state.heard_M), time_s, self.state.joined_M)
        interval_s = self.state.usual_s
        interval_s = gap_s if isnan(interval_s) else interval_s
        silence_M = time_s - self.state.heard_M
        silent_M = silence_M > max(_N.silent_intervals * interval_s, _N.silent_s)
        frozen_s_M = self._frozen_s_M(traits, time_s, (raw_KM, has_KM, same_KM), (gap_s, interval_s))
        frozen_M = (frozen_s_M > 0.0) & ~silent_M
        gone_s_M = self._gone_s_M(traits, time_s, has_KM, (gap_s, interval_s))
        gone_M = (gone_s_M > 0.0) & ~silent_M
        silence_M = np.where(frozen_M, frozen_s_M, np.where(gone_M, gone_s_M, silence_M))
        silent_M |= frozen_M | gone_M
        outage = bool(np.count_nonzero(silent_M) > max(1.0, _N.outage * len(silent_M)))
        return RowStatus(usable_KM, news_M, gap_s, interval_s, silence_M, since_news_M, silent_M, outage, stood_KM, frozen_M, gone_M)

    def _frozen_s_M(
        self, traits: TraitTable, time_s: float, row: tuple[np.ndarray, np.ndarray | None, np.ndarray], paces: tuple[float, float]
    ) -> np.ndarray:
        """(M,): seconds for which all that a machine's GPUs do has stood to the digit while nearly all others' moved, 0 where it moves.

        row: (values, which are there, which have not changed). paces: seconds between rows, and between a machine's news.
        """
        raw_KM, has_KM, same_KM = row
        none_M = np.zeros(raw_KM.shape[1])
        does_X = np.flatnonzero(traits.gauges_K)
        if len(does_X) < _N.freezes:
            return none_M
        there_XM = np.ones((len(does_X), len(none_M)), dtype=bool) if has_KM is None else has_KM[does_X]
        moved_M = (there_XM & ~same_KM[does_X]).any(axis=0)
        if moved_M.all():
            self.state.moved_M = np.full(len(moved_M), time_s)
            return none_M
        self.state.moved_M = np.where(moved_M | np.isnan(self.state.moved_M), time_s, self.state.moved_M)
        stands_s_M = time_s - self.state.moved_M
        if not stands_s_M.max(initial=0.0) > _N.frozen_s:
            return none_M
        usual_s = self._gauges_come_s(does_X, paces)
        frozen_M = (stands_s_M > max(_N.frozen_s, _N.frozen_intervals * usual_s)) & (there_XM.sum(axis=0) >= _N.freezes)
        if not 0 < np.count_nonzero(frozen_M) <= max(1.0, _N.few * len(frozen_M)):
            return none_M
        lifelike_M = (there_XM & ~self._natural(traits, raw_KM)[does_X]).sum(axis=0) >= _N.freezes  # an idle machine stands at zeros
        return np.where(frozen_M & lifelike_M, stands_s_M, 0.0)

    def _gone_s_M(self, traits: TraitTable, time_s: float, has_KM: np.ndarray | None, paces: tuple[float, float]) -> np.ndarray:
        """(M,): seconds for which nothing of a machine's GPUs has been read, though it was before and is of nearly all others; else 0.

        has_KM: which values are there, None if all are. paces: as for `_frozen_s_M`.
        """
        none_M, of_gpus_K = np.zeros(len(self.state.read_M)), traits.of_gpus_K
        if has_KM is None or not of_gpus_K.any():
            self.state.read_M = np.full_like(self.state.read_M, time_s if of_gpus_K.any() else np.nan)
            return none_M
        read_M = has_KM[of_gpus_K].any(axis=0)
        if read_M.all():
            self.state.read_M = np.full(len(read_M), time_s)
            return none_M
        self.state.read_M = np.where(read_M, time_s, self.state.read_M)
        gone_s_M = time_s - self.state.read_M
        with np.errstate(invalid="ignore"):
            if not (gone_s_M > _N.frozen_s).any():
                return none_M
            gone_M = gone_s_M > max(_N.frozen_s, _N.frozen_intervals * self._gauges_come_s(np.flatnonzero(traits.gauges_K), paces))
        if not 0 < np.count_nonzero(gone_M) <= max(1.0, _N.few * len(gone_M)):
            return none_M
        return np.where(gone_M, gone_s_M, 0.0)

    def _gauges_come_s(self, does_X: np.ndarray, paces: tuple[float, float]) -> float:
        """How often the GPUs' gauges are read: they may have a slower exporter of their own. inf while that is not known."""
        rows_X = self.state.values_K[does_X] / np.maximum(self.state.changes_K[does_X], 1e-9)
        known_X = self.state.values_K[does_X] > _N.enough
        return max(paces[1], paces[0] * float(rows_X[known_X].min())) if known_X.any() else np.inf

    def seconds_since_update(self, status: RowStatus, machines_X: np.ndarray, loud_KX: np.ndarray) -> np.ndarray:
        """(X,): seconds since what speaks of a machine last spoke; 0 if nothing of it is new in this row, NaN if it comes with every row.

        A machine may have several exporters, and one that is scraped each second keeps it in the news while the values of a slower one only
        stand: after a common move they show for half a minute where all others stood before. loud_KX: the metrics that speak.
        """
        rows_K1 = (self.state.values_K / np.maximum(self.state.changes_K, 1e-9))[:, None]
        seldom_K1 = (rows_K1 > _N.seldom_rows) & (rows_K1 * status.gap_s <= _N.seldom_s) & (self.state.values_K > _N.enough)[:, None]
        repeats_KX, stood_KX = self.state.repeats_KM[:, machines_X], status.stood_KM[:, machines_X]
        slow_KX = loud_KX & seldom_K1
        held_X = (slow_KX & (repeats_KX > 0.0) & (repeats_KX < _N.held * rows_K1)).any(axis=0)
        waited_X = (np.where(slow_KX & (repeats_KX == 0.0), stood_KX + 1.0, 0.0)).max(axis=0, initial=0.0)
        again_X = slow_KX.any(axis=0) & ~held_X  # a sensor that stands, such as a power cap: nothing else shows when it was looked at
        always_X = (loud_KX & ~seldom_K1).any(axis=0) | ~loud_KX.any(axis=0)
        return np.asarray(np.where(always_X, np.nan, status.gap_s * np.maximum(waited_X, again_X)))

    def _row_gap(self, time_s: float) -> float:
        """Seconds since the last row, at most three usual gaps: a hole in the data is not time in which anything was seen."""
        last_s, usual_s = self.state.row_s, self.state.gap_s
        self.state.row_s = time_s
        if isnan(last_s) or time_s <= last_s:
            return 1.0 if isnan(usual_s) else usual_s
        gap_s = time_s - last_s
        self.state.gap_s = gap_s if isnan(usual_s) else usual_s + _N.follows * (min(gap_s, _N.holes * usual_s) - usual_s)
        return gap_s if isnan(usual_s) else min(gap_s, _N.holes * usual_s)

    def _note_news(self, time_s: float, news_M: np.ndarray, gap_s: float) -> np.ndarray:
        """Seconds from each machine's last news to this row's; learns the machines' scrape intervals."""
        before_M, usual_M = self.state.news_M, self.state.interval_M
        if news_M.all() and not has_gaps(before_M) and not has_gaps(usual_M):
            since_M = time_s - before_M
            self.state.interval_M = usual_M + _N.follows * (np.minimum(since_M, _N.holes * usual_M) - usual_M)
            self.state.news_M = np.full(len(news_M), time_s)
        else:
            since_M = self._note_some(time_s, news_M, gap_s)
        if self.state.lively_s == time_s:  # it changes slowly
            self.state.usual_s = median_known(self.state.interval_M)
        return np.asarray(since_M)

    def _note_some(self, time_s: float, news_M: np.ndarray, gap_s: float) -> np.ndarray:
        """Where not every machine has news, or some machine's are the first."""
        before_M = self.state.news_M
        first_M = np.isnan(before_M)
        since_M = np.where(first_M, gap_s, time_s - before_M)
        usual_M = self.state.interval_M
        step_M = np.where(np.isnan(usual_M), since_M, usual_M + _N.follows * (np.minimum(since_M, _N.holes * usual_M) - usual_M))
        self.state.interval_M = np.where(news_M & ~first_M, step_M, usual_M)
        self.state.news_M = np.where(news_M, time_s, before_M)
        return np.asarray(since_M)

    def _learn_liveliness(self, traits: TraitTable, raw_KM: np.ndarray, has_KM: np.ndarray | None, same_KM: np.ndarray) -> None:
        """has_KM: None if every value is there."""
        top_K = (raw_KM if has_KM is None else np.where(has_KM, raw_KM, -np.inf)).max(axis=1, initial=-np.inf)
        self.state.top_K = np.maximum(self.state.top_K, top_K)
        counted_KM = ~self._natural(traits, raw_KM)
        if has_KM is not None:
            counted_KM &= has_KM
        self.state.values_K = self.state.values_K * _N.decay + _counts(counted_KM)
        counted_KM &= ~same_KM
        self.state.changes_K = self.state.changes_K * _N.decay + _counts(counted_KM)

    def _natural(self, traits: TraitTable, raw_KM: np.ndarray) -> np.ndarray:
        """Values at which a healthy sensor may stand for long: zero, a ratio's end, the highest ever seen; and a GPU's gauge at rest."""
        highest_K1 = np.minimum(traits.high_K1, self.state.top_K[:, None]).astype(np.float32)
        lowest_K1 = np.where(traits.gauges_K[:, None] & np.isfinite(traits.high_K1), np.float32(_PHASES.at_rest), np.float32(0.0))
        return np.asarray(((raw_KM >= 0.0) & (raw_KM <= lowest_K1)) | (raw_KM >= highest_K1))

    def _stuck(self, traits: TraitTable, raw_KM: np.ndarray) -> np.ndarray | None:
        """Repeats so long that a sensor as lively as this metric's (on all machines) would show them once in 10,000. None: no one is."""
        repeats_KM = self.state.repeats_KM
        if repeats_KM.max(initial=0.0) < 2:
            return None
        values_K1, changes_K1 = self.state.values_K[:, None], self.state.changes_K[:, None]
        repeat_share_K1 = np.clip(1.0 - changes_K1 / np.maximum(values_K1, 1.0), _N.least_repeats, _N.most_repeats)
        longest_K1 = np.maximum(np.log(_N.proof) / np.log(repeat_share_K1), _N.least_run)
        longest_K1 = np.where(values_K1 > _N.enough, longest_K1, np.inf).astype(np.float32)
        long_KM = repeats_KM > longest_K1
        if not long_KM.any():
            return None
        return np.asarray(long_KM & ~self._natural(traits, raw_KM))


@dataclass(slots=True)
class RowStatus:
    """One row. usable_KM: there is a trustworthy value (None: everywhere); news_KM: it is fresh; gap_s since the last row.

    interval_s: the usual time between a machine's news. silent_M: no data for longer than a lost sample or two explain, or all that its
    GPUs do has frozen to the digit, or is read no more, while that of the others moves.
    stood_KM: rows for which each value had stood before this one. frozen_M: silent in that way: its samples come, and say nothing.
    gone_M: silent in another: its host is heard, and its GPUs are read no more.
    """

    usable_KM: np.ndarray | None
    news_M: np.ndarray
    gap_s: float
    interval_s: float
    silence_M: np.ndarray
    since_news_M: np.ndarray
    silent_M: np.ndarray
    outage: bool  # so many are silent that it is the monitoring
    stood_KM: np.ndarray
    frozen_M: np.ndarray
    gone_M: np.ndarray


def _is_whole(traits: TraitTable, raw_KM: np.ndarray) -> bool:
    """Nowhere NaN, infinite or absurd: two reductions tell it in half the time of a mask."""
    limit_K, least_K = traits.limit_K1.ravel(), traits.least_K1.ravel()
    return bool((raw_KM.max(axis=1, initial=-np.inf) <= limit_K).all() and (raw_KM.min(axis=1, initial=np.inf) >= least_K).all())


def _counts(mask_KM: np.ndarray) -> np.ndarray:
    """(K,): how many are true; row by row four times faster than numpy's count along an axis."""
    return np.array([np.count_nonzero(row_M) for row_M in mask_KM], dtype=np.float64)
