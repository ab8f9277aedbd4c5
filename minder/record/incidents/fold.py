"""An incident out of its events. Pure: the same events give the same incident, in whichever process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from minder.model.decision import ActionResult, Decision
from minder.model.errors import BadInputError, WireError
from minder.model.evidence import Verdict
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.excerpts import find_excerpts, is_excerpt
from minder.record.incidents.record import Incident, IncidentState, Timings
from minder.record.incidents.timeline import describe
from minder.wire.codec import from_json

__all__ = ["ENDING_KINDS", "fold_incident", "paged_for_own_word", "steps_taken_again"]

T = TypeVar("T")
_HAPPENED = ("done", "already_done")
_RETURN = "minder machine return "
ENDING_KINDS = (
    kinds.CLOSED,
    kinds.FIRST_STEP,
    kinds.INTENT,
    kinds.DECISION,
    kinds.VERDICT,
)  # as EventStore.unfinished_incidents takes them


def fold_incident(events: Sequence[LedgerEvent]) -> Incident:
    """All events of one incident, in ledger order, as one record. Raises BadInputError for no events."""
    if not events:
        raise BadInputError("an incident needs at least one event")
    verdicts = [item for _, item in _records(events, kinds.VERDICT, Verdict)]
    accusations = [verdict for verdict in verdicts if verdict.kind != "recovered"]
    decisions = [item for _, item in _records(events, kinds.DECISION, Decision)]
    results = [item for _, item in _records(events, (kinds.RESULT, kinds.AMBIGUOUS), ActionResult)]
    verdict = accusations[-1] if accusations else None
    acted = [item for item in decisions if item.action in kinds.ACTS]
    evicted = _evicted(events, results)
    step, steps_lost = _steps(events)
    timings = _timings(events, accusations)
    ending = _ending(events)
    return Incident(
        id=events[0].incident or "",
        job=next((event.job for event in events if event.job), None),
        state=_state(events, ending),
        opened_s=events[0].time_s,
        closed_s=ending.closed_s,
        closed_by=ending.closed_by,
        verdict=verdict,
        machines=_unique(machine for item in accusations for machine in item.machines),
        evidence=_unique(item for accusation in accusations for item in accusation.evidence),
        against=_unique(item for accusation in accusations for item in accusation.against),
        decisions=tuple(decisions),
        decision=acted[-1] if acted and not ending.waits else decisions[-1] if decisions else None,
        results=tuple(results),
        captured=_unique(_captured(event.payload) for event in _of(events, kinds.EVIDENCE) if not is_excerpt(event)),
        excerpts=find_excerpts(events),
        evicted=evicted,
        replacements=acted[-1].replacements if acted else (),
        timings=timings,
        step=step,
        steps_lost=steps_lost,
        gpu_seconds_lost=_gpu_seconds(events, verdict, timings, steps_lost),
        undo=_undo(events, evicted, results),
        outcomes={str(event.payload.get("machine")): str(event.payload.get("outcome")) for event in _of(events, kinds.OUTCOME)},
        notes=tuple(str(event.payload.get("text", "")) for event in _of(events, kinds.NOTE)),
        timeline=tuple((event.time_s, line) for event in events if (line := describe(event))),
    )


def _captured(payload: Mapping[str, Any]) -> str:
    return f"{payload.get('what', 'data')} of {payload.get('machine', 'the job')}"


def _of(events: Sequence[LedgerEvent], *names: str) -> list[LedgerEvent]:
    return [event for event in events if event.kind in names]


def _records(events: Sequence[LedgerEvent], names: str | tuple[str, ...], cls: type[T]) -> list[tuple[LedgerEvent, T]]:
    """Payloads as records; one that this version cannot read is left out here and still stands in the timeline."""
    found = []
    for event in _of(events, *((names,) if isinstance(names, str) else names)):
        try:
            found.append((event, from_json(cls, event.payload)))
        except WireError:
            continue
    return found


def _unique(items: Any) -> tuple[Any, ...]:
    kept: list[Any] = []
    for item in items:
        if item not in kept:
            kept.append(item)
    return tuple(kept)


def _act_intents(events: Sequence[LedgerEvent]) -> list[LedgerEvent]:
    return [event for event in _of(events, kinds.INTENT) if _is_act(event)]


def _is_act(event: LedgerEvent) -> bool:
    """Whether something is done about the incident: what carries a decision, whatever word a newer version has for it. Smaller steps of an
    operation carry none."""
    return event.payload.get("action") in kinds.ACTS or isinstance(event.payload.get("decision"), Mapping)


def _evicted(events: Sequence[LedgerEvent], results: Sequence[ActionResult]) -> tuple[str, ...]:
    happened = {result.operation_id for result in results if result.outcome in _HAPPENED}
    return _unique(
        machine
        for event in _act_intents(events)
        if event.payload["action"] == "evict" and event.operation_id in happened
        for machine in event.payload.get("machines", ())
    )


def _undo(events: Sequence[LedgerEvent], evicted: Sequence[str], results: Sequence[ActionResult]) -> tuple[str, ...]:
    """What gives each machine back, each command once: what the actuator said, and lifting the bar where it still stands.
    A command of minder's carries a reason, since a service takes none without."""
    barred: dict[str, bool] = dict.fromkeys(evicted, True)
    for event in _of(events, kinds.BARRED, kinds.UNBARRED):
        barred[str(event.payload.get("machine"))] = event.kind == kinds.BARRED
    undo = [line for result in results if result.undo and result.outcome in _HAPPENED for line in _lines(result.undo)]
    undo = [line for line in undo if barred.get(line.removeprefix(_RETURN).split(" ", 1)[0], True) or not line.startswith(_RETURN)]
    lifting = [f"{_RETURN}{machine}" for machine, stands in barred.items() if stands]
    commands = [*undo, *(line for line in lifting if not any(other.startswith(f"{line} ") for other in undo))]
    note = f' --note "undoes {events[0].incident}"'
    return _unique(line + note if line.startswith(_RETURN) and "--note" not in line else line for line in commands)


