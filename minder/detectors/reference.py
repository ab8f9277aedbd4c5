"""How far each machine is from where it stands usually, seen from its peers.

The yardstick is the median of the others (over all machines, and over those of the same pipeline stage), the machine's own standing
offset from it is learned and taken away, and what is left is smoothed and measured in its own usual size, wander included: uneven
experts and long sequences make a machine differ for a minute, and have done so before.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minder.detectors.memory import Memory
from minder.detectors.peers import distance_from_others
from minder.detectors.traits import TraitTable

__all__ = ["STANDING", "MeasureContext", "Measured", "distances", "fields", "learn_spread", "learn_standing", "measure", "remembered"]

_OFFSET_S = 300.0  # a standing offset is learned over this time
_SPREAD_S = 300.0
_ECHO = 0.15  # share of a common move by which healthy machines may differ in following it
_Z_LIMIT = 25.0


STANDING: dict[str, tuple[str, float]] = {
    "standing_KM": ("KM", 0.0),  # own usual distance from the common level: taken away before machines are compared
    "standing_n_KM": ("KM", 0.0),
}


def learn_standing(memory: Memory, rest_KM: np.ndarray, frozen_KM: np.ndarray, gap_s: float) -> None:
    """rest_KM: what is left of each value when the common level and the standing distance are taken away."""
    weight_KM = np.where(np.isnan(rest_KM) | frozen_KM, np.float32(0.0), np.float32(gap_s))
    n_KM = memory["standing_n_KM"] + weight_KM
    gain_KM = np.maximum(weight_KM / np.maximum(n_KM, gap_s), 1.0 - np.exp(-weight_KM / _OFFSET_S))
    memory["standing_KM"] = memory["standing_KM"] + np.where(weight_KM > 0, gain_KM * np.nan_to_num(rest_KM), 0.0)
    memory["standing_n_KM"] = n_KM


def fields(name: str) -> dict[str, tuple[str, float]]:
    """Memory of one yardstick."""
    return {
        f"{name}_n_KM": ("KM", 0.0),  # seconds of data behind the spread
        f"{name}_smooth_KM": ("KM", np.nan),  # smoothed residual
        f"{name}_spread_KM": ("KM", np.nan),  # its usual size
        f"{name}_z_KM": ("KM", 0.0),  # the distance in usual sizes
    }


def measure(memory: Memory, traits: TraitTable, name: str, distance_KM: np.ndarray, context: MeasureContext) -> Measured:
    """Smoothed deviation in units of its usual size; 0 where nothing is known yet.

    distance_KM: scaled value minus the median of the others, NaN where there is no data.
    """
    smooth_KM = memory[f"{name}_smooth_KM"]
    known_KM = ~np.isnan(distance_KM)
    started_KM = np.where(np.isnan(smooth_KM), distance_KM, smooth_KM + context.gain * (distance_KM - smooth_KM))
    memory[f"{name}_smooth_KM"] = np.where(known_KM, started_KM, smooth_KM)
    spread_KM = np.nan_to_num(memory[f"{name}_spread_KM"], nan=0.0)
    pooled_K1 = _pooled(spread_KM, memory[f"{name}_n_KM"] > 0)
    n_KM = memory[f"{name}_n_KM"]
    young_KM = 1.0 + context.warmup_s / np.maximum(n_KM, 1.0)
    unit_KM = np.maximum(np.maximum(spread_KM, pooled_K1) * young_KM, traits.floor_K1)
    unit_KM = np.sqrt(unit_KM**2 + (_ECHO / 3.0 * context.shift_K[:, None].astype(np.float32)) ** 2)
    z_KM = np.clip(memory[f"{name}_smooth_KM"] / unit_KM, -_Z_LIMIT, _Z_LIMIT)
    memory[f"{name}_z_KM"] = np.where(known_KM & (n_KM >= context.warmup_s), z_KM, 0.0)
    return Measured(known_KM, memory[f"{name}_smooth_KM"], memory[f"{name}_z_KM"])


class Measured:
    """One row seen from one yardstick, all (K, M): where there is data, smoothed distance from the peers, and that in usual sizes."""

    __slots__ = ("known_KM", "smooth_KM", "z_KM")

    def __init__(self, known_KM: np.ndarray, smooth_KM: np.ndarray, z_KM: np.ndarray) -> None:
        self.known_KM = known_KM
        self.smooth_KM = smooth_KM
        self.z_KM = z_KM


class MeasureContext:
    """gain: of the smoothing in this row; shift_K: how far the common level is off; warmup_s: data needed before a word is said."""

    __slots__ = ("gain", "shift_K", "warmup_s")

    def __init__(self, gain: float, shift_K: np.ndarray, warmup_s: float) -> None:
        self.gain = gain
        self.shift_K = shift_K
        self.warmup_s = warmup_s


def remembered(memory: Memory, name: str, distance_KM: np.ndarray) -> Measured:
    """What this yardstick said when it was last updated."""
    return Measured(~np.isnan(distance_KM), memory[f"{name}_smooth_KM"], memory[f"{name}_z_KM"])


def learn_spread(memory: Memory, name: str, row: Measured, frozen_KM: np.ndarray, gap_s: float) -> None:
    """The usual size of the smoothed deviation follows, except where frozen; a far value moves it by a bounded step only."""
    weight_KM = np.where(row.known_KM & ~frozen_KM, np.float32(gap_s), np.float32(0.0))
    n_KM = memory[f"{name}_n_KM"] + weight_KM
    memory[f"{name}_n_KM"] = n_KM
    spread_KM = np.nan_to_num(memory[f"{name}_spread_KM"], nan=0.0)
    size_KM = 1.25 * np.abs(np.nan_to_num(row.smooth_KM))  # a normal deviate's mean size is 0.8 of its standard deviation
    bounded_KM = np.where(n_KM > 20 * gap_s, np.minimum(size_KM, 4.0 * spread_KM + 1e-3), size_KM)
    gain_KM = np.maximum(weight_KM / np.maximum(n_KM, gap_s), 1.0 - np.exp(-weight_KM / _SPREAD_S))
    memory[f"{name}_spread_KM"] = np.where(weight_KM > 0, spread_KM + gain_KM * (bounded_KM - spread_KM), memory[f"{name}_spread_KM"])


def distances(scaled_KM: np.ndarray, groups: Sequence[np.ndarray]) -> np.ndarray:
    """Distance of each machine from the middle of the others in its group; NaN for a machine alone in its group."""
    if len(groups) == 1:
        return distance_from_others(scaled_KM)
    distance_KM = np.full_like(scaled_KM, np.nan)
    for members in groups:
        if len(members) > 1:
            distance_KM[:, members] = distance_from_others(scaled_KM[:, members])
    return distance_KM


def _pooled(spread_KM: np.ndarray, known_KM: np.ndarray) -> np.ndarray:
    """(K, 1): mean spread over machines, a robust stand-in for a machine that has been calm so far."""
    count_K1 = np.maximum(known_KM.sum(axis=1, keepdims=True), 1).astype(np.float32)
    return np.asarray((spread_KM * known_KM).sum(axis=1, keepdims=True) / count_K1)
