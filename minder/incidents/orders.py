"""An operator's order to evict a machine: to the controller a signal like any other, which the policy's stages judge as they judge all."""

from __future__ import annotations

from typing import Any

from minder.errors import BadInputError
from minder.incidents import kinds
from minder.incidents.ledger import Ledger
from minder.types import Signal
from minder.wire.codec import to_json

__all__ = ["order_eviction", "order_payload"]


def order_eviction(ledger: Ledger, machine: str, job: str, by: str, reason: str, now_s: float) -> str:
    """Write the order down for the job's controller; one line that says so. Raises BadInputError if that job does not run there."""
    events = ledger.events(job=job, kinds=(kinds.JOB_REGISTERED, kinds.GENERATION_STARTED, kinds.JOB_ENDED))
    if not events or events[-1].kind == kinds.JOB_ENDED:
        raise BadInputError(f'no job "{job}" runs: `minder incidents list` shows the jobs that did')
    placed = events[-1].payload
    machines = list(placed.get("machines") or dict.fromkeys((placed.get("rank_machine") or {}).values()))
    if machine not in machines:
        raise BadInputError(f"{machine} runs no rank of {job}: {', '.join(map(str, machines[:8])) or 'no machine'} do")
    ledger.append(kinds.SIGNAL, order_payload(machine, by, reason, now_s) | {"by": by}, job=job)
    return f"the controller of {job} evicts {machine} at its next tick, if budgets, pauses and standbys allow it"


def order_payload(machine: str, by: str, reason: str, now_s: float) -> dict[str, Any]:
    """What a ledger event of kind SIGNAL says of it."""
    return {"signal": to_json(Signal(now_s, "order", machine, f"{by}: {reason}"))}
