"""A machine whose tensor work declines, or that runs hot while the work declines: a reason to look, beside step time.

Model FLOPs utilisation has no exporter. Its two sides have: the share of cycles in which a GPU's tensor units work, for each machine, and
the job's own steps (the same work in more time). Each machine is compared with its own past and with what its peers did in that time.

| one machine alone | declines, for 20 s |
|---|---|
| its tensor work, against its peers' change, while steps take 3 % longer, or none is read | below 0.8 of its past; 0.9 if it is hot |
| it is hot: 10 degrees over its past and over what its peers rose | and its clock fell by a tenth, or the job's steps take a tenth longer |

A step is the same work, however long it takes: work that falls while steps keep their pace is an exporter's error, and 0 is no data.

That opens the rounds of stacks of a slow job (`votes.py`) and the sampling of connections, and is reported; by itself it leads to nothing.
With another source that names the same machine it counts as a second one. Source: ByteRobust (SOSP'25, arXiv 2509.16293), whose runtime
analyser starts from a decline of MFU and ties high temperature to it; it gives no numbers, these are ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.slowdown import Past
from minder.model.evidence import Evidence, Suspect
from minder.model.observation import Observation, RuleResult

__all__ = ["DeclineRule"]

_WORK = ("gpu_tensor_activity_ratio", "gpu_fp_activity_ratio", "gpu_sm_activity_ratio")  # the first that most machines have
_HEAT, _CLOCK = "gpu_temperature_celsius", "gpu_clock_hertz"
_NOW_S, _LASTS_S, _GAP_S = 20.0, 20.0, 40.0  # the present; how long it must last; a past ends so long before now
_LOW, _LOW_AND_HOT, _SLOW = 0.8, 0.9, 1.0 / 0.9
_HOT_C = 10.0
_ASKS_S = 60.0  # connections, of one decline
_LEAST_WORK = 0.02  # below it a GPU does nothing that a share could be taken of
_LONGER = 1.03  # a step's time against before, from which on work may have declined


@dataclass(frozen=True, slots=True)
class _Decline:
    machine: str
    message: str
    metric: str
    observed: float
    expected: float


class DeclineRule:
    """Feed it every observation, in order (observation.Rule). tracker: shared, and updated before every observation.

    since_s: since when a machine has declined, None while none does. alarm: the same in one line, "" for nothing.
    """

    name = "decline"

    def __init__(self, tracker: JobTracker) -> None:
        self._tracker = tracker
        self._past = Past((*_WORK, _HEAT, _CLOCK))
        self._begun: tuple[str, float] | None = None  # which machine, since when; not lasting yet
        self.since_s: float | None = None
        self.alarm = ""

    def observe(self, observation: Observation) -> RuleResult:
        watches = self._tracker.is_paced(observation) and not self._tracker.stalled_s(observation)
        self._past.see(observation, stepping=watches)
        found = self._find(observation) if watches else None
        if found is None:
            self._begun, self.since_s, self.alarm = None, None, ""
            return RuleResult()
        if self._begun is None or self._begun[0] != found.machine:
            self._begun = (found.machine, observation.now_s)
        since_s = self._begun[1]
        if observation.now_s - since_s < _LASTS_S:
            return RuleResult()
        self.since_s, self.alarm = since_s, f"decline: {found.machine}: {found.message}"
        evidence = Evidence("telemetry", found.machine, found.message, found.metric, None, found.observed, found.expected, since_s)
        suspect = Suspect(
            observation.now_s, self.name, "machine", (found.machine,), "slowdown", 0.6, since_s, "page", (evidence,), alone="watch"
        )
        asks = observation.now_s - since_s <= _LASTS_S + _ASKS_S
        return RuleResult((suspect,), frozenset({"flows"}) if asks else frozenset())

    def _find(self, observation: Observation) -> _Decline | None:
        """The one machine that declines now, if there is one."""
        job, now_s = observation.job, observation.now_s
        until_s = (now_s if self._begun is None else self._begun[1]) - _GAP_S  # what is low already is no past
        machines = () if job is None else job.machines
        heat = self._change(_HEAT, until_s, now_s, machines)
        hot = _alone({name: now - before for name, (before, now) in heat.items()}, _HOT_C)
        slower = self._slower()
        for metric in _WORK if math.isnan(slower) or slower >= _LONGER else ():
            work = self._change(metric, until_s, now_s, machines)
            shares = {name: now / before for name, (before, now) in work.items() if before >= _LEAST_WORK and now > 0.0}
            if 2 * len(shares) < len(machines) or len(shares) < 3:
                continue
            low = _lowest(shares)
            if low is not None and low[1] < (_LOW_AND_HOT if low[0] == hot else _LOW):
                now = work[low[0]][1]
                beside = _temperature(heat, hot) if low[0] == hot else ""
                said = f"its GPUs' tensor work fell to {low[1]:.0%} of its past, against its peers{beside}"
                return _Decline(low[0], said, metric, now, now / low[1])
            break
        return None if hot is None else self._throttled(hot, heat, (until_s, now_s), machines)

    def _throttled(
        self, hot: str, heat: Mapping[str, tuple[float, float]], times: tuple[float, float], machines: Sequence[str]
    ) -> _Decline | None:  # fmt: skip
        """A hot machine whose clock fell, or whose job's steps take longer than they did."""
        clock = self._change(_CLOCK, *times, machines).get(hot)
        slower = self._slower()
        if clock is not None and clock[1] <= _LOW_AND_HOT * clock[0]:
            return _Decline(
                hot, f"its GPUs clock at {clock[1] / clock[0]:.0%} of before{_temperature(heat, hot)}", _CLOCK, clock[1], clock[0]
            )
        if slower >= _SLOW:
            said = f"the job's steps take {slower:.2f} times as long as before{_temperature(heat, hot)}"
            return _Decline(hot, said, _HEAT, heat[hot][1], heat[hot][0])
        return None

    def _slower(self) -> float:
        """A step's time against before; NaN where it is not known."""
        pace = self._tracker.pace
        return pace.step_s / pace.usual_s if pace.usual_s > 0 else math.nan

    def _change(self, metric: str, until_s: float, now_s: float, machines: Sequence[str]) -> dict[str, tuple[float, float]]:
        """Machine to (before, now), of those that have both."""
        before, after = self._past.before(metric, until_s), self._past.after(metric, now_s - _NOW_S)
        least = max(1, math.floor(0.5 * _NOW_S / self._past.spacing_s(metric)))
        return {
            name: (float(np.median(before[name])), float(np.mean(after[name])))
            for name in machines
            if len(before.get(name, ())) >= least and len(after.get(name, ())) >= least
        }


def _lowest(shares: Mapping[str, float]) -> tuple[str, float] | None:
    """The machine that fell most, and its share against its peers' median change; None where another one fell nearly as much."""
    first, second, *_ = order = sorted(shares, key=lambda name: shares[name])
    usual = float(np.median([shares[name] for name in order[1:]]))
    if usual <= 0.0 or shares[second] / usual < _LOW_AND_HOT:
        return None
    return first, shares[first] / usual


def _alone(rises: Mapping[str, float], least: float) -> str | None:
    """The one machine that rose by so much more than its peers."""
    if len(rises) < 3:
        return None
    first, second, *_ = order = sorted(rises, key=lambda name: -rises[name])
    usual = float(np.median([rises[name] for name in order[1:]]))
    return first if rises[first] >= least and rises[first] - usual >= least and rises[second] - usual < 0.5 * least else None


def _temperature(heat: Mapping[str, tuple[float, float]], machine: str | None) -> str:
    if machine is None or machine not in heat:
        return ""
    before, now = heat[machine]
    return f", at {now:.0f} instead of {before:.0f} degrees"
