"""One job: its machines as a grid by parallel group, and live telemetry in which suspects stand out against their peers' band."""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from minder.act.controller.status import read_status
from minder.config import JobConfig
from minder.model.metrics import find_metric
from minder.model.topology import Parallelism
from minder.record.api.fields import JobName
from minder.record.api.jobs import JobDetail
from serve.access import demand_job
from serve.pages.fleet import health_of
from serve.pages.render import part_answer, shared_fragment, show
from serve.pages.session import Seen
from serve.routes.jobs import job_detail, job_ranks
from serve.state import Service, service_of

__all__ = ["Cell", "Doing", "Group", "doing_of", "router"]

router = APIRouter(prefix="/jobs")
Name = Annotated[JobName, Path(max_length=63)]
By = Annotated[Literal["pp", "dp", "tp", "rack"], Query()]
_AXES = {"pp": "pipeline stage", "dp": "data-parallel rank", "tp": "tensor rank", "rack": "rack"}
_LEVELS = ((1.0, "s3", "!!"), (0.5, "s2", "!"), (0.25, "s1", "·"))
_DOES = {
    "start": "starts",
    "stepping": "steps at its usual pace",
    "slow": "steps slower than usual",
    "stalled": "stands still",
    "idle_phase": "is in a phase that it declared",
    "restarting": "starts again",
    "outage": "is not heard: most of its machines do not answer",
}
_BY = {
    "step counter": "by its steps",
    "phase event": "by what it reported of itself",
    "activity": "by its traffic, input and output",
    "common level": "by the work of its median machine",
    "none": "by nothing else",
}
_MOST_PANELS = 6
_MOST_TOP = 8


@dataclass(frozen=True, slots=True)
class Cell:
    """A machine of the grid. level: a style; mark: the same as a sign; said: the same in words; short: what only its name has."""

    name: str
    level: str
    mark: str
    said: str
    short: str = ""


@dataclass(frozen=True, slots=True)
class Doing:
    """What the job is doing, in words. since_s: unix seconds, None where that is not known either."""

    said: str
    by: str = ""
    since_s: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Machines with the same work."""

    title: str
    cells: tuple[Cell, ...]


@router.get("/{name}")
def show_job(request: Request, visitor: Seen, name: Name, by: By = "pp") -> Response:
    service = service_of(request)
    detail = job_detail(service, visitor.caller, name)
    return show(request, visitor, "job.html", **_values(service, detail, by))


@router.get("/{name}/now")
def job_now(request: Request, visitor: Seen, name: Name, by: By = "pp") -> Response:
    """What changes of it; polled."""
    service = service_of(request)
    demand_job(visitor.caller, name)

    def state() -> Hashable:
        return service.events.last_id(), *map(_changed, _files(service, name)), int(service.clock.now_s())

    return shared_fragment(
        request, (name, by), state, "parts/job.html", lambda: _values(service, job_detail(service, visitor.caller, name), by)
    )


@router.get("/{name}/telemetry")
def telemetry(request: Request, visitor: Seen, name: Name) -> Response:
    """The panels' data as JSON, the most telling metrics first; polled with its ETag."""
    demand_job(visitor.caller, name)
    service = service_of(request)

    def build() -> bytes:
        live = _live(service, name)
        return json.dumps(None if live is None else live | {"metrics": _telling(live)}).encode()

    def state() -> Hashable:
        return tuple(map(_changed, _files(service, name)))

    return part_answer(request, service.parts.get(("telemetry", name), state, build), "application/json")


def _values(service: Service, detail: JobDetail, by: str) -> dict[str, Any]:
    rows = {str(row.get("name")): row for row in (detail.status or {}).get("machines") or ()}
    health = health_of(service, detail.name, detail.phase)
    blind = health.word in ("silent", "unknown")
    groups = _groups(service, detail, rows, by, blind)
    cells = [cell for group in groups for cell in group.cells]
    scored = sorted((row for row in rows.values() if row.get("score") is not None), key=lambda row: -float(row["score"]))
    return {
        "job": detail,
        "health": health,
        "by": by,
        "axes": _AXES,
        "groups": groups,
        "levels": {level: sum(cell.level == level for cell in cells) for level in ("s0", "s1", "s2", "s3", "none")},
        "top": [] if blind else scored[:_MOST_TOP],
        "live": _live(service, detail.name),
        "doing": doing_of(detail.status or {}),
        "standbys": [name for name, row in rows.items() if row.get("role") == "standby"],
        "missing": {name: str(row["missing"]) for name, row in rows.items() if row.get("missing")},
    }


def doing_of(status: Mapping[str, Any]) -> Doing | None:
    """None where the controller does not know, is of an older version, or reports a mode that this version does not know."""
    mode = status.get("mode")
    if not isinstance(mode, Mapping) or mode.get("likeliest") not in _DOES:
        return None
    name, since_s = str(mode["likeliest"]), mode.get("since_s")
    shares = mode.get("probabilities")
    share = shares.get(name) if isinstance(shares, Mapping) else None
    sure = f"{100 * share:.0f} % likely, " if isinstance(share, (int, float)) else ""
    by = f"{sure}{_BY.get(str(mode.get('source')), 'by a source that this version does not know')}"
    return Doing(_DOES[name], by, float(since_s) if isinstance(since_s, (int, float)) else None)


