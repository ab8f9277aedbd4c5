"""What the trees read: each machine against its peers and its own past, in bins of five seconds or one scrape.

Streaming and causal: work and memory per row are constant. A symbol, and its name here:

    x_KM       scaled value of series k on machine m, mean of the bin      `x_KM`
    r = x - median of the peers (stage, else job)                         `residual_KM`
    b          mean of r over about 400 s that ended 60 s ago             `base_KM`
    s          largest of: floor, common spread, the machine's own spread `scale_KM`
    z = (r - b) / s now, at 25 s and at 100 s; r / s at 25 s              `now`, `quick`, `slow`, `peer`

Of a kind with several series the one that deviates most (at 25 s) speaks. Features are of the machines that deviate most (`CANDIDATES`).
Legend: K series, M machines, C candidates, P kinds, F features, L lags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from minder.diagnose.detectors.learned.kinds import COMMON_KINDS, KINDS, SeriesTable
from minder.diagnose.detectors.learned.ordered import median_K1, spread_K1
from minder.diagnose.detectors.learned.typed_state import Axes, fresh, from_record, moved, to_record

__all__ = ["CANDIDATES", "FEATURES", "KIND_FEATURES", "Bin", "FeatureStream"]

CANDIDATES = 48
_OF_KIND = ("now", "quick", "slow", "peer", "size", "lead")
_OF_MACHINE = ("silent_s", "odd_kinds", "loud", "loud_lead", "loud_rank", "frozen", "calm_share")
_OF_JOB = (
    *(f"common_{kind}" for kind in COMMON_KINDS), *(f"has_{kind}" for kind in COMMON_KINDS), "odd_share", "odd_twice_share", "silent_share",
    "log_machines", "interval_s", "age_s", "slowed_s",
)  # fmt: skip
FEATURES = (*(f"{kind}_{name}" for kind in KINDS for name in _OF_KIND), *_OF_MACHINE, *_OF_JOB)
KIND_FEATURES: Mapping[str, slice] = {kind: slice(i * len(_OF_KIND), (i + 1) * len(_OF_KIND)) for i, kind in enumerate(KINDS)}

_BIN_S = 5.0
_QUICK_S, _SLOW_S, _BASE_S, _LAG_S, _SPREAD_S = 25.0, 100.0, 400.0, 60.0, 300.0
_LAGS = 13  # bins of 5 s in 60 s, and the newest
_PRIOR_S = 30.0  # a baseline begins at the peers' level, worth so much of the machine's own past
_CLIP = 4.0  # no bin moves a baseline by more than so many spreads
_ODD = 3.0
_OWN = 0.7  # share of a machine's own spread that its scale is at least
_MOST = 30.0
_FEWEST = 4  # machines of a stage that are compared among themselves; fewer are compared with the whole job


@dataclass(frozen=True, slots=True)
class Bin:
    """One bin: `dt_s` seconds that end at `time_s`. candidates_C: places of the machines whose features these are, the loudest first."""

    time_s: float
    dt_s: float
    machines: tuple[str, ...]
    candidates_C: np.ndarray
    features_CF: np.ndarray


KM = Annotated[np.ndarray, Axes("KM")]
M = Annotated[np.ndarray, Axes("M")]
K = Annotated[np.ndarray, Axes("K")]
Number = Annotated[np.ndarray, Axes("")]
UnknownKM = Annotated[np.ndarray, Axes("KM", np.nan)]
UnknownK = Annotated[np.ndarray, Axes("K", np.nan)]
UnknownLKM = Annotated[np.ndarray, Axes("LKM", np.nan)]
UnknownLK = Annotated[np.ndarray, Axes("LK", np.nan)]
Unknown = Annotated[np.ndarray, Axes("", np.nan)]


@dataclass(slots=True)
class _State:
    sum_KM: KM
    count_KM: KM
    heard_M: M
    seen_KM: KM
    ring_LKM: UnknownLKM
    level_LK: UnknownLK
    base_KM: KM
    based_s_KM: KM
    own_KM: KM
    quick_KM: KM
    slow_KM: KM
    peer_KM: KM
    last_KM: UnknownKM
    same_s_KM: KM
    spread_K: K
    common_K: UnknownK
    silent_s_M: M
    slowed_s: Number
    age_s: Number
    bin_s: Unknown  # when the open bin began
    row_s: Unknown  # the newest row
    gap_s: Unknown


class FeatureStream:
    """Rows in, bins out. groups: machine to the group of its peers."""

    def __init__(self, groups: Mapping[str, object] | None = None) -> None:
        self._group_of = dict(groups or {})
        self._machines: tuple[str, ...] = ()
        self._metrics: tuple[str, ...] = ()
        self._table = SeriesTable(())
        self._state = fresh(_State, {"K": 0, "M": 0, "L": _LAGS})
        self._groups: list[np.ndarray] = []
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

    def silent_s(self, m: int) -> float:
        return float(self._state.silent_s_M[m])

    def add(self, time_s: float, machines: Sequence[str], metrics: Sequence[str], values_KM: np.ndarray, heard_M: np.ndarray) -> Bin | None:
        """One row of the window; the bin that it ends, if it ends one. values_KM: NaN where there is no data."""
        self._follow(tuple(machines), tuple(metrics))
        state = self._state
        values_KM = values_KM[self._table.columns] if len(self._table.columns) else np.zeros((0, len(machines)))
        x_KM = self._table.scale(values_KM)
        known_KM = ~np.isnan(x_KM)
        state.sum_KM += np.where(known_KM, x_KM, 0.0)
        state.count_KM += known_KM
        state.heard_M += heard_M
        first = np.isnan(state.row_s)
        if not first:
            gap_s = time_s - float(state.row_s)
            state.gap_s[()] = gap_s if np.isnan(state.gap_s) else min(float(state.gap_s) * 1.05, gap_s)
        state.row_s[()] = time_s
        if np.isnan(state.bin_s):
            state.bin_s[()] = time_s
        step_s = 1.0 if np.isnan(state.gap_s) else float(state.gap_s)
        if first or time_s - float(state.bin_s) < max(_BIN_S, step_s) - 0.01 * step_s:
            return None
        dt_s = time_s - float(state.bin_s)
        state.bin_s[()] = time_s
        return self._close(time_s, dt_s, step_s)

    def state(self) -> dict[str, Any]:
        return {"machines": list(self._machines), "metrics": list(self._metrics), **to_record(self._state)}

    def load(self, record: Mapping[str, Any]) -> None:
        self._machines, self._metrics = tuple(record["machines"]), tuple(record["metrics"])
        self._table = SeriesTable(self._metrics)
        self._state = from_record(_State, record, {"K": len(self._table.names), "M": len(self._machines), "L": _LAGS})
        self._groups = self._peers()
        self._scale_KM = np.zeros((0, 0))

    def _follow(self, machines: tuple[str, ...], metrics: tuple[str, ...]) -> None:
        if machines == self._machines and metrics == self._metrics:
            return
        table = SeriesTable(metrics)
        sizes = {"K": len(table.names), "M": len(machines), "L": _LAGS}
        self._state = moved(self._state, {"K": self._table.names, "M": self._machines}, {"K": table.names, "M": machines}, sizes)
        self._machines, self._metrics, self._table = machines, metrics, table
        self._groups = self._peers()

    def _peers(self) -> list[np.ndarray]:
        """Places of each group that is large enough to be compared within itself."""
        members: dict[object, list[int]] = {}
        for m, name in enumerate(self._machines):
            members.setdefault(self._group_of.get(name), []).append(m)
        large = [np.array(places) for places in members.values() if len(places) >= _FEWEST]
        return large if len(members) > 1 else []

    def _close(self, time_s: float, dt_s: float, step_s: float) -> Bin:
        state = self._state
        with np.errstate(invalid="ignore", divide="ignore"):
            x_KM = state.sum_KM / state.count_KM
        silent_M = state.heard_M == 0
        state.sum_KM[:], state.count_KM[:], state.heard_M[:] = 0.0, 0.0, 0.0
        state.age_s += dt_s
        state.silent_s_M = np.where(silent_M, state.silent_s_M + dt_s, 0.0)
        center_K1 = median_K1(x_KM)
        common_K = self._follow_level(center_K1[:, 0], dt_s)
        residual_KM = x_KM - self._center(x_KM, center_K1)
        scale_KM = self._compare(x_KM, residual_KM, dt_s)
        return self._bin((time_s, dt_s, step_s), scale_KM, residual_KM, common_K)

    def _center(self, x_KM: np.ndarray, center_K1: np.ndarray) -> np.ndarray:
        center_KM = np.repeat(center_K1, x_KM.shape[1], axis=1)
        for places in self._groups:
            own_K1 = median_K1(x_KM[:, places])
            center_KM[:, places] = np.where(np.isnan(own_K1), center_KM[:, places], own_K1)
        return center_KM

    def _follow_level(self, center_K: np.ndarray, dt_s: float) -> np.ndarray:
        """How far the job's own level (K) is from where it was minutes ago, in scaled units; NaN where it is not known."""
        state = self._state
        lagged_K = state.level_LK[self._lag(dt_s)]
        weight = 1.0 - np.exp(-dt_s / _SPREAD_S)
        moved_K = state.common_K + weight * (lagged_K - state.common_K)
        state.common_K = np.where(np.isnan(lagged_K), state.common_K, np.where(np.isnan(state.common_K), lagged_K, moved_K))
        state.level_LK = np.roll(state.level_LK, 1, axis=0)
        state.level_LK[0] = center_K
        return np.asarray(center_K - state.common_K)

    def _lag(self, dt_s: float) -> int:
        """The place of the bin that ended about 60 s ago."""
        return int(np.clip(round(_LAG_S / dt_s), 1, _LAGS) - 1)

    def _compare(self, x_KM: np.ndarray, residual_KM: np.ndarray, dt_s: float) -> np.ndarray:
        """Update baselines and smoothed deviations; returns scale_KM."""
        state = self._state
        known_KM = ~np.isnan(residual_KM)
        state.seen_KM = np.maximum(state.seen_KM, known_KM)
        shift_KM = residual_KM - state.base_KM
        now_K1 = np.nan_to_num(spread_K1(shift_KM))
        weight = max(1.0 - np.exp(-dt_s / _SPREAD_S), dt_s / max(float(state.age_s), dt_s))
        state.spread_K += weight * (now_K1[:, 0] - state.spread_K)
        spread_KM = np.maximum(np.maximum(self._table.floor_K1, state.spread_K[:, None]), 0.8 * now_K1)
        scale_KM = np.maximum(spread_KM, _OWN * np.sqrt(state.own_KM))
        for name, length_s, value_KM in (
            ("quick_KM", _QUICK_S, shift_KM),
            ("slow_KM", _SLOW_S, shift_KM),
            ("peer_KM", _QUICK_S, residual_KM),
        ):
            step = 1.0 - np.exp(-dt_s / length_s)
            old_KM = getattr(state, name)
            setattr(state, name, old_KM + step * (np.where(known_KM, value_KM, 0.0) - old_KM))
        usual_KM = known_KM & (np.abs(state.quick_KM) < _ODD * scale_KM)
        state.own_KM += np.where(usual_KM, (1.0 - np.exp(-dt_s / _BASE_S)) * (np.nan_to_num(shift_KM) ** 2 - state.own_KM), 0.0)
        lagged_KM = state.ring_LKM[self._lag(dt_s)]
        heard_KM = ~np.isnan(lagged_KM)
        state.based_s_KM += np.where(heard_KM, dt_s, 0.0)
        share_KM = dt_s / np.minimum(state.based_s_KM + _PRIOR_S, _BASE_S)
        change_KM = np.clip(np.nan_to_num(lagged_KM - state.base_KM), -_CLIP * scale_KM, _CLIP * scale_KM)
        heard_KM &= ~np.isin(self._machines, list(self._withheld)) if self._withheld else True
        state.base_KM += np.where(heard_KM, share_KM * change_KM, 0.0)
        state.ring_LKM = np.roll(state.ring_LKM, 1, axis=0)
        state.ring_LKM[0] = residual_KM
        state.same_s_KM = np.where(known_KM & (x_KM != state.last_KM), 0.0, state.same_s_KM + dt_s)
        state.last_KM = np.where(known_KM, x_KM, state.last_KM)
        self._scale_KM = scale_KM
        return np.asarray(scale_KM)

    def _bin(self, at: tuple[float, float, float], scale_KM: np.ndarray, residual_KM: np.ndarray, common_K: np.ndarray) -> Bin:
        time_s, dt_s, step_s = at
        state, machines = self._state, len(self._machines)
        now_KM = np.nan_to_num(residual_KM - state.base_KM) / scale_KM
        series = {
            "now": now_KM, "quick": state.quick_KM / scale_KM, "slow": state.slow_KM / scale_KM, "peer": state.peer_KM / scale_KM,
            "size": state.quick_KM,
        }  # fmt: skip
        kind_PMX = self._by_kind(series)
        loud_PM = np.minimum(np.abs(np.nan_to_num(kind_PMX[:, :, 1])), 10.0)
        loud_M = loud_PM.sum(axis=0) + np.minimum(state.silent_s_M / 15.0, 10.0)
        order_M = np.argsort(-loud_M, kind="stable")
        chosen_C = order_M[:CANDIDATES]
        kind_PMX[:, :, 5] = _lead(np.abs(kind_PMX[:, :, 1]))
        odd_PM = loud_PM > _ODD
        features_CF = np.full((len(chosen_C), len(FEATURES)), np.nan, dtype=np.float32)
        features_CF[:, : len(KINDS) * len(_OF_KIND)] = kind_PMX[:, chosen_C].transpose(1, 0, 2).reshape(len(chosen_C), -1)
        known_PM = ~np.isnan(kind_PMX[:, :, 1])
        calm_M = (known_PM & (loud_PM < 1.0)).sum(axis=0) / np.maximum(known_PM.sum(axis=0), 1)
        rank_M = np.empty(machines)
        rank_M[order_M] = np.arange(machines)
        own_XM = np.stack(
            [
                np.minimum(state.silent_s_M, 600.0),
                odd_PM.sum(axis=0),
                loud_M,
                _lead(loud_M[None])[0],
                np.log1p(rank_M),
                self._frozen_M(dt_s),
                calm_M,
            ]
        )
        first = len(KINDS) * len(_OF_KIND)
        features_CF[:, first : first + len(own_XM)] = own_XM[:, chosen_C].T
        features_CF[:, first + len(own_XM) :] = self._of_job(common_K, odd_PM, step_s, dt_s)
        return Bin(time_s, dt_s, self._machines, chosen_C, np.clip(features_CF, -600.0, 600.0))

    def _by_kind(self, series: Mapping[str, np.ndarray]) -> np.ndarray:
        """(P, M, features of a kind), the lead still empty; NaN where the machine never showed any series of the kind."""
        machines = len(self._machines)
        out_PMX = np.full((len(KINDS), machines, len(_OF_KIND)), np.nan)
        seen_KM = self._state.seen_KM > 0
        for p, places in enumerate(self._table.members):
            if not len(places) or not seen_KM[places].any():
                continue
            best_1M = np.abs(series["quick"][places]).argmax(axis=0)[None]
            known_M = seen_KM[places].any(axis=0)
            for i, name in enumerate(_OF_KIND[:5]):
                value_M = np.take_along_axis(series[name][places], best_1M, axis=0)[0]
                out_PMX[p, :, i] = np.where(known_M, np.clip(value_M, -_MOST, _MOST), np.nan)
        return out_PMX

    def _frozen_M(self, dt_s: float) -> np.ndarray:
        """How long (log of bins) a gauge of the machine has repeated itself while its peers' moved."""
        same_KM = self._state.same_s_KM
        if not len(same_KM):
            return np.zeros(len(self._machines))
        moving_K = (np.median(same_KM, axis=1) < 2.0 * dt_s) & (self._state.seen_KM.sum(axis=1) > 2)
        return np.asarray(np.log1p((same_KM * (moving_K[:, None] & (self._state.seen_KM > 0))).max(axis=0) / dt_s))

    def _of_job(self, common_K: np.ndarray, odd_PM: np.ndarray, step_s: float, dt_s: float) -> np.ndarray:
        state = self._state
        common_P = np.full(len(COMMON_KINDS), np.nan)
        has_P = np.zeros(len(COMMON_KINDS))
        for i, kind in enumerate(COMMON_KINDS):
            known = common_K[self._table.members[KINDS.index(kind)]]
            known = known[~np.isnan(known)]
            if len(known):
                common_P[i], has_P[i] = known.mean(), 1.0
        falls = np.nan_to_num(common_P[:5], nan=0.0).min()  # congestion rises where training slows down
        state.slowed_s = np.where(falls < -0.2, state.slowed_s + dt_s, 0.0)
        odd_M = odd_PM.sum(axis=0)
        flags = (odd_M >= 1, odd_M >= 2, state.silent_s_M > 0)
        shares = [float(flag_M.mean()) if len(odd_M) else 0.0 for flag_M in flags]
        rest = [np.log(max(len(odd_M), 1)), step_s, min(float(state.age_s), 600.0), min(float(state.slowed_s), 600.0)]
        return np.array([*common_P, *has_P, *shares, *rest])


def _lead(value_PM: np.ndarray) -> np.ndarray:
    """By how much each machine is ahead of all others; behind the first one for the others. NaN stays."""
    if value_PM.shape[1] < 2:
        return np.asarray(value_PM.copy())
    known_PM = np.where(np.isnan(value_PM), -np.inf, value_PM)
    top_P2 = np.sort(np.partition(known_PM, -2, axis=1)[:, -2:], axis=1)
    first_P1, second_P1 = top_P2[:, 1:], np.where(np.isfinite(top_P2[:, :1]), top_P2[:, :1], 0.0)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known_PM >= first_P1, value_PM - second_P1, value_PM - first_P1))
