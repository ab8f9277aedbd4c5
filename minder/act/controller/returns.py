"""A machine that an operator gave back becomes a standby again: its launcher is asked to start the workers that the eviction ended.

The order is the operator's UNBARRED event. It is an operation in the ledger before the launcher is asked, and its launcher knows it by
name: a controller that takes over asks again and starts nothing twice. Without such an order no machine ever comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from minder.act.controller.state import JobState
from minder.act.recovery.restart import why_not_waiting
from minder.model.clock import Clock
from minder.model.decision import ActionResult
from minder.model.errors import WireError
from minder.model.observation import MachineView
from minder.record.incidents import Ledger, kinds
from minder.wire.fleet import Fleet

__all__ = ["Returns"]

_ASK_AGAIN_S = 10.0
_ANSWERS_S = 3.0
_STOPPED = frozenset({"ended", "exited"})


@dataclass(slots=True)
class _Order:
    operation_id: str
    machine: str
    asked_s: float | None = None  # by the clock that nobody can set
    why: str = ""  # what keeps the machine from being a standby


class Returns:
    """`tick` once per tick. It raises LedgerError."""

    def __init__(self, state: JobState, ledger: Ledger, fleet: Fleet, clock: Clock) -> None:
        self._state, self._ledger, self._fleet, self._clock = state, ledger, fleet, clock
        self._since_id = 0
        self._orders: dict[str, _Order] = {}

    def tick(self) -> None:
        self._read()
        for order in list(self._orders.values()):
            self._turn(order)

    def missing(self) -> dict[str, str]:
        """Machines that were returned and are no standbys yet, and why not."""
        return {machine: f"it was returned, but {order.why}" for machine, order in self._orders.items() if order.why}

    def _read(self) -> None:
        """New bars, and bars that were lifted. Raises LedgerError; then the next call reads the same."""
        events = self._ledger.events(since_id=self._since_id, kinds=(kinds.BARRED, kinds.UNBARRED))
        if not events:
            return
        barred = self._ledger.history(self._state.name, self._clock.now_s()).barred
        for event in events:
            machine = str(event.payload.get("machine"))
            if event.job not in (None, self._state.name):
                continue
            before = self._orders.get(machine)
            if before is not None:
                self._finish(before, "failed", "it was barred again" if event.kind == kinds.BARRED else "it was returned again")
            order = _Order(f"rejoin-{self._state.name}-{event.id}", machine)
            if event.kind == kinds.UNBARRED:
                self._state.returned_s[machine] = event.time_s
            if event.kind == kinds.UNBARRED and machine not in barred and self._ledger.result(order.operation_id) is None:
                self._orders[machine] = order
        self._state.barred = set(barred)
        self._since_id = events[-1].id

    def _turn(self, order: _Order) -> None:
        if order.machine not in self._fleet.machines:
            del self._orders[order.machine]
            return
        if order.machine in self._state.rank_machine.values():
            self._finish(order, "done", "it runs ranks of the job")
            return
        view = self._fleet.views()[order.machine]
        why = why_not_waiting(view, self._clock.now_s())
        if not why:
            self._finish(order, "done", "its workers wait at the barrier")
        elif self._may_ask(order, view):
            order.why = self._ask(order) or why
        else:
            order.why = self._fleet.refusals().get(order.machine) or why

    def _may_ask(self, order: _Order, view: MachineView) -> bool:
        """A launcher that answers and has a worker that ended. One that was started anew has started its workers by itself."""
        heard = view.launcher_age_s is not None and view.launcher_age_s <= _ANSWERS_S
        due = order.asked_s is None or self._clock.steady_s() - order.asked_s >= _ASK_AGAIN_S
        return heard and due and any(worker.state in _STOPPED for worker in view.workers)

    def _ask(self, order: _Order) -> str:
        """What went wrong, or "". A launcher of any version knows the request."""
        known = int(self._fleet.launcher_state(order.machine).get("generation") or 0)
        body = {
            "operation_id": order.operation_id,
            "generation": max(self._state.generation, known),
            "desired": "parked",
            "world_size": 0,
            "assignments": [],
            "grace_s": 5.0,
        }
        self._ledger.intend(order.operation_id, {"action": "rejoin", "machines": [order.machine]}, job=self._state.name)
        self._ledger.check_fence()
        order.asked_s = self._clock.steady_s()
        answer = self._fleet.post_workers({order.machine: body}, timeout_s=2.0)[order.machine]
        return str(answer) if isinstance(answer, WireError) else ""

    def _finish(self, order: _Order, outcome: Literal["done", "failed"], detail: str) -> None:
        self._ledger.intend(order.operation_id, {"action": "rejoin", "machines": [order.machine]}, job=self._state.name)
        self._ledger.complete(order.operation_id, ActionResult(order.operation_id, self._clock.now_s(), outcome, detail))
        del self._orders[order.machine]
