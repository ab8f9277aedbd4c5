"""The climb of one incident out of its events: each rung that was tried or passed over, why, when, and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.climbs import rung_of

__all__ = ["ASCENT_KINDS", "Step", "fold_ascent"]

ASCENT_KINDS = (
    kinds.DECISION, kinds.INTENT, kinds.AMBIGUOUS, kinds.RESULT, kinds.FIRST_STEP, kinds.TRIAL_ENDED, kinds.OUTCOME, kinds.CLOSED,
    kinds.PROBES,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One rung of the climb. state: climbed (it was done), wanted (it was decided, and nothing of it is in the ledger), passed over, waits,
    or person. why: the reason in words; outcome: what came of it, "" while nothing is known."""

    time_s: float
    rung: str
    state: Literal["climbed", "wanted", "passed over", "waits", "person"]
    reason: str
    why: str
    machines: tuple[str, ...] = ()
    operation_id: str = ""
    outcome: str = ""


def fold_ascent(events: Iterable[LedgerEvent]) -> list[Step]:
    """From one incident's events of ASCENT_KINDS, in ledger order. A rung that is passed over again for the same reason stands once."""
    steps: list[Step] = []
    for event in events:
        if event.kind == kinds.DECISION:
            _decided(steps, event)
        elif event.kind in (kinds.INTENT, kinds.RESULT, kinds.AMBIGUOUS):
            _done(steps, event)
        elif event.kind in (kinds.FIRST_STEP, kinds.TRIAL_ENDED, kinds.OUTCOME, kinds.CLOSED) or _is_beside(event):
            _known_later(steps, event)
    return steps


def _decided(steps: list[Step], event: LedgerEvent) -> None:
    payload = event.payload
    for row in payload.get("passed_over") or ():
        if isinstance(row, Mapping):
            _add(steps, Step(event.time_s, str(row.get("rung")), "passed over", str(row.get("reason")), str(row.get("detail") or "")))
    action, rung = str(payload.get("action")), rung_of(payload)
    machines, name = tuple(map(str, payload.get("machines") or ())), event.operation_id or ""
    state: Literal["wanted", "person", "waits"] = "wanted" if action in kinds.ACTS else "person" if action == "page" else "waits"
    _add(steps, Step(event.time_s, rung, state, str(payload.get("reason")), str(payload.get("detail") or ""), machines, name))


def _add(steps: list[Step], step: Step) -> None:
    key = (step.rung, step.state, step.reason, step.operation_id)
    if not any((old.rung, old.state, old.reason, old.operation_id) == key for old in steps):
        steps.append(step)


def _done(steps: list[Step], event: LedgerEvent) -> None:
    for index, step in enumerate(steps):
        if step.operation_id == event.operation_id and step.state in ("wanted", "climbed"):
            steps[index] = replace(step, state="climbed", outcome=_result(step.outcome, event))


def _result(before: str, event: LedgerEvent) -> str:
    if event.kind == kinds.INTENT:
        return before or "under way"
    word = str(event.payload.get("outcome") or "ended").replace("_", " ")
    detail = str(event.payload.get("detail") or "")
    return f"{word}: {detail}" if detail else word


def _known_later(steps: list[Step], event: LedgerEvent) -> None:
    """What is known later of the newest rung that was climbed, or of the one that its operation names."""
    words = _later(event.kind, event.payload)
    for index in range(len(steps) - 1, -1, -1):
        own = event.kind not in (kinds.TRIAL_ENDED, kinds.PROBES) or steps[index].operation_id == event.operation_id
        if steps[index].state == "climbed" and own:
            steps[index] = replace(steps[index], outcome=f"{steps[index].outcome}; {words}")
            return


def _later(kind: str, payload: Mapping[str, Any]) -> str:
    if kind == kinds.FIRST_STEP:
        return f"the job stepped again at step {payload.get('step')}"
    if kind == kinds.TRIAL_ENDED:
        return f"the trial ended: {payload.get('finding')}"
    if kind == kinds.PROBES:
        return f"probes beside it on {payload.get('machine')}: {_judged(payload)}"
    if kind == kinds.OUTCOME:
        return f"{payload.get('machine')} was found: {payload.get('outcome')}"
    return f"closed{': ' + str(payload['note']) if payload.get('note') else ''}"


def _is_beside(event: LedgerEvent) -> bool:
    """Of a diagnosis the result says what the probes found."""
    return event.kind == kinds.PROBES and event.payload.get("why") == "beside"


def _judged(payload: Mapping[str, Any]) -> str:
    """Faults with their reason; else what passed, and what is not known."""
    rows = [row for row in payload.get("judgements") or () if isinstance(row, Mapping)]
    bad = [f"{row.get('probe')} {row.get('verdict')}: {row.get('reason')}" for row in rows if row.get("verdict") in ("fail", "slow")]
    by_word = {word: [str(row.get("probe")) for row in rows if row.get("verdict") == word] for word in ("pass", "not_judged")}
    said = [f"{', '.join(names)} {word.replace('_', ' ')}" for word, names in by_word.items() if names]
    return "; ".join(bad or said) or "nothing was judged"
