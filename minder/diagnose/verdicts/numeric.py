"""A NaN in one machine's own gradient, found before the all-reduce spreads it: hardware that computes wrongly, or that rank's data.

One look cannot tell the two apart, so the suspicion carries its rank and step: the policy exchanges the machine on trial, and remembers
whether the NaN follows the rank. Every machine at once is the data or the code (ByteRobust, arXiv 2509.16293).
"""

from __future__ import annotations

from minder.model.evidence import Evidence, Failure, Suspect
from minder.model.observation import Observation, RuleResult

__all__ = ["NumericRule"]

_SETTLE_S = 0.6


class NumericRule:
    """Reads `nonfinite` signals of the running generation (types.Rule)."""

    name = "numeric"

    def __init__(self) -> None:
        self._generation = -1
        self._seen: dict[str, tuple[float, int | None, int | None]] = {}
        self._told = False

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None:
            return RuleResult()
        if job.generation != self._generation:
            self._generation, self._seen, self._told = job.generation, {}, False
        for signal in observation.signals:
            current = signal.generation in (None, job.generation) and signal.time_s >= job.generation_start_s
            if signal.kind == "nonfinite" and signal.machine and current:
                self._note(signal.machine, (signal.time_s, signal.rank, signal.data.get("step")))
        if self._told or not self._seen or observation.now_s - min(item[0] for item in self._seen.values()) < _SETTLE_S:
            return RuleResult()
        self._told = True
        return RuleResult((self._suspect(observation),))

    def _note(self, machine: str, report: tuple[float, int | None, int | None]) -> None:
        """Of one generation only the earliest step counts: a step later the all-reduce has spread the NaN to everybody."""
        steps = [step for _, _, step in self._seen.values() if step is not None]
        first, step = min(steps, default=None), report[2]
        if first is not None and step is not None and step != first:
            if step > first:
                return
            self._seen = {}
        self._seen.setdefault(machine, report)

    def _suspect(self, observation: Observation) -> Suspect:
        since_s = min(item[0] for item in self._seen.values())
        evidence = tuple(
            Evidence("gradient", machine, f"rank {rank}: own gradient not finite at step {step}, before the all-reduce", since_s=time_s)
            for machine, (time_s, rank, step) in sorted(self._seen.items())
        )
        machines = tuple(sorted(self._seen))
        assert observation.job is not None
        failures = tuple(
            Failure(time_s, machine, (rank,), "nonfinite", step=step, generation=observation.job.generation, text="own gradient not finite")
            for machine, (time_s, rank, step) in self._seen.items()
            if rank is not None
        )
        everybody = len(machines) >= len(observation.job.machines)
        if everybody or len(machines) > max(1, len(observation.job.machines) // 2):
            return Suspect(observation.now_s, self.name, "job", (), "numeric", 0.8, since_s, "page", evidence, failures=failures)
        if len(machines) > 1:
            return Suspect(observation.now_s, self.name, "group", machines, "numeric", 0.6, since_s, "page", evidence, failures=failures)
        return Suspect(observation.now_s, self.name, "machine", machines, "numeric", 0.95, since_s, "evict", evidence, failures=failures)
