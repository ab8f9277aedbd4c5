"""Batches that a job leaves out: what was ordered, what holds now. Out of the ledger alone, in its order; pure but for `order_skip`.

Each generation's event names all batches that it leaves out, and the orders that it applies: an order is applied by one generation, so at
most once. What was left out stays left out in the next run of the job: its checkpoints hold what was learned without those batches.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from minder.model.batch_ranges import format_ranges, parse_ranges
from minder.model.clock import format_time
from minder.model.errors import BadInputError
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.ledger import Ledger
from minder.record.incidents.updates import demand_launched

__all__ = [
    "SKIP_KINDS", "SkipFold", "SkipOrder", "changed", "count_batches", "fold_skips", "new_skip", "order_skip", "order_words", "plan_skip",
    "skip_rows", "skip_table",
]  # fmt: skip

SKIP_KINDS = (kinds.JOB_REGISTERED, kinds.SKIP_ASKED, kinds.SKIP_FAILED, kinds.GENERATION_STARTED)
Ranges = tuple[range, ...]
_MOST_NOTE = 400
_GIVE = "give the batches, such as 120 or 120-121"


@dataclass(frozen=True, slots=True)
class SkipOrder:
    """One order. batches: as text; undo: they are no longer left out. applied: the generation that does it. detail: why it failed."""

    operation_id: str
    batches: str
    time_s: float
    event_id: int
    undo: bool = False
    by: str = ""
    note: str = ""
    state: Literal["asked", "applied", "failed"] = "asked"
    detail: str = ""
    applied: int = 0


class SkipFold:
    """Feed it one job's events of SKIP_KINDS in ledger order; others change nothing. running: what the newest generation leaves out."""

    def __init__(self) -> None:
        self.orders: list[SkipOrder] = []
        self.running: Ranges = ()

    @property
    def waiting(self) -> list[SkipOrder]:
        """Orders that no generation has applied yet, oldest first."""
        return [item for item in self.orders if item.state == "asked"]

    @property
    def wanted(self) -> Ranges:
        """What is left out once all that waits is applied."""
        found = self.running
        for item in self.waiting:
            found = changed(found, item)
        return found

    def skipped_since(self, since_s: float) -> int:
        """Batches that were ordered to be left out since then, by a person or by the ladder; what failed is not counted."""
        return sum(
            count_batches(item.batches) for item in self.orders if not item.undo and item.state != "failed" and item.time_s > since_s
        )

    def add(self, event: LedgerEvent) -> None:
        name = event.operation_id
        if event.kind == kinds.JOB_REGISTERED:
            for item in self.waiting:
                self._settle(item.operation_id, state="failed", detail="the job was begun anew before it was applied")
        elif event.kind == kinds.SKIP_ASKED and name and not any(item.operation_id == name for item in self.orders):
            said = {key: str(event.payload.get(key) or "") for key in ("batches", "by", "note")}
            order = SkipOrder(name, said["batches"], event.time_s, event.id, bool(event.payload.get("undo")), said["by"], said["note"])
            self.orders.append(order)
        elif event.kind == kinds.SKIP_FAILED:
            self._settle(name, state="failed", detail=str(event.payload.get("detail") or ""))
        elif event.kind == kinds.GENERATION_STARTED:
            self.running = parse_ranges(str(event.payload.get("skip_batches") or ""))
            for applied in event.payload.get("skip_operations") or ():
                self._settle(applied, state="applied", applied=int(event.payload.get("generation") or 0))

    def _settle(self, name: Any, **to: Any) -> None:
        self.orders = [replace(item, **to) if item.operation_id == name and item.state == "asked" else item for item in self.orders]


def fold_skips(events: Iterable[LedgerEvent]) -> SkipFold:
    """Of one job, in ledger order."""
    found = SkipFold()
    for event in events:
        found.add(event)
    return found


