"""One line of plain English per ledger event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from minder.model.clock import format_time
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.words import action_words, cause_words, tier_words

__all__ = ["describe"]

Payload = Mapping[str, Any]


def describe(event: LedgerEvent) -> str:
    """The event in words; of a kind, or with a payload, that this version does not know, its kind and what it says of itself.

    >>> describe(LedgerEvent(1, 0.0, "barred", "llm", None, None, {"machine": "node-2", "reason": "evicted"}))
    'node-2 is barred: evicted'
    """
    try:
        return _WRITERS.get(event.kind, _unknown(event.kind))(event.payload).strip()
    except (AttributeError, KeyError, TypeError, ValueError):  # a newer version's payload
        return _unknown(event.kind)(event.payload).strip()


_PHASES = {
    ("suspend", "begin"): "the job is suspended: its workers end, so that its machines can be tested",
    ("suspend", "end"): "the job stands",
    ("diagnose", "begin"): "its machines are tested",
    ("diagnose", "end"): "the tests are over",
    ("replay", "begin"): "groups of its machines replay the job",
    ("replay", "end"): "the replay is over",
}


def _unknown(kind: str) -> Callable[[Payload], str]:
    return lambda payload: kind.replace("_", " ") + _tail(payload, "machine", "detail", "text", "reason")


def _names(payload: Payload) -> str:
    machines = payload.get("machines") or ()
    return ", ".join(str(machine) for machine in machines) or "the job"


def _tail(payload: Payload, *keys: str) -> str:
    said = [str(payload[key]) for key in keys if payload.get(key)]
    return ": " + "; ".join(said) if said else ""


def _tier(payload: Payload) -> str:
    return tier_words(str(payload.get("tier")), bool(payload.get("machines")))


def _verdict(payload: Payload) -> str:
    if payload.get("kind") == "recovered":
        return f"recovered: {_names(payload)}"
    evidence = (item.get("source") for item in payload.get("evidence") or () if isinstance(item, Mapping))
    sources = {*(payload.get("sources") or ()), *evidence}
    blame = f"{_names(payload)} {cause_words(payload.get('cause'), bool(payload.get('machines')), sources)}"
    confidence = payload.get("confidence")
    sure = f", confidence {confidence:.2f}" if isinstance(confidence, float) else ""
    return f"{blame}: {_tier(payload)}{sure}"


def _decision(payload: Payload) -> str:
    action = str(payload.get("action"))
    did = f", {action_words(action)}" if action == "none" else f" {action}"
    said = f"decision{did}: {_names(payload)} ({payload.get('reason')})"
    return said if payload.get("reason") == "awaiting_approval" else said + _tail(payload, "detail")  # the question has a line of its own


def _asked(payload: Payload) -> str:
    until_s, decision = payload.get("until_s"), payload.get("decision") or {}
    until = format_time(until_s) if isinstance(until_s, (int, float)) else "?"
    command = f"minder decision approve {decision.get('operation_id')}"
    return f"an operator is asked whether to evict {_names(decision)}, until {until}: `{command}` or reject"


def _moved(payload: Payload) -> str:
    until_s = payload.get("until_s")
    until = format_time(until_s) if isinstance(until_s, (int, float)) else "?"
    return f"the clock was set, or the controller started anew: an answer is waited for until {until}"


def _probes(payload: Payload) -> str:
    judged = payload.get("judgements") or ()
    counts = Counter(str(item["verdict"]).replace("_", " ") for item in judged)
    bad = [f"{item['probe']}: {item['reason']}" for item in judged if item["verdict"] in ("fail", "slow")]
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "nothing"
    return f"probes of {payload.get('machine')}: {'; '.join([said, *bad])}"


def _pairs(payload: Payload) -> str:
    graph = payload.get("graph") or {}
    nodes, edges = graph.get("nodes") or (), graph.get("edges") or ()
    bad = [f"{item['machine']} is {item['state']}" for item in nodes if item.get("state") in ("slow", "faulty")]
    links = [f"the link of {' and '.join(item['machines'])} {item['state']}" for item in edges if item.get("blamed")]
    said = "; ".join([*bad, *links]) or "no machine and no link stands out"
    return f"pair tests of {len(nodes)} machines: {said}"


def _phase(payload: Payload) -> str:
    if said := _PHASES.get((str(payload.get("phase")), str(payload.get("state")))):
        return f"{said}{_tail(payload, 'detail')}"
    word = "begins" if payload.get("state") == "begin" else "ends"
    return f"{payload.get('phase')} {word}{_tail(payload, 'detail')}"


def _first_step(payload: Payload) -> str:
    resumed = payload.get("resumed_from")
    return f"first new step: {payload.get('step')}" + (f", resumed from checkpoint {resumed}" if resumed is not None else "")


def _pause(payload: Payload) -> str:
    until_s = payload.get("until_s")
    until = format_time(until_s) if isinstance(until_s, (int, float)) else "?"
    return f"actions paused ({_scope(payload)}) until {until}{_tail(payload, 'reason')}"


def _replay(payload: Payload) -> str:
    group = f"replay, phase {payload.get('phase')}: group {payload.get('group')} ({_names(payload)})"
    return f"{group} {payload['outcome']}{_tail(payload, 'reason')}" if payload.get("state") == "end" else f"{group} begins"


def _scope(payload: Payload) -> str:
    return f"{payload.get('scope')} {payload.get('target') or ''}".strip()


def _notified(payload: Payload) -> str:
    done = {"delivered": "was notified", "refused": "refused the notice"}.get(str(payload.get("outcome")), "will be notified of what comes")
    return f"{payload.get('target')} ({payload.get('kind')}) {done}{_tail(payload, 'detail')}"


def _signal(payload: Payload) -> str:
    signal = payload.get("signal") or {}
    data = signal.get("data") or {}
    if signal.get("kind") == "order":
        why = str(signal.get("message") or "").removeprefix(f"{payload.get('by')}: ")
        return f"{payload.get('by')} orders the eviction of {signal.get('machine')}: {why}"
    what = f"Xid {data.get('code')}" if signal.get("kind") == "xid" else data.get("name") or signal.get("kind")
    state = f" {data['state']}" if data.get("state") else ""
    return f"{payload.get('by')} reports of {signal.get('machine')}: {what}{state}{_tail(signal, 'message')}"


def _maintenance(payload: Payload) -> str:
    of = [f"{name}" for key in ("machines", "racks", "jobs") for name in payload.get(key) or ()]
    times = [format_time(time_s) if isinstance(time_s := payload.get(key), (int, float)) else "?" for key in ("from_s", "until_s")]
    return f"maintenance {payload.get('id')} of {', '.join(of)} from {times[0]} until {times[1]}{_tail(payload, 'reason')}"


_WRITERS: dict[str, Callable[[Payload], str]] = {
    kinds.JOB_REGISTERED: lambda p: f"job registered with {len(p.get('machines') or ())} machines",
    kinds.JOB_ENDED: lambda p: f"job {p.get('outcome', 'ended')}{_tail(p, 'detail')}",
    kinds.JOB_WATCHED: lambda p: f"the service is to watch the job{_tail(p, 'reason')}",
    kinds.JOB_UNWATCHED: lambda p: f"the service watches the job no longer{_tail(p, 'reason')}",
    kinds.CONTROLLER_STARTED: lambda p: "a controller took over",
    kinds.GENERATION_STARTED: lambda p: f"generation {p.get('generation')} started{_tail(p, 'reason')}",
    kinds.VERDICT: _verdict,
    kinds.DECISION: _decision,
    kinds.INTENT: lambda p: f"begins to {p.get('action', 'act')}: {_names(p)}",
    kinds.APPROVAL_ASKED: _asked,
    kinds.APPROVAL_SETTLED: lambda p: f"{p.get('answer')} by {p.get('by') or 'no operator'}{_tail(p, 'reason')}",
    kinds.APPROVAL_CLOSED: lambda p: f"the answer led to no eviction{_tail(p, 'detail')}",
    kinds.APPROVAL_MOVED: _moved,
    kinds.TRIAL_ENDED: lambda p: f"trial of {p.get('machine')} ended: {p.get('finding')}{_tail(p, 'detail')}",
    kinds.PROGRESS: lambda p: f"{p.get('steps')} steps past the failed one" + (": restarts are counted anew" if p.get("anew") else ""),
    kinds.AMBIGUOUS: lambda p: f"not known whether it happened{_tail(p, 'detail')}",
    kinds.RESULT: lambda p: f"{str(p.get('outcome', 'ended')).replace('_', ' ')}{_tail(p, 'detail')}",
    kinds.EVIDENCE: lambda p: (
        f"{'kept' if p.get('what') == 'telemetry' else 'captured'} {p.get('what', 'data')} of {p.get('machine', 'the job')}"
    ),
    kinds.RECOVERY_PHASE: _phase,
    kinds.FIRST_STEP: _first_step,
    kinds.RULE_RESTORED: lambda p: f"the rule {p.get('rule')} may evict again{_tail(p, 'reason', 'by')}",
    kinds.PROBES: _probes,
    kinds.PAIRS: _pairs,
    kinds.REPLAY: _replay,
    kinds.RETEST_ASKED: lambda p: f"{p.get('machine')} is to be tested{_tail(p, 'reason')}",
    kinds.BARRED: lambda p: f"{p.get('machine')} is barred{_tail(p, 'reason')}",
    kinds.UNBARRED: lambda p: f"{p.get('machine')} is given back{_tail(p, 'by', 'note')}",
    kinds.STANDBY_ADDED: lambda p: f"{p.get('machine')} is to join as a standby{_tail(p, 'by', 'reason')}",
    kinds.PAUSE: _pause,
    kinds.UNPAUSE: lambda p: f"pause lifted ({_scope(p)})",
    kinds.OUTCOME: lambda p: f"{p.get('machine')} was found: {p.get('outcome')}{_tail(p, 'note', 'by')}",
    kinds.NOTE: lambda p: f"note: {p.get('text', '')}",
    kinds.NOTIFIED: _notified,
    kinds.SIGNAL: _signal,
    kinds.MAINTENANCE: _maintenance,
    kinds.MAINTENANCE_ENDED: lambda p: f"maintenance {p.get('id')} is ended{_tail(p, 'reason')}",
    kinds.CLOSED: lambda p: f"closed by {p.get('by') or 'operator'}{_tail(p, 'note')}",
    kinds.SOURCE_ERROR: lambda p: f"source {p.get('source')} failed{_tail(p, 'error')}",
    kinds.DEGRADED: lambda p: f"degraded: {p.get('what')}{_tail(p, 'detail')}",
    kinds.TOKEN: lambda p: f"token {p.get('name')} ({p.get('role')}) {p.get('what')} by {p.get('by')}{_tail(p, 'reason')}",
    kinds.SIGNED_IN: lambda p: f"{p.get('name')} ({p.get('role')}) signed in: {p.get('subject')} of {p.get('issuer')}",
    kinds.SHADOW: lambda p: f"{p.get('detector') or 'a challenger'} would have said: {_verdict(p.get('verdict') or {})}",
    kinds.DRIFT: lambda p: f"{p.get('metric') or 'a metric'} has left the range that the detector was trained on",
}
