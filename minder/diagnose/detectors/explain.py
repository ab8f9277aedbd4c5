"""Why a machine is odd: for those above half the threshold, the metrics that say so, what was seen and what was expected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.absence import at_once_s
from minder.diagnose.detectors.baseline import BaselineState
from minder.diagnose.detectors.causes import CauseState, standing_M
from minder.diagnose.detectors.clocks import ClockState
from minder.diagnose.detectors.contradiction import Contradiction
from minder.diagnose.detectors.corroboration import CorroborationNumbers, families_of
from minder.diagnose.detectors.coupling import Coupling
from minder.diagnose.detectors.first_mover import FirstMoverState
from minder.diagnose.detectors.group_state import GroupState
from minder.diagnose.detectors.large_clock_offsets import LargeClockOffsetState
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.outliers import OutliersNumbers
from minder.diagnose.detectors.phases import Phases, PhasesNumbers
from minder.diagnose.detectors.presence import PresenceState
from minder.diagnose.detectors.recurrence import RecurrenceState, often
from minder.diagnose.detectors.score import ScoreState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.traits import HIGH, LOW, TraitTable
from minder.model.evidence import Cause, Evidence, Scores

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Explaining"]


@dataclass(frozen=True, slots=True)
class ExplainNumbers:
    """Section [explain] of detector.toml: what each number is stands there."""

    most: int
    several: int
    one_device: float
    shown: float
    least: float
    slowed: float
    stall: float


_N = numbers("explain", ExplainNumbers)
_CORROBORATION = numbers("corroboration", CorroborationNumbers)
_OUTLIERS = numbers("outliers", OutliersNumbers)
_PHASES = numbers("phases", PhasesNumbers)

_SILENT, _FROZEN, _GONE = "silent", "its gauges have stood to the digit", "its GPUs have not been read"


class Explaining(Stage):
    """What the detector says of the row: `row.scores`."""

    presence: PresenceState
    phases: Phases
    baseline: BaselineState
    clocks: ClockState
    large_clock_offsets: LargeClockOffsetState
    contradiction: Contradiction
    coupling: Coupling
    first_mover: FirstMoverState
    causes: CauseState
    groups: GroupState
    recurrence: RecurrenceState
    score: ScoreState

    def update(self, row: Row) -> None:
        row.scores = self._explained(row)

    def _explained(self, row: Row) -> Scores:
        """Scores of one row."""
        machines, score_M = row.layout.machines, self.score.score_M
        evidence: dict[str, tuple[Evidence, ...]] = {}
        since: dict[str, float] = {}
        cause: dict[str, Cause] = {}
        for m in np.flatnonzero(score_M >= _N.shown * self.config.patience_s).tolist():
            name = row.layout.machines[m]
            started_s = float(self.score.since_M[m])
            since[name] = started_s if started_s == started_s else row.time_s
            place = np.flatnonzero(row.outliers.machines_X == m)
            shown = self._metrics(row, int(place[0]), since[name]) if len(place) else ()
            half_silent = row.status.frozen_M[m] or row.status.gone_M[m]
            if row.status.silent_M[m] and not (half_silent and len(families_of(shown)) >= _N.several):
                what = _FROZEN if row.status.frozen_M[m] else _GONE if row.status.gone_M[m] else _SILENT
                evidence[name] = _silence(name, row.time_s, float(row.status.silence_M[m]), what)
                cause[name] = "absence"
            else:
                spoken = self._returned(row, m, since[name]) or shown or self._shared(row, m, since[name])
                evidence[name] = spoken or self._went_first(row, m, since[name])
                cause[name] = self._cause(row, int(place[0])) if len(place) else "unknown"
        off = tuple(
            row.layout.machines[m] for m in np.flatnonzero((self.clocks.off_M != 0.0) | (self.large_clock_offsets.off_M != 0.0)).tolist()
        )
        group = tuple(row.layout.machines[m] for m in np.flatnonzero(self.groups.in_group_M).tolist())
        phase, status = row.phase, row.status
        quiet = not phase.steady or status.outage
        lasts = row.time_s - phase.stands_since_s >= _CORROBORATION.lost_s  # false while it does not stand
        in_time_s = (at_once_s(phase, status) if lasts else np.inf, self.phases.too_late_s(phase, status.interval_s))
        unjudged = self.coupling.not_aligned(machines) | self.contradiction.not_judged(machines, row.traits.metrics)
        return Scores(
            row.time_s, machines, row.ranked_M, self.config.patience_s, evidence, since, cause, quiet, in_time_s,
            group if len(group) > 1 else (), unjudged, off, self.phases.is_slowed(row.time_s, status.interval_s),
        )  # fmt: skip

    def _metrics(self, row: Row, place: int, since_s: float) -> tuple[Evidence, ...]:
        """The plainest first; of a metric and its smallest and largest device only the plainest one."""
        m = int(row.outliers.machines_X[place])
        weight_K = row.outliers.counted_KX[:, place] * row.traits.weight_K1[:, 0]
        far_K = np.abs(row.outliers.z_KX[:, place])
        least_second = _N.least if row.phase.effect >= _PHASES.felt else _OUTLIERS.plain
        no_second = row.phase.grace or (row.works_on_M is not None and bool(row.works_on_M[m]))
        found: dict[str, Evidence] = {}
        for k in np.lexsort((-far_K, -weight_K)).tolist():
            if weight_K[k] <= _N.least or len(found) == _N.most:
                break
            if found and (no_second or row.outliers.stayed_KX[k, place] or weight_K[k] < least_second):
                continue  # no second witness: all come back, its host works, its peers moved, or it hardly differs and nothing is slowed
            metric = row.traits.metrics[k].removesuffix(LOW).removesuffix(HIGH)
            if metric in found:
                continue
            plainest = _plainest(row.traits, metric, row.outliers.newest_KX[:, place])
            observed = float(self.presence.last_KM[plainest, m])
            distance = float(row.outliers.newest_KX[plainest, place])
            scaled = float(row.traits.scale(self.presence.last_KM[:, m : m + 1])[plainest, 0])
            expected = row.traits.unscale(plainest, scaled - distance) if np.isfinite(distance) else None
            device = _device(row, plainest, m)
            found[metric] = Evidence("telemetry", row.layout.machines[m], "", metric, device, observed, expected, since_s)
        return tuple(found.values())

    def _went_first(self, row: Row, m: int, since_s: float) -> tuple[Evidence, ...]:
        """Of a first mover that its peers have joined: where it stood usually, and where it fell to."""
        scaled_K = row.traits.scale(self.presence.last_KM[:, m : m + 1])[:, 0]
        moved_K = self.baseline.all_quick.smooth_KM[:, m] + self.phases.state.shift_K
        reported_K = (self.first_mover.moved_KM[:, m] != 0.0) & np.isfinite(moved_K) & (self.first_mover.strength_M[m] > 0.0)
        found = []
        for k in np.flatnonzero(reported_K).tolist()[: _N.most]:
            metric, observed = row.traits.metrics[k].removesuffix(LOW).removesuffix(HIGH), float(self.presence.last_KM[k, m])
            expected = row.traits.unscale(k, float(scaled_K[k] - moved_K[k]))
            found.append(
                Evidence(
                    "telemetry", row.layout.machines[m], "changed first, and all others after it", metric, None, observed, expected, since_s
                )
            )
        return tuple(found)

    def _returned(self, row: Row, m: int, since_s: float) -> tuple[Evidence, ...]:
        """Of a machine at which the same sign has come back: that sign. Each was short, and what the newest row shows besides is chance."""
        if not self.recurrence.returned_M[m] or self.recurrence.sign_k_M[m] != self.recurrence.sign_k_M[m]:
            return ()
        metric = row.traits.metrics[int(self.recurrence.sign_k_M[m])]
        times = often(metric, float(self.recurrence.recurrences_M[m]))
        message = (
            f"again and again, at this machine only: {times} times within ten minutes"
            if times > 1
            else "at this machine only, as the job came to stand"
        )
        return (Evidence("telemetry", row.layout.machines[m], message, metric, None, None, None, since_s),)

    def _shared(self, row: Row, m: int, since_s: float) -> tuple[Evidence, ...]:
        """Of a machine that stands apart in a cause of slowness, alone or with others: that cause, and where all others stand."""
        if self.groups.grouped_k_M[m] != self.groups.grouped_k_M[m]:
            return ()
        k = int(self.groups.grouped_k_M[m])
        metric, observed = row.traits.metrics[k].removesuffix(LOW).removesuffix(HIGH), float(self.presence.last_KM[k, m])
        scaled = float(row.traits.scale(self.presence.last_KM[:, m : m + 1])[k, 0])
        expected = row.traits.unscale(k, scaled - float(standing_M(self.causes, self.baseline, k)[m]))
        return (Evidence("telemetry", row.layout.machines[m], "apart from all others", metric, None, observed, expected, since_s),)

    def _cause(self, row: Row, place: int) -> Cause:
        """A stall if the machine's own activity has all but ended, else a slowdown; unknown if its activity says nothing."""
        own_K = self.baseline.all_quick.smooth_KM[:, row.outliers.machines_X[place]] + self.phases.state.shift_K
        reported_K = row.traits.activity_K & (row.outliers.counted_KX[:, place] > 0.0) & np.isfinite(own_K)
        if not reported_K.any():
            return "slowdown" if (np.abs(self.phases.state.shift_K[row.traits.activity_K]) > _N.slowed).any() else "unknown"
        return "stall" if float(own_K[reported_K].min()) < _N.stall else "slowdown"


def _silence(machine: str, time_s: float, silence_s: float, what: str) -> tuple[Evidence, ...]:
    message = f"{what} for {silence_s:.0f} s while the training of its peers has changed"
    return (Evidence("telemetry", machine, message, None, None, None, None, time_s - silence_s),)


def _plainest(traits: TraitTable, metric: str, newest_K: np.ndarray) -> int:
    """The metric itself, or the one device that is much farther off than the mean of all."""
    own = traits.place[metric]
    best, size = own, abs(float(np.nan_to_num(newest_K[own])))
    for suffix in (LOW, HIGH):
        k = traits.place.get(metric + suffix)
        if k is not None and abs(float(np.nan_to_num(newest_K[k]))) > _N.one_device * size:
            best, size = k, abs(float(newest_K[k])) / _N.one_device
    return best


def _device(row: Row, metric: int, m: int) -> str | None:
    name = row.traits.metrics[metric]
    if row.deviating_KM is None or not name.endswith((LOW, HIGH)):
        return None
    index = int(row.deviating_KM[row.traits.place[name.removesuffix(LOW).removesuffix(HIGH)], m])
    return row.devices[index] if 0 <= index < len(row.devices) else None
