"""Operators' orders to test a machine, carried out beside the tick by the controller that leads: asked of the machine's agent, once.

An order is in the ledger before anything is asked, and so is what came of it. The agent knows an operation by its name: a controller that
takes over asks for the same one, and starts nothing twice; and what it measures comes from after the order.

A site's command says whether the machine passed. Probes are judged here, beside equal machines and the machine's own past; what is not
judged does not pass. Nor does a machine of which another probe failed before, by pairs too, and was not measured again: a pass says nothing
of what did not run. A test that ran to its end and failed confirms the eviction; one that passed says that no fault was found only where
the order says that nothing was repaired, and returns the machine only where the order says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from minder.act.controller.state import JobState
from minder.diagnose.diagnostics.judgement import judge, worst
from minder.model.decision import ActionResult
from minder.model.errors import WireError
from minder.model.probes import ProbeJudgement, ProbeResult
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.history import find_barrings
from minder.record.incidents.machines import MACHINE_KINDS, fold_machines
from minder.record.incidents.probes import past_results, probes_payload, read_past
from minder.record.incidents.proofs import PROOF_KINDS, ProofFold
from minder.record.incidents.trust import NOT_TESTED
from minder.wire.codec import from_json
from minder.wire.fleet import Fleet

__all__ = ["Retests"]

_WAIT_S = 20.0
_PATIENCE_S = 60.0  # so long may an agent be silent in between: it is started again, say
_AT_ONCE = 4
_OLD_S = 3600.0
_MOST_EVENTS = 2000  # the newest


@dataclass(frozen=True, slots=True)
class _Answer:
    """passed: None where the results of probes are to be judged. conclusive: the test ran to its end."""

    passed: bool | None
    detail: str
    conclusive: bool = False
    results: tuple[ProbeResult, ...] = ()


@dataclass(slots=True)
class _Order:
    """untouched: nothing was repaired. give_back: a pass returns the machine, by the order of `by`."""

    operation_id: str
    machine: str
    asked_s: float
    by: str = "?"
    untouched: bool = False
    give_back: bool = False
    future: Future[_Answer] | None = field(default=None)


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
                payload = event.payload
                flags = (payload.get("untouched") is True, payload.get("return") is True)
                self._orders.append(
                    _Order(event.operation_id, str(payload.get("machine")), event.time_s, str(payload.get("by") or "?"), *flags)
                )
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
                self._finish(order, _not_tested(why))
                return
            self._ledger.intend(order.operation_id, {"action": "retest", "machines": [order.machine]}, job=self._state.name)
            self._ledger.check_fence()
            self.on_say(f"testing {order.machine}")
            order.future = self._threads.submit(self._ask, order)
        elif order.future.done():
            error = order.future.exception()
            self._finish(order, order.future.result() if error is None else _not_tested(f"{type(error).__name__}: {error}"))

    def _refusal(self, order: _Order) -> str:
        machine = order.machine
        if self._now_s() - order.asked_s > _OLD_S:
            return "no controller of the job took the order up within an hour: ask again"
        if machine not in self._fleet.machines:
            return f"{machine} is none of this job's [[machines]]"
        if machine in self._state.rank_machine.values() and self._state.phase not in ("finished", "failed"):
            return f"{machine} runs ranks of {self._state.name}: a test would disturb them"
        return ""

    def _finish(self, order: _Order, answer: _Answer) -> None:
        """The result is written last: a controller that takes over before it asks the agent for the same answer."""
        self._ledger.intend(order.operation_id, {"action": "retest", "machines": [order.machine]}, job=self._state.name)
        answer = self._judged(order, answer)
        self._conclude(order, answer)
        outcome = ActionResult(order.operation_id, self._now_s(), "done" if answer.passed else "failed", answer.detail)
        self._ledger.complete(order.operation_id, outcome)
        self._orders.remove(order)
        self.on_say(f"test of {order.machine} {'passed' if answer.passed else 'failed'}: {answer.detail}")

    def _judged(self, order: _Order, answer: _Answer) -> _Answer:
        """The answer with the verdict on what its probes measured, which goes into the ledger."""
        if not answer.results:
            return answer
        past = read_past(self._ledger.events, self._now_s())
        found = [judge({order.machine: result}, past_results(past, result.probe))[order.machine] for result in answer.results]
        payload = probes_payload(order.machine, answer.results, found, by=order.by, why="retest")
        self._ledger.append(kinds.PROBES, payload, job=self._state.name, operation_id=order.operation_id)
        word = worst(item.verdict for item in found)
        if word == "pass" and (left := self._left(order.machine)):
            detail = f"{NOT_TESTED}{', '.join(left)} did not pass before, and was not measured again; {_summary(found, word)}"
            return replace(answer, passed=False, conclusive=False, detail=detail)
        conclusive = word in ("pass", "slow", "fail")
        detail = _summary(found, word) if conclusive else NOT_TESTED + _summary(found, word)
        return replace(answer, passed=word == "pass", conclusive=conclusive, detail=detail)

    def _left(self, machine: str) -> tuple[str, ...]:
        """What failed or was slow, and has not passed since, this test included: of what it was evicted for, and of the newest probes."""
        record, fold = fold_machines(self._ledger.events(kinds=MACHINE_KINDS)).get(machine), ProofFold()
        own = self._ledger.events(incident=record.incident, kinds=PROOF_KINDS) if record is not None and record.incident else []
        known = {event.id: event for event in (*own, *self._ledger.events(kinds=PROOF_KINDS, newest_first=True, limit=_MOST_EVENTS))}
        fold.add(known[number] for number in sorted(known))
        return fold.open_of(machine)

    def _conclude(self, order: _Order, answer: _Answer) -> None:
        """Whether the eviction was right, where no person has said so yet; and the return, where it was ordered and the machine passed."""
        if not answer.conclusive:
            return
        record = fold_machines(self._ledger.events(kinds=MACHINE_KINDS)).get(order.machine)
        if record is not None and record.evictions and record.outcome is None and (not answer.passed or order.untouched):
            outcome = "no-fault-found" if answer.passed else "confirmed"
            payload = {"machine": order.machine, "outcome": outcome, "note": f"{order.operation_id}: {answer.detail}"}
            payload |= {"by": order.by, "test": order.operation_id}
            self._ledger.append(kinds.OUTCOME, payload, job=record.job, incident=record.incident)
        if answer.passed and order.give_back:
            barred = find_barrings(self._ledger.events(kinds=[kinds.BARRED, kinds.UNBARRED]), order.machine)
            if event := barred.get(self._state.name):
                payload = {"machine": order.machine, "by": order.by, "note": f"it passed {order.operation_id}"}
                self._ledger.append(kinds.UNBARRED, payload, job=self._state.name, incident=event.incident)

    def _ask(self, order: _Order) -> _Answer:
        heard_s = time.monotonic()
        while not self._closing.is_set():
            answer = self._fleet.retest(order.machine, order.operation_id, _WAIT_S)
            if not isinstance(answer, WireError):
                heard_s = time.monotonic()
                if answer.get("state") != "running":
                    return _read(answer)
            elif "HTTP 4" in str(answer) or time.monotonic() - heard_s > _PATIENCE_S:
                return _not_tested(str(answer))
            else:
                self._closing.wait(1.0)
        return _not_tested("the controller stopped")


def _not_tested(why: str) -> _Answer:
    """It says nothing of the machine, and does not let it back."""
    return _Answer(False, NOT_TESTED + why)


def _read(answer: Mapping[str, Any]) -> _Answer:
    """What an agent said at the end, of any version."""
    state, detail = answer.get("state"), str(answer.get("detail") or answer.get("state"))
    try:
        results = from_json(tuple[ProbeResult, ...], answer.get("results") or ())
    except WireError as error:
        return _not_tested(f"its results cannot be read: {error}")
    unfinished = state == "failed" and answer.get("conclusive") is False  # it was ended at its limit, or could not be run
    if not results and (unfinished or state not in ("passed", "failed")):
        return _not_tested(detail)
    conclusive = state in ("passed", "failed") and answer.get("conclusive") is True
    return _Answer(None if results else state == "passed", detail, conclusive, results)


def _summary(found: Sequence[ProbeJudgement], word: str) -> str:
    """One line: what did not pass, and why; or what passed."""
    bad = [item for item in found if item.verdict == word]
    if word == "pass":
        return f"probes passed: {', '.join(item.probe for item in bad)}"
    return f"{word.replace('_', ' ')}: " + "; ".join(f"{item.probe}: {item.reason}" for item in bad)
