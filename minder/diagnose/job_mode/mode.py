"""The mode of the job as a distribution, from what the clocks of this room say. The first row that applies decides:

| what is known | source | how sure |
|---|---|---|
| most machines are not heard | none | outage |
| the controller starts a generation again, or for the first time | phase event | restarting, start |
| workers have ended, and the others do not go on | workers | stalled; where all of them ended well, a declared phase goes first |
| the job declares a phase | phase event | idle phase, less and less as it comes near `phase_limit_s`; then stalled |
| steps are read | step counter | stalled by the silence against its limit; else slow by how far steps are over their usual |
| telemetry shows activity | activity | stalled by the quiet stretch against its limit; else at its start, until it has begun |
| telemetry shows training's work | common level | stalled by the standstill against `level_stands_s`; else stepping |
| nothing | none | all modes alike |

A measure x against its threshold is worth x^p / (1 + x^p), p = `mode_power`: half at the threshold itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from minder.diagnose.job_mode.thresholds import THRESHOLDS, Thresholds
from minder.model.job_mode import MODES, JobMode, Mode, ModeSource
from minder.model.observation import JobView, Observation

if TYPE_CHECKING:
    from minder.diagnose.job_mode.tracker import JobTracker

__all__ = ["ModeClock"]


@dataclass(frozen=True, slots=True)
class _Guess:
    """shares: what is not named is 0; none named: nothing is known. since_s: where the likeliest mode began, None: when it was first so."""

    source: ModeSource
    shares: dict[Mode, float]
    since_s: float | None = None


class ModeClock:
    """`look` once per observation, after everything else of the tracker. Remembers since when the likeliest mode lasts."""

    def __init__(self, limits: Thresholds = THRESHOLDS) -> None:
        self._limits = limits
        self._mode: JobMode | None = None

    def look(self, tracker: JobTracker, observation: Observation) -> JobMode | None:
        """None: the job is over."""
        job = observation.job
        if job is not None and job.phase in ("finished", "failed"):
            self._mode = None
            return None
        guess = self._guess(tracker, observation)
        found = JobMode(self._spread(guess.shares), observation.now_s, guess.source)
        before = self._mode
        if guess.since_s is not None:
            found = replace(found, since_s=min(guess.since_s, observation.now_s))
        elif before is not None and before.likeliest == found.likeliest:
            found = replace(found, since_s=before.since_s)
        self._mode = found
        return found

    def move(self, by_s: float) -> None:
        """The wall clock was set forward by so much."""
        self._mode = None if self._mode is None else replace(self._mode, since_s=self._mode.since_s + by_s)

    def _guess(self, tracker: JobTracker, observation: Observation) -> _Guess:
        now_s, job = observation.now_s, observation.job
        if tracker.outage.lasts:
            return _Guess("none", {"outage": 1.0})
        if job is not None and job.phase in ("starting", "recovering", "suspended", "diagnosing", "replaying"):
            return self._of_start(tracker, job)
        ends = tracker.ends
        if ends.since_s is not None and (ends.failed or not tracker.phases.phase):
            return _Guess("workers", {"stalled": 1.0}, ends.since_s)
        if tracker.phases.phase:
            stalled = self._sure((now_s - tracker.phases.since_s) / self._limits.phase_limit_s)
            return _Guess("phase event", {"idle_phase": 1.0 - stalled, "stalled": stalled}, tracker.phases.since_s)
        if tracker.steps.reads_steps:
            return self._of_steps(tracker, now_s)
        if tracker.activity.is_known(now_s):
            return self._of_activity(tracker, now_s)
        return self._of_level(tracker, now_s)

    def _of_start(self, tracker: JobTracker, job: JobView) -> _Guess:
        """A generation that is at work without a step that is read has come to its end of starting: the controller says so later."""
        again = tracker.has_worked or job.phase != "starting"
        since_s = job.generation_start_s if job.phase == "starting" else None
        return _Guess("phase event", {"restarting" if again else "start": 1.0}, since_s)

    def _of_steps(self, tracker: JobTracker, now_s: float) -> _Guess:
        steps, pace, limits = tracker.steps, tracker.pace, self._limits
        limit_s = steps.stall_limit_s() if steps.is_timed else limits.quiet_floor_s  # a long step is no stall before it is known
        stalled = self._sure(steps.standing_s(now_s) / limit_s)
        known = pace.step_s == pace.step_s and pace.usual_s == pace.usual_s
        allowed_s = (limits.slow_times - 1.0) * pace.usual_s + limits.slow_least_s  # beyond the usual
        slow = self._sure((pace.step_s - pace.usual_s) / allowed_s) if known else 0.0
        shares: dict[Mode, float] = {"stalled": stalled, "slow": (1.0 - stalled) * slow, "stepping": (1.0 - stalled) * (1.0 - slow)}
        likeliest = max(shares, key=lambda mode: shares[mode])
        return _Guess("step counter", shares, {"stalled": steps.advanced_s, "slow": pace.since_s}.get(likeliest))

    def _of_activity(self, tracker: JobTracker, now_s: float) -> _Guess:
        activity = tracker.activity
        stalled = self._sure(activity.quiet_s(now_s) / activity.limit_s())
        working: Mode = "stepping" if activity.has_begun else "start"
        since_s = activity.quiet_since_s if stalled > 0.5 else None
        return _Guess("activity", {"stalled": stalled, working: 1.0 - stalled}, since_s)

    def _of_level(self, tracker: JobTracker, now_s: float) -> _Guess:
        level = tracker.level
        if level.since_s is None:
            return _Guess("none", {}) if level.state(now_s) == "unknown" else _Guess("common level", {"stepping": 1.0})
        stalled = self._sure((now_s - level.since_s) / self._limits.level_stands_s)
        return _Guess("common level", {"stalled": stalled, "stepping": 1.0 - stalled}, level.since_s if stalled > 0.5 else None)

    def _sure(self, times: float) -> float:
        """How sure a threshold is passed that was reached so many times."""
        if times <= 0.0 or math.isnan(times):
            return 0.0
        return 1.0 if math.isinf(times) else 1.0 / (1.0 + times**-self._limits.mode_power)

    def _spread(self, shares: dict[Mode, float]) -> dict[Mode, float]:
        """The shares as probabilities, with some doubt in all modes; without any share, all alike."""
        doubt = self._limits.mode_doubt_share if shares else 1.0
        return {mode: (1.0 - doubt) * shares.get(mode, 0.0) + doubt / len(MODES) for mode in MODES}
