from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from minder.model.clock import FakeClock
from minder.model.decision import ActionResult, Decision, Price
from minder.model.evidence import Evidence, Verdict
from minder.model.history import LedgerEvent
from minder.record.incidents import Ledger, kinds

Event = Callable[..., LedgerEvent]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1000.0)


@pytest.fixture
def ledger(database: str, clock: FakeClock) -> Iterator[Ledger]:
    """On SQLite, and on a real PostgreSQL where there is one."""
    with Ledger(database, clock=clock) as opened:
        yield opened


@pytest.fixture
def verdict() -> Verdict:
    return Verdict(
        time_s=1010.0,
        kind="machine",
        tier="evict",
        machines=("m2",),
        cause="stall",
        confidence=0.98,
        since_s=1002.0,
        evidence=(Evidence("telemetry", "m2", metric="cpu_usage_ratio", observed=0.01, expected=0.93, since_s=1002.0),),
        against=(Evidence("signals", "m2", "its agent answers"),),
    )


@pytest.fixture
def decision(verdict: Verdict) -> Decision:
    return Decision(
        operation_id="evict-1",
        time_s=1011.0,
        action="evict",
        machines=("m2",),
        reason="act",
        detail="every stage passed: evict",
        verdict=verdict,
        price=Price(100.0, 2000.0),
        replacements=("s1",),
        jobs_affected=("llm",),
        stages=("tier: pass",),
    )


@pytest.fixture
def event() -> Event:
    """event(kind, payload, time_s=..., ...) with ids that count up."""
    count = 0

    def make(kind: str, payload: dict[str, object], time_s: float = 0.0, **names: str | None) -> LedgerEvent:
        nonlocal count
        count += 1
        return LedgerEvent(count, time_s, kind, names.get("job", "llm"), "llm-1", names.get("operation_id"), payload)

    return make


@pytest.fixture
def recovered_incident(ledger: Ledger, verdict: Verdict, decision: Decision) -> str:
    """One hang, seen to its end: the ledger as the controller leaves it."""
    ledger.append(kinds.JOB_REGISTERED, {"machines": ["m1", "m2"], "domains": {"m1": {"rack": "r1"}}}, job="llm", time_s=900.0)
    name = ledger.open_incident(verdict, job="llm", time_s=1010.0)
    ledger.append(kinds.DECISION, decision, job="llm", incident=name, time_s=1011.0)
    ledger.append(kinds.RECOVERY_PHASE, {"phase": "capture", "state": "begin"}, job="llm", incident=name, time_s=1011.0)
    ledger.append(kinds.EVIDENCE, {"machine": "m2", "what": "stacks", "data": ["all_reduce"]}, job="llm", incident=name, time_s=1012.0)
    ledger.append(kinds.RECOVERY_PHASE, {"phase": "capture", "state": "end"}, job="llm", incident=name, time_s=1012.5)
    ledger.intend("evict-1", decision, job="llm", incident=name, time_s=1013.0)
    ledger.append(kinds.BARRED, {"machine": "m2", "reason": "evicted"}, job="llm", incident=name, time_s=1013.5)
    ledger.complete("evict-1", ActionResult("evict-1", 1014.0, "done", "workers ended"))
    ledger.append(kinds.GENERATION_STARTED, {"generation": 1, "machines": ["m1", "s1"]}, job="llm", incident=name, time_s=1016.0)
    payload = {"step": 41, "resumed_from": 40, "last_step": 41, "gpus": 4, "step_seconds": 0.5}
    ledger.append(kinds.FIRST_STEP, payload, job="llm", incident=name, time_s=1018.0)
    return name
