"""Signals into the ledger: of machines that the caller may speak for, each once, and no more than a ledger can bear."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from minder.model.clock import parse_time
from minder.model.evidence import Signal
from minder.model.history import LedgerEvent
from minder.record.api.access import Caller
from minder.record.api.signals import ReportedSignal, SignalsTaken
from minder.record.incidents import kinds
from minder.record.store.answers import AnswerKey
from minder.record.store.events import EventRow
from minder.wire.codec import to_json
from serve.access import demand_job, sees
from serve.problems import refuse
from serve.state import Service

__all__ = ["demand_reporter", "running_machines", "take_signals"]

_OLDEST_S = 3600.0
_MOST_UNKNOWN = 20
_ROLES = ("agent", "launcher", "source", "operator", "admin")


def demand_reporter(service: Service, caller: Caller) -> None:
    """403 for a role that speaks for no machine; 429 for a caller that sends too much."""
    if caller.role not in _ROLES:
        raise refuse(403, f"signals are taken from tokens of role {', '.join(_ROLES[:3])}; {caller.name} has role {caller.role}")
    wait_s = service.signals_by_caller.take(caller.token)
    if wait_s > 0:
        service.metrics.refused.labels("signals").inc()
        raise refuse(429, "too many signals: send several in one request, and fewer of them", Retry_After=str(int(wait_s) + 1))


def running_machines(service: Service, caller: Caller) -> dict[str, tuple[str, ...]]:
    """Machine to the jobs that have it now, standbys too, as far as the caller's token goes."""
    members: dict[str, set[str]] = {
        name: {machine.name for machine in config.machines} for name, config in service.settings.jobs.items() if sees(caller, name)
    }
    for job, past in service.jobs.pasts().items():
        if not sees(caller, job):
            continue
        if past.state.phase in ("finished", "failed"):
            members.pop(job, None)
        elif past.registered is not None:
            members[job] = {str(name) for key in ("machines", "standbys") for name in past.registered.payload.get(key) or ()}
    found: dict[str, tuple[str, ...]] = {}
    for job in sorted(members):
        for machine in members[job]:
            found[machine] = (*found.get(machine, ()), job)
    return found


def take_signals(
    service: Service, caller: Caller, signals: Iterable[ReportedSignal | None], machines: Mapping[str, tuple[str, ...]], job: str | None
) -> SignalsTaken:
    """Write what is new. 403 for a machine that the caller does not speak for: then nothing of the request is taken."""
    found = list(signals)
    if job is not None:
        demand_job(caller, job)
    given = [signal for signal in found if signal is not None]
    _demand_own_machine(caller, given)
    counts = {"accepted": 0, "repeated": 0, "dropped": 0, "ignored": len(found) - len(given)}
    unknown: dict[str, None] = {}
    for signal in given:
        jobs = tuple(name for name in machines.get(signal.machine, ()) if job in (None, name))
        if not jobs:
            unknown[signal.machine] = None
        elif service.signals_by_machine.take(f"{signal.machine} {caller.token}") > 0:  # one sender's flood silences no other
            counts["dropped"] += 1
        else:
            for name in jobs:
                counts["accepted" if _write(service, caller, signal, name) else "repeated"] += 1
    for outcome, count in counts.items():
        service.metrics.signals.labels(outcome).inc(count)
    return SignalsTaken(**counts, unknown=tuple(unknown)[:_MOST_UNKNOWN])


def _demand_own_machine(caller: Caller, signals: Sequence[ReportedSignal]) -> None:
    """A machine cannot accuse another, also one that an attacker took over."""
    if caller.role not in ("agent", "launcher"):
        return
    others = sorted({signal.machine for signal in signals} - {caller.machine})
    if others:
        raise refuse(403, f"the token of {caller.name} speaks for {caller.machine}: it may say nothing of {others[0]}")


def _write(service: Service, caller: Caller, signal: ReportedSignal, job: str) -> bool:
    now_s = service.clock.now_s()
    payload = {"signal": to_json(_record(signal, now_s)), "id": signal.id, "by": caller.name, "token": caller.token, "role": caller.role}
    row = EventRow(now_s, kinds.SIGNAL, json.dumps(payload, allow_nan=False, separators=(",", ":")), job)
    own = caller.machine or "any"  # one machine cannot use up the names of another's signals
    key = AnswerKey(f"signals:{own}"[:64], _key(job, signal), "")

    def tell(events: Sequence[LedgerEvent]) -> str:
        return ""

    return service.answers.act(key, [row], now_s, 202, tell)[1]


def _key(job: str, signal: ReportedSignal) -> str:
    return hashlib.sha256("\n".join((job, signal.machine, signal.id)).encode()).hexdigest()


def _record(signal: ReportedSignal, now_s: float) -> Signal:
    """No sender dates a signal ahead, or long ago."""
    try:
        claimed_s = now_s if signal.time is None else parse_time(signal.time)
    except (ValueError, OverflowError):
        raise refuse(422, f"time of signal {signal.id} is no time: give ISO 8601, like 2026-03-02T06:12:31Z") from None
    data = {"code": signal.code, "state": signal.state, "name": signal.name}
    data |= {"severity": signal.severity} if signal.kind == "report" else {}
    return Signal(
        time_s=min(now_s, max(now_s - _OLDEST_S, claimed_s)),
        kind=signal.kind,
        machine=signal.machine,
        message=signal.message or "",
        device=signal.device,
        data={key: value for key, value in data.items() if value is not None},
    )
