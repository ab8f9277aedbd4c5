"""What-if in the loop: whether a worker, a stage, the sequences, the network or the data cost a slow job its time.

The studies (`minder/diagnose/step_traces`) come from the job's own traced steps. What two studies in a row say is believed:

| they say | leads to |
|---|---|
| one worker computes longer than its stage's others (a few, in a large job) | evict its machine |
| more workers than that | page, as a group: what they share |
| stage imbalance, sequence imbalance, communication | page for the job: no machine is to blame |
| much of a slow step lies outside the traced operations | page for the job: data loading, or the host |

And they weigh what other rules say of slow machines (`weigh`). Source: the straggler study (arXiv 2505.05713): of its slow jobs few workers
explained the slowness of 1.7 % only, so that "slow" must not mean "evict". Two studies in a row, and its use as a veto, are ours.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.evidence import TIER_ORDER, Evidence, StepStudy, StudiedWorker, Suspect, Tier
from minder.model.observation import Observation, RuleResult

__all__ = ["WhatIfRule"]

_WORKER, _NONE = "worker", "none"
_JOBS_OWN = ("stage imbalance", "sequence imbalance", "communication")
_DATA = "data"
_LEAST_STEPS = 6  # of the newer study, before a machine is evicted
_FRESH_S, _FRESH_TIMES = 60.0, 3.0  # a study is of now for so long, or for so many times what lay between it and the one before
_PATIENCE_S = 60.0  # so long may the first study of a slow stretch take
_FEW_SHARE = 0.02  # of the job's machines: so many slow ones are named one by one
_OUTSIDE = 0.1  # of a step: so much outside the trace is data, where the job is slow
_AGAIN_S = 86_400.0  # the same cause is paged once a day, however often the job is started again


class WhatIfRule:
    """Feed it every observation, in order, before the rules that it weighs (observation.WeighingRule). tracker: shared."""

    name = "whatif"

    def __init__(self, tracker: JobTracker) -> None:
        self._tracker = tracker
        self._studies: deque[StepStudy] = deque(maxlen=2)
        self._why = ""  # why the newest traces could not be judged
        self._records = False  # whether the job ever recorded steps that could be judged
        self._generation: int | None = None
        self._machines, self._stands = 0, False
        self._paged: dict[str, tuple[int, float]] = {}  # cause to the generation in which it was paged first, and when

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None:
            return RuleResult()
        if job.generation != self._generation:
            self._generation, self._why = job.generation, ""
            self._studies.clear()
        self._machines, self._stands = len(job.machines), bool(self._tracker.stalled_s(observation))
        for study in observation.studies:
            self._why = study.why if not study.judged else ""
            if study.judged:
                self._records = True
                self._studies.append(study)
        if not self._tracker.watches(observation) or not self._is_fresh(observation.now_s) or len(self._studies) < 2:
            return RuleResult()
        suspects = (*self._machines_named(observation), *self._job_named(observation, job.generation))
        return RuleResult(tuple(item for item in suspects if set(item.machines) <= set(job.machines)))

    def weigh(self, suspect: Suspect, now_s: float) -> Suspect:
        """What the steps say of another rule's suspicion that a machine slows the job down. Nothing else is touched, and nothing while the
        job stands: steps of before say nothing of a hang."""
        if self._stands or suspect.cause != "slowdown" or not suspect.machines or suspect.source == self.name:
            return suspect
        if not self._records:
            note = f"what-if could not judge the step traces: {self._why}" if self._why else "what-if had no step trace"
            return _with(suspect, Evidence("whatif", None, f"{note}; stage, sequences and data are not ruled out"))
        newest = self._studies[-1] if self._is_fresh(now_s) else None
        if newest is None or not self._covers(newest, suspect.since_s):
            waits = now_s - suspect.since_s < _PATIENCE_S
            said = Evidence("whatif", None, "what-if has no traced steps of the slow time yet")
            return _lowered(suspect, "watch" if waits else "page", said)
        if newest.cause == _WORKER and newest.trusted:
            if set(suspect.machines) <= set(newest.blamed):
                named = (_worker_evidence(newest, name, suspect.since_s) for name in suspect.machines)
                return _with(suspect, *named, _study_evidence(newest))
            return _lowered(suspect, "watch", _study_evidence(newest))
        explained = newest.trusted and newest.cause in _JOBS_OWN
        return _lowered(suspect, "watch" if explained else "page", _study_evidence(newest))

    def _machines_named(self, observation: Observation) -> tuple[Suspect, ...]:
        older, newer = self._studies
        both = [name for name in newer.blamed if name in older.blamed]
        trusted = older.trusted and newer.trusted and newer.steps >= _LEAST_STEPS
        if not both or not trusted or older.cause != _WORKER or newer.cause != _WORKER:
            return ()
        since_s = older.begin_s if older.begin_s is not None else older.time_s
        if len(both) > max(1, math.floor(_FEW_SHARE * self._machines)):
            evidence = (_study_evidence(newer), *(_worker_evidence(newer, name, since_s) for name in both))
            return (Suspect(observation.now_s, self.name, "group", tuple(both), "slowdown", 0.7, since_s, "page", evidence),)
        return tuple(
            Suspect(
                observation.now_s, self.name, "machine", (name,), "slowdown", _confidence(newer, name), since_s, "evict",
                (_worker_evidence(newer, name, since_s), _study_evidence(newer)),
            )
            for name in both
        )  # fmt: skip

    def _job_named(self, observation: Observation, generation: int) -> tuple[Suspect, ...]:
        older, newer = self._studies
        cause = _own_cause(newer)
        slow = self._tracker.slow_spell.since_s is not None
        if cause is None or cause != _own_cause(older) or (cause == _DATA and not slow):
            return ()
        begun, at_s = self._paged.get(cause, (generation, observation.now_s))
        if begun != generation and observation.now_s - at_s > _AGAIN_S:
            begun, at_s = generation, observation.now_s
        self._paged[cause] = (begun, at_s)
        tier: Tier = "page" if begun == generation else "watch"
        since_s = older.begin_s if older.begin_s is not None else older.time_s
        return (Suspect(observation.now_s, cause, "job", (), "slowdown", 0.9, since_s, tier, (_study_evidence(newer),)),)

    def _is_fresh(self, now_s: float) -> bool:
        if not self._studies:
            return False
        gap_s = self._studies[-1].time_s - self._studies[0].time_s
        return now_s - self._studies[-1].time_s <= max(_FRESH_S, _FRESH_TIMES * gap_s)

    @staticmethod
    def _covers(study: StepStudy, since_s: float) -> bool:
        """Whether at least half of the studied time is of the slow stretch."""
        begin_s, end_s = study.begin_s, study.end_s
        return begin_s is not None and end_s is not None and end_s - since_s >= 0.5 * (end_s - begin_s)


def _own_cause(study: StepStudy) -> str | None:
    """What costs the time that is no machine's doing."""
    if study.trusted:
        return study.cause if study.cause in _JOBS_OWN else None
    return _DATA if study.replay_error is not None and study.replay_error >= _OUTSIDE else None


