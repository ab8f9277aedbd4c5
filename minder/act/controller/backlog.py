"""What was concluded and is not settled yet: the ledger cannot be written, the policy said "not now", actions are paused, or no standby is
ready.

Nothing of it is forgotten in silence. What became too old to act on is a page to a person, except where a person decided how long it
waits (an operator who is asked, a pause). What is over by itself is dropped, with a line. The queue is bounded, and what falls out at its
far end is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from minder.act.policy.approval import FACTS
from minder.act.policy.context import PolicyContext
from minder.act.policy.limits import ASKED
from minder.model.decision import Decision, Reason
from minder.model.errors import WireError
from minder.model.evidence import Verdict
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.wire.codec import from_json

__all__ = ["MOST", "Backlog", "Item", "concerned", "held_items", "held_up", "is_paused", "outlives", "over_note", "overdue_page"]

Item = tuple[Verdict, str]  # and its incident

MOST = 1000
_ACT_WITHIN_S = 900.0  # an older conclusion says nothing sure of the present
_STANDBY_WITHIN_S = 86_400.0  # ... but what a machine said, or that it is lost, may wait so long for a standby
_SEEN_S = 30.0  # by then a launcher has reported that the workers are dead


class Backlog:
    """Verdicts in two stages: `unrecorded` ones are in no ledger yet, `items` have their incident and wait for a decision (why)."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.unrecorded: list[Verdict] = []
        self.items: dict[Item, Reason] = {}
        self.notes: list[tuple[str, dict[str, Any]]] = []  # other ledger events, (kind, payload), that no decision waits for
        self.unwritten = ""  # why the last tick could not write to the ledger
        self.dropped = 0  # since the ledger last noted them
        self._recovered_s: dict[tuple[str, ...], float] = {}  # machines of a verdict to when they last recovered

    def __len__(self) -> int:
        return len(self.unrecorded) + len(self.items)

    def note(self, verdicts: Iterable[Verdict]) -> None:
        """New verdicts, oldest first."""
        verdicts = list(verdicts)
        self._recovered_s |= {item.machines: item.time_s for item in verdicts if item.kind == "recovered"}
        self.unrecorded += verdicts
        excess = max(0, len(self.unrecorded) - self._most)
        self.unrecorded, self.dropped = self.unrecorded[excess:], self.dropped + excess

    def tell(self, kind: str, payload: dict[str, Any]) -> None:
        """An event for the ledger, as soon as it can be written."""
        self.notes = [*self.notes, (kind, payload)][-self._most :]

    def put(self, items: Iterable[Item], why: Reason = "ledger_unavailable") -> None:
        """These wait for a decision, once each."""
        self.items |= dict.fromkeys(items, why)
        excess = max(0, len(self.items) - self._most)
        self.items, self.dropped = dict(list(self.items.items())[excess:]), self.dropped + excess

    def settle(self, decision: Decision) -> None:
        """It was carried out: what it answers is not asked again, and not reported as left undone."""
        for item in _answered(decision, list(self.items)):
            del self.items[item]

    def take(self, now_s: float) -> tuple[dict[Item, Reason], list[tuple[Item, Reason]]]:
        """(what may be acted on and why it waited, what is too old for that and why it waited); both leave the queue."""
        items, self.items = self.items, {}
        late = [(item, why) for item, why in items.items() if now_s - item[0].time_s >= _act_within_s(item[0], why)]
        passed = {item for item, _ in late}
        return {item: why for item, why in items.items() if item not in passed}, late

    def why_over(self, item: Item, why: Reason, context: PolicyContext) -> str:
        """Why what has waited needs no decision any more; "" if it does. A job whose workers are dead has not recovered, even if no
        rule suspects a machine any more; what happened to a machine stays true."""
        verdict, fact = item[0], item[0].cause in FACTS
        if why == "no_standby" and not set(verdict.machines) <= set(context.job.machines):
            return "the job runs without it while a standby was waited for"
        if context.workers_dead:
            return ""
        if not fact and self._recovered_s.get(verdict.machines, verdict.time_s) > verdict.time_s:
            return "recovered while it waited"
        if verdict.time_s < context.job.generation_start_s and not (fact and verdict.machines):
            return "the job was started again while it waited"
        moves = not context.hangs and context.now_s - verdict.time_s > _SEEN_S
        if why == "paused" and verdict.kind == "job" and ASKED.isdisjoint(verdict.sources) and moves:
            return "the job runs: nothing to start again"
        return ""


