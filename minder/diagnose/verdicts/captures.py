"""What captures of the job's processes say (stacks, collectives), as one voice among the rules: how far each may go by itself.

One look cannot tell a job that is slow from one that hangs, so it counts for what the job's own progress makes of it:

| the job | a capture leads to | without a second source that names the same |
|---|---|---|
| has stood for 30 s | what it says | the same |
| has just stopped | what it says | the same, from a confidence of 0.9 on: else other rules may speak first |
| does not show it | what it says | a page, from a confidence of 0.9 on |
| is at work | what it says | nothing |
| has no telemetry | a page at most, from a confidence of 0.9 on | the same |
| has stepped since, or worked on for 30 s | nothing: it is forgotten | |

Where stacks say that the program is at fault, collectives that name a rank only say who waits for the program longest: no machine is named.

Live (`asks`), connections are read first: a machine that captures alone name, or a program that they call faulty, waits until the job has
stood for 15 s, however sure they are, unless stacks and collectives say the same; and the rule asks for captures itself, soon after the
job stalled.

Where one rank works for all of them (a checkpoint that the script did not declare), nothing is said before the job has stood for 5
minutes: such work ends by itself.

A capture from before the job stood shows another job. A fault of the program accuses the job and no machine, at once, so that no machine
is evicted for it. Who agrees and who contradicts is the judge's to weigh.

`Looks` is what captures have said of one stall, for the rule that names machines by their connections (minder.diagnose.verdicts.stall).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.evidence import CaptureFinding, Evidence, Suspect, Tier
from minder.model.observation import Observation, RequestKind, RuleResult

__all__ = ["NOTICED_S", "PASSES_S", "Answer", "CapturesRule", "Looks", "passes"]

_JobState = Literal["stands", "works", "unknown", "no telemetry"]
_PATIENCE_S, _LIVE_PATIENCE_S = 30.0, 15.0
_LOOKS_S = (
    1.0,
    25.0,
    60.0,
    120.0,
    300.0,
)  # after a stall's limit: when processes are looked at, as long as no machine is named
NOTICED_S = 30.0  # telemetry may notice a stall this much later than who took the capture
_HOLD_S = 300.0  # what a capture said of a job that does not stand is of no use later
PASSES_S = 300.0  # an undeclared checkpoint, evaluation or preparation of data is given so long
_STEPPED_S = 5.0  # steps are reported with a delay, and clocks differ
_SURE, _LIKELY, _DOUBTFUL = 0.9, 0.7, 0.5  # to page for a capture by itself; to evict whom it names; to call the program faulty


class CapturesRule:
    """Speaks for the newest capture of each source as long as it counts (observation.Rule). Live and in a replay.

    tracker: shared, and updated before every observation. asks: of a live job, whose agents can be asked for captures.
    """

    name = "captures"

    def __init__(self, tracker: JobTracker, hold_s: float = _HOLD_S, asks: bool = False) -> None:
        self._tracker = tracker
        self._hold_s = hold_s
        self._asks = asks
        self._looks = 0  # answers heard since the job stalled
        self._heard: dict[str, CaptureFinding] = {}
        self._signalled_s = -math.inf  # the newest step or phase that an event reported
        self._generation: int | None = None

    def observe(self, observation: Observation) -> RuleResult:
        self._follow(observation)
        statements = [item for item in observation.statements if item.source in ("stacks", "collectives")]  # others are for other rules
        self._heard |= {statement.source: statement for statement in statements}
        state = self._state(observation)
        self._heard = {name: item for name, item in self._heard.items() if self._counts(item, state, observation)}
        suspects = [suspect for item in self._heard.values() for suspect in item.suspects if _is_here(suspect, observation)]
        weighed = tuple(self._weigh(suspect, suspects, state, observation) for suspect in suspects)
        return RuleResult(weighed, self._wanted(observation, bool(statements)))

    def _wanted(self, observation: Observation, answered: bool) -> frozenset[RequestKind]:
        """A short stall is a slow step or decided by connections; one that lasts is looked at a few times."""
        stalled_s = self._tracker.stalled_s(observation) if self._asks else 0.0
        self._looks = self._looks + answered if stalled_s else 0
        if not stalled_s or self._looks >= len(_LOOKS_S):
            return frozenset()
        return frozenset({"stacks", "dumps"}) if stalled_s >= self._tracker.steps.stall_limit_s() + _LOOKS_S[self._looks] else frozenset()

    def _follow(self, observation: Observation) -> None:
        job = observation.job
        if job is not None and job.generation != self._generation:
            self._generation, self._heard = job.generation, {}
        moves = [signal.time_s for signal in observation.signals if signal.kind in ("step", "phase")]
        self._signalled_s = max([self._signalled_s, *moves])

    def _state(self, observation: Observation) -> _JobState:
        if self._tracker.stalled_s(observation):
            return "stands"
        if self._tracker.watches(observation):
            return "works"
        if not self._tracker.level.seen and not observation.fleet:
            return "no telemetry"
        return self._tracker.level.state(observation.now_s)

    def _counts(self, statement: CaptureFinding, state: _JobState, observation: Observation) -> bool:
        stepped_s = -math.inf if math.isnan(self._tracker.steps.advanced_s) else self._tracker.steps.advanced_s
        moved = max(stepped_s, self._signalled_s) > statement.time_s + _STEPPED_S
        age_s = observation.now_s - statement.time_s
        if (moved or (state == "works" and age_s > NOTICED_S)) and not self._is_slow(observation.now_s):
            return False
        if statement.time_s < self._stands_since_s(observation) - NOTICED_S:
            return False
        return state == "stands" or age_s <= self._hold_s

    def _is_slow(self, now_s: float) -> bool:
        return self._tracker.steps.is_slower(self._tracker.limits.reaches_times, now_s, self._tracker.limits.slow_horizon_s)

    def _weigh(self, suspect: Suspect, all_said: Sequence[Suspect], state: _JobState, observation: Observation) -> Suspect:
        """The suspicion with the tier that it may lead to, by the table above."""
        same = [item for item in all_said if (item.kind, item.machines) == (suspect.kind, suspect.machines)]
        sure = 1.0 - math.prod(1.0 - item.confidence for item in same) >= _SURE
        weighed = replace(suspect, time_s=observation.now_s)
        program = next((item for item in all_said if item.source == "stacks" and item.kind == "job" and item.confidence >= _DOUBTFUL), None)
        if program is not None and suspect.kind != "job":
            return replace(weighed, tier="watch", alone=None, against=(*suspect.against, *program.evidence))
        if state == "stands":
            since_s = self._stands_since_s(observation)
            why = Evidence("progress", None, "the whole job stands still", since_s=since_s)
            stood_s = observation.now_s - since_s
            ready = stood_s >= _LIVE_PATIENCE_S if self._asks else sure or suspect.kind == "job" or stood_s >= _PATIENCE_S
            own = "watch" if passes(suspect) and stood_s < PASSES_S else _own_tier(suspect)
            tier, alone = _tiers(own, state, ready)
            evidence = (*suspect.evidence, why)
            return replace(weighed, tier=tier, alone=alone, since_s=min(suspect.since_s, since_s), evidence=evidence)
        tier, alone = _tiers("watch" if passes(suspect) else _own_tier(suspect), state, sure)
        against = suspect.against if state != "works" else (*suspect.against, Evidence("progress", None, "the job works on as usual"))
        return replace(weighed, tier=tier, alone=alone, against=against)

    def _stands_since_s(self, observation: Observation) -> float:
        """-inf while nothing says that it stands."""
        stalled_s = self._tracker.stalled_s(observation)
        if stalled_s:
            return observation.now_s - stalled_s
        return -math.inf if self._tracker.level.since_s is None else self._tracker.level.since_s


def passes(suspect: Suspect) -> bool:
    """Whether stacks show the job at work that ends by itself: one rank saves, evaluates or prepares data for all."""
    return suspect.kind == "job" and suspect.alone == "watch"


def _own_tier(suspect: Suspect) -> Tier:
    """What the capture itself would do: below _LIKELY a second look comes first; a faulty program is a person's to mend."""
    if suspect.kind == "job":
        return "page" if suspect.confidence >= _DOUBTFUL else "watch"
    return "page" if suspect.tier == "evict" and suspect.confidence < _LIKELY else suspect.tier