def changed(ranges: Ranges, order: SkipOrder) -> Ranges:
    """What is left out after this order.

    >>> skip = SkipOrder("a", "5-7", 0.0, 1)
    >>> format_ranges(changed((), skip)), format_ranges(changed(changed((), skip), replace(skip, batches="6", undo=True)))
    ('5-7', '5,7')
    """
    named = parse_ranges(order.batches)
    if not order.undo:
        return parse_ranges(format_ranges((*ranges, *named)))
    left = ranges
    for gone in named:
        pieces = [(item.start, min(item.stop, gone.start)) for item in left] + [(max(item.start, gone.stop), item.stop) for item in left]
        left = tuple(range(*piece) for piece in pieces if piece[0] < piece[1])
    return parse_ranges(format_ranges(left))


def count_batches(text: str) -> int:
    """
    >>> count_batches("120-121,340")
    3
    """
    return sum(map(len, parse_ranges(text)))


def new_skip() -> str:
    """A name for one more order."""
    return f"skip-{uuid.uuid4().hex[:12]}"


def plan_skip(found: SkipFold, job: str, batches: str | None, undo: bool, note: str) -> dict[str, Any]:
    """Payload of SKIP_ASKED without who. batches: None only to undo: those of the last order. Raises BadInputError where it changes
    nothing, BatchRangesError for a text that names no batches."""
    if batches is None:
        last = next((item for item in reversed(found.orders) if not item.undo and item.state != "failed"), None)
        if not undo or last is None:
            raise BadInputError(f"{job} leaves no batch out that could be taken back" if undo else _GIVE)
        batches = last.batches
    order = SkipOrder("", format_ranges(parse_ranges(batches)), 0.0, 0, undo)
    if not order.batches:
        raise BadInputError(_GIVE)
    if changed(found.wanted, order) == found.wanted:
        held = format_ranges(found.wanted) or "none"
        raise BadInputError(f"{job} leaves out {held}: nothing changes with {order.batches}{' taken back' if undo else ''}")
    return {"batches": order.batches, "note": note[:_MOST_NOTE], **({"undo": True} if undo else {})}


def order_skip(ledger: Ledger, job: str, batches: str | None, undo: bool, note: str, by: str) -> SkipOrder:
    """Write it down for the job's controller. Raises BadInputError as plan_skip, and where the job does not run, or is only watched."""
    demand_launched(ledger, job)
    payload = plan_skip(fold_skips(ledger.events(job=job, kinds=SKIP_KINDS)), job, batches, undo, note)
    name = new_skip()
    ledger.append(kinds.SKIP_ASKED, {**payload, "by": by}, job=job, operation_id=name)
    return next(item for item in fold_skips(ledger.events(job=job, kinds=SKIP_KINDS)).orders if item.operation_id == name)


def order_words(order: SkipOrder, job: str) -> str:
    """How an order stands, one line for a terminal."""
    what = f"batch {order.batches}" if order.batches.isdecimal() else f"batches {order.batches}"
    if order.state == "asked":
        return f"{what} of {job}: the order waits for its controller, and `minder job skips {job}` says what comes of it"
    if order.state == "applied":
        return f"{what} of {job}: {'trained on again' if order.undo else 'left out'} from generation {order.applied} on"
    return f"{what} of {job}: {order.detail}"


def skip_rows(found: SkipFold) -> list[dict[str, Any]]:
    """Every order, newest first, as JSON."""
    return [
        {
            "batches": item.batches, "undo": item.undo, "state": "waits" if item.state == "asked" else item.state,
            "generation": item.applied or None, "by": item.by, "note": item.note, "time": format_time(item.time_s), "detail": item.detail,
        }
        for item in reversed(found.orders)
    ]  # fmt: skip


def skip_table(found: SkipFold) -> list[tuple[str, ...]]:
    """The same for a terminal, header first."""
    header = ("batches", "what", "state", "generation", "by", "when", "note")
    return [header, *(_table_row(row) for row in skip_rows(found))]


def _table_row(row: dict[str, Any]) -> tuple[str, ...]:
    what = "take back" if row["undo"] else "leave out"
    generation = "-" if row["generation"] is None else str(row["generation"])
    return (row["batches"], what, row["state"], generation, row["by"] or "-", row["time"][:19], row["detail"] or row["note"] or "-")
