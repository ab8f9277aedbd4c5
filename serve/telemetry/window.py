"""Which telemetry of a machine this service can reach for a window, and what it shows. Where it can reach none, it says what to set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from minder.act.controller.reporting.score_history import read_scores
from minder.config import JobConfig
from minder.model.errors import WireError
from minder.model.telemetry import ExcerptPanel, TelemetryExcerpt
from minder.record.incidents import kinds
from minder.record.incidents.excerpts import find_excerpts
from minder.record.store.events import EventQuery
from minder.wire.codec import from_json
from serve.problems import refuse
from serve.state import Service

__all__ = ["MOST_SPAN_S", "MachineWindow", "read_window"]

MOST_SPAN_S = 86_400.0
_PATIENCE_S = 40.0
_MOST_INCIDENTS = 5
_TURNS = threading.BoundedSemaphore(2)
_UNSET = (
    "this service reaches no telemetry of the job: give the job's job.toml a Prometheus (telemetry.url) or a recording (record_dir), "
    "and start the service with that file as --config"
)


@dataclass(frozen=True, slots=True)
class MachineWindow:
    """What was found. source: "prometheus", "recording", "live" (the controller's last ten minutes), "ledger" (what an incident kept) or
    "none". no_data: why there is nothing, or why a better source has nothing; "" if neither. excerpt: None where there is nothing. scores:
    unix seconds and scores, 1 is the threshold."""

    source: str
    no_data: str = ""
    excerpt: TelemetryExcerpt | None = None
    scores: tuple[tuple[float, float], ...] = ()


def read_window(service: Service, job: str, machine: str, machines: tuple[str, ...], span: tuple[float, float]) -> MachineWindow:
    """span: begin and end in unix seconds. 422 for one that is empty or longer than a day, 429 where two are being read."""
    begin_s, end_s = span
    if not 0.0 < end_s - begin_s <= MOST_SPAN_S:
        raise refuse(422, "the window must begin before it ends, and span a day at most")
    found = _find(service, job, machine, machines, span)
    return found if found.scores else replace(found, scores=_remembered(service, job, machine, span))


def _remembered(service: Service, job: str, machine: str, span: tuple[float, float]) -> tuple[tuple[float, float], ...]:
    """What the controller wrote down of its scores, minute by minute."""
    path = service.known.status_file(job)
    return () if path is None else tuple(read_scores(path.with_name("scores.jsonl"), machine, span))


def _find(service: Service, job: str, machine: str, machines: tuple[str, ...], span: tuple[float, float]) -> MachineWindow:
    config = service.known.config(job)
    found = MachineWindow("none", _UNSET) if config is None else _ask(config, machine, machines, span)
    if found.excerpt is not None or found.scores:
        return found
    other = _live(service, job, machine, span) or _kept(service, job, machine, span)
    return found if other is None else replace(other, no_data=found.no_data)


def _ask(config: JobConfig, machine: str, machines: tuple[str, ...], span: tuple[float, float]) -> MachineWindow:
    """In a process of its own."""
    prometheus = config.telemetry.asks_prometheus
    if not prometheus and config.record_dir is None:
        return MachineWindow("none", _UNSET)
    order = {
        "telemetry": config.telemetry.model_dump(mode="json"),
        "prometheus": prometheus,
        "recording": config.record_dir,
        "machine": machine,
        "machines": list(machines),
        "begin_s": span[0],
        "end_s": span[1],
    }
    if not _TURNS.acquire(timeout=5.0):
        raise refuse(429, "other windows are being read: try again in some seconds", Retry_After="5")
    try:
        command = [sys.executable, "-m", "serve.telemetry.reader"]
        done = subprocess.run(
            command, input=json.dumps(order), capture_output=True, text=True, timeout=_PATIENCE_S, check=False, env=dict(os.environ)
        )
        answer: Mapping[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return MachineWindow("none", f"the telemetry of this window could not be read ({type(error).__name__}): ask for a shorter one")
    finally:
        _TURNS.release()
    return _read(answer)


def _read(answer: Mapping[str, Any]) -> MachineWindow:
    if "no_data" in answer:
        return MachineWindow("none", str(answer["no_data"]))
    times = {"fault_s": float("inf"), "verdict_s": float("inf")}
    try:
        excerpt = from_json(TelemetryExcerpt, {**answer["excerpt"], **times})
    except WireError as error:
        return MachineWindow("none", f"what was read of this window is no telemetry: {error}")
    return MachineWindow(str(answer["source"]), "", excerpt, tuple((float(time_s), float(value)) for time_s, value in answer["scores"]))


def _live(service: Service, job: str, machine: str, span: tuple[float, float]) -> MachineWindow | None:
    """The controller's own last minutes: of a machine that does not stand out it keeps the peers' band only."""
    path = service.known.status_file(job)
    live = None if path is None else service.status_files.read(path.with_name("live.json"))
    times = tuple((live or {}).get("times") or ())
    inside = [index for index, time_s in enumerate(times) if span[0] <= time_s <= span[1]]
    if live is None or not inside:
        return None
    panels = {}
    for metric, panel in (live.get("metrics") or {}).items():
        line = (panel.get("lines") or {}).get(machine)
        if line is not None:
            rows = ([values[index] for index in inside] for values in (panel["low"], panel["middle"], panel["high"], line))
            panels[str(metric)] = ExcerptPanel(*map(tuple, rows))
    if not panels:
        return None
    peers = max(0, int(live.get("machines") or 1) - 1)
    return MachineWindow(
        "live", "", TelemetryExcerpt(machine, float("inf"), float("inf"), peers, tuple(times[index] for index in inside), panels)
    )


def _kept(service: Service, job: str, machine: str, span: tuple[float, float]) -> MachineWindow | None:
    """What an incident of the machine kept around its fault, where that lies in the window."""
    named = [item.summary.id for item in service.incidents.listed(service.machines.incidents_naming(machine)) if item.span.job == job][
        :_MOST_INCIDENTS
    ]
    for incident in named:
        for excerpt in find_excerpts(service.events.select(EventQuery(incident=incident, kinds=(kinds.EVIDENCE,)))):
            if excerpt.machine == machine and excerpt.times[-1] >= span[0] and excerpt.times[0] <= span[1]:
                return MachineWindow("ledger", "", excerpt)
    return None
