"""A machine's telemetry against its peers, over a window that the caller chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Depends, Path, Query, Request

from minder.model.clock import format_time, parse_time
from minder.model.metrics import find_metric
from minder.record.api.access import Caller
from minder.record.api.fields import NAME, JobName, MachineName
from minder.record.api.machines import MachineTelemetry, TelemetryPanel
from serve.access import Viewer, demand_job
from serve.machine_known import jobs_of_machine, peers_of_machine
from serve.problems import refuse
from serve.state import Service, service_of
from serve.telemetry.window import MachineWindow, read_window

__all__ = ["SeenMachine", "WindowWanted", "router", "seen_of", "span_of"]

router = APIRouter(prefix="/v1/machines", tags=["machines"])
Name = Annotated[MachineName, Path(pattern=NAME, max_length=255, description="Name of the machine.")]


@dataclass(frozen=True, slots=True)
class WindowWanted:
    """Which window is asked for: query parameters."""

    job: Annotated[JobName | None, Query(description="Job whose machines are the peers; the first that has the machine if not given.")] = (
        None
    )
    minutes: Annotated[float, Query(gt=0, le=1440, description="Length in minutes, up to `to`; counts where `from` is not given.")] = 60.0
    begin: Annotated[str | None, Query(alias="from", max_length=40, description="When it begins, ISO 8601.")] = None
    end: Annotated[str | None, Query(alias="to", max_length=40, description="When it ends, ISO 8601; now if not given.")] = None


@router.get("/{name}/telemetry")
def show_telemetry(request: Request, caller: Viewer, name: Name, wanted: Annotated[WindowWanted, Depends()]) -> MachineTelemetry:
    """A machine's metrics against its peers, and its scores, in a window of a day at most; `no_data` says why there is nothing."""
    service = service_of(request)
    job, (begin_s, end_s), seen = seen_of(service, caller, name, wanted)
    found = seen.excerpt
    panels = {} if found is None else found.metrics
    return MachineTelemetry(
        machine=name,
        job=job,
        begin=format_time(begin_s),
        end=format_time(end_s),
        source=seen.source,
        no_data=seen.no_data,
        peers=0 if found is None else found.peers,
        times=() if found is None else found.times,
        metrics={
            metric: TelemetryPanel(
                unit=getattr(find_metric(metric), "unit", ""), line=panel.line, low=panel.low, middle=panel.middle, high=panel.high
            )
            for metric, panel in panels.items()
        },
        scores=seen.scores,
    )


class SeenMachine(NamedTuple):
    """What was found of a machine. span: begin and end in unix seconds."""

    job: str
    span: tuple[float, float]
    window: MachineWindow


def seen_of(service: Service, caller: Caller, name: str, wanted: WindowWanted) -> SeenMachine:
    """404 where no job of the caller's has the machine."""
    if wanted.job is not None:
        demand_job(caller, wanted.job)
    job = wanted.job or next((item.name for item in jobs_of_machine(service, caller, name)), None)
    machines = () if job is None else peers_of_machine(service, job, name)
    if job is None or not machines:
        raise refuse(
            404, f'no job that you may see has a machine "{name}"' if wanted.job is None else f"{wanted.job} has no machine {name}"
        )
    span = span_of(wanted, service.clock.now_s())
    return SeenMachine(job, span, read_window(service, job, name, machines, span))


def span_of(wanted: WindowWanted, now_s: float) -> tuple[float, float]:
    """Begin and end in unix seconds. 422 for what is no time."""
    end_s = now_s if not wanted.end else _time_s("to", wanted.end)
    return (end_s - 60.0 * wanted.minutes if not wanted.begin else _time_s("from", wanted.begin)), end_s


def _time_s(name: str, text: str) -> float:
    try:
        return parse_time(text)
    except (ValueError, OverflowError):
        raise refuse(422, f"{name} is no time: give ISO 8601, like 2026-03-02T06:12:31Z") from None