def _lines(undo: str) -> list[str]:
    """An actuator joins the commands for several machines; another engine's command may hold a semicolon of its own."""
    parts = undo.split("; ")
    return parts if all(part.startswith(_RETURN) for part in parts) else [undo]


@dataclass(frozen=True, slots=True)
class _Ending:
    """closed_s: None while it is open. waits: what was done is over, and a machine of it waits for a person."""

    closed_s: float | None = None
    closed_by: str = ""
    waits: bool = False


def _ending(events: Sequence[LedgerEvent]) -> _Ending:
    """When and by what the incident ended. A recovery of its own closes it only where nothing was done. The first new step closes what was
    done for it; but a machine for whose own word a person was paged since then, as where its eviction was stopped and the job restarted
    with it, is as broken as before: that stays open."""
    acted: frozenset[str] | None = None  # machines of the newest action; None: there was none
    paged, stepped, ending = False, False, _Ending()
    for event in events:
        if event.kind == kinds.INTENT and _is_act(event):
            acted, paged, stepped, ending = frozenset(event.payload.get("machines", ())), False, False, _Ending()
        elif ending.closed_s is not None and not stepped:
            continue
        elif acted is not None and paged_for_own_word(event) - acted:
            paged = True
            ending = _Ending(waits=True) if stepped else ending
        elif ending.closed_s is not None:
            continue
        elif event.kind == kinds.FIRST_STEP:
            stepped, ending = True, _Ending(waits=True) if paged else _Ending(event.time_s, "first new step")
        elif event.kind == kinds.CLOSED:
            stepped, ending = False, _Ending(event.time_s, str(event.payload.get("by") or "operator"))
        elif event.kind == kinds.VERDICT and event.payload.get("kind") == "recovered" and (acted is None or ending.waits):
            stepped, ending = False, _Ending(event.time_s, "recovered by itself")
    return ending


def paged_for_own_word(event: LedgerEvent) -> frozenset[str]:
    """Machines that a decision pages a person for by what they say of themselves (a kernel line, a lost device): no restart takes that
    back. Empty for any other event."""
    verdict = event.payload.get("verdict")
    if event.kind != kinds.DECISION or event.payload.get("action") != "page" or not isinstance(verdict, Mapping):
        return frozenset()
    return frozenset(event.payload.get("machines", ())) if verdict.get("cause") == "explicit" else frozenset()


