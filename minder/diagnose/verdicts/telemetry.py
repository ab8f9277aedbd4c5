"""From the detector's scores to a suspect: which machine, how surely, and what should be done about it.

A score over the threshold already means: different from its peers and from itself, for long enough, distinct from the second. The tier
adds what it may cost to be wrong. `evict` needs two independent families of metrics, not all of them of what neighbours bring about, and
in two rows in a row where one of them was paged for before; or two minutes of silence that the peers' stall confirms (a scrape that was
lost for a minute may fall into a pause of all). And it needs a training that is slowed, by the job's mode or by what the detector says of
it: one that works as fast as ever loses nothing while a person looks, and an eviction would stop it. Anything less pages.

**Confidence.** Of the verdicts with 0.9, about nine in ten should be right. What distinguishes right verdicts from wrong ones, on families
of worlds that take turns in being left out, is little: whether the plainest sign is of the network, where one machine's trouble is soon its
neighbours', and whether it is a group. How far a score is over its threshold, and how many metrics and families agree, says nothing more.
Each of these adds to the log odds (ODDS): `python bench/calibration.py CASES.json --fit` prints them, with what they say of families that
they were not fitted to. Others that turned odd at the same moment take odds away; worlds have too few of them to fit that. An accusation
that still stands after minutes is more often right than a new one.

**Two machines.** Each is as far from the other, and no majority says which of them is odd. Telemetry alone evicts neither. While the job
only is slow, one that does less may as well be the one that waits for the other: alone it is noted, and names neither.

**What the job shows.** Live (`GatedRule`), a deviation that does not reach the training is noted, no more: a job that steps as fast as ever
is not harmed by a warm slot or a busy sidecar. While it starts or is in a declared pause, telemetry says nothing at all. In a recording
(`PhasedRule`), a phase that the job declared brings nothing new: a checkpoint moves every machine's levels, and not all at the same
instant; none of that is a fault. A fault inside a phase is reported when the phase ends, or when it lasts too long; one that clearly began
before the phase, at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from minder.diagnose.detectors.contract import Detector
from minder.diagnose.detectors.corroboration import corroborated
from minder.diagnose.detectors.traits import trait_of
from minder.diagnose.job_mode.tracker import JobTracker
from minder.ingest.windows import keep_machines, rows_of
from minder.model.errors import ScoringLostError
from minder.model.evidence import Cause, Evidence, Scores, Suspect, Tier
from minder.model.observation import Observation, Rule, RuleResult
from minder.model.telemetry import Window

__all__ = ["ODDS", "GatedRule", "Odds", "PhasedRule", "TelemetryRule", "calibrated", "is_of_network", "log_odds"]

_HELD_UP = ("slow", "stalled")
_AS_EVER = "the training works as fast as ever: no eviction"
_HOLD = 0.3  # share of the threshold above which an accused machine stays accused
_PAIR = 2  # machines: none of them is in a majority
_AS_ODD = 0.7  # share of the accused's score
_MOST_WAITING = 300  # rows that wait for a detector that does not answer
_OUT_S = 60.0  # four scrapes of 15 s without a sample of anybody: nothing can be seen to end
_GROUP_S = 10.0  # machines that turn odd within this time of each other were hit together


class TelemetryRule:
    """Feeds windows to a detector row by row (observation.Rule): score, judge, learn from everybody who was not just called anomalous.

    A detector that works elsewhere may not answer (ScoringLostError). Then the rule has no data, its rows wait, at most 300 of them, and
    what they say is said once the newest is scored. It has no data, too, while no machine's telemetry comes: no data is not healthy.
    """

    name = "telemetry"

    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._accused: frozenset[str] = frozenset()
        self._accused_s: dict[str, float] = {}  # since when each of them has been
        self._waiting: deque[Window] = deque()
        self._held_up = False  # by the job's mode
        self._corroborated: frozenset[str] = frozenset()  # in the row before
        self._heard_s = math.nan  # when any machine's sample last came
        self.scores: Scores | None = None  # of the newest row, for displays

    def observe(self, observation: Observation) -> RuleResult:
        window = observation.window
        if window is not None and len(window.times_T):
            if observation.job is not None:
                window = keep_machines(window, observation.job.machines)
            self._held_up = observation.mode is not None and observation.mode.likeliest in _HELD_UP
            self._waiting.extend(rows_of(window))
            if window.present_TM.any():
                self._heard_s = observation.now_s
        newest: dict[tuple[str, ...], Suspect] = {}
        try:
            while self._waiting:
                newest = {suspect.machines: suspect for suspect in self._observe_row(self._waiting[0])}
                self._waiting.popleft()
        except ScoringLostError:
            self.scores = None
            while len(self._waiting) > _MOST_WAITING:
                self._waiting.popleft()
            return RuleResult(no_data=True)
        return RuleResult(tuple(newest.values()), no_data=observation.now_s - self._heard_s > _OUT_S)

    def _observe_row(self, row: Window) -> list[Suspect]:
        """Score, judge, learn: in this order, so that nothing is learned of a machine that this row accuses."""
        suspects: list[Suspect] = []
        for scores in self._detector.score(row):
            self.scores = scores
            sure = corroborated(scores)
            suspects, self._corroborated = self._suspects(scores, sure), sure
        self._accused = frozenset(name for suspect in suspects for name in suspect.machines)
        self._accused_s = {name: self._accused_s.get(name, float(row.times_T[0])) for name in self._accused}
        self._detector.learn(row, self._accused)
        return suspects

    def _suspects(self, scores: Scores, sure: frozenset[str]) -> list[Suspect]:
        """sure: of whom two families testify in this row. What the newest sample alone adds to a page is chance: of many gauges one meets a
        machine between two of its kernels in any row. So a page becomes an eviction by two rows in a row."""
        over = [m for m in np.flatnonzero(scores.score_M >= _HOLD * scores.threshold).tolist() if self._stands(scores, m)]
        if not over:
            return []
        leader = _leader(scores, over)
        slowed = self._held_up or scores.slowed is not False
        name = scores.machines[leader]
        stands_s = scores.time_s - self._accused_s.get(name, scores.time_s)
        lasts = name in self._corroborated or name not in self._accused
        return [_suspect(scores, leader, self.name, (lasts and name in sure, slowed), stands_s)]

    def _stands(self, scores: Scores, m: int) -> bool:
        return bool(scores.score_M[m] >= scores.threshold or scores.machines[m] in self._accused)


def _leader(scores: Scores, over: Sequence[int]) -> int:
    """The first to turn odd, if it is clearly the first; else the strongest."""
    since = {m: scores.since_s.get(scores.machines[m], scores.time_s) for m in over}
    first = min(over, key=lambda m: (since[m], -scores.score_M[m], scores.machines[m]))
    strongest = max(over, key=lambda m: (scores.score_M[m], scores.machines[m]))
    return first if since[strongest] - since[first] > 2.0 else strongest


def _suspect(scores: Scores, m: int, source: str, evicts: tuple[bool, bool], stands_s: float) -> Suspect:
    """The machine, or the few that were hit within seconds of each other, the first to turn odd first. evicts: whether a second witness
    is sure, and whether the training is slowed, or that is not known. stands_s: for how long it has been accused."""
    machine = scores.machines[m]
    cause: Cause = scores.cause.get(machine, "unknown")
    together = [scores.machines.index(name) for name in scores.group if name != machine] if machine in scores.group else []
    is_group = bool(together)
    if not is_group:
        together = _hit_together(scores, m)
        is_group = _is_group(scores, (m, *together))
    if is_group:
        machines = tuple(scores.machines[n] for n in sorted((m, *together), key=lambda n: (_since_s(scores, n), scores.machines[n])))
        together = []
    else:
        machines = (machine,)
    evidence = tuple(piece for name in machines for piece in scores.evidence.get(name, ()))
    against = tuple(
        Evidence("telemetry", scores.machines[n], "turned odd at about the same time", since_s=_since_s(scores, n)) for n in together
    )
    since_s = min(_since_s(scores, scores.machines.index(name)) for name in machines)
    odds = log_odds(bool(evidence) and is_of_network(evidence[0].metric), is_group, len(together), stands_s)
    sure, slowed = evicts
    tier: Tier = "evict" if sure and not is_group else "page"
    if tier == "evict" and not slowed:
        tier, against = "page", (*against, Evidence("telemetry", None, _AS_EVER, since_s=scores.time_s))
    kind: Literal["machine", "group"] = "group" if is_group else "machine"
    alone: Tier | None = None
    if len(scores.machines) == _PAIR:
        alone = "watch" if cause == "slowdown" else "page"
    return Suspect(scores.time_s, source, kind, machines, cause, calibrated(odds), since_s, tier, evidence, against, alone)


def _since_s(scores: Scores, m: int) -> float:
    return scores.since_s.get(scores.machines[m], scores.time_s)


def _hit_together(scores: Scores, m: int) -> list[int]:
    """Others that are as odd as the accused, since about the same time: the group that it drew along."""
    since_s = _since_s(scores, m)
    return [
        other
        for other, name in enumerate(scores.machines)
        if other != m
        and name in scores.since_s
        and abs(scores.since_s[name] - since_s) <= _GROUP_S
        and scores.score_M[other] >= _AS_ODD * scores.score_M[m]
    ]


def _is_group(scores: Scores, members: Sequence[int]) -> bool:
    """Several, each over the threshold by itself, and a small part of the job: in a small job, two that differ may be the healthy ones."""
    few = 2 <= len(members) <= len(scores.machines) // 4
    return few and all(scores.score_M[m] >= scores.threshold for m in members)


@dataclass(frozen=True, slots=True)
class Odds:
    """What each observation adds to the log odds that a verdict is right. network: the plainest sign is traffic, or congestion and errors;
    group: several are named together; together: for each of two others, at most, that turned odd at the same moment and are not named.
    stands: for each e-folding of one and the minutes for which it has stood."""

    base: float = 2.07
    network: float = -1.02
    group: float = 0.2
    together: float = -0.9
    stands: float = 0.45


ODDS = Odds()
_LEAST_SURE, _MOST_SURE = 0.3, 0.99
_OF_NETWORK = ("fabric", "congestion")


def log_odds(network: bool, group: bool, together: int, stands_s: float = 0.0) -> float:
    """Of a verdict's being right. stands_s: for how long it has been accused."""
    shown = ODDS.network * network + ODDS.group * group + ODDS.together * min(2, together)
    return ODDS.base + shown + ODDS.stands * math.log1p(stands_s / 60.0)


