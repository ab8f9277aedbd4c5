"""What is known of a machine beside its incidents: the jobs that have it, where it stands, how it looked last, what was reported of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from minder.model.clock import format_time
from minder.record.api.access import Caller
from minder.record.api.machines import MachineJob, MachineProbe, MachineSignal, ProbeNumber, ProbeRun
from minder.record.incidents import kinds
from minder.record.incidents.places import find_places
from minder.record.incidents.probes import fold_probes
from minder.record.incidents.timeline import describe
from minder.record.store.events import EventQuery
from minder.wire.codec import to_json
from serve.access import sees
from serve.job_index import JobPast
from serve.job_status import job_status
from serve.state import Service

__all__ = ["jobs_of_machine", "probes_of_machine", "signals_of_machine"]

_MOST_SIGNALS = 20
_MOST_READ = 1000
_MOST_RUNS = 5
_KINDS = ("rack", "switch", "serial")


def jobs_of_machine(service: Service, caller: Caller, machine: str) -> list[MachineJob]:
    """The jobs that run on it, keep it as a standby, or had it, by name; as far as the caller may see."""
    found = []
    for name, past in sorted(service.jobs.pasts().items()):
        if sees(caller, name) and machine in (names := set(_names(service, name, past))):
            found.append(_job(service, name, past, machine, len(names)))
    return found


def _names(service: Service, name: str, past: JobPast) -> Iterator[str]:
    payload: Mapping[str, Any] = {} if past.registered is None else past.registered.payload
    yield from past.machines
    yield from past.state.barred
    for key in ("machines", "standbys"):
        yield from map(str, payload.get(key) or ())
    config = service.known.config(name)
    yield from (item.name for item in (config.machines if config is not None else ()))
    yield from (str(row.get("name")) for row in (job_status(service, name) or {}).get("machines") or ())


def _job(service: Service, name: str, past: JobPast, machine: str, machines: int) -> MachineJob:
    status = job_status(service, name) or {}
    row: Mapping[str, Any] = next((row for row in status.get("machines") or () if row.get("name") == machine), {})
    place = dict(find_places([past.registered] if past.registered is not None else []).get(machine, {}))
    config = service.known.config(name)
    for item in config.machines if config is not None else ():
        if item.name == machine:
            place |= {key: value for key in _KINDS if (value := getattr(item, key))}
    ranks = tuple(sorted(rank for rank, owner in past.state.rank_machine.items() if owner == machine))
    role = "evicted" if machine in past.state.barred else "training" if ranks else str(row.get("role") or "not in it now")
    seen_s = status.get("now_s") if row else None
    return MachineJob(
        name=name,
        phase=past.state.phase,
        role=role,
        ranks=ranks,
        machines=machines,
        score=row.get("score"),
        seen=format_time(float(seen_s)) if isinstance(seen_s, (int, float)) else None,
        **{key: place.get(key) for key in _KINDS},
    )


def signals_of_machine(service: Service, caller: Caller, machine: str) -> list[MachineSignal]:
    """What was reported of it, newest first, out of the newest reports of all."""
    query = EventQuery(kinds=(kinds.SIGNAL,), newest_first=True, limit=_MOST_READ)
    told = [event for event in service.events.select(query) if sees(caller, event.job)]
    own = [event for event in told if (event.payload.get("signal") or {}).get("machine") == machine][:_MOST_SIGNALS]
    return [MachineSignal(time=format_time(event.time_s), job=event.job, what=describe(event)) for event in own]


def probes_of_machine(service: Service, caller: Caller, machine: str) -> list[ProbeRun]:
    """What probes found on it, newest first, out of the newest runs of all."""
    events = service.events.select(EventQuery(kinds=(kinds.PROBES,), newest_first=True, limit=_MOST_READ))
    own = [event for event in events if sees(caller, event.job) and event.payload.get("machine") == machine]
    return [
        ProbeRun(
            time=format_time(run.time_s),
            job=run.job,
            by=run.by,
            why=run.why,
            probes=tuple(
                MachineProbe(
                    probe=item.probe,
                    verdict=item.verdict,
                    reason=item.reason,
                    measures=tuple(ProbeNumber.model_validate(to_json(measure)) for measure in item.measures),
                )
                for item in run.judgements
            ),
        )
        for run in fold_probes(own[:_MOST_RUNS])
    ]