def _tiers(own: Tier, state: _JobState, ready: bool) -> tuple[Tier, Tier | None]:
    """(tier, tier alone) of a capture that says `own`."""
    if own == "watch" or (state == "stands" and ready):
        return own, None
    if state == "no telemetry":
        return ("page" if ready else "watch"), None
    return own, ("page" if ready and state == "unknown" else "watch")


def _is_here(suspect: Suspect, observation: Observation) -> bool:
    return observation.job is None or set(suspect.machines) <= set(observation.job.machines)


Answer = Literal["waits", "agrees", "program", "another", "unknown"]
_SECOND_S = 20.0  # so long a second look is waited for where the first one could not tell
_STOPS_AT = 0.5  # of a capture that calls the program faulty


class Looks:
    """Feed it the statements of every observation while the job stalls; `clear` when it moves.

    A first look ("look") counts until both are there ("stacks"). What collectives say counts for the program alone.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.program = False  # some capture said that the program is at fault, or works for all
        self.passes = False  # the newest stacks show work for all ranks that ends by itself
        self._newest: tuple[Suspect, ...] | None = None
        self._final = False
        self._named_s: dict[str, float] = {}  # machine to when it was first asked about

    def hear(self, statements: Iterable[CaptureFinding], since_s: float) -> None:
        """since_s: when the job stopped. What was captured before shows another job."""
        for statement in statements:
            if statement.source == "round" or statement.time_s < since_s:
                continue
            self.program |= any(suspect.kind == "job" and suspect.confidence >= _STOPS_AT for suspect in statement.suspects)
            if statement.source == "collectives":
                continue
            self._newest, self._final = statement.suspects, statement.source == "stacks"
            if self._final:
                self.passes = any(passes(suspect) for suspect in statement.suspects)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What the newest stacks say of any machine."""
        return tuple(item for suspect in self._newest or () for item in suspect.evidence)

    def answer(self, machine: str, now_s: float, wait_s: float) -> Answer:
        """What stacks say of a machine that other witnesses name. "waits": not known yet; after `wait_s` without any it agrees."""
        waited_s = now_s - self._named_s.setdefault(machine, now_s)
        if self.program:
            return "program"
        if self._newest is None:
            return "waits" if waited_s < wait_s else "agrees"
        named = {name for suspect in self._newest for name in suspect.machines}
        if machine in named:
            return "agrees"
        if named:
            return "another"
        return "unknown" if self._final or waited_s >= max(wait_s, _SECOND_S) else "waits"
