"""An operator's orders to a controller: to evict a machine, which is a signal like any other, or to start the job again in place. The
policy's stages judge them as they judge all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from minder.model.errors import BadInputError
from minder.model.evidence import Signal
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.ledger import Ledger
from minder.wire.codec import to_json

__all__ = ["ORDER_S", "await_order", "demand_running", "find_restart_order", "order_eviction", "order_payload", "order_restart"]

_STARTS_S = 30.0  # a second order within it is the first one, typed twice
_LOOK_S = 0.3
ORDER_S = 600.0  # an order that no controller took up by then is over


class _Order(Protocol):
    @property
    def operation_id(self) -> str: ...

    @property
    def state(self) -> str: ...


AnyOrder = TypeVar("AnyOrder", bound=_Order)


def await_order(orders: Callable[[], Iterable[AnyOrder]], operation_id: str, seconds: float) -> AnyOrder:
    """The order, as soon as something came of it or the time is over. orders: all of the job's, as the ledger has them now."""
    end_s = time.monotonic() + seconds
    while True:
        found = next(item for item in orders() if item.operation_id == operation_id)
        if found.state != "asked" or time.monotonic() >= end_s:
            return found
        time.sleep(_LOOK_S)


def order_eviction(ledger: Ledger, machine: str, job: str, by: str, reason: str, now_s: float) -> str:
    """Write the order down for the job's controller; one line that says so. Raises BadInputError if that job does not run there."""
    placed = demand_running(ledger, job).payload
    machines = list(placed.get("machines") or dict.fromkeys((placed.get("rank_machine") or {}).values()))
    if machine not in machines:
        raise BadInputError(f"{machine} runs no rank of {job}: {', '.join(map(str, machines[:8])) or 'no machine'} do")
    ledger.append(kinds.SIGNAL, order_payload(machine, by, reason, now_s) | {"by": by}, job=job)
    return f"the controller of {job} evicts {machine} at its next tick, if budgets, pauses and standbys allow it"


def demand_running(ledger: Ledger, job: str) -> LedgerEvent:
    """The event that says where the job runs now. Raises BadInputError if it does not run."""
    events = ledger.events(job=job, kinds=(kinds.JOB_REGISTERED, kinds.GENERATION_STARTED, kinds.JOB_ENDED))
    if not events or events[-1].kind == kinds.JOB_ENDED:
        raise BadInputError(f'no job "{job}" runs: `minder incidents list` shows the jobs that did')
    return events[-1]


def order_restart(ledger: Ledger, job: str, by: str, reason: str, now_s: float) -> str:
    """Write down that the job is to be started again in place; one line that says so. An order that is not carried out yet is not given
    twice. Raises BadInputError if the job does not run."""
    demand_running(ledger, job)
    events = ledger.events(job=job, kinds=(kinds.RESTART_ASKED, kinds.GENERATION_STARTED))
    earlier = find_restart_order(events, now_s)
    if earlier is not None:
        by, age_s = earlier.payload.get("by") or "an operator", now_s - earlier.time_s
        return f"{by} ordered it {age_s:.0f} s ago: the controller is at it"
    ledger.append(kinds.RESTART_ASKED, {"reason": reason, "by": by}, job=job)
    return f"the controller of {job} starts it again in place at its next tick, if restarts, pauses and --act allow it"


def find_restart_order(events: Sequence[LedgerEvent], now_s: float) -> LedgerEvent | None:
    """The newest order to restart that is under way, from events of RESTART_ASKED and GENERATION_STARTED of one job: one that no
    generation has answered yet, or whose generation began a moment ago."""
    orders = [event for event in events if event.kind == kinds.RESTART_ASKED]
    answered_s = [event.time_s for event in events if event.kind == kinds.GENERATION_STARTED and orders and event.id > orders[-1].id]
    if not orders or now_s - orders[-1].time_s >= ORDER_S or (answered_s and now_s - answered_s[0] >= _STARTS_S):
        return None
    return orders[-1]


def order_payload(machine: str, by: str, reason: str, now_s: float) -> dict[str, Any]:
    """What a ledger event of kind SIGNAL says of it."""
    return {"signal": to_json(Signal(now_s, "order", machine, f"{by}: {reason}"))}
