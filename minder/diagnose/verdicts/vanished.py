"""Processes of a job that we only watch vanish, and nobody of ours is their parent: who was first?

If they go together, the job ended. If one machine's go first by more than the sampling interval, a person should look there: an
exit status is mostly unknown, and what a first exit means is known to the job's own launcher only. Never an eviction.
A machine whose agent fell silent with them may have been before them all: then nobody else is named, and it is, if it is the only one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.evidence import Evidence, Signal, Suspect
from minder.model.observation import Observation, RuleResult

__all__ = ["VanishedRule"]

_SETTLE_S = 3.0  # what dies of the first one dies within this time
_SILENT_S, _BEFORE_S = 3.0, 30.0
_LATE_S = 1.5  # an agent that has not answered for so long may have died with its machine: that is seen a little later


@dataclass(frozen=True, slots=True)
class _Gone:
    machine: str
    time_s: float
    message: str
    bad: bool | None  # None: nobody saw how it ended


class VanishedRule:
    """Reads exit signals with `vanished` of the running generation (types.Rule). interval_s: how often agents sample."""

    name = "vanished"

    def __init__(self, tracker: JobTracker, interval_s: float = 1.0) -> None:
        self._interval_s = interval_s
        self._tracker = tracker
        self._silence = tracker.silence_after(max(_SILENT_S, 3 * interval_s))
        self._generation = -1
        self._gone: list[_Gone] = []
        self._told = False

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None:
            return RuleResult()
        if job.generation != self._generation:
            self._generation, self._gone, self._told = job.generation, [], False
        self._gone += [
            _read(signal)
            for signal in observation.signals
            if signal.kind == "exit"
            and signal.data.get("vanished")
            and signal.machine is not None
            and signal.generation == job.generation
            and signal.time_s >= job.generation_start_s
        ]
        failed = sorted((item for item in self._gone if item.bad is not False), key=lambda item: item.time_s)
        late = any(self._silence.seconds(machine, observation) > _LATE_S for machine in job.machines)
        settle_s = _SETTLE_S + (max(_SILENT_S, 3 * self._interval_s) if late else 0.0)
        if self._told or not failed or observation.now_s - failed[0].time_s < settle_s:
            return RuleResult()
        self._told = True
        silent = [machine for machine in self._silence.silent(observation) if self._may_be_first(machine, failed[0], observation)]
        suspect = self._lost(silent, failed, observation) if silent else self._suspect(failed, observation)
        return RuleResult((suspect,) if suspect is not None else ())

    def _suspect(self, failed: list[_Gone], observation: Observation) -> Suspect | None:
        """Processes that are seen to have failed are ordered by the kernel's word; all others by the sampling interval."""
        assert observation.job is not None
        first = failed[0]
        margin_s = (0.1 if first.bad else self._interval_s) + 2 * observation.clock_error_s
        others = [item for item in self._gone if item.machine != first.machine]
        together = [item for item in others if item.time_s - first.time_s <= margin_s]
        if together or len(observation.job.machines) < 2:
            return self._nobody(failed, observation) if any(item.bad for item in failed) else None
        evidence = [Evidence("exit", first.machine, f"vanished first: {first.message}", since_s=first.time_s)]
        for item in sorted(others, key=lambda item: item.time_s)[:5]:
            message = f"{item.time_s - first.time_s:+.1f} s later: {item.message}"
            evidence.append(Evidence("exit", item.machine, message, since_s=item.time_s))
        confidence = 0.6 if first.bad else 0.5
        return Suspect(
            observation.now_s, self.name, "machine", (first.machine,), "explicit", confidence, first.time_s, "page", tuple(evidence)
        )

    def _may_be_first(self, machine: str, first: _Gone, observation: Observation) -> bool:
        """A job without steps acquits nobody: then a silence that began long before the first exit is somebody else's story."""
        if any(item.machine == machine for item in self._gone):
            return False
        since_s = observation.now_s - self._silence.seconds(machine, observation)
        return math.isfinite(self._tracker.steps.step) or since_s > first.time_s - _BEFORE_S

    def _lost(self, silent: list[str], failed: list[_Gone], observation: Observation) -> Suspect:
        if len(silent) > 1:
            return self._nobody(failed, observation)
        silent_s = self._silence.seconds(silent[0], observation)
        message = f"agent silent for {silent_s:.1f} s, since before {len(failed)} processes of its peers vanished or with them"
        evidence = (Evidence("fleet", silent[0], message, since_s=observation.now_s - silent_s),)
        return Suspect(observation.now_s, self.name, "machine", (silent[0],), "absence", 0.6, failed[0].time_s, "page", evidence)

    def _nobody(self, failed: list[_Gone], observation: Observation) -> Suspect:
        """They failed together, or there is only one machine: the job is down, and nobody was first."""
        evidence = tuple(Evidence("exit", item.machine, item.message, since_s=item.time_s) for item in failed[:8])
        return Suspect(observation.now_s, self.name, "job", (), "explicit", 0.5, failed[0].time_s, "page", evidence)


def _read(signal: Signal) -> _Gone:
    number, code = signal.data.get("signal"), signal.data.get("code")
    bad = True if number or code else False if code == 0 else None
    return _Gone(signal.machine or "", signal.time_s, signal.message, bad)
