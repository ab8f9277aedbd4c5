"""What is known of a machine beside its incidents: the jobs that have it, where it stands, how it looked last, what was reported of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minder.model.clock import format_time
from minder.record.api.access import Caller
from minder.record.api.machines import MachineJob, MachineProbe, MachineSignal, ProbeNumber, ProbeRun
from minder.record.incidents import kinds
from minder.record.incidents.pairs import PairRun, fold_pairs
from minder.record.incidents.probes import fold_probes
from minder.record.incidents.timeline import describe
from minder.record.store.events import EventQuery
from minder.wire.codec import to_json
from serve.access import sees
from serve.job_shapes import JobShape
from serve.job_status import job_status
from serve.state import Service

__all__ = ["jobs_of_machine", "pairs_of_machine", "peers_of_machine", "probes_of_machine", "signals_of_machine"]

_MOST_SIGNALS = 20
_MOST_READ = 1000
_MOST_RUNS = 5
_KINDS = ("rack", "switch", "serial")
_NOT_NOW = ("evicted", "not in it now")


def jobs_of_machine(service: Service, caller: Caller, machine: str) -> list[MachineJob]:
    """The jobs that run on it, keep it as a standby, or had it, those that have it now first; as far as the caller may see."""
    found = []
    for name, past in sorted(service.jobs.pasts().items()):
        if not sees(caller, name):
            continue
        shape, status = service.shapes.of(name, past, service.known.config(name)), job_status(service, name) or {}
        row = next((row for row in status.get("machines") or () if row.get("name") == machine), None)
        if row is not None or machine in shape.names:
            found.append(_job(name, shape, status, row or {}, machine))
    return sorted(found, key=lambda job: job.role in _NOT_NOW)  # stable: by name among themselves


def peers_of_machine(service: Service, job: str, machine: str) -> tuple[str, ...]:
    """The machine and those that it is compared with: they have ranks of the job now, or had them at its start where none has any more.
    Empty where the job does not know the machine."""
    shape = service.shape(job)
    status = job_status(service, job) or {}
    if shape is None or not (machine in shape.names or any(row.get("name") == machine for row in status.get("machines") or ())):
        return ()
    payload: Mapping[str, Any] = {} if shape.past.registered is None else shape.past.registered.payload
    configured = [item.name for item in (shape.config.machines if shape.config is not None else ()) if not item.standby]
    return tuple(dict.fromkeys((machine, *(shape.past.machines or tuple(map(str, payload.get("machines") or ())) or configured))))


def _job(name: str, shape: JobShape, status: Mapping[str, Any], row: Mapping[str, Any], machine: str) -> MachineJob:
    past, place = shape.past, shape.places.get(machine, {})
    ranks = shape.ranks.get(machine, ()) if past.state.rank_machine else ()
    others = {str(other.get("name")) for other in status.get("machines") or ()}
    role = _NOT_NOW[0] if machine in past.state.barred else "training" if ranks else str(row.get("role") or _NOT_NOW[1])
    seen_s = status.get("now_s") if row else None
    return MachineJob(
        name=name,
        phase=past.state.phase,
        role=role,
        ranks=ranks,
        machines=len(shape.names | others),
        score=row.get("score"),
        seen=format_time(float(seen_s)) if isinstance(seen_s, (int, float)) else None,
        **{key: place.get(key) for key in _KINDS},
    )


def signals_of_machine(service: Service, caller: Caller, machine: str) -> list[MachineSignal]:
    """What was reported of it, newest first, out of the newest reports of all."""
    query = EventQuery(kinds=(kinds.SIGNAL,), newest_first=True, limit=_MOST_READ)
    seen = [event for event in service.events.select(query) if sees(caller, event.job)]
    own = [event for event in seen if (event.payload.get("signal") or {}).get("machine") == machine][:_MOST_SIGNALS]
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


def pairs_of_machine(service: Service, caller: Caller, machine: str) -> PairRun | None:
    """The newest pair tests that it took part in, out of the newest of all."""
    events = service.events.select(EventQuery(kinds=(kinds.PAIRS,), newest_first=True, limit=_MOST_READ))
    seen = fold_pairs(event for event in events if sees(caller, event.job))
    return next((run for run in seen if any(node.machine == machine for node in run.graph.nodes)), None)
