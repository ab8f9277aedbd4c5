"""A ledger of jobs that never ran: what controllers would have written in a month, by the published incident mix and times.

For reports, pages and notebooks that need a past. Nothing in it is measured: faults come as `minder plan ettr` draws them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from minder.model.decision import ActionResult, Decision
from minder.model.evidence import Cause, Evidence, Verdict
from minder.offline.reliability.mix import Published, load_published
from minder.offline.reliability.months import Fault, Scale, draw_faults
from minder.record.incidents import Ledger, kinds

__all__ = ["JOBS", "PlayedJob", "play_month"]

_DAY_S = 86_400.0
_CAUSES: dict[str, tuple[Cause, str]] = {
    "exit": ("explicit", "a training process exited"),
    "gpu": ("explicit", "the kernel log reports an Xid"),
    "network": ("explicit", "its link went down"),
    "host": ("absence", "its agent and its launcher fell silent together"),
    "hang": ("stall", "no rank has stepped; it leaves its peers' data unread"),
    "nan": ("numeric", "its loss is not finite"),
    "slow": ("slowdown", "its GPUs draw less power than its peers'"),
}
_REPEATS, _WRONG, _KNOWN = 0.2, 0.12, 0.75  # shares: faults that hit the weak machine again; evictions without a fault; outcomes known
_STEP_S, _CAPTURE_S = 12.0, 4.0


@dataclass(frozen=True, slots=True)
class PlayedJob:
    """One job of the month. incidents_per_machine_day: how often its machines fail."""

    name: str
    machines: int
    gpus_per_machine: int = 8
    standbys: int = 2
    incidents_per_machine_day: float = 0.0042


JOBS = (PlayedJob("llm-70b", 128), PlayedJob("vision-7b", 24, 8, 1, 0.006))


def play_month(ledger: str | Path, begin_s: float, days: float = 30.0, seed: int = 0, jobs: Sequence[PlayedJob] = JOBS) -> None:
    """Write the month from `begin_s` (unix seconds) into a new ledger; the same seed writes the same events."""
    published = load_published()
    with Ledger(ledger) as opened:
        for number, job in enumerate(jobs):
            _Play(opened, job, published, np.random.default_rng([seed, number])).run(begin_s, days)


class _Play:
    """One job's controller, which writes down what it did about each fault."""

    def __init__(self, ledger: Ledger, job: PlayedJob, published: Published, generator: np.random.Generator) -> None:
        self._ledger, self._job, self._published, self._generator = ledger, job, published, generator
        self._members = [f"{job.name}-{index:03d}" for index in range(job.machines)]
        self._spares = [f"{job.name}-s{index}" for index in range(job.standbys)]
        self._weak = self._members[int(generator.integers(job.machines))]
        self._generation, self._operations = 1, 0

    def run(self, begin_s: float, days: float) -> None:
        rate = self._published.rates["byterobust"]
        own = type(rate)(self._job.incidents_per_machine_day, rate.manual_per_day, "played")
        scale = Scale(self._job.machines * self._job.gpus_per_machine, self._job.machines, days, self._job.standbys, own)
        faults = [fault for fault in draw_faults(scale, self._published, self._generator) if fault.symptom.category != "manual"]
        gpus = self._job.machines * self._job.gpus_per_machine
        registered = {"machines": self._members, "standbys": self._spares, "gpus": gpus}
        self._ledger.append(kinds.JOB_REGISTERED, registered, job=self._job.name, time_s=begin_s)
        self._ledger.append(kinds.FIRST_STEP, {"step": 1, "gpus": gpus}, job=self._job.name, time_s=begin_s + 240.0)
        free_s = begin_s + 3600.0
        for fault in faults:
            free_s = self._incident(fault, max(begin_s + fault.time_s, free_s + 600.0))
        end_s = max(begin_s + days * _DAY_S, free_s + 600.0)
        self._ledger.append(kinds.JOB_ENDED, {"outcome": "finished"}, job=self._job.name, time_s=end_s)

    def _incident(self, fault: Fault, fault_s: float) -> float:
        """Detect, decide, evict, restart, step again. Returns when the job steps again."""
        machine = self._victim()
        cause, message = _CAUSES[fault.symptom.detect]
        detected_s = fault_s + self._published.detect_s[fault.symptom.detect][0] * self._draw(0.8, 1.2) + 2.0
        evidence = (Evidence("telemetry" if cause in ("stall", "slowdown") else "signals", machine, message, since_s=fault_s),)
        verdict = Verdict(detected_s, "machine", "evict", (machine,), cause, round(self._draw(0.86, 0.99), 2), fault_s, evidence)
        incident = self._ledger.open_incident(verdict, job=self._job.name, time_s=detected_s)
        return self._recover(verdict, incident, detected_s + _CAPTURE_S + 60.0 * fault.search)

    def _recover(self, verdict: Verdict, incident: str, acted_s: float) -> float:
        self._operations += 1
        self._generation += 1
        (machine,), operation = verdict.machines, f"evict-{self._job.name}-{self._operations}"
        replacement, own = f"{self._job.name}-r{self._operations:02d}", {"job": self._job.name, "incident": incident}
        detail = "every stage passed: evict"
        decision = Decision(operation, acted_s, "evict", (machine,), "act", detail, verdict, replacements=(replacement,))
        self._ledger.append(kinds.DECISION, decision, time_s=acted_s, **own)
        self._ledger.intend(operation, decision, time_s=acted_s, **own)
        self._ledger.append(kinds.BARRED, {"machine": machine, "reason": verdict.cause}, time_s=acted_s, **own)
        self._ledger.append(kinds.RECOVERY_PHASE, {"phase": "restart", "state": "begin"}, time_s=acted_s + 1.0, **own)
        self._ledger.complete(operation, ActionResult(operation, acted_s + 1.0, "done"))
        self._ledger.append(kinds.GENERATION_STARTED, {"generation": self._generation}, time_s=acted_s + 1.5, **own)
        restarted_s = acted_s + float(self._published.restart["hot_update_s"][0]) * self._draw(0.8, 1.4)
        self._ledger.append(kinds.RECOVERY_PHASE, {"phase": "restart", "state": "end"}, time_s=restarted_s, **own)
        step_s = restarted_s + 20.0 * self._draw(0.7, 1.5)
        lost = int(self._generator.integers(1, 4))
        again = {"step": 1000 * self._operations, "steps_lost": lost, "step_seconds": _STEP_S, "generation": self._generation}
        self._ledger.append(kinds.FIRST_STEP, again, time_s=step_s, **own)
        self._examine(machine, incident, step_s + _DAY_S * self._draw(0.2, 1.5))
        return step_s

    def _examine(self, machine: str, incident: str, time_s: float) -> None:
        """Most machines are examined; some turn out healthy; the weak one is always given back."""
        if self._generator.random() < _KNOWN:
            wrong = machine != self._weak and self._generator.random() < _WRONG
            outcome = {"machine": machine, "outcome": "no-fault-found" if wrong else "confirmed", "by": "repair"}
            self._ledger.append(kinds.OUTCOME, outcome, job=self._job.name, incident=incident, time_s=time_s)
        self._ledger.append(kinds.UNBARRED, {"machine": machine, "by": "repair"}, job=self._job.name, time_s=time_s + 60.0)

    def _victim(self) -> str:
        if self._generator.random() < _REPEATS:
            return self._weak
        return self._members[int(self._generator.integers(len(self._members)))]

    def _draw(self, low: float, high: float) -> float:
        return float(self._generator.uniform(low, high))
