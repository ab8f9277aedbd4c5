"""Evictions that wait for an operator: asked once, answered once, carried out only if they still hold at that moment.

All of it is in the ledger, so a controller that starts again finds what waits. What such a one has not seen for itself it does not
act on: a machine may have recovered while no controller looked.

The ledger says until when a question waits, by the wall clock, and the wall clock may be set: then no time has passed, and no side may
lose or win any. A controller that was started again knows only the wall clock's word for what has passed meanwhile. It takes it within
bounds: never more than the whole time that the site gives, and what the site wants done without an operator's yes is done after a look
of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from minder.act.controller.backlog import Item
from minder.act.controller.state import JobState
from minder.act.policy.approval import FACTS
from minder.act.policy.config import PolicyConfig
from minder.model.clock import Clock, format_time
from minder.model.decision import Decision
from minder.model.evidence import Verdict
from minder.model.history import Approval
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.approvals import answer_payload, is_open

__all__ = ["LOOK_FOR_S", "ApprovalDeadlines", "Approvals", "Turn"]

_ANSWERS: dict[str, Literal["approved", "rejected", "expired"]] = {"approve": "approved", "reject": "rejected", "page": "expired"}
_TOLD = {
    "recovered": "the machine recovered while an operator was asked",
    "restarted": "the job was started again while an operator was asked",
    "job_ended": "the job ended while an operator was asked",
    "not_seen_again": "approved, but this controller has not seen the trouble for itself: look at the machine",
}
LOOK_FOR_S = 120.0  # so long may a controller that was started again take to see for itself what was approved
_NOTICED_S = 2.0  # as minder.act.controller.reading.hearing


@dataclass(frozen=True, slots=True)
class Turn:
    """What follows from a question now. act: carry its decision out; else note `decision` (if any) and decide about `items` anew."""

    approval: Approval
    items: tuple[Item, ...]
    act: bool = False
    decision: Decision | None = None


class Approvals:
    """The questions of one job."""

    def __init__(self, state: JobState, ledger: Ledger, config: PolicyConfig, clock: Clock) -> None:
        self._state = state
        self._ledger = ledger
        self._config = config
        self._deadlines = ApprovalDeadlines(clock)
        self._pending: bool | None = None  # None: the ledger was not asked yet
        self._seen: set[str] = set()
        self._recovered: set[str] = set()  # and not accused or asked about since

    @property
    def pending(self) -> bool:
        """Whether a question may be open; so as long as the ledger was not asked."""
        return self._pending is not False

    def note(self, verdicts: Iterable[Verdict]) -> None:
        """What this controller saw for itself."""
        for verdict in verdicts:
            for machine in verdict.machines:
                if verdict.kind == "recovered":
                    self._seen.discard(machine)
                    self._recovered.add(machine)
                else:
                    self._seen.add(machine)
                    self._recovered.discard(machine)

    def ask(self, decision: Decision, items: Sequence[Item], now_s: float) -> Decision:
        """Write the question down, once per operation; returns the decision to note: nothing for now."""
        until_s = now_s + self._config.approval_timeout_s
        incidents = list(dict.fromkeys(incident for _, incident in items))
        payload = {
            "decision": decision,
            "until_s": until_s,
            "on_timeout": self._config.approval_on_timeout,
            "generation": self._state.generation,
            "incidents": incidents,
        }
        name, job = decision.operation_id, self._state.name
        self._ledger.append_once(kinds.APPROVAL_ASKED, payload, job=job, incident=incidents[0], operation_id=name, time_s=now_s)
        self._pending = True
        self._deadlines.begin(name, self._config.approval_timeout_s)
        self._seen.update(decision.machines)
        self._recovered.difference_update(decision.machines)
        detail = f"an operator is asked until {format_time(until_s)}: minder decision approve {decision.operation_id} --reason ..."
        return dataclasses.replace(decision, action="none", reason="awaiting_approval", detail=detail)

    def review(self, now_s: float, workers_dead: bool) -> Turn | None:
        """The next question that something follows from; each is settled in the ledger before it is returned. Raises LedgerError."""
        left = [item for item in self._ledger.approvals(self._state.name) if not item.closed]
        for item in left:
            if (turn := self._turn(item, now_s, workers_dead)) is not None:
                return turn
        self._pending = bool(left)
        return None

    def close(self, approval: Approval, why: str, detail: str) -> None:
        """What was answered led to no eviction."""
        name, incident = approval.decision.operation_id, approval.incidents[0]
        payload = {"why": why, "detail": detail}
        self._ledger.append_once(kinds.APPROVAL_CLOSED, payload, job=approval.job, incident=incident, operation_id=name)

    def _turn(self, item: Approval, now_s: float, workers_dead: bool) -> Turn | None:
        if item.state == "rejected":
            self.close(item, "rejected", f"rejected by {item.by}: {item.note}")
            return Turn(item, self._items(item, now_s))
        over = self._over(item, workers_dead)
        if over is not None:
            return self._end(item, over, now_s)
        if item.state == "waiting":
            if self._deadlines.is_over(item):
                return self._time_out(item, now_s)
            self._keep_deadline(item)
        return Turn(item, self._items(item, now_s), act=True) if item.state == "approved" and self._confirmed(item) else None

    def _keep_deadline(self, item: Approval) -> None:
        """The ledger says where the clock was set: operators read it, and the next controller does."""
        until_s = self._deadlines.moved(item)
        if until_s is not None:
            payload, name, incident = {"until_s": until_s, "by_s": until_s - item.until_s}, item.decision.operation_id, item.incidents[0]
            self._ledger.append(kinds.APPROVAL_MOVED, payload, job=item.job, incident=incident, operation_id=name)

    def _over(self, item: Approval, workers_dead: bool) -> str | None:
        """Why it can no longer be carried out. A job whose workers are dead has not recovered, even if no rule suspects a machine."""
        if not is_open(item):
            return item.why or "restarted"
        if item.generation != self._state.generation:
            return "restarted"
        healed = not self._recovered.isdisjoint(item.decision.machines)
        if healed and not workers_dead and item.decision.verdict.cause not in FACTS:
            return "recovered"
        if item.state == "approved" and not self._confirmed(item) and self._deadlines.looked_s > LOOK_FOR_S:
            return "not_seen_again"
        return None

    def _confirmed(self, item: Approval) -> bool:
        return item.decision.verdict.cause in FACTS or set(item.decision.machines) <= self._seen

    def _end(self, item: Approval, why: str, now_s: float) -> Turn:
        detail = _TOLD.get(why, why)
        if item.state == "waiting":
            item, _ = self._ledger.settle_approval(item, answer_payload("expired", "minder", detail, why))
        if not item.closed:  # an operator was quicker, or the job's restart ended it
            self.close(item, why, detail)
        items = self._items(item, now_s) if why == "recovered" else ()
        left = tuple((verdict, incident) for verdict, incident in items if not set(verdict.machines) & self._recovered)
        page = why == "not_seen_again"
        decision = dataclasses.replace(
            item.decision, time_s=now_s, action="page" if page else "none", reason="approval_lapsed", detail=detail
        )  # fmt: skip
        return Turn(item, left, decision=decision)

    def _time_out(self, item: Approval, now_s: float) -> Turn | None:
        rule = item.on_timeout
        detail = f"no operator answered for {item.until_s - item.asked_s:.0f} s, and the site's rule is to {rule}"
        payload = answer_payload(_ANSWERS.get(rule, "expired"), "the time-out rule", detail, "timeout")
        item, _ = self._ledger.settle_approval(item, payload)
        return self._turn(item, now_s, False) if item.state != "expired" else Turn(item, self._items(item, now_s))

    def _items(self, item: Approval, now_s: float) -> tuple[Item, ...]:
        """The verdicts behind the decision, as of now, with their incidents."""
        found = [(self._ledger.incident(name).verdict, name) for name in item.incidents]
        return tuple((dataclasses.replace(verdict, time_s=now_s), name) for verdict, name in found if verdict is not None)


class ApprovalDeadlines:
    """The waiting questions of one job, as one process sees them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_s = clock.monotonic_s()
        self._ends_s: dict[str, float] = {}  # by the monotonic clock, of each operation

    @property
    def looked_s(self) -> float:
        """Since this controller was started."""
        return self._clock.monotonic_s() - self._begun_s

    def begin(self, operation_id: str, length_s: float) -> None:
        """This process has just asked."""
        self._ends_s[operation_id] = self._clock.monotonic_s() + length_s

    def is_over(self, item: Approval) -> bool:
        """Whether the time to answer this waiting question has passed."""
        return self._clock.monotonic_s() >= self._end_s(item)

    def moved(self, item: Approval) -> float | None:
        """Until when it waits by the wall clock, where that is not what the ledger says; None where it is."""
        until_s = self._clock.now_s() + self._end_s(item) - self._clock.monotonic_s()
        return until_s if abs(until_s - item.until_s) > _NOTICED_S else None

    def _end_s(self, item: Approval) -> float:
        name = item.decision.operation_id
        if name not in self._ends_s:  # another process asked
            whole_s = max(0.0, item.until_s - item.asked_s)
            left_s = min(max(0.0, item.until_s - self._clock.now_s()), whole_s)
            if item.on_timeout == "approve":
                left_s = max(left_s, min(whole_s, LOOK_FOR_S))
            self._ends_s[name] = self._clock.monotonic_s() + left_s
        return self._ends_s[name]
