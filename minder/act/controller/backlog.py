"""What was concluded and is not settled yet: the ledger cannot be written, or the policy said "not now".

Nothing of it is forgotten in silence. What became too old to act on is a page to a person; the queue is bounded, and what
falls out at its far end is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from minder.model.decision import Decision, Reason
from minder.model.evidence import Verdict

__all__ = ["MOST", "Backlog", "Item", "concerned", "overdue_page"]

Item = tuple[Verdict, str]  # and its incident

MOST = 1000
_ACT_WITHIN_S = 900.0  # an older conclusion says nothing sure of the present


class Backlog:
    """Verdicts in two stages: `unrecorded` ones are in no ledger yet, `items` have their incident and wait for a decision (why)."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.unrecorded: list[Verdict] = []
        self.items: dict[Item, Reason] = {}
        self.notes: list[tuple[str, dict[str, Any]]] = []  # other ledger events, (kind, payload), that nobody waits for
        self.unwritten = ""  # why the last tick could not write to the ledger
        self.dropped = 0  # since the ledger was last told of them

    def __len__(self) -> int:
        return len(self.unrecorded) + len(self.items)

    def note(self, verdicts: Iterable[Verdict]) -> None:
        """New verdicts, oldest first."""
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

    def take(self, now_s: float) -> tuple[list[Item], list[tuple[Item, Reason]]]:
        """(what may be acted on, what is too old for that and why it waited); both leave the queue."""
        items, self.items = self.items, {}
        old = {item for item in items if item[0].time_s <= now_s - _ACT_WITHIN_S}
        passed = {item for item in old if items[item] != "awaiting_approval"}  # an operator may take longer than that
        late = [(item, why) for item, why in items.items() if item in passed]
        return [item for item in items if item not in passed], late


def overdue_page(item: Item, why: Reason, now_s: float) -> Decision:
    """A person decides about what could not be decided in time."""
    verdict, incident = item
    minutes = (now_s - verdict.time_s) / 60
    detail = f"concluded {minutes:.0f} min ago and not acted on since: look before anything is done"
    return Decision(f"page-late-{incident}-{verdict.time_s:.0f}", now_s, "page", verdict.machines, why, detail, verdict)


def concerned(decision: Decision, items: Sequence[Item]) -> list[Item]:
    """The items that a decision answers: its own verdict, one about a machine that it takes away too, at least one. A restart answers
    all that was on the table, and an eviction or a trial, which includes one, whatever blames the job as a whole."""
    if decision.action == "restart":
        return list(items)
    whole = [item for item in items if decision.action in ("evict", "trial") and item[0].kind == "job"]
    found = [item for item in items if decision.verdict == item[0] or set(decision.machines) & set(item[0].machines)]
    return [*found, *(item for item in whole if item not in found)] or list(items[:1])
