"""Ledgers as a controller leaves them, with the times that a test wants to know beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.model.decision import ActionResult, Decision
from minder.model.evidence import Evidence, Verdict
from minder.offline.reliability.account import ACCOUNT_KINDS, Account, account_jobs
from minder.record.incidents import Ledger, kinds

MACHINES = ["m0", "m1", "m2", "m3"]


class Story:
    """Writes what a controller would have written, in the order in which it would."""

    def __init__(self, ledger: Ledger, job: str = "llm") -> None:
        self.ledger = ledger
        self.job = job
        self._operations = 0

    def register(self, time_s: float, first_step_s: float | None = None, **payload: Any) -> None:
        self.ledger.append(kinds.JOB_REGISTERED, {"machines": MACHINES, "gpus": 32, **payload}, job=self.job, time_s=time_s)
        if first_step_s is not None:
            self.ledger.append(kinds.FIRST_STEP, {"step": 1, "gpus": 32}, job=self.job, time_s=first_step_s)

    def verdict(self, fault_s: float, detected_s: float, machine: str = "m2", **fields: Any) -> str:
        evidence = (Evidence("telemetry", machine, "it stands still"),)
        values = {"kind": "machine", "tier": "evict", "cause": "stall", "confidence": 0.9, "evidence": evidence, **fields}
        verdict = Verdict(time_s=detected_s, machines=(machine,), since_s=fault_s, **values)
        return self.ledger.open_incident(verdict, job=self.job, time_s=detected_s)

    def evict(self, incident: str, acted_s: float, restarted_s: float | None, machine: str = "m2", outcome: str = "done") -> None:
        self._operations += 1
        operation, own = f"evict-{self.job}-{self._operations}", {"job": self.job, "incident": incident}
        verdict = Verdict(acted_s, "machine", "evict", (machine,), "stall", 0.9, acted_s)
        decision = Decision(operation, acted_s, "evict", (machine,), "act", "every stage passed", verdict, replacements=("s0",))
        self.ledger.append(kinds.DECISION, decision, time_s=acted_s, **own)
        self.ledger.intend(operation, decision, time_s=acted_s, **own)
        self.ledger.append(kinds.RECOVERY_PHASE, {"phase": "restart", "state": "begin"}, time_s=acted_s + 1, **own)
        self.ledger.complete(operation, ActionResult(operation, acted_s + 1, outcome))
        self.ledger.append(kinds.GENERATION_STARTED, {"generation": self._operations + 1}, time_s=acted_s + 1, **own)
        if restarted_s is not None:
            self.ledger.append(kinds.RECOVERY_PHASE, {"phase": "restart", "state": "end"}, time_s=restarted_s, **own)

    def step_again(self, incident: str | None, time_s: float, **payload: Any) -> None:
        values = {"step": 50, "resumed_from": 47, "last_step": 49, "step_seconds": 10.0, "gpus": 32, **payload}
        self.ledger.append(kinds.FIRST_STEP, values, job=self.job, incident=incident, time_s=time_s)

    def hang(self, fault_s: float, machine: str = "m2") -> str:
        """Detected after 30 s, decided after 10 more, restarted after 50, loaded after 20; two steps of 10 s are repeated: 130 s."""
        incident = self.verdict(fault_s, fault_s + 30, machine)
        self.evict(incident, fault_s + 40, fault_s + 90, machine)
        self.step_again(incident, fault_s + 110)
        return incident

    def end(self, time_s: float, outcome: str = "finished") -> None:
        if outcome == "failed":
            self.ledger.append(kinds.DEGRADED, {"what": "recovery", "detail": "no restart is left"}, job=self.job, time_s=time_s)
        self.ledger.append(kinds.JOB_ENDED, {"outcome": outcome}, job=self.job, time_s=time_s)

    def account(self, since_s: float, until_s: float, job: str | None = None) -> Account:
        return account_jobs(self.ledger.events(kinds=ACCOUNT_KINDS), since_s, until_s, job)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.db") as opened:
        yield opened


@pytest.fixture
def tell(ledger: Ledger) -> Callable[..., Story]:
    """tell("llm"): another job's story in the same ledger."""
    return lambda job="llm": Story(ledger, job)


@pytest.fixture
def story(tell: Callable[..., Story]) -> Story:
    return tell()
