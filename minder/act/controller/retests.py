"""Operators' orders to test a machine, carried out beside the tick by the controller that leads: asked of the machine's agent, once.

An order is in the ledger before anything is asked, and so is what came of it. The agent knows an operation by its name: a controller that
takes over asks for the same one, and starts nothing twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from minder.act.controller.state import JobState
from minder.model.decision import ActionResult
from minder.model.errors import WireError
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.trust import NOT_TESTED
from minder.wire.fleet import Fleet

__all__ = ["Retests"]

_WAIT_S = 20.0
_PATIENCE_S = 60.0  # so long may an agent be silent in between: it is started again, say
_AT_ONCE = 4
_OLD_S = 3600.0


@dataclass(slots=True)
class _Order:
    operation_id: str
    machine: str
    asked_s: float
    future: Future[tuple[bool, str]] | None = field(default=None)


class Retests:
    """`tick` once per tick: takes new orders, and writes down what came of the others. It raises LedgerError."""

    def __init__(self, state: JobState, ledger: Ledger, fleet: Fleet, now_s: Callable[[], float]) -> None:
        self._state, self._ledger, self._fleet, self._now_s = state, ledger, fleet, now_s
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="minder-retest")
        self._closing = threading.Event()
        self._since_id = 0
        self._orders: list[_Order] = []
        self.on_say: Callable[[str], None] = lambda text: None

    def tick(self) -> None:
        events = self._ledger.events(since_id=self._since_id, job=self._state.name, kinds=(kinds.RETEST_ASKED,))
        for event in events:
            if event.operation_id is not None and self._ledger.result(event.operation_id) is None:
                self._orders.append(_Order(event.operation_id, str(event.payload.get("machine")), event.time_s))
            self._since_id = event.id
        for order in list(self._orders):
            self._turn(order)

    def close(self) -> None:
        """A test that runs goes on; the next leader asks what came of it."""
        self._closing.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _turn(self, order: _Order) -> None:
        if order.future is None:
            why = self._refusal(order)
            if why:
                self._finish(order, False, NOT_TESTED + why)
                return
            self._ledger.intend(order.operation_id, {"action": "retest", "machines": [order.machine]}, job=self._state.name)
            self._ledger.check_fence()
            self.on_say(f"testing {order.machine}")
            order.future = self._threads.submit(self._ask, order)
        elif order.future.done():
            error = order.future.exception()
            self._finish(order, *(order.future.result() if error is None else (False, f"{NOT_TESTED}{type(error).__name__}: {error}")))

    def _refusal(self, order: _Order) -> str:
        machine = order.machine
        if self._now_s() - order.asked_s > _OLD_S:
            return "no controller of the job took the order up within an hour: ask again"
        if machine not in self._fleet.machines:
            return f"{machine} is none of this job's [[machines]]"
        if machine in self._state.rank_machine.values() and self._state.phase not in ("finished", "failed"):
            return f"{machine} runs ranks of {self._state.name}: a test would disturb them"
        return ""

    def _finish(self, order: _Order, passed: bool, detail: str) -> None:
        self._ledger.intend(order.operation_id, {"action": "retest", "machines": [order.machine]}, job=self._state.name)
        outcome = ActionResult(order.operation_id, self._now_s(), "done" if passed else "failed", detail)
        self._ledger.complete(order.operation_id, outcome)
        self._orders.remove(order)
        self.on_say(f"test of {order.machine} {'passed' if passed else 'failed'}: {detail}")

    def _ask(self, order: _Order) -> tuple[bool, str]:
        """Whether it passed, and what was said."""
        heard_s = time.monotonic()
        while not self._closing.is_set():
            answer = self._fleet.retest(order.machine, order.operation_id, _WAIT_S)
            if not isinstance(answer, WireError):
                heard_s = time.monotonic()
                if answer.get("state") != "running":
                    state, detail = answer.get("state"), str(answer.get("detail") or answer.get("state"))
                    return state == "passed", detail if state in ("passed", "failed") else NOT_TESTED + detail
            elif "HTTP 4" in str(answer) or time.monotonic() - heard_s > _PATIENCE_S:
                return False, f"{NOT_TESTED}{answer}"
            else:
                self._closing.wait(1.0)
        return False, f"{NOT_TESTED}the controller stopped"