def _state(events: Sequence[LedgerEvent], ending: _Ending) -> IncidentState:
    if ending.closed_s is not None:
        return "closed"
    intents = {event.operation_id for event in _act_intents(events)}
    if not intents or ending.waits:
        return "open"
    finished = {event.operation_id for event in _of(events, kinds.RESULT)}
    return "recovering" if intents <= finished else "acting"


def _timings(events: Sequence[LedgerEvent], accusations: Sequence[Verdict]) -> Timings:
    phases, ends = _phases(events)
    decisions = _of(events, kinds.DECISION)
    decided = [event for event in decisions if event.payload.get("action") in kinds.ACTS] or decisions
    intents = _act_intents(events)
    ids = {event.operation_id for event in intents}
    captures = [event.time_s for event in _of(events, kinds.EVIDENCE) if not is_excerpt(event)]
    return Timings(
        fault_s=min((verdict.since_s for verdict in accusations), default=None),
        detected_s=_first(_of(events, kinds.VERDICT)),
        decided_s=_first(decided),
        captured_s=ends.get("capture", max(captures, default=None)),
        acted_s=_first(intents),
        evicted_s=ends.get("evict", _first([event for event in _of(events, kinds.RESULT) if event.operation_id in ids])),
        restarted_s=ends.get("restart", _last(_of(events, kinds.GENERATION_STARTED))),
        first_step_s=_last(_of(events, kinds.FIRST_STEP)),
        phases=phases,
    )


def _phases(events: Sequence[LedgerEvent]) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds per recovery phase, and when each ended (the last time, if a phase was repeated)."""
    begun: dict[str, float] = {}
    seconds: dict[str, float] = {}
    ends: dict[str, float] = {}
    for event in _of(events, kinds.RECOVERY_PHASE):
        phase = str(event.payload.get("phase"))
        if event.payload.get("state") == "begin":
            begun[phase] = event.time_s
            continue
        ends[phase] = event.time_s
        if phase in begun:
            seconds[phase] = seconds.get(phase, 0.0) + max(0.0, event.time_s - begun.pop(phase))
    return seconds, ends


def _first(events: Sequence[LedgerEvent]) -> float | None:
    return events[0].time_s if events else None


def _last(events: Sequence[LedgerEvent]) -> float | None:
    return events[-1].time_s if events else None


def _steps(events: Sequence[LedgerEvent]) -> tuple[int | None, int | None]:
    """First new step, and steps that had to be done again."""
    found = _of(events, kinds.FIRST_STEP)
    if not found:
        return None, None
    payload = found[-1].payload
    step = payload.get("step")
    return (None if step is None else int(step)), steps_taken_again(payload)


def steps_taken_again(payload: Mapping[str, Any]) -> int | None:
    """How many steps a generation took again, by the payload of its FIRST_STEP; None: not known. Where the checkpoint is one that no
    controller sees (in memory, or the script's own), the first new step says what it resumed from.

    >>> steps_taken_again({"step": 107, "last_step": 107, "resumed_from": None}), steps_taken_again({"last_step": 107})
    (1, None)
    """
    lost, last, resumed, step = (payload.get(name) for name in ("steps_lost", "last_step", "resumed_from", "step"))
    if lost is not None:
        return int(lost)
    if resumed is None and step is not None:
        resumed = int(step) - 1
    return None if last is None or resumed is None else max(0, int(last) - int(resumed))


def _gpu_seconds(events: Sequence[LedgerEvent], verdict: Verdict | None, timings: Timings, steps_lost: int | None) -> float | None:
    found = _of(events, kinds.FIRST_STEP)
    if not found:
        return None
    payload: Mapping[str, Any] = found[-1].payload
    if payload.get("gpu_seconds_lost") is not None:
        return float(payload["gpu_seconds_lost"])
    still_stepping = verdict is not None and verdict.cause == "slowdown"
    stopped_s = timings.acted_s if still_stepping else timings.fault_s
    if payload.get("gpus") is None or stopped_s is None or timings.first_step_s is None:
        return None
    repeated_s = (steps_lost or 0) * float(payload.get("step_seconds") or 0.0)
    return float(payload["gpus"]) * (max(0.0, timings.first_step_s - stopped_s) + repeated_s)