def _act_within_s(verdict: Verdict, why: Reason) -> float:
    """A person decided how long: an operator may take longer, and so may a pause. An order to restart is meant for now. A machine comes
    back when it is repaired, and what was said of another is as true then as it was; a job that is down is then started again."""
    if why == "awaiting_approval" or (why in ("paused", "launcher_gone") and ASKED.isdisjoint(verdict.sources)):
        return math.inf
    lasts = why == "no_standby" and (verdict.cause in FACTS or verdict.cause == "absence")
    return _STANDBY_WITHIN_S if lasts else _ACT_WITHIN_S


def held_items(events: Iterable[LedgerEvent]) -> dict[Item, Reason]:
    """What an earlier controller left waiting for the end of a pause or for a standby, and why, from events of GENERATION_STARTED and
    DECISION of one job (pure). Of what is no fact this controller waits for its own eyes."""
    found: dict[str, tuple[Item, Reason]] = {}
    for event in events:
        if event.kind == kinds.GENERATION_STARTED:
            within = set((event.payload.get("rank_machine") or {}).values())
            found = {name: held for name, held in found.items() if outlives(*held) and set(held[0][0].machines) <= within}
            continue
        try:
            decision = from_json(Decision, event.payload)
        except WireError:  # written by a version that knows more than this one
            continue
        incident = event.incident or ""
        if decision.action != "restart" or not (incident in found and outlives(*found[incident])):
            found.pop(incident, None)
        if held_up(decision) and incident and decision.verdict.cause in FACTS:
            found[incident] = ((decision.verdict, incident), decision.reason)
    return dict(found.values())


def is_paused(decision: Decision) -> bool:
    return decision.reason == "paused" and decision.action == "page"


def held_up(decision: Decision) -> bool:
    """By what ends without a new conclusion: a pause, a maintenance, the want of a standby or of a launcher. Reported once, and asked again
    then."""
    return (decision.reason in ("paused", "no_standby") and decision.action == "page") or decision.reason == "launcher_gone"


def outlives(item: Item, why: Reason) -> bool:
    """Whether the job's restart in place leaves it open: the machine that reported a fault is still in the job."""
    return why == "no_standby" and item[0].cause in FACTS and bool(item[0].machines)


def over_note(item: Item, why: str, now_s: float) -> Decision:
    """That nothing is done any more about what had waited."""
    verdict, incident = item
    return Decision(f"over-{incident}-{verdict.time_s:.0f}", now_s, "none", verdict.machines, "tier_too_low", why, verdict)


def overdue_page(item: Item, why: Reason, now_s: float) -> Decision:
    """A person decides about what could not be decided in time."""
    verdict, incident = item
    minutes = (now_s - verdict.time_s) / 60
    detail = f"concluded {minutes:.0f} min ago and not acted on since: look before anything is done"
    return Decision(f"page-late-{incident}-{verdict.time_s:.0f}", now_s, "page", verdict.machines, why, detail, verdict)


def concerned(decision: Decision, items: Sequence[Item]) -> list[Item]:
    """The items that a decision answers, at least one."""
    return _answered(decision, items) or list(items[:1])


def _answered(decision: Decision, items: Iterable[Item]) -> list[Item]:
    """Its own verdict, one about a machine that it takes away too. A restart answers all that was on the table, and an eviction or a
    trial, which includes one, whatever blames the job as a whole."""
    if decision.action == "restart":
        return list(items)
    whole = [item for item in items if decision.action in ("evict", "trial") and item[0].kind == "job"]
    found = [item for item in items if decision.verdict == item[0] or set(decision.machines) & set(item[0].machines)]
    return [*found, *(item for item in whole if item not in found)]
