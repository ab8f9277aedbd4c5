"""An operator's order to test a machine, and what came of it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence

from minder.errors import BadInputError
from minder.incidents import kinds
from minder.incidents.ledger import Ledger
from minder.incidents.machines import MACHINE_KINDS, RETEST_PREFIX, Retest, fold_machines
from minder.types import LedgerEvent

__all__ = ["order_retest", "wait_for_retest"]

_LOOK_S = 0.5


def order_retest(ledger: Ledger, machine: str, job: str | None, by: str, reason: str) -> str:
    """Write the order down for the job's controller; one line that says so. Raises BadInputError where no job is known, or a test runs."""
    record = fold_machines(ledger.events(kinds=MACHINE_KINDS)).get(machine)
    job = job or (next((name for name in record.barred_in if name != "every job"), record.job) if record is not None else None)
    if job is None:
        raise BadInputError(f'nothing is known of a machine "{machine}": give --job with the job whose controller can reach it')
    if record is not None and record.retest is not None and record.retest.state in ("asked", "running"):
        raise BadInputError(f"{machine} is being tested already: {record.retest.operation_id}")
    name = f"{RETEST_PREFIX}{uuid.uuid4().hex[:12]}"
    ledger.append(kinds.RETEST_ASKED, {"machine": machine, "reason": reason, "by": by}, job=job, operation_id=name)
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
