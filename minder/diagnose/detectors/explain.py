"""Why a machine is odd: for those above half the threshold, the metrics that say so, what was seen and what was expected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.diagnose.detectors import coupling
from minder.diagnose.detectors.contradiction import not_judged
from minder.diagnose.detectors.deviants import Deviants
from minder.diagnose.detectors.memory import Memory
from minder.diagnose.detectors.presence import Seen
from minder.diagnose.detectors.sure import families_of
from minder.diagnose.detectors.traits import HIGH, LOW, TraitTable
from minder.model.evidence import Cause, Evidence, Scores

__all__ = ["Explained", "explain"]

_MOST = 6
_SEVERAL = 2  # families of metrics that speak beside gauges which have frozen say more than the silence of these
_ONE_DEVICE = 1.5  # a device this much farther off than its machine's mean is named


@dataclass(frozen=True, slots=True)
class Explained:
    """What a row's scores are explained by. deviating_KM: index into `devices` of each machine's farthest device, -1 for none."""

    time_s: float
    threshold: float
    quiet: bool
    in_time_s: tuple[float, float]
    seen: Seen
    deviants: Deviants
    devices: tuple[str, ...] = ()
    deviating_KM: np.ndarray | None = None


def explain(memory: Memory, traits: TraitTable, row: Explained) -> Scores:
    """Scores of one row."""
    score_M = memory["score_M"].copy()
    evidence: dict[str, tuple[Evidence, ...]] = {}
    since: dict[str, float] = {}
    cause: dict[str, Cause] = {}
    for m in np.flatnonzero(score_M >= 0.5 * row.threshold).tolist():
        name = memory.machines[m]
        started_s = float(memory["since_M"][m])
        since[name] = started_s if started_s == started_s else row.time_s
        place = np.flatnonzero(row.deviants.machines_X == m)
        shown = _metrics(memory, traits, row, int(place[0]), since[name]) if len(place) else ()
        if row.seen.silent_M[m] and not (row.seen.frozen_M[m] and families_of(shown) >= _SEVERAL):
            evidence[name] = _silence(name, since[name], row.seen.silence_M[m], frozen=bool(row.seen.frozen_M[m]))
            cause[name] = "absence"
        else:
            spoken = _returned(memory, traits, m, since[name]) or shown or _shared(memory, traits, m, since[name])
            evidence[name] = spoken or _went_first(memory, traits, m, since[name])
            cause[name] = _cause(memory, traits, row, int(place[0])) if len(place) else "unknown"
    off = tuple(memory.machines[m] for m in np.flatnonzero((memory["clock_off_M"] != 0.0) | (memory["far_off_M"] != 0.0)).tolist())
    group = tuple(memory.machines[m] for m in np.flatnonzero(memory["in_group_M"]).tolist())
    return Scores(
        row.time_s, memory.machines, score_M, row.threshold, evidence, since, cause, row.quiet, row.in_time_s,
        group if len(group) > 1 else (), coupling.not_aligned(memory) | not_judged(memory, traits.metrics), off,
    )  # fmt: skip


def _silence(machine: str, since_s: float, silence_s: float, frozen: bool) -> tuple[Evidence, ...]:
    what = "its gauges have stood to the digit" if frozen else "silent"
    message = f"{what} for {silence_s:.0f} s while the training of its peers has changed"
    return (Evidence("telemetry", machine, message, None, None, None, None, since_s),)


def _metrics(memory: Memory, traits: TraitTable, row: Explained, place: int, since_s: float) -> tuple[Evidence, ...]:
    """The plainest first; of a metric and its smallest and largest device only the plainest one."""
    m = int(row.deviants.machines_X[place])
    weight_K = row.deviants.counted_KX[:, place] * traits.weight_K1[:, 0]
    far_K = np.abs(row.deviants.z_KX[:, place])
    found: dict[str, Evidence] = {}
    for k in np.lexsort((-far_K, -weight_K)).tolist():
        if weight_K[k] <= 0.05 or len(found) == _MOST:
            break
        metric = traits.metrics[k].removesuffix(LOW).removesuffix(HIGH)
        if metric in found:
            continue
        plainest = _plainest(traits, metric, row.deviants.newest_KX[:, place])
        observed = float(memory["last_KM"][plainest, m])
        distance = float(row.deviants.newest_KX[plainest, place])
        scaled = float(traits.scale(memory["last_KM"][:, m : m + 1])[plainest, 0])
        expected = traits.unscale(plainest, scaled - distance) if np.isfinite(distance) else None
        device = _device(traits, row, plainest, m)
        found[metric] = Evidence("telemetry", memory.machines[m], "", metric, device, observed, expected, since_s)
    return tuple(found.values())


def _went_first(memory: Memory, traits: TraitTable, m: int, since_s: float) -> tuple[Evidence, ...]:
    """Of a forerunner that its peers have joined: where it stood usually, and where it fell to."""
    scaled_K = traits.scale(memory["last_KM"][:, m : m + 1])[:, 0]
    moved_K = memory["all_quick_smooth_KM"][:, m] + memory["shift_K"]
    told_K = (memory["fore_KM"][:, m] != 0.0) & np.isfinite(moved_K) & (memory["fore_M"][m] > 0.0)
    found = []
    for k in np.flatnonzero(told_K).tolist()[:_MOST]:
        metric, observed = traits.metrics[k].removesuffix(LOW).removesuffix(HIGH), float(memory["last_KM"][k, m])
        expected = traits.unscale(k, float(scaled_K[k] - moved_K[k]))
        found.append(
            Evidence("telemetry", memory.machines[m], "changed first, and all others after it", metric, None, observed, expected, since_s)
        )
    return tuple(found)


def _returned(memory: Memory, traits: TraitTable, m: int, since_s: float) -> tuple[Evidence, ...]:
    """Of a machine at which the same sign has come back: that sign. Each was short, and what the newest row shows besides is chance."""
    if not memory["returned_M"][m] or memory["sign_k_M"][m] != memory["sign_k_M"][m]:
        return ()
    metric, often = traits.metrics[int(memory["sign_k_M"][m])], float(memory["returns_M"][m])
    message = f"again and again, at this machine only: {max(3, round(often))} times within ten minutes"
    return (Evidence("telemetry", memory.machines[m], message, metric, None, None, None, since_s),)


def _shared(memory: Memory, traits: TraitTable, m: int, since_s: float) -> tuple[Evidence, ...]:
    """Of a machine that stands apart in a cause of slowness, alone or with others: that cause, and where all others stand."""
    if memory["grouped_k_M"][m] != memory["grouped_k_M"][m]:
        return ()
    k = int(memory["grouped_k_M"][m])
    metric, observed = traits.metrics[k].removesuffix(LOW).removesuffix(HIGH), float(memory["last_KM"][k, m])
    scaled = float(traits.scale(memory["last_KM"][:, m : m + 1])[k, 0])
    place_M = memory["all_quick_smooth_KM"][k] + memory["standing_KM"][k]
    expected = traits.unscale(k, scaled - float(place_M[m] - np.nanmedian(place_M)))
    return (Evidence("telemetry", memory.machines[m], "apart from all others", metric, None, observed, expected, since_s),)


def _plainest(traits: TraitTable, metric: str, newest_K: np.ndarray) -> int:
    """The metric itself, or the one device that is much farther off than the mean of all."""
    own = traits.place[metric]
    best, size = own, abs(float(np.nan_to_num(newest_K[own])))
    for suffix in (LOW, HIGH):
        k = traits.place.get(metric + suffix)
        if k is not None and abs(float(np.nan_to_num(newest_K[k]))) > _ONE_DEVICE * size:
            best, size = k, abs(float(newest_K[k])) / _ONE_DEVICE
    return best


def _device(traits: TraitTable, row: Explained, metric: int, m: int) -> str | None:
    name = traits.metrics[metric]
    if row.deviating_KM is None or not name.endswith((LOW, HIGH)):
        return None
    index = int(row.deviating_KM[traits.place[name.removesuffix(LOW).removesuffix(HIGH)], m])
    return row.devices[index] if 0 <= index < len(row.devices) else None


def _cause(memory: Memory, traits: TraitTable, row: Explained, place: int) -> Cause:
    """A stall if the machine's own activity has all but ended, else a slowdown; unknown if its activity says nothing."""
    own_K = memory["all_quick_smooth_KM"][:, row.deviants.machines_X[place]] + memory["shift_K"]
    told_K = traits.activity_K & (row.deviants.counted_KX[:, place] > 0.0) & np.isfinite(own_K)
    if not told_K.any():
        return "slowdown" if (np.abs(memory["shift_K"][traits.activity_K]) > 0.1).any() else "unknown"
    return "stall" if float(own_K[told_K].min()) < -0.9 else "slowdown"
