"""Evictions that wait for an operator, out of ledger events, and the operator's answer into it.

An answer is written once per operation, by the first of them: an operator, another operator, or the controller whose patience ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from minder.model.clock import format_time
from minder.model.decision import Decision
from minder.model.errors import BadInputError, WireError
from minder.model.history import Approval, LedgerEvent
from minder.record.incidents import kinds
from minder.wire.codec import from_json

__all__ = [
    "APPROVAL_KINDS",
    "Answer",
    "ApprovalFold",
    "answer_payload",
    "answer_words",
    "check_answerable",
    "find_approval",
    "fold_approvals",
    "is_open",
    "refusal",
]

APPROVAL_KINDS = (
    kinds.APPROVAL_ASKED,
    kinds.APPROVAL_SETTLED,
    kinds.APPROVAL_CLOSED,
    kinds.APPROVAL_MOVED,
    kinds.INTENT,
    kinds.GENERATION_STARTED,
    kinds.JOB_REGISTERED,
    kinds.JOB_ENDED,
)
Answer = Literal["approved", "rejected", "expired"]
_ENDED = {kinds.GENERATION_STARTED: "restarted", kinds.JOB_REGISTERED: "job_ended", kinds.JOB_ENDED: "job_ended"}


def is_open(approval: Approval) -> bool:
    """Whether it may still lead to an eviction."""
    return approval.state in ("waiting", "approved")


def fold_approvals(events: Iterable[LedgerEvent]) -> list[Approval]:
    """Every question that was asked, oldest first, from events of APPROVAL_KINDS in ledger order (pure)."""
    found = ApprovalFold()
    for event in events:
        found.add(event)
    return found.approvals()


class ApprovalFold:
    """Questions out of events of APPROVAL_KINDS that come one by one, in ledger order.

    A question ends with the generation that it was asked about: a restart of the job is a new beginning for its machines too.
    """

    def __init__(self) -> None:
        self._found: dict[str, Approval] = {}
        self._open: dict[str, set[str]] = {}  # job to what may still lead to an eviction: the past may hold thousands

    def approvals(self) -> list[Approval]:
        """Oldest first."""
        return list(self._found.values())

    def add(self, event: LedgerEvent) -> None:
        if event.kind == kinds.APPROVAL_ASKED:
            asked = _asked(event)
            if asked is not None and asked.decision.operation_id not in self._found:
                self._put(asked)
        elif event.kind in _ENDED:
            for name in tuple(self._open.get(event.job or "", ())):
                self._put(replace(self._found[name], state="expired", why=_ENDED[event.kind]))
        elif event.operation_id in self._found:
            self._put(_CHANGES[event.kind](self._found[event.operation_id], event))

    def _put(self, item: Approval) -> None:
        name = item.decision.operation_id
        self._found[name] = item
        self._open.setdefault(item.job, set()).discard(name)
        if is_open(item):
            self._open[item.job].add(name)


def _asked(event: LedgerEvent) -> Approval | None:
    try:
        return Approval(
            decision=from_json(Decision, event.payload["decision"]),
            job=event.job or "",
            incidents=tuple(map(str, event.payload.get("incidents") or (event.incident,))),
            generation=int(event.payload["generation"]),
            asked_s=event.time_s,
            until_s=float(event.payload["until_s"]),
            on_timeout=str(event.payload.get("on_timeout") or "page"),
        )
    except (KeyError, TypeError, ValueError, WireError):  # written by a version that knows more than this one
        return None


def _settle(item: Approval, event: LedgerEvent) -> Approval:
    answer: Answer = event.payload["answer"]
    said = {key: str(event.payload.get(name) or "") for key, name in (("by", "by"), ("note", "reason"), ("why", "why"))}
    if item.state != "waiting":
        return item
    return replace(item, state=answer, settled_s=event.time_s, closed=answer == "expired", **said)  # type: ignore[arg-type]


def _move(item: Approval, event: LedgerEvent) -> Approval:
    """Both ends are dated by the new clock: the time between them is what the site gave."""
    until_s, by_s = event.payload.get("until_s"), event.payload.get("by_s")
    if item.state != "waiting" or not isinstance(until_s, (int, float)) or not isinstance(by_s, (int, float)):
        return item
    return replace(item, until_s=float(until_s), asked_s=item.asked_s + by_s)


def _close(item: Approval, event: LedgerEvent) -> Approval:
    state: Any = "expired" if is_open(item) else item.state
    return replace(item, state=state, closed=True, why=str(event.payload.get("why") or item.why))


def _carry_out(item: Approval, event: LedgerEvent) -> Approval:
    return replace(item, state="carried_out", closed=True)


_CHANGES: dict[str, Callable[[Approval, LedgerEvent], Approval]] = {
    kinds.APPROVAL_SETTLED: _settle,
    kinds.APPROVAL_CLOSED: _close,
    kinds.APPROVAL_MOVED: _move,
    kinds.INTENT: _carry_out,
}


def find_approval(approvals: Sequence[Approval], operation_id: str) -> Approval:
    """The question about this operation. Raises BadInputError where there is none."""
    found = next((item for item in approvals if item.decision.operation_id == operation_id), None)
    if found is None:
        raise BadInputError(f'no decision "{operation_id}" waits or waited for an operator: `minder decision list` shows all')
    return found


def refusal(approval: Approval, now_s: float) -> str | None:
    """Why it can no longer be answered, in one line; None while it can."""
    name = approval.decision.operation_id
    if approval.state == "waiting":
        return None if now_s < approval.until_s else f"{name} has expired: no operator answered by {format_time(approval.until_s)}"
    if approval.state == "expired":
        return f"{name} has expired ({approval.why or 'it no longer holds'}): nothing was done, and nothing can be approved"
    if approval.state == "carried_out":
        return f"{name} is carried out already"
    return f"{name} was {approval.state} by {approval.by} already"


def check_answerable(approval: Approval, now_s: float) -> None:
    """Raises BadInputError where it can no longer be answered."""
    if (why := refusal(approval, now_s)) is not None:
        raise BadInputError(why)


def answer_words(approval: Approval, answer: Answer, heard: bool, last: str = "", dry_run: bool = False) -> str:
    """What follows an answer, for who gave it. heard: whether a controller of the job is. last: when one was, in words. dry_run: that
    controller evicts nothing. An approval that no controller is there to carry out must not read like an eviction."""
    name, machines = approval.decision.operation_id, ", ".join(approval.decision.machines)
    if answer != "approved":
        return f"{name} is {answer}: {machines} stays in job {approval.job}"
    if heard and dry_run:
        return f"{name} is approved, and nothing follows: the controller of {approval.job} is in dry run; start it with --act"
    if heard:
        return f"{name} is approved: {machines} is evicted at the controller's next tick, if that still holds"
    since = f" (last heard {last})" if last else ""
    return f"{name} is approved, not yet carried out: no controller of {approval.job} is heard{since}; nothing happens until one runs"


def answer_payload(answer: Answer, by: str, reason: str, why: str = "") -> dict[str, Any]:
    """Payload of APPROVAL_SETTLED."""
    return {"answer": answer, "by": by, "reason": reason, **({"why": why} if why else {})}
