"""Fail-slow voting: a job that steps on, but slowly, is looked at every 10 s, five times; what holds it up in most of them is named.

A single look at a job that moves shows some rank that computes while others already wait, by chance. One that is alone in more than half of
the rounds is waited for more than half of the time. Source: ByteRobust (SOSP'25, arXiv 2509.16293), section 7.2.
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
from collections.abc import Sequence
from dataclasses import replace

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.stacks import vote
from minder.diagnose.stacks.blame import ROUNDS
from minder.diagnose.stacks.places import Places, topology_of
from minder.diagnose.verdicts.decline import DeclineRule
from minder.model.evidence import CaptureFinding, Evidence, Suspect
from minder.model.observation import Observation, RequestKind, RuleResult
from minder.model.topology import Parallelism

__all__ = ["VotesRule"]

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