def _groups(service: Service, detail: JobDetail, rows: Mapping[str, Mapping[str, Any]], by: str, blind: bool) -> list[Group]:
    config = service.known.config(detail.name)
    parallelism = None if config is None else config.topology().parallelism
    racks = {} if config is None else {machine.name: machine.rack or "no rack is recorded" for machine in config.machines}
    placed: dict[str, set[int]] = {}
    for rank, machine in job_ranks(service, detail.name).items():
        placed.setdefault(machine, set()).add(rank)
    accused = {name: item.summary.id for item in service.incidents.unfinished(job=detail.name) for name in item.summary.machines}
    found: dict[str, list[Cell]] = {}
    shared = _shared_length(detail.machines)
    for machine in detail.machines:
        title = racks.get(machine, "no rack is recorded") if by == "rack" else _title(placed.get(machine, set()), parallelism, by)
        cell = _cell(machine, rows.get(machine), blind, _is_asked(config, machine))
        if machine in accused and cell.mark != "x":
            cell = Cell(machine, "s3", "!!", f"accused in {accused[machine]}")
        found.setdefault(title, []).append(replace(cell, short=machine[shared:]))
    return [Group(title, tuple(cells)) for title, cells in found.items()]


def _shared_length(names: Sequence[str]) -> int:
    """Length of the words that all names begin with, such as "node-": a cell has room for what differs only."""
    first, last = (min(names), max(names)) if len(names) > 1 else ("", "")
    same = next((index for index, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    return next((end for end in range(min(same, len(first) - 1), 0, -1) if not first[end - 1].isalnum()), 0)


def _title(ranks: set[int], parallelism: Parallelism | None, by: str) -> str:
    if parallelism is None or not ranks or max(ranks) >= parallelism.world_size:
        return "machines, in order of their ranks"
    places = sorted({parallelism.coordinates(rank)[by] for rank in ranks})
    span = str(places[0]) if len(places) == 1 else f"{places[0]} to {places[-1]}"
    return f"{_AXES[by]} {span}"


def _is_asked(config: JobConfig | None, machine: str) -> bool:
    """Whether an agent or a launcher of it should be heard: a job may be watched by its telemetry alone."""
    if config is None or config.engine is not None:
        return True
    return any(item.agent or item.launcher for item in config.machines if item.name == machine)


def _cell(name: str, row: Mapping[str, Any] | None, blind: bool, asked: bool = True) -> Cell:
    """Nothing that is not known looks well. asked: its agent or launcher should be heard."""
    if row is None or blind:
        return Cell(name, "none", "?", "no data")
    if row.get("role") == "evicted":
        return Cell(name, "s3", "x", "evicted")
    score, ages = row.get("score"), [row.get("agent_age_s"), row.get("launcher_age_s")]
    if asked and all(age is None for age in ages):
        return Cell(name, "none", "?", "no data: neither agent nor launcher was heard")
    if score is None:
        return Cell(name, "none", "-", "heard, but not scored yet")
    for least, level, mark in _LEVELS:
        if float(score) >= least:
            said = "over the threshold" if least == 1.0 else "over half the threshold" if least == 0.5 else "slightly unlike its peers"
            return Cell(name, level, mark, said)
    return Cell(name, "s0", "", "like its peers")


def _live(service: Service, name: str) -> dict[str, Any] | None:
    """What its controller wrote last of the telemetry; None where the service does not see that."""
    path = service.known.status_file(name)
    return None if path is None else read_status(path.with_name("live.json"))


def _files(service: Service, name: str) -> tuple[pathlib.Path, ...]:
    """What the job's controller writes for this page."""
    path = service.known.status_file(name)
    return () if path is None else (path, path.with_name("live.json"))


def _changed(path: pathlib.Path) -> Hashable:
    """Another value whenever the file is another one: it is replaced, never written into."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _telling(live: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics in which a machine is furthest from the band now, with their unit."""
    panels: Mapping[str, Mapping[str, Any]] = live.get("metrics") or {}
    order = sorted(panels, key=lambda metric: -_distance(panels[metric]))[:_MOST_PANELS]
    return {metric: {**panels[metric], "unit": getattr(find_metric(metric), "unit", "")} for metric in order}


def _distance(panel: Mapping[str, Any]) -> float:
    low, middle, high = (_newest(panel.get(key) or ()) for key in ("low", "middle", "high"))
    lines = [_newest(line) for line in (panel.get("lines") or {}).values()]
    if low is None or middle is None or high is None:
        return -1.0
    width = max(high - low, 1e-3 * abs(middle), 1e-9)
    return max((abs(value - middle) / width for value in lines if value is not None), default=0.0 if math.isfinite(width) else -1.0)


def _newest(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)
