"""A NaN in one machine's own gradient, found before the all-reduce spreads it: hardware that computes wrongly, or that rank's data.
Without a guard on the gradient, a loss of one rank alone that is not finite says the same, where other ranks tell theirs too.

One look cannot tell the two apart, so the suspicion carries its rank and step: the policy exchanges the machine on trial, and remembers
whether the NaN follows the rank. Every machine at once is the data or the code (ByteRobust, arXiv 2509.16293).
"""

from __future__ import annotations

from minder.model.evidence import Evidence, Failure, Suspect
from minder.model.observation import Observation, RuleResult

__all__ = ["NumericRule"]

_SETTLE_S = 0.6
_LOSS_SETTLE_S = 3.0  # agents read losses once a second


_SAID = {
    "gradient": "own gradient not finite at step {step}, before the all-reduce",
    "loss": "loss not finite at step {step}",
}


class NumericRule:
    """Reads `nonfinite` signals of the running generation (types.Rule)."""

    name = "numeric"

    def __init__(self) -> None:
        self._generation = -1
        self._seen: dict[str, tuple[float, int | None, int | None]] = {}
        self._told = False
        self._what = "gradient"
        self._loss_ranks: set[int | None] = set()  # ranks that reported a valid loss

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None:
            return RuleResult()
        if job.generation != self._generation:
            self._generation, self._seen, self._told, self._loss_ranks, self._what = job.generation, {}, False, set(), "gradient"
        self._loss_ranks |= {item.rank for view in observation.fleet.values() for item in view.workers if item.loss is not None}
        for signal in observation.signals:
            current = signal.generation in (None, job.generation) and signal.time_s >= job.generation_start_s
            if signal.kind == "nonfinite" and signal.machine and current:
                what = str(signal.data.get("what") or "gradient")
                if what != self._what:
                    if self._seen and what == "loss":
                        continue  # the gradient is the nearer witness
                    self._what, self._seen = what, {}
                self._note(signal.machine, (signal.time_s, signal.rank, signal.data.get("step")))
        if self._told or not self._seen or observation.now_s - min(item[0] for item in self._seen.values()) < self._settle_s:
            return RuleResult()
        self._told = True
        return RuleResult((self._suspect(observation),))

    @property
    def _settle_s(self) -> float:
        return _LOSS_SETTLE_S if self._what == "loss" else _SETTLE_S

    def _alone(self) -> bool:
        """Whether no other rank reports a loss: of rank 0, which logs for all, a NaN names no machine."""
        return self._what == "loss" and not self._loss_ranks - {rank for _, rank, _ in self._seen.values()}

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
            Evidence(self._what, machine, f"rank {rank}: {_SAID[self._what].format(step=step)}", since_s=time_s)
            for machine, (time_s, rank, step) in sorted(self._seen.items())
        )
        machines = tuple(sorted(self._seen))
        assert observation.job is not None
        said = f"own {self._what} not finite"
        failures = tuple(
            Failure(time_s, machine, (rank,), "nonfinite", step=step, generation=observation.job.generation, text=said)
            for machine, (time_s, rank, step) in self._seen.items()
            if rank is not None
        )
        everybody = len(machines) >= len(observation.job.machines)
        if everybody or self._alone() or len(machines) > max(1, len(observation.job.machines) // 2):
            return Suspect(observation.now_s, self.name, "job", (), "numeric", 0.8, since_s, "page", evidence, failures=failures)
        if len(machines) > 1:
            return Suspect(observation.now_s, self.name, "group", machines, "numeric", 0.6, since_s, "page", evidence, failures=failures)
        return Suspect(observation.now_s, self.name, "machine", machines, "numeric", 0.95, since_s, "evict", evidence, failures=failures)