def is_of_network(metric: str | None) -> bool:
    """Whether a metric is of traffic over links, or of what goes wrong there."""
    return metric is not None and trait_of(metric).family in _OF_NETWORK


def calibrated(odds: float) -> float:
    """Confidence of log odds.

    >>> calibrated(0.0) < calibrated(1.0) < calibrated(3.0)
    True
    """
    return min(_MOST_SURE, max(_LEAST_SURE, 1.0 / (1.0 + math.exp(-odds))))


class GatedRule:
    """The telemetry rule of a live job whose steps are known (observation.Rule)."""

    name = "telemetry"

    def __init__(self, rule: TelemetryRule, tracker: JobTracker) -> None:
        self._rule = rule
        self._tracker = tracker

    @property
    def scores(self) -> Scores | None:
        return self._rule.scores

    def observe(self, observation: Observation) -> RuleResult:
        result = self._rule.observe(observation)
        if not result.suspects or self._tracker.steps.advanced_s != self._tracker.steps.advanced_s:
            return result
        if not self._tracker.watches(observation):
            return RuleResult()
        if self._tracker.stalled_s(observation) or self._is_slow(observation.now_s):
            return result
        return RuleResult(tuple(self._noted(suspect) for suspect in result.suspects), result.requests)

    def _is_slow(self, now_s: float) -> bool:
        return self._tracker.steps.is_slower(self._tracker.limits.reaches_times, now_s, self._tracker.limits.recent_s)

    def _noted(self, suspect: Suspect) -> Suspect:
        step_s = self._tracker.steps.typical_s
        against = Evidence("steps", None, f"the job steps as usual ({step_s:.2f} s a step)", "step_seconds", observed=step_s)
        return replace(suspect, tier="watch", against=(*suspect.against, against))


_STANDS_S = 120.0
_BEFORE_S = 20.0  # a deviation that is older than the phase by this much does not come from it


class PhasedRule:
    """A telemetry rule that hears `phase` signals (observation.Rule): of a recording, where no launcher reports what the workers do.

    tracker: shared, and updated before every observation.
    """

    def __init__(self, rule: Rule, tracker: JobTracker) -> None:
        self.name = rule.name
        self._rule = rule
        self._tracker = tracker
        self._standing: dict[tuple[str, ...], float] = {}  # machines to when they were last suspected aloud

    def observe(self, observation: Observation) -> RuleResult:
        result, now_s, phases = self._rule.observe(observation), observation.now_s, self._tracker.idle_phases
        quiet, older_s = phases.is_quiet(now_s), phases.began_s - _BEFORE_S
        self._standing = {machines: seen_s for machines, seen_s in self._standing.items() if now_s - seen_s <= _STANDS_S}
        passed = tuple(item for item in result.suspects if not quiet or item.machines in self._standing or item.since_s < older_s)
        self._standing.update({item.machines: now_s for item in passed})
        return RuleResult(passed, result.requests, result.no_data)
