"""What an incident keeps: a capture of the machines before anything is ended, and the telemetry around the fault.

The capture: stacks, process states, sockets, kernel log and last log lines of the suspects and two peers. The telemetry: an accused
machine's deciding metrics against its peers' band. Windows are remembered for some minutes. What came before a verdict is written down
with it, what came after once more, a minute later. Shape legend: T grid rows, P points of a picture, M machines, K metrics.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minder.act.controller.state import JobState
from minder.act.recovery.generation_plan import machine_order
from minder.model.decision import Decision
from minder.model.errors import WireError
from minder.model.evidence import Verdict
from minder.model.metrics import find_metric
from minder.model.telemetry import Window
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.excerpts import TELEMETRY
from minder.wire.fleet import Fleet

__all__ = ["Excerpts", "capture_evidence"]

_MOST_NAMED = 4
_WANTED = ["processes", "stacks", "flows", "kernel", "logs"]
_BEFORE_S, _AFTER_S, _MEMORY_S = 120.0, 60.0, 240.0
_ACCUSED_S = 600.0
_RECENT_S = 15.0  # what the other metrics are chosen by
_POINTS = 60
_METRICS, _SUSPECTS, _WAITING, _REMEMBERED = 3, 4, 16, 256  # at most
_FEW_PEERS = 64  # peers up to which the band is from the lowest to the highest; of more, the outermost twentieths are no part of it


def capture_evidence(state: JobState, ledger: Ledger, fleet: Fleet, decision: Decision, incident: str, deadline_s: float) -> None:
    """Ask the agents, and write what they say into the incident; once per operation. Of a restart that takes no machine away, the
    machines that its evidence names come first."""
    if any(event.operation_id == decision.operation_id for event in ledger.events(incident=incident, kinds=[kinds.EVIDENCE])):
        return

    def tell(kind: str, payload: dict[str, Any]) -> None:
        ledger.append(kind, payload, job=state.name, incident=incident, operation_id=decision.operation_id)

    tell(kinds.RECOVERY_PHASE, {"phase": "capture", "state": "begin", "detail": ""})
    shown = dict.fromkeys(item.machine for item in decision.verdict.evidence if item.machine is not None)
    named = decision.machines or tuple(shown)[:_MOST_NAMED]
    peers = [machine for machine in machine_order(state.rank_machine) if machine not in named][:2]
    wanted = [machine for machine in (*named, *peers) if machine in fleet.machines]
    for machine, answer in fleet.capture(wanted, _WANTED, deadline_s * 0.8).items():
        data: Any = {"error": str(answer)} if isinstance(answer, WireError) else dict(answer)
        tell(kinds.EVIDENCE, {"machine": machine, "what": "evidence", "data": data})
    tell(kinds.RECOVERY_PHASE, {"phase": "capture", "state": "end", "detail": ""})


@dataclass(slots=True)
class _Wanted:
    incident: str
    verdict: Verdict
    suspect: str
    peers: frozenset[str]
    is_begun: bool = False


@dataclass(frozen=True, slots=True)
class _Cut:
    """Rows of one machine and of its peers."""

    times_T: np.ndarray
    values_TK: np.ndarray
    band_3TK: np.ndarray
    peers: int


class Excerpts:
    """`note` every window, `want` what an incident shall keep, write down what `due` gives."""

    def __init__(self) -> None:
        self._rows: deque[Window] = deque()
        self._waiting: list[_Wanted] = []
        self._known: dict[tuple[str, str], None] = {}
        self._accused: dict[str, float] = {}

    def note(self, window: Window | None) -> None:
        """Remember a window, without the metrics of which it has no data."""
        if window is None or not len(window.times_T):
            return
        if self._rows and window.times_T[0] <= self._rows[-1].times_T[-1]:  # the clock was set back: what is remembered has no place
            self._rows.clear()
        known = [place for place in range(len(window.metrics)) if np.isfinite(window.values_TMK[:, :, place]).any()]
        metrics, values_TMK = tuple(window.metrics[place] for place in known), window.values_TMK[:, :, known].astype(np.float32)
        self._rows.append(Window(window.times_T, window.machines, metrics, values_TMK, window.present_TM))
        while self._rows[0].times_T[-1] < window.times_T[-1] - _MEMORY_S:
            self._rows.popleft()

    def want(self, verdict: Verdict, incident: str, in_job: Sequence[str]) -> None:
        """Of every machine that it accuses, once per incident. in_job: the machines that the job had at the verdict."""
        peers = frozenset(in_job) - set(verdict.machines)
        self._accused |= dict.fromkeys(verdict.machines, verdict.time_s)
        for suspect in verdict.machines[:_SUSPECTS]:
            if (incident, suspect) not in self._known and len(self._waiting) < _WAITING:
                self._waiting.append(_Wanted(incident, verdict, suspect, peers))
                self._known[incident, suspect] = None
        while len(self._known) > _REMEMBERED:
            self._known.pop(next(iter(self._known)))

    def accused(self, now_s: float) -> tuple[str, ...]:
        """Whom a verdict named within the last ten minutes, the last one first."""
        self._accused = {name: time_s for name, time_s in self._accused.items() if now_s - time_s < _ACCUSED_S}
        return tuple(sorted(self._accused, key=lambda name: -self._accused[name]))

    def due(self, now_s: float) -> list[tuple[str, dict[str, Any]]]:
        """(incident, payload of its evidence) for what can be shown now; none of them is given twice."""
        found: list[tuple[str, dict[str, Any]]] = []
        for item in self._waiting:
            is_last = now_s >= item.verdict.time_s + _AFTER_S
            if (is_last or not item.is_begun) and (data := self._excerpt(item)) is not None:
                found.append((item.incident, {"machine": item.suspect, "what": TELEMETRY, "data": data}))
            item.is_begun = True
        self._waiting = [item for item in self._waiting if now_s < item.verdict.time_s + _AFTER_S]
        return found

    def _excerpt(self, item: _Wanted) -> dict[str, Any] | None:
        verdict = item.verdict
        metrics = self._choose(item)
        until_s = verdict.time_s + _AFTER_S
        newest_s = float(self._rows[-1].times_T[-1]) if self._rows else -math.inf
        begin_s = max(min(verdict.since_s, verdict.time_s) - _BEFORE_S, newest_s - _MEMORY_S)
        cut = self._cut(item, metrics, begin_s, until_s)
        if not metrics or cut is None:
            return None
        bins = np.minimum(((cut.times_T - cut.times_T[0]) / max(1e-9, np.ptp(cut.times_T)) * _POINTS).astype(int), _POINTS - 1)
        places = [np.flatnonzero(bins == number) for number in np.unique(bins)]
        low, middle, high = (_thin(values_TK, places) for values_TK in cut.band_3TK)
        line = _thin(cut.values_TK, places)
        panels = {
            metric: {"low": low[place], "middle": middle[place], "high": high[place], "line": line[place]}
            for place, metric in enumerate(metrics)
        }
        times = [round(float(cut.times_T[rows].mean()), 1) for rows in places]
        head = {"fault_s": round(verdict.since_s, 1), "verdict_s": round(verdict.time_s, 1), "peers": cut.peers}
        return {**head, "times": times, "metrics": panels}

    def _choose(self, item: _Wanted) -> list[str]:
        """The metrics that the verdict names, then those in which the machine is furthest from its peers' band."""
        known = sorted({metric for window in self._rows for metric in window.metrics})
        said = [piece.metric for piece in item.verdict.evidence if piece.machine == item.suspect and piece.metric in known]
        chosen = list(dict.fromkeys(metric for metric in said if metric))[:_METRICS]
        rest = [metric for metric in known if metric not in chosen and not getattr(find_metric(metric), "counter", False)]
        until_s = max((float(window.times_T[-1]) for window in self._rows), default=0.0)
        cut = self._cut(item, rest, until_s - _RECENT_S, until_s)
        if cut is not None:
            own_K, (low_K, middle_K, high_K) = _mean(cut.values_TK, 0), _mean(cut.band_3TK, 1)
            apart_K = np.abs(own_K - middle_K) / np.maximum(np.maximum(high_K - low_K, 0.05 * np.abs(middle_K)), 1e-9)
            order = sorted(range(len(rest)), key=lambda place: -np.nan_to_num(apart_K[place], nan=-1.0))
            telling = [rest[place] for place in order if apart_K[place] >= 1.0] or [rest[place] for place in order[:1] if not chosen]
            chosen += telling[: _METRICS - len(chosen)]
        return chosen

    def _cut(self, item: _Wanted, metrics: Sequence[str], begin_s: float, end_s: float) -> _Cut | None:
        parts = list(self._parts(item, metrics, begin_s, end_s)) if metrics else []
        if not parts:
            return None
        times_T, values_TK, band_3TK = (np.concatenate([part[place] for part in parts], axis=int(place == 2)) for place in range(3))
        return _Cut(times_T, values_TK, band_3TK, len(item.peers))

    def _parts(
        self, item: _Wanted, metrics: Sequence[str], begin_s: float, end_s: float
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        for window in self._rows:
            shown_T = (window.times_T >= begin_s) & (window.times_T <= end_s)
            if not shown_T.any():
                continue
            known = [place for place, metric in enumerate(metrics) if metric in window.metrics]
            columns = [window.metrics.index(metrics[place]) for place in known]
            values_TK = np.full((int(shown_T.sum()), len(metrics)), np.nan)
            band_3TK = np.full((3, *values_TK.shape), np.nan)
            rows_TMK = window.values_TMK[shown_T][:, :, columns]
            if item.suspect in window.machines:
                values_TK[:, known] = rows_TMK[:, window.machines.index(item.suspect)]
            peers = [place for place, machine in enumerate(window.machines) if machine in item.peers]
            if peers and known:
                band_3TK[:, :, known] = _band(rows_TMK[:, peers])
            yield window.times_T[shown_T], values_TK, band_3TK


def _band(values_TMK: np.ndarray) -> np.ndarray:
    """Lowest, median, highest machine of each row."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a row without any data
        shares = (0.0, 50.0, 100.0) if values_TMK.shape[1] <= _FEW_PEERS else (5.0, 50.0, 95.0)
        return np.asarray(np.nanpercentile(values_TMK, shares, axis=1))


def _mean(values: np.ndarray, axis: int) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmean(values, axis=axis))


def _thin(values_TK: np.ndarray, places: Sequence[np.ndarray]) -> list[list[float | None]]:
    """Per metric one value for each point; five digits are enough to look at, and no data stays no data."""
    values_PK = np.stack([_mean(values_TK[rows], 0) for rows in places])
    return [[float(f"{value:.5g}") if math.isfinite(value) else None for value in column] for column in values_PK.T.tolist()]
