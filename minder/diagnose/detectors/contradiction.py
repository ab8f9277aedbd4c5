"""One metric, or one exporter's, against all else of its machine: an exporter's word, or a unit that has changed, and not the machine's
fault.

A machine that computes or sends far less does less in all ways at once. A fall of one metric while whatever else the machine does goes on,
device for device, is that metric's own, and so is a rise to ten times as much: it accuses no machine, and whose exporter needs a look is
reported. A link inside or outside of the machine may lose a part of its traffic alone, and a clock may fall alone, but not to a tenth.

What is read at one place fails together (`TraitTable.sources`): the profiling fields of a GPU, or the traffic counters of its links. They
confirm one another and are one word. While nothing is slowed, what is read at other places contradicts them: a GPU at a tenth of its
activity does not draw the power that it drew, and a machine that sends a quarter per second while it computes as ever does not exist in
a job whose machines wait for one another. Nor does one whose GPUs rest and that goes on to send what the others send, while none of them
is slowed: then the whole of its GPUs' exporter is one word, against the network card's. Traffic of which half is left while nothing is
slowed is counted in one direction only: steps that are as fast as ever move as many bytes. So does a machine whose GPUs compute less by
their gauges: these meet another part of each step than the others' do.

A thousandth of what is expected, or a thousand times it, is a unit also when all stand soon after, and no GPU's clock stands below 10 MHz.
K metrics, M machines, X machines that stand out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.baseline import BaselineState
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.phases import Phase
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.traits import HIGH, LOW, TraitsNumbers, TraitTable

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Contradiction", "ContradictionState"]


@dataclass(frozen=True, slots=True)
class ContradictionNumbers:
    """Section [contradiction] of detector.toml: what each number is stands there."""

    felt: float
    follows: float
    witnesses: int
    cut: float
    lasts_s: float
    reported_s: float
    standing_s: float
    one_way: float
    computes: float
    thousand: float
    slowest_hertz: float
    cools: float


_N = numbers("contradiction", ContradictionNumbers)
_TRAITS = numbers("traits", TraitsNumbers)

_POWER, _HEAT = "gpu_power_draw_watts", "gpu_temperature_celsius"
_HALF, _THOUSAND = float(np.log(2.0)), float(np.log(1000.0))


@dataclass(slots=True)
class ContradictionState(State):
    contradicted: float = 0.0  # 1: contradicted_s_KM is not all 0
    contradicted_s_KM: np.ndarray = per("KM")  # for how long all that its machine does besides has contradicted the series


class Contradiction(Stage):
    """Takes from `row.outliers` what all else of its machine contradicts."""

    baseline: BaselineState
    state: ContradictionState

    def update(self, row: Row) -> None:
        found = row.outliers
        x = found.machines_X
        expected_KX = row.center_K[:, None] + self.baseline.baseline_KM[:, x]
        apart = (found.fallen_KX, found.smooth_KX, expected_KX, row.raw_KM[:, x])
        says_nothing_KX = self.contradicted(row.traits, x, apart, (row.phase, row.status.gap_s))
        if len(x):
            found.counted_KX *= ~says_nothing_KX

    def contradicted(self, traits: TraitTable, x: np.ndarray, falls: tuple[np.ndarray, ...], when: tuple[Phase, float]) -> np.ndarray:
        """Mask (K, X) of what says nothing. To be asked once per row, also where no machine stands out (X = 0).

        falls: (which series have plainly changed, distances from the peers, scaled, NaN where nothing is known, where their peers and
        their past would have them, and what came in). when: (the row's phase, seconds since the last row).
        """
        fallen_KX, apart_KX, expected_KX, raw_KX = falls
        phase, gap_s = when
        if not len(x) and not self.state.contradicted:
            return fallen_KX
        long_KX, slowed = self.state.contradicted_s_KM[:, x] >= _N.lasts_s, phase.harm >= _N.felt
        old_KX = self.state.contradicted_s_KM[:, x] >= _N.standing_s
        with np.errstate(invalid="ignore"):
            no_clock_KX = traits.falls_K1 & (raw_KX < _N.slowest_hertz)
        if slowed and phase.stalled:  # there each kind of work stands, or goes on, by itself: what was broken before is still
            return np.asarray(old_KX | no_clock_KX | (long_KX & _other_unit_KX(traits, raw_KX, expected_KX)))
        found_KX = _contradicted_KX(traits, fallen_KX, apart_KX, sources=not slowed)
        if fallen_KX.any():
            one_way_KX = _one_way_KX(traits, fallen_KX, apart_KX, expected_KX)
            one_way_KX |= _one_way_KX(traits, fallen_KX, self.baseline.all_slow.smooth_KM[:, x], expected_KX)
            found_KX |= one_way_KX & (long_KX | (not slowed))  # what was counted so before the job was slowed still is
        if slowed:  # a process that has halted leaves its GPU spinning
            found_KX = (found_KX & ~traits.halts_K1) | old_KX
        found_KX |= no_clock_KX
        self._follow(x, found_KX, gap_s)
        return np.asarray(no_clock_KX | (found_KX & (self.state.contradicted_s_KM[:, x] >= _N.lasts_s)))

    def not_judged(self, machines: Sequence[str], metrics: Sequence[str]) -> dict[str, str]:
        """Machine to one line about a metric that all else of it contradicts, for those whose exporter needs a look."""
        found: dict[str, str] = {}
        if not self.state.contradicted:
            return found
        long_KM = self.state.contradicted_s_KM >= _N.reported_s
        for m in np.flatnonzero(long_KM.any(axis=0)).tolist():
            names = dict.fromkeys(metrics[k].removesuffix(LOW).removesuffix(HIGH) for k in np.flatnonzero(long_KM[:, m]).tolist())
            found[machines[m]] = f"{', '.join(names)} changed alone while all else that it does goes on: look at its exporter, or its unit"
        return found

    def _follow(self, x: np.ndarray, found_KX: np.ndarray, gap_s: float) -> None:
        seconds_KM, any_now = self.state.contradicted_s_KM, bool(found_KX.any())
        if any_now or self.state.contradicted:
            longer_KX = np.where(found_KX, seconds_KM[:, x] + np.float32(gap_s), np.float32(0.0))
            seconds_KM[:] = 0.0
            seconds_KM[:, x] = longer_KX
            self.state.contradicted = float(any_now)


def _contradicted_KX(traits: TraitTable, fallen_KX: np.ndarray, apart_KX: np.ndarray, sources: bool) -> np.ndarray:
    """Mask (K, X): what else the machine does, device for device, hardly follows. sources: what is read at the same place is no witness."""
    found_KX = np.zeros(fallen_KX.shape, dtype=bool)
    with np.errstate(invalid="ignore"):
        units = (apart_KX[traits.falls_K1[:, 0]] < -_TRAITS.unit).any() or (apart_KX[traits.works_K1[:, 0]] > _TRAITS.unit).any()
        if not fallen_KX.any() and not units:
            return found_KX
    for members, witnesses in traits.doing:
        sum_X, count_X = _sum(apart_KX, witnesses)
        for k in members:
            own_X = apart_KX[k]
            itself_X = ~np.isnan(own_X) if k in witnesses else np.zeros(len(own_X), dtype=bool)
            others_X = count_X - itself_X
            mean_X = (sum_X - np.where(itself_X, own_X, 0.0)) / np.maximum(others_X, 1)
            least = _N.cut if traits.carries_K[k] else _TRAITS.unit if traits.falls_K1[k, 0] else 0.0
            found_KX[k] = (others_X >= _N.witnesses) & _alone_X(traits, k, (fallen_KX[k], own_X, mean_X), least)
        for same in traits.sources if sources else ():
            outside = [k for k in witnesses if not same[k]]
            sum_X, count_X = _sum(apart_KX, outside)
            mean_X, known_X = sum_X / np.maximum(count_X, 1), count_X >= _N.witnesses
            broken_X = np.zeros(len(mean_X), dtype=bool)
            for k in sorted((k for k in members if same[k]), key=lambda k: bool(traits.carries_K[k])):
                least_X = np.where(broken_X, 0.0, _N.cut) if traits.carries_K[k] else 0.0  # traffic that is read there goes with the rest
                alone_X = known_X & _alone_X(traits, k, (fallen_KX[k], apart_KX[k], mean_X), least_X)
                found_KX[k] |= alone_X
                broken_X |= alone_X & ~traits.carries_K[k]
    if _POWER in traits.place and _HEAT in traits.place:  # no broken sensor cools a GPU
        with np.errstate(invalid="ignore"):
            found_KX[traits.place[_POWER]] &= ~(apart_KX[traits.place[_HEAT]] < -_N.cools)
    return found_KX | _at_rest_KX(traits, apart_KX) if sources else found_KX


def _one_way_KX(traits: TraitTable, fallen_KX: np.ndarray, slow_KX: np.ndarray, expected_KX: np.ndarray) -> np.ndarray:
    """Mask (K, X): traffic that has halved, while what the machine computes goes on. Steps that are as fast as ever move as many bytes."""
    found_KX = np.zeros(slow_KX.shape, dtype=bool)
    for members, witnesses in traits.doing:
        computes = [k for k in witnesses if not traits.carries_K[k]]
        sum_X, count_X = _sum(slow_KX, computes)
        carries = [k for k in members if traits.carries_K[k]]
        with np.errstate(invalid="ignore"):
            goes_on_X = (count_X >= _N.witnesses) & (sum_X / np.maximum(count_X, 1) > -_N.follows * _HALF)
            half_KX = np.log(0.5 + 0.5 * traits.offset_K1[carries] * np.exp(-expected_KX[carries]))  # as far as a half is apart, scaled
            found_KX[carries] = fallen_KX[carries] & (np.abs(slow_KX[carries] - half_KX) < _N.one_way) & goes_on_X
    return found_KX


def _at_rest_KX(traits: TraitTable, apart_KX: np.ndarray) -> np.ndarray:
    """Mask (K, X): all that a GPUs' exporter reads of a machine whose GPUs rest by its word, while its traffic with the others goes on."""
    found_KX = np.zeros(apart_KX.shape, dtype=bool)
    if traits.between is None:
        return found_KX
    for _, witnesses in traits.doing:
        computes, carries = ([k for k in witnesses if traits.carries_K[k] == links] for links in (False, True))
        sum_X, count_X = _sum(apart_KX, computes)
        carried_X, links_X = _sum(apart_KX, carries)
        done_X, known_X = sum_X / np.maximum(count_X, 1), np.minimum(count_X, links_X) >= _N.witnesses
        found_KX[computes] = known_X & (done_X < -_N.computes) & (carried_X > _N.follows * done_X * links_X)
    for read, works in traits.exporters:
        sum_X, count_X = _sum(apart_KX, works)
        done_X = sum_X / np.maximum(count_X, 1)
        with np.errstate(invalid="ignore"):  # nothing is known of its traffic
            goes_on_X = apart_KX[traits.between] > _N.follows * done_X
        found_KX[read] |= goes_on_X & (count_X >= _N.witnesses) & (done_X < -_N.cut)
    return found_KX


def _other_unit_KX(traits: TraitTable, raw_KX: np.ndarray, expected_KX: np.ndarray) -> np.ndarray:
    """Mask (K, X): a thousandth of what is expected, or a thousand times it."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        times_KX = np.log(raw_KX / (np.exp(expected_KX) - traits.offset_K1))
        return np.asarray(traits.is_log_K1 & (np.abs(np.abs(times_KX) - _THOUSAND) < _N.thousand))


def _alone_X(traits: TraitTable, k: int, shows: tuple[np.ndarray, np.ndarray, np.ndarray], least: np.ndarray | float) -> np.ndarray:
    """Mask (X,): metric k fell by more than `least`, or rose to ten times as much, and the mean of its witnesses did not follow. shows:
    (whether it has plainly changed, its distance from the peers, the mean of the witnesses')."""
    fallen_X, own_X, mean_X = shows
    with np.errstate(invalid="ignore"):
        falls_X = (fallen_X | traits.falls_K1[k]) & (own_X < -least) & (mean_X > _N.follows * own_X)
        rises_X = (own_X > _TRAITS.unit) & (mean_X < _N.follows * own_X) & traits.works_K1[k]
    return np.asarray(falls_X | rises_X)


def _sum(apart_KX: np.ndarray, rows: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """(X,): the sum of these metrics' distances, and how many of them are known."""
    return np.nansum(apart_KX[rows], axis=0), (~np.isnan(apart_KX[rows])).sum(axis=0)