def _confidence(study: StepStudy, machine: str) -> float:
    steady = max((item.steady or 0.0 for item in study.workers if item.machine == machine), default=0.0)
    return round(0.8 + 0.15 * steady, 2)


def _with(suspect: Suspect, *pieces: Evidence) -> Suspect:
    return replace(suspect, evidence=(*suspect.evidence, *pieces))


def _lowered(suspect: Suspect, tier: Tier, piece: Evidence) -> Suspect:
    """At most `tier`, whatever else names the same."""
    lowered = suspect.tier if TIER_ORDER[suspect.tier] <= TIER_ORDER[tier] else tier
    alone = suspect.alone if suspect.alone is not None and TIER_ORDER[suspect.alone] <= TIER_ORDER[tier] else None
    return replace(suspect, tier=lowered, alone=alone, against=(*suspect.against, piece))


def _study_evidence(study: StepStudy) -> Evidence:
    """The answer in one line: which cause, and the study's figures."""
    figures = f"S {_number(study.slowdown)}, M_W {_share(study.worst_workers_share)}, M_S {_share(study.last_stage_share)}"
    where = f"steps {study.first_step} to {study.last_step} ({study.steps} traced)"
    if not study.trusted:
        outside = _share(study.replay_error)
        said = f"{outside} of a step lies outside the traced operations (data loading, the host)"
        return Evidence("whatif", None, f"what-if: {said}; {figures}, {where}", since_s=study.begin_s)
    cause = "no single cause" if study.cause == _NONE else study.cause
    why = f"{study.why.rstrip('.')}; " if study.cause in _JOBS_OWN else ""
    said = f"what-if: {cause}; {why}{figures}, {where}"
    return Evidence("whatif", None, said, "step_seconds", None, study.seconds, study.fixed_s, study.begin_s)


def _worker_evidence(study: StepStudy, machine: str, since_s: float) -> Evidence:
    worker = _slowest(study, machine)
    if worker is None or worker.against_peers is None:
        return Evidence("whatif", machine, "what-if names its worker", since_s=since_s)
    said = (
        f"what-if: rank {worker.rank} (dp rank {worker.dp_rank}, stage {worker.stage}) computes {worker.against_peers:.2f} times as long as"
        f" the others of its stage, slower in {_share(worker.steady)} of the steps"
    )
    return Evidence("whatif", machine, said, since_s=since_s)


def _slowest(study: StepStudy, machine: str) -> StudiedWorker | None:
    return max((item for item in study.workers if item.machine == machine), key=lambda item: item.against_peers or 0.0, default=None)


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"
