"""The whole job stands and no machine stands out: a person should look. Never a machine's fault.

`HangRule`, of a live job of which perhaps not one step was ever read:

- A job hangs that shows no progress of any kind (`activity.py` of `job_mode`) for longer than twice its longest quiet stretch so far, at
  least 30 s, while the stacks of its ranks are the same in two captures. Spinning, state T and a blocked rank are alike in that.
- Machines are named by the rules for stalls (`stall.py`, `captures.py`), as for a stall with steps. Where they name none within 20 s,
  a person is paged, with the ranks that stand out by their stacks: the ranks of one machine have no other place to be named.
- Stacks that change are progress; so is a declared phase. A job whose stacks change, and that shows nothing else for half an hour, is a
  person's to look at. So is one whose stacks cannot be read, if a rank of it is known or it has been seen at work: where neither holds,
  no job may be there, and what does not begin does not stand.
- Without activity metrics the newest step decides alone. A generation that makes none although steps of the run were read before has
  stood since it began, as if it had never been at work.
- This rule names no machine and restarts nothing. `standing` says for how long the job has stood, for the controller (`hung.py`), which
  decides when a hang has lasted too long.

`StandingRule`, of a recording, pages once and late. Not before five minutes: an undeclared checkpoint or evaluation ends by itself. A job
that came through a longer pause is given twice that, and one of long steps the time of twenty. Where steps alone say that it stands, and
telemetry shows nothing of its work, it has fifteen minutes; where telemetry shows work (an evaluation), an hour. A job whose GPUs are
empty, or idle with nothing known of their memory, may simply have ended: of the former nothing is said, of the latter only after fifteen
minutes without a step.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.captures import NOTICED_S, PASSES_S, passes
from minder.model.evidence import CaptureFinding, Evidence, Suspect
from minder.model.observation import Observation, RequestKind, RuleResult

__all__ = ["HangRule", "Standing", "StandingRule"]

_SPEAKS_S = 20.0  # after the job was seen to stand: so long others may name a machine
_BLIND_S = 60.0  # after stacks were first asked for
_CHANGES_S = 1800.0
_AGAIN_S = 60.0  # between two comparisons of stacks, and later half of the time that the job has stood
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Standing:
    """The job stands. since_s: when it last moved. stood: its stacks were the same in two captures since; None: unknown. began: it had
    been at work before. evidence: what speaks for it. seen_s: when its stacks were first seen to be the same; NaN: not yet."""

    since_s: float
    stood: bool | None
    began: bool
    evidence: tuple[Evidence, ...] = ()
    seen_s: float = math.nan


class HangRule:
    """Asks whether the ranks stand still, and pages for a hang without steps (observation.Rule). tracker: shared, and updated before."""

    name = "hang"

    def __init__(self, tracker: JobTracker) -> None:
        self._tracker = tracker
        self._asked_s = math.inf  # when stacks were first asked for in this stretch
        self._said: tuple[Evidence, ...] = ()  # by the newest stacks in which a rank stood apart
        self._said_s = -math.inf
        self._generation: int | None = None
        self._passes = False
        self._since_s = math.nan
        self._seen_s = math.nan
        self.standing: Standing | None = None

    def observe(self, observation: Observation) -> RuleResult:
        since_s = self._tracker.still_since_s(observation)
        if since_s is None or since_s != self._since_s:
            self._asked_s, self._passes, self._seen_s = math.inf, False, math.nan
        self._forget(since_s, observation)
        self._since_s = math.nan if since_s is None else since_s
        self._hear(observation.statements)
        self.standing = None if since_s is None else self._standing(since_s, observation)
        if self.standing is None or since_s is None:
            return RuleResult(self._changing(observation))
        requests = self._wanted(since_s, observation.now_s)
        return RuleResult(self._page(self.standing, observation), requests)

    def _changing(self, observation: Observation) -> tuple[Suspect, ...]:
        """Stacks move, and nothing else has for very long: a loop that no rule knows, which is for a person to judge."""
        tracker, now_s = self._tracker, observation.now_s
        if tracker.steps.reads_steps or not tracker.quiet_s(observation) or math.isnan(tracker.activity.active_s):
            return ()
        since_s = max(tracker.activity.active_s, -math.inf if math.isnan(tracker.steps.advanced_s) else tracker.steps.advanced_s)
        if now_s - since_s < _CHANGES_S:
            return ()
        message = f"no step, traffic, input or output or log line for {now_s - since_s:.0f} s, although the stacks of its ranks change"
        evidence = (Evidence("progress", None, message, since_s=since_s), *self._said[:_SHOWN])
        return (Suspect(now_s, self.name, "job", (), "stall", 0.5, since_s, "page", evidence),)

    def _forget(self, since_s: float | None, observation: Observation) -> None:
        """What stacks showed of another standstill, or of another generation. They may have been taken before telemetry, a mean over some
        seconds, noticed that the job stands, and are heard before it is known to."""
        generation = None if observation.job is None else observation.job.generation
        other = since_s is not None and since_s != self._since_s and self._said_s < since_s - NOTICED_S
        if other or generation != self._generation:
            self._said, self._said_s = (), -math.inf
        self._generation = generation

    def _hear(self, statements: Sequence[CaptureFinding]) -> None:
        """A capture in which no rank stands apart takes nothing back of what another one of the same stretch showed."""
        for statement in statements:
            if statement.source in ("look", "stacks"):
                said = tuple(item for suspect in statement.suspects for item in suspect.evidence)
                self._said, self._said_s = (said, statement.time_s) if said else (self._said, self._said_s)
            if statement.source == "stacks":
                self._passes = any(passes(suspect) for suspect in statement.suspects)

    def _standing(self, since_s: float, observation: Observation) -> Standing:
        tracker = self._tracker
        compared = tracker.still_s >= since_s
        stood = tracker.stood_s >= tracker.still_s if compared else None
        began = tracker.steps.reads_steps or tracker.activity.has_begun
        self._seen_s = observation.now_s if stood and math.isnan(self._seen_s) else self._seen_s
        return Standing(since_s, stood, began, (*self._why(since_s, stood, observation.now_s), *self._said[:_SHOWN]), self._seen_s)

    def _why(self, since_s: float, stood: bool | None, now_s: float) -> list[Evidence]:
        activity, for_s = self._tracker.activity, now_s - since_s
        steps = "" if self._tracker.steps.reads_steps else " (no step is read)"
        message = f"no progress of any kind for {for_s:.0f} s{steps}: no step"
        if activity.is_known(now_s):
            message += (
                f", traffic, input or output, log line or change of memory; the longest quiet stretch before: {activity.survived_s:.0f} s"
            )
        found = [Evidence("progress", None, message, since_s=since_s)]
        if stood:
            found.append(Evidence("stacks", None, "the stacks of the ranks were the same in two captures", since_s=since_s))
        return found

    def _wanted(self, since_s: float, now_s: float) -> frozenset[RequestKind]:
        """At once, then ever more seldom: a look holds the processes up for a moment."""
        heard_s = self._tracker.still_s
        if heard_s >= since_s and now_s - heard_s < max(_AGAIN_S, (heard_s - since_s) / 2):
            return frozenset()
        self._asked_s = min(self._asked_s, now_s)
        return frozenset({"still"})

    def _page(self, standing: Standing, observation: Observation) -> tuple[Suspect, ...]:
        """The rule for stalls pages for a job with steps, and the rule for starts for a generation that only starts."""
        now_s, tracker = observation.now_s, self._tracker
        starts = not tracker.steps.steps_in_generation and not tracker.activity.is_known(now_s)
        if tracker.steps.reads_steps or starts:
            return ()
        suspect = Suspect(now_s, self.name, "job", (), "stall", 0.7, standing.since_s, "page", standing.evidence)
        if standing.stood:
            first_s = max(standing.since_s + tracker.activity.limit_s(), self._asked_s if math.isfinite(self._asked_s) else -math.inf)
            alone = observation.job is not None and len(observation.job.machines) < 2  # then no machine can be named
            return (suspect,) if (alone or now_s - first_s >= _SPEAKS_S) and not self._passes else ()
        known = standing.began or (observation.job is not None and bool(observation.job.rank_machine))
        if known and standing.stood is None and now_s - self._asked_s >= _BLIND_S:
            why = Evidence(
                "stacks",
                None,
                "the ranks' stacks cannot be compared, or show that they compile or load: whether they move is unknown",
                since_s=standing.since_s,
            )
            return (replace(suspect, confidence=0.5, evidence=(*standing.evidence, why)),)
        return ()


_STEPS_ALONE_S, _AT_WORK_S = 900.0, 3600.0
_LONGER, _STEPS = 2.0, 20.0
_MEMORY, _DUTY = "gpu_memory_used_ratio", "gpu_duty_cycle_ratio"
_HELD = 0.5  # share of its usual level that the memory of a job's GPUs keeps while the job is there
_IDLE = 0.2
_USUAL_ROWS = 300


class StandingRule:
    """Of a recording (observation.Rule); StallRule asks for and reports a live job's stalls. tracker: shared, and updated before."""

    name = "standing"

    def __init__(self, tracker: JobTracker) -> None:
        self._tracker = tracker
        self._usual: dict[str, deque[float]] = {name: deque(maxlen=_USUAL_ROWS) for name in (_MEMORY, _DUTY)}
        self._now: dict[str, float] = {}

    def observe(self, observation: Observation) -> RuleResult:
        self._remember(observation)
        since_s = self._tracker.halt.since_s
        if since_s is None or observation.now_s - since_s < self._limit_s():
            return RuleResult()
        stood_s = observation.now_s - since_s
        what = "no step" if self._tracker.halt.knows_steps else "no work on the median machine's GPUs and network"
        evidence = (Evidence("progress", None, f"{what} for {stood_s:.0f} s, and no machine stands out", since_s=since_s),)
        return RuleResult((Suspect(observation.now_s, self.name, "job", (), "stall", 0.7, since_s, "page", evidence),))

    def _limit_s(self) -> float:
        halt = self._tracker.halt
        least_s = max(PASSES_S, _LONGER * halt.longest_s, _STEPS * halt.usual_step_s)
        memory, duty = self._share(_MEMORY), self._share(_DUTY)
        if memory < _HELD:
            return math.inf
        if math.isnan(memory) and duty < _IDLE:
            return max(least_s, _STEPS_ALONE_S) if halt.knows_steps else math.inf
        if halt.knows_steps and halt.work != "stands":
            return max(least_s, _STEPS_ALONE_S if halt.work == "unknown" else _AT_WORK_S)
        return least_s

    def _share(self, metric: str) -> float:
        """The job's median machine now, against its usual; NaN where one of them is unknown."""
        usual = self._usual[metric]
        level = float(np.median(usual)) if len(usual) >= 10 else math.nan
        return self._now.get(metric, math.nan) / level if level > 0 else math.nan

    def _remember(self, observation: Observation) -> None:
        window = observation.window
        if window is None:
            return
        members = [m for m, name in enumerate(window.machines) if observation.job is None or name in observation.job.machines]
        for metric, usual in self._usual.items():
            if metric not in window.metrics or not members:
                continue
            values_TM = window.values_TMK[:, members, window.metrics.index(metric)]
            levels = [float(np.median(row[np.isfinite(row)])) for row in values_TM if np.isfinite(row).any()]
            if levels:
                self._now[metric] = levels[-1]
            if self._tracker.halt.since_s is None and self._tracker.halt.work == "works":
                usual.extend(levels)
