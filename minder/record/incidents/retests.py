"""An operator's order to test a machine, and what came of it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from minder.model.errors import BadInputError
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.ledger import Ledger
from minder.record.incidents.machines import MACHINE_KINDS, RETEST_PREFIX, Retest, fold_machines

__all__ = ["PastRetest", "fold_retests", "order_retest", "wait_for_retest"]

_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class PastRetest:
    """One test of a machine: who ordered it and why, and what came of it. job: whose controller has it done. detail: what the test said."""

    operation_id: str
    machine: str
    job: str | None
    asked_s: float
    by: str
    reason: str
    state: Literal["asked", "running", "passed", "failed"] = "asked"
    begun_s: float | None = None
    ended_s: float | None = None
    detail: str = ""


def fold_retests(events: Iterable[LedgerEvent], machine: str) -> list[PastRetest]:
    """Every test of a machine that was ordered, oldest first, from events of MACHINE_KINDS in ledger order (pure)."""
    found: dict[str, PastRetest] = {}
    for event in events:
        name, payload = event.operation_id or "", event.payload
        if event.kind == kinds.RETEST_ASKED and payload.get("machine") == machine:
            by, reason = str(payload.get("by") or "?"), str(payload.get("reason") or "")
            found[name] = PastRetest(name, machine, event.job, event.time_s, by, reason)
        elif name in found and event.kind == kinds.INTENT:
            found[name] = replace(found[name], state="running", begun_s=event.time_s)
        elif name in found and event.kind == kinds.RESULT:
            passed = payload.get("outcome") in ("done", "already_done")
            ended: dict[str, Any] = {"state": "passed" if passed else "failed", "detail": str(payload.get("detail") or "")}
            found[name] = replace(found[name], ended_s=event.time_s, **ended)
    return list(found.values())


def order_retest(
    ledger: Ledger, machine: str, job: str | None, by: str, reason: str, *, untouched: bool = False, give_back: bool = False
) -> str:
    """Write the order down for the job's controller; one line that says so. untouched: nothing was repaired since the eviction, so that a
    pass says that no fault was found. give_back: a pass returns the machine. Raises BadInputError where no job is known, or a test runs."""
    record = fold_machines(ledger.events(kinds=MACHINE_KINDS)).get(machine)
    job = job or (next((name for name in record.barred_in if name != "every job"), record.job) if record is not None else None)
    if job is None:
        raise BadInputError(f'nothing is known of a machine "{machine}": give --job with the job whose controller can reach it')
    if record is not None and record.retest is not None and record.retest.state in ("asked", "running"):
        raise BadInputError(f"{machine} is being tested already: {record.retest.operation_id}")
    name = f"{RETEST_PREFIX}{uuid.uuid4().hex[:12]}"
    wanted = {"untouched": untouched, "return": give_back}
    payload = {"machine": machine, "reason": reason, "by": by, **{key: True for key, value in wanted.items() if value}}
    ledger.append(kinds.RETEST_ASKED, payload, job=job, operation_id=name)
    return f"{name}: the controller of {job} has {machine} tested"


def wait_for_retest(read: Callable[..., Sequence[LedgerEvent]], machine: str, seconds: float) -> Retest:
    """The newest test of a machine, as soon as it has ended or the time is over. read: the events of some kinds, as Ledger.events."""
    end_s = time.monotonic() + seconds
    while True:
        record = fold_machines(read(kinds=MACHINE_KINDS)).get(machine)
        found = record.retest if record is not None else None
        if found is None:
            raise BadInputError(f"no test of {machine} is in the ledger")
        if found.state in ("passed", "failed") or time.monotonic() >= end_s:
            return found
        time.sleep(_LOOK_S)
