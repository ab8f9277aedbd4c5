"""A job that steps on, but slowly: what is a reason to look (`DeclineRule`), and what several looks say (`VotesRule`).

**Decline**: a machine whose tensor work declines, or that runs hot while the work declines: a reason to look, beside step time.

Model FLOPs utilisation has no exporter. Its two sides have: the share of cycles in which a GPU's tensor units work, for each machine, and
the job's own steps (the same work in more time). Each machine is compared with its own past and with what its peers did in that time.

| one machine alone | declines, for 20 s |
|---|---|
| its tensor work, against its peers' change, while steps take 3 % longer, or none is read | below 0.8 of its past; 0.9 if it is hot |
| it is hot: 10 degrees over its past and over what its peers rose | and its clock fell by a tenth, or the job's steps take a tenth longer |

A step is the same work, however long it takes: work that falls while steps keep their pace is an exporter's error, and 0 is no data.

That opens the rounds of stacks of a slow job and the sampling of connections, and is reported; by itself it leads to nothing.
With another source that names the same machine it counts as a second one. Source: ByteRobust (SOSP'25, arXiv 2509.16293), whose runtime
analyser starts from a decline of MFU and ties high temperature to it; it gives no numbers, these are ours.

**Fail-slow voting**: a job that steps on, but slowly, is looked at every 10 s, five times; what holds it up in most of them is named.

A single look at a job that moves shows some rank that computes while others already wait, by chance. One that is alone in more than half of
the rounds is waited for more than half of the time. Source: section 7.2 of the same paper.
Where we differ: the paper evicts the group with most flags. Here, as for every capture of a job that does not stand (`captures.py`):

| the rounds | lead to | without a second source that names the same |
|---|---|---|
| four or five flag the same, or three and the others none | what they say: an eviction | a page |
| three flag the same, another one another machine | the same | nothing |
| no majority, a tie, too few rounds, no outliers, the program's own doing | no machine | no machine |

A round flags whom a single capture would evict (docs/stacks.md), so that a wait for data, a lock or rank 0's work for all flags no machine.
Rounds are asked for only while the job steps slowly and declares no phase, and end with the slowness. After a vote there is none for ten
minutes, whatever it said: rounds hold processes up for a moment.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.stacks import vote
from minder.diagnose.stacks.blame import ROUNDS
from minder.diagnose.stacks.places import Places, topology_of
from minder.diagnose.verdicts.slowdown import Past
from minder.model.evidence import CaptureFinding, Evidence, Suspect
from minder.model.observation import Observation, RequestKind, RuleResult
from minder.model.topology import Parallelism

__all__ = ["DeclineRule", "VotesRule"]

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


_PATIENCE_S, _PATIENCE_STEPS = 15.0, 3.0  # slow for so long, and for so many steps: rules that are quicker have spoken by then
_ROUND_S = 10.0  # from one capture to the next
_LAST_S = 120.0  # since the first was asked for: what has not come by then does not come
_PAUSE_S, _AGAIN_S = 600.0, 60.0  # before anything is asked for again: after a vote, after one that the job's own pace cut short
_CLEAR = 4  # flags in five rounds


class VotesRule:
    """Asks for rounds, and speaks for their vote as long as the job is slow (observation.Rule). Live, and in a replay of sightings.

    tracker: shared, and updated before every observation. parallelism: the job's axes, for its parallel groups. decline: asked before this
    rule; a machine whose work declines is a reason to look as well.
    A controller that ends in the middle of a vote leaves half of one, which names no machine: the next begins anew.
    """

    name = "votes"

    def __init__(self, tracker: JobTracker, parallelism: Parallelism | None = None, decline: DeclineRule | None = None) -> None:
        self._tracker = tracker
        self._decline = decline
        self._parallelism = parallelism
        self._rounds: list[CaptureFinding] = []
        self._began_s: float | None = None  # when the vote's first round was asked for
        self._asked_s = self._quiet_until_s = -math.inf
        self._voted: Suspect | None = None

    def observe(self, observation: Observation) -> RuleResult:
        since_s = self._since_s()
        if since_s is None:
            self._end(observation.now_s + _AGAIN_S)
            self._voted = None
            return RuleResult()
        if self._tracker.stalled_s(observation):  # then it hangs: other rules ask other questions
            self._end(observation.now_s + _AGAIN_S)
            return RuleResult()
        if not self._tracker.watches(observation):
            return RuleResult()  # and what was seen in a phase counts for nothing
        self._hear(observation, since_s)
        return RuleResult(self._speak(observation), self._wanted(observation.now_s, since_s))

    def _since_s(self) -> float | None:
        """Since when there has been a reason to look."""
        slow_s, declines_s = self._tracker.pace.since_s, None if self._decline is None else self._decline.since_s
        return slow_s if slow_s is not None else declines_s

    def _hear(self, observation: Observation, since_s: float) -> None:
        if self._began_s is None:
            return
        fresh = [item for item in observation.statements if item.source == "round" and item.time_s >= self._began_s]
        self._rounds = [*self._rounds, *fresh][:ROUNDS]
        if len(self._rounds) == ROUNDS:
            self._voted = self._count(observation, since_s)
            self._end(observation.now_s + _PAUSE_S)
        elif observation.now_s - self._began_s > _LAST_S:
            self._end(observation.now_s + _PAUSE_S)

    def _end(self, quiet_until_s: float) -> None:
        """Of this vote, if there is one: the next has to wait."""
        if self._began_s is not None:
            self._quiet_until_s = quiet_until_s
        self._began_s, self._rounds = None, []

    def _wanted(self, now_s: float, since_s: float) -> frozenset[RequestKind]:
        ready = now_s - since_s >= max(_PATIENCE_S, _PATIENCE_STEPS * self._tracker.pace.step_s) and now_s >= self._quiet_until_s
        if not ready or now_s - self._asked_s < _ROUND_S:
            return frozenset()
        self._began_s = now_s if self._began_s is None else self._began_s
        self._asked_s = now_s
        return frozenset({"round"})

    def _speak(self, observation: Observation) -> tuple[Suspect, ...]:
        """Every time: a second source may name the same later."""
        voted, job = self._voted, observation.job
        if voted is None or (job is not None and not set(voted.machines) <= set(job.machines)):
            return ()
        return (replace(voted, time_s=observation.now_s),)

    def _count(self, observation: Observation, since_s: float) -> Suspect | None:
        job = observation.job
        topology = None if job is None else topology_of(job, self._parallelism)
        flagged = [_flagged(item) for item in self._rounds]
        machines = tuple(job.machines) if job is not None else tuple(dict.fromkeys(name for names in flagged for name in names))
        voted = vote(flagged, Places(machines, topology))
        if voted is None:
            return None
        group, named, count = voted
        others = Counter(name for names in flagged for name in set(names) - set(named))
        confidence = round(0.5 + 0.4 * count / ROUNDS, 2)
        steps = f"a step takes {self._tracker.pace.step_s:.2f} s instead of {self._tracker.pace.usual_s:.2f} s"
        evidence = [Evidence("steps", None, steps, "step_seconds", None, self._tracker.pace.step_s, self._tracker.pace.usual_s, since_s)]
        evidence += [Evidence("stacks", name, _says(self._rounds, name), since_s=since_s) for name in named]
        against = tuple(Evidence("stacks", name, f"flagged in {many} of {ROUNDS} rounds", since_s=since_s) for name, many in others.items())
        return Suspect(
            observation.now_s, "stacks", "machine" if group is None else "group", named, "slowdown", confidence, since_s, "evict",
            tuple(evidence), against, alone="page" if count >= _CLEAR or not others else "watch",
        )  # fmt: skip


def _flagged(statement: CaptureFinding) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for item in statement.suspects if item.tier == "evict" for name in item.machines))


def _says(rounds: Sequence[CaptureFinding], machine: str) -> str:
    """In how many rounds, and where the machine stood in them."""
    count = sum(machine in _flagged(statement) for statement in rounds)
    pieces = [piece for statement in rounds for item in statement.suspects if item.tier == "evict" for piece in item.evidence]
    places = Counter(piece.message for piece in pieces if piece.machine == machine)
    flags = f"flagged in {count} of {len(rounds)} rounds, {_ROUND_S:.0f} s apart"
    if not places:
        return flags
    (where, many), *_ = places.most_common(1)
    return f"{flags}; {'each time in the same place' if many >= count else f'in {many} of them'}: {where}"
