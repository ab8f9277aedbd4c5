"""What the trees read: each machine against its peers and its own past, in bins of five seconds or one scrape.

Streaming and causal: work and memory per row are constant. A symbol, and its name here:

    x_KM       scaled value of series k on machine m, mean of the bin      `x_KM`
    r = x - median of the peers (stage, else job)                         `residual_KM`
    b          mean of r over about 400 s that ended 60 s ago             `base_KM`
    s          largest of: floor, common spread, the machine's own spread `scale_KM`
    z = (r - b) / s now, at 25 s and at 100 s; r / s at 25 s              `now`, `quick`, `slow`, `peer` of `describe.Deviations`

Legend: K series, M machines, C candidates, P kinds, F features, L lags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minder.diagnose.detectors.learned.describe import Deviations, describe, kind_levels, odd_machines
from minder.diagnose.detectors.learned.kinds import COMMON_KINDS, KINDS, SeriesTable
from minder.diagnose.detectors.learned.ordered import median_K1, spread_K1
from minder.diagnose.detectors.state import Moves, State, per

__all__ = ["Bin", "FeatureStream"]

_BIN_S = 5.0
_QUICK_S, _SLOW_S, _BASE_S, _LAG_S, _SPREAD_S = 25.0, 100.0, 400.0, 60.0, 300.0
_LAGS = 13  # bins of 5 s in 60 s, and the newest
_PRIOR_S = 30.0  # a baseline begins at the peers' level, worth so much of the machine's own past
_CLIP = 4.0  # no bin moves a baseline by more than so many spreads
_ODD = 3.0
_OWN = 0.7  # share of a machine's own spread that its scale is at least
_FEWEST = 4  # machines of a stage that are compared among themselves; fewer are compared with the whole job


@dataclass(frozen=True, slots=True)
class Bin:
    """One bin: `dt_s` seconds that end at `time_s`. candidates_C: places of the machines whose features these are, the loudest first."""

    time_s: float
    dt_s: float
    machines: tuple[str, ...]
    candidates_C: np.ndarray
    features_CF: np.ndarray


_OF_ONE = np.float32  # arrays over one axis: there are gigabytes a day to go through


@dataclass(slots=True)
class _State(State):
    """K series of the table."""

    sum_KM: np.ndarray = per("KM")
    count_KM: np.ndarray = per("KM")
    heard_M: np.ndarray = per("M", kind=_OF_ONE)
    seen_KM: np.ndarray = per("KM")
    ring_LKM: np.ndarray = per("LKM", np.nan, _LAGS)
    level_LK: np.ndarray = per("LK", np.nan, _LAGS)
    base_KM: np.ndarray = per("KM")
    based_s_KM: np.ndarray = per("KM")
    own_KM: np.ndarray = per("KM")
    quick_KM: np.ndarray = per("KM")
    slow_KM: np.ndarray = per("KM")
    peer_KM: np.ndarray = per("KM")
    last_KM: np.ndarray = per("KM", np.nan)
    same_s_KM: np.ndarray = per("KM")
    spread_K: np.ndarray = per("K", kind=_OF_ONE)
    common_K: np.ndarray = per("K", np.nan, kind=_OF_ONE)
    silent_s_M: np.ndarray = per("M", kind=_OF_ONE)
    odd_s_M: np.ndarray = per("M", kind=_OF_ONE)
    slowed_s: float = 0.0
    age_s: float = 0.0
    bin_s: float = np.nan  # when the open bin began
    row_s: float = np.nan  # the newest row
    gap_s: float = np.nan
    bins: float = 0.0  # how many have ended: the newest is at this place of the rings, counted round


class FeatureStream:
    """Rows in, bins out. groups: machine to the group of its peers."""

    def __init__(self, groups: Mapping[str, object] | None = None) -> None:
        self._group_of = dict(groups or {})
        self._machines: tuple[str, ...] = ()
        self._metrics: tuple[str, ...] = ()
        self._table = SeriesTable(())
        self._state = _State()
        self._groups: list[np.ndarray] = []
        self._stage_M = np.zeros(0, dtype=np.int64)
        self._withheld: frozenset[str] = frozenset()
        self._scale_KM = np.zeros((0, 0))

    def withhold(self, machines: frozenset[str]) -> None:
        """From these machines nothing of what is usual is learned from now on."""
        self._withheld = machines

    def most_deviant(self, m: int, kind: str) -> tuple[str, float, float] | None:
        """The series of a kind that deviates most on machine m: its metric, what was seen and what was expected, in base units."""
        places = self._table.members[KINDS.index(kind)]
        seen = places[self._state.seen_KM[places, m] > 0] if len(places) else places
        if not len(seen) or self._scale_KM.shape != self._state.quick_KM.shape:
            return None
        k = int(seen[np.abs(self._state.quick_KM[seen, m] / self._scale_KM[seen, m]).argmax()])
        value = float(self._state.last_KM[k, m])
        return self._table.names[k], self._table.unscale(k, value), self._table.unscale(k, value - float(self._state.quick_KM[k, m]))

    def add(self, time_s: float, machines: Sequence[str], metrics: Sequence[str], values_KM: np.ndarray, heard_M: np.ndarray) -> Bin | None:
        """One row of the window; the bin that it ends, if it ends one. values_KM: NaN where there is no data."""
        self._follow(tuple(machines), tuple(metrics))
        state = self._state
        x_KM = self._table.scale(values_KM)
        known_KM = ~np.isnan(x_KM)
        np.add(state.sum_KM, x_KM, out=state.sum_KM, where=known_KM)
        state.count_KM += known_KM
        state.heard_M += heard_M
        first = np.isnan(state.row_s)
        if not first:
            gap_s = time_s - float(state.row_s)
            state.gap_s = gap_s if np.isnan(state.gap_s) else min(state.gap_s * 1.05, gap_s)
        state.row_s = time_s
        if np.isnan(state.bin_s):
            state.bin_s = time_s
        step_s = 1.0 if np.isnan(state.gap_s) else state.gap_s
        if first or time_s - state.bin_s < max(_BIN_S, step_s) - 0.01 * step_s:
            return None
        dt_s = time_s - state.bin_s
        state.bin_s = time_s
        return self._close(time_s, dt_s, step_s)

    def state(self) -> dict[str, Any]:
        return {"machines": list(self._machines), "metrics": list(self._metrics), **self._state.record()}

    def load(self, record: Mapping[str, Any]) -> None:
        self._machines, self._metrics = tuple(record["machines"]), tuple(record["metrics"])
        self._table = SeriesTable(self._metrics)
        self._state = _State()
        self._state.load(record, len(self._table.names), len(self._machines))
        self._group()
        self._scale_KM = np.zeros((0, 0))

    def _follow(self, machines: tuple[str, ...], metrics: tuple[str, ...]) -> None:
        if machines == self._machines and metrics == self._metrics:
            return
        table = SeriesTable(metrics)
        self._state.follow(Moves.between((self._machines, machines), (self._table.names, table.names)))
        self._machines, self._metrics, self._table = machines, metrics, table
        self._group()

    def _group(self) -> None:
        """Places of each group that is large enough to be compared within itself."""
        members: dict[object, list[int]] = {}
        for m, name in enumerate(self._machines):
            members.setdefault(self._group_of.get(name), []).append(m)
        large = [np.array(places) for places in members.values() if len(places) >= _FEWEST]
        self._groups = large if len(members) > 1 else []
        self._stage_M = np.full(len(self._machines), -1)
        for g, places in enumerate(self._groups):
            self._stage_M[places] = g

    def _close(self, time_s: float, dt_s: float, step_s: float) -> Bin:
        state = self._state
        with np.errstate(invalid="ignore", divide="ignore"):
            x_KM = state.sum_KM / state.count_KM
        silent_M = state.heard_M == 0
        state.sum_KM[:], state.count_KM[:], state.heard_M[:] = 0.0, 0.0, 0.0
        state.age_s += dt_s
        state.silent_s_M = np.where(silent_M, state.silent_s_M + np.float32(dt_s), np.float32(0.0))
        center_K1 = median_K1(x_KM)
        common_K = self._follow_level(center_K1[:, 0], dt_s)
        residual_KM = x_KM - self._center(x_KM, center_K1)
        shift_KM = residual_KM - state.base_KM
        scale_KM = self._compare(residual_KM, shift_KM, dt_s)
        self._follow_repeats(x_KM, dt_s)
        state.bins += 1
        return self._bin((time_s, dt_s, step_s), scale_KM, residual_KM - state.base_KM, common_K)

    def _center(self, x_KM: np.ndarray, center_K1: np.ndarray) -> np.ndarray:
        if not self._groups:
            return center_K1
        center_KM = np.repeat(center_K1, x_KM.shape[1], axis=1)
        for places in self._groups:
            own_K1 = median_K1(x_KM[:, places])
            center_KM[:, places] = np.where(np.isnan(own_K1), center_K1, own_K1)
        return center_KM

    def _follow_level(self, center_K: np.ndarray, dt_s: float) -> np.ndarray:
        """How far the job's own level (K) is from where it was minutes ago, in scaled units; NaN where it is not known."""
        state = self._state
        lagged_K = state.level_LK[self._lag(dt_s)]
        weight = 1.0 - np.exp(-dt_s / _SPREAD_S)
        moved_K = state.common_K + weight * (lagged_K - state.common_K)
        state.common_K = np.where(np.isnan(lagged_K), state.common_K, np.where(np.isnan(state.common_K), lagged_K, moved_K))
        state.level_LK[self._newest()] = center_K
        return np.asarray(center_K - state.common_K)

    def _newest(self) -> int:
        """Where the bin that is being closed goes in the rings: over the oldest."""
        return int(self._state.bins) % _LAGS

    def _lag(self, dt_s: float) -> int:
        """The place of the bin that ended about 60 s ago."""
        return (int(self._state.bins) - int(np.clip(round(_LAG_S / dt_s), 1, _LAGS))) % _LAGS

    def _compare(self, residual_KM: np.ndarray, shift_KM: np.ndarray, dt_s: float) -> np.ndarray:
        """Update baselines and smoothed deviations; returns scale_KM."""
        state = self._state
        known_KM = ~np.isnan(residual_KM)
        np.maximum(state.seen_KM, known_KM, out=state.seen_KM)
        now_K1 = np.nan_to_num(spread_K1(shift_KM))
        weight = max(1.0 - np.exp(-dt_s / _SPREAD_S), dt_s / max(state.age_s, dt_s))
        state.spread_K += np.float32(weight) * (now_K1[:, 0] - state.spread_K)
        spread_K1_ = np.maximum(np.maximum(self._table.floor_K1, state.spread_K[:, None]), np.float32(0.8) * now_K1)
        scale_KM = np.maximum(spread_K1_, np.float32(_OWN) * np.sqrt(state.own_KM))
        heard_KM = np.where(known_KM, shift_KM, np.float32(0.0))
        _toward(state.quick_KM, heard_KM, dt_s / _QUICK_S)
        _toward(state.slow_KM, heard_KM, dt_s / _SLOW_S)
        _toward(state.peer_KM, np.where(known_KM, residual_KM, np.float32(0.0)), dt_s / _QUICK_S)
        usual_KM = known_KM & (np.abs(state.quick_KM) < np.float32(_ODD) * scale_KM)
        _toward(state.own_KM, heard_KM * heard_KM, dt_s / _BASE_S, usual_KM)
        self._learn_baseline(residual_KM, scale_KM, dt_s)
        self._scale_KM = scale_KM
        return np.asarray(scale_KM)

    def _learn_baseline(self, residual_KM: np.ndarray, scale_KM: np.ndarray, dt_s: float) -> None:
        state = self._state
        lagged_KM = state.ring_LKM[self._lag(dt_s)]
        heard_KM = ~np.isnan(lagged_KM)
        np.add(state.based_s_KM, np.float32(dt_s), out=state.based_s_KM, where=heard_KM)
        share_KM = np.float32(dt_s) / np.minimum(state.based_s_KM + np.float32(_PRIOR_S), np.float32(_BASE_S))
        bound_KM = np.float32(_CLIP) * scale_KM
        change_KM = np.clip(lagged_KM - state.base_KM, -bound_KM, bound_KM) * share_KM
        if self._withheld:
            heard_KM &= ~np.isin(self._machines, list(self._withheld))
        np.add(state.base_KM, change_KM, out=state.base_KM, where=heard_KM)
        state.ring_LKM[self._newest()] = residual_KM

    def _follow_repeats(self, x_KM: np.ndarray, dt_s: float) -> None:
        """For how long each value has been the same; what is missing is no news."""
        state = self._state
        known_KM = ~np.isnan(x_KM)
        state.same_s_KM += np.float32(dt_s)
        state.same_s_KM[known_KM & (x_KM != state.last_KM)] = 0.0
        np.copyto(state.last_KM, x_KM, where=known_KM)

    def _bin(self, at: tuple[float, float, float], scale_KM: np.ndarray, shift_KM: np.ndarray, common_K: np.ndarray) -> Bin:
        time_s, dt_s, step_s = at
        state, inverse_KM = self._state, np.float32(1.0) / scale_KM
        seen_KM = state.seen_KM > 0
        quick_KM = state.quick_KM * inverse_KM
        quick_PM = kind_levels(self._table, quick_KM, seen_KM)
        odd_M = odd_machines(quick_PM)
        state.odd_s_M = np.where(odd_M > 0, state.odd_s_M + np.float32(dt_s), np.maximum(state.odd_s_M - np.float32(2.0 * dt_s), 0.0))
        found = Deviations(
            np.nan_to_num(shift_KM) * inverse_KM, quick_KM, state.slow_KM * inverse_KM, state.peer_KM * inverse_KM, state.quick_KM,
            seen_KM, state.same_s_KM, state.silent_s_M, state.odd_s_M, self._stage_M,
        )  # fmt: skip
        chosen_C, features_CF = describe(self._table, found, quick_PM, odd_M, self._of_job(common_K, odd_M, step_s, dt_s), dt_s)
        return Bin(time_s, dt_s, self._machines, chosen_C, features_CF)

    def _of_job(self, common_K: np.ndarray, odd_M: np.ndarray, step_s: float, dt_s: float) -> list[float]:
        state = self._state
        common_P = np.full(len(COMMON_KINDS), np.nan)
        has_P = np.zeros(len(COMMON_KINDS))
        for i, kind in enumerate(COMMON_KINDS):
            known = common_K[self._table.members[KINDS.index(kind)]]
            known = known[~np.isnan(known)]
            if len(known):
                common_P[i], has_P[i] = known.mean(), 1.0
        falls = np.nan_to_num(common_P[:5], nan=0.0).min()  # congestion rises where training slows down
        state.slowed_s = state.slowed_s + dt_s if falls < -0.2 else 0.0
        flags = (odd_M >= 1, odd_M >= 2, state.silent_s_M > 0)
        shares = [float(flag_M.mean()) if len(odd_M) else 0.0 for flag_M in flags]
        rest = [float(np.log(max(len(odd_M), 1))), step_s, min(state.age_s, 600.0), min(state.slowed_s, 600.0)]
        return [*common_P.tolist(), *has_P.tolist(), *shares, *rest]


def _toward(state_KM: np.ndarray, value_KM: np.ndarray, lengths: float, where_KM: np.ndarray | bool = True) -> None:
    """An exponential mean in place: on by so many of its own lengths."""
    np.add(state_KM, np.float32(1.0 - np.exp(-lengths)) * (value_KM - state_KM), out=state_KM, where=where_KM)
