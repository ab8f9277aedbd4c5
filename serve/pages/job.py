"""One job: its machines as a grid by parallel group, and live telemetry in which suspects stand out against their peers' band."""

from __future__ import annotations

import json
import math
import pathlib
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from minder.act.controller.reporting.study_notes import FILE
from minder.model.batch_ranges import format_ranges
from minder.model.metrics import find_metric
from minder.record.api.fields import JobName
from minder.record.api.jobs import JobDetail
from minder.record.incidents.skips import SkipFold
from serve.access import demand_job
from serve.job_shapes import AXES, NO_LAYOUT, NO_RACK
from serve.order_index import UpdatePast
from serve.pages.fleet import health_of
from serve.pages.render import part_answer, shared_fragment, show
from serve.pages.session import Seen
from serve.pages.step_map import StepMap, draw_steps
from serve.routes.jobs import job_detail
from serve.state import Service, service_of
from serve.status_files import file_version

__all__ = ["Cell", "Doing", "Group", "doing_of", "router"]

router = APIRouter(prefix="/jobs")
Name = Annotated[JobName, Path(max_length=63)]
By = Annotated[Literal["pp", "dp", "tp", "rack"], Query()]
Rank = Annotated[int | None, Query(ge=0, le=10_000_000)]
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
    "workers": "by its workers, of which some have ended",
    "step counter": "by its steps",
    "phase event": "by what it reported of itself",
    "activity": "by its traffic, input and output",
    "common level": "by the work of its median machine",
    "none": "by nothing else",
}
_MOST_PANELS = 6
_MOST_CELLS = 3000  # a screen full; more would be no picture and megabytes of page
_ORDER = {"s3": 0, "s2": 1, "s1": 2, "none": 3}
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
    cells: tuple[Cell, ...]  # that are drawn
    levels: Mapping[str, int]  # of all its machines

    @property
    def size(self) -> int:
        return sum(self.levels.values())

    @property
    def undrawn(self) -> int:
        return self.size - len(self.cells)


@router.get("/{name}")
def show_job(request: Request, visitor: Seen, name: Name, by: By = "pp", rank: Rank = None) -> Response:
    """rank: whose neighbours in each parallel dimension are shown."""
    service = service_of(request)
    detail = job_detail(service, visitor.caller, name)
    return show(request, visitor, "job.html", **_values(service, detail, by, rank))


@router.get("/{name}/now")
def job_now(request: Request, visitor: Seen, name: Name, by: By = "pp", rank: Rank = None) -> Response:
    """What changes of it; polled."""
    service = service_of(request)
    demand_job(visitor.caller, name)

    def state() -> Hashable:
        return service.events.last_id(), *map(file_version, _files(service, name)), int(service.clock.now_s())

    return shared_fragment(
        request, (name, by, rank), state, "parts/job.html", lambda: _values(service, job_detail(service, visitor.caller, name), by, rank)
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
        return tuple(map(file_version, _files(service, name)))

    return part_answer(request, service.parts.get(("telemetry", name), state, build), "application/json")


def _values(service: Service, detail: JobDetail, by: str, rank: int | None) -> dict[str, Any]:
    rows = {str(row.get("name")): row for row in (detail.status or {}).get("machines") or ()}
    health = health_of(service, detail.name, detail.phase)
    no_data = health.word in ("silent", "unknown")
    groups = _groups(service, detail, rows, by, no_data)
    scored = sorted((row for row in rows.values() if row.get("score") is not None), key=lambda row: -float(row["score"]))
    return {
        "job": detail,
        "health": health,
        "by": by,
        "axes": AXES,
        "groups": groups,
        "levels": {level: sum(group.levels.get(level, 0) for group in groups) for level in ("s0", "s1", "s2", "s3", "none")},
        "top": [] if no_data else scored[:_MOST_TOP],
        "live": _live(service, detail.name),
        "steps": _steps(service, detail, rank),
        "rank": rank,
        "doing": doing_of(detail.status or {}),
        "standbys": [name for name, row in rows.items() if row.get("role") == "standby"],
        "size": None if health.word != "fresh" else (detail.status or {}).get("size"),
        "update": _update_words(service, detail),
        "skips": _skip_words(service, detail.name),
        "pool": None if health.word != "fresh" else (detail.status or {}).get("pool"),
        "missing": {name: str(row["missing"]) for name, row in rows.items() if row.get("missing")},
    }


def _update_words(service: Service, detail: JobDetail) -> dict[str, Any] | None:
    """Which version of its code the job runs, which one waits, and the first incident since; None of a job that was never updated."""
    if (found := service.updates.read(detail.name, UpdatePast.running)) is None:
        return None
    version, order = found.version, found.order
    return {
        "number": version.number,
        "by": version.by,
        "note": version.note,
        "since_s": found.since_s,
        "waits": order if order.waits else None,
        "failed": order.detail if order.state == "failed" else "",
        "first": found.incident or None,
    }


def _skip_words(service: Service, name: str) -> dict[str, Any] | None:
    """What the job leaves out, and the newest order; None of a job that never left anything out."""

    def words(found: SkipFold) -> dict[str, Any] | None:
        return {"batches": format_ranges(found.running), "last": found.orders[-1]} if found.orders else None

    return service.skips.read(name, words)


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


def _groups(service: Service, detail: JobDetail, rows: Mapping[str, Mapping[str, Any]], by: str, no_data: bool) -> list[Group]:
    """Of a job of thousands of machines only those that stand out are drawn, as many as a person can look at; the others are counted."""
    shape = service.shape(detail.name)
    titles = {} if shape is None else shape.titles(by)
    other = NO_RACK if by == "rack" else NO_LAYOUT
    accused = {name: item.summary.id for item in service.incidents.unfinished(job=detail.name) for name in item.summary.machines}
    shared = _shared_length(detail.machines)
    cells: dict[str, list[Cell]] = {}
    for machine in detail.machines:
        cell = _cell(machine, rows.get(machine), no_data, shape is None or shape.is_asked(machine), machine[shared:])
        if machine in accused and cell.mark != "x":
            cell = Cell(machine, "s3", "!!", f"accused in {accused[machine]}", machine[shared:])
        cells.setdefault(titles.get(machine, other), []).append(cell)
    drawn = _worst(cells, _MOST_CELLS) if len(detail.machines) > _MOST_CELLS else None
    return [
        Group(title, tuple(cell for cell in own if drawn is None or cell.name in drawn), Counter(cell.level for cell in own))
        for title, own in cells.items()
    ]


def _worst(cells: Mapping[str, Sequence[Cell]], most: int) -> set[str]:
    """Names of those that are unlike their peers, the worst first; "no data" says less than a score."""
    standing_out = [cell for own in cells.values() for cell in own if cell.level != "s0"]
    return {cell.name for cell in sorted(standing_out, key=lambda cell: _ORDER[cell.level])[:most]}


def _shared_length(names: Sequence[str]) -> int:
    """Length of the words that all names begin with, such as "node-": a cell has room for what differs only."""
    first, last = (min(names), max(names)) if len(names) > 1 else ("", "")
    same = next((index for index, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    return next((end for end in range(min(same, len(first) - 1), 0, -1) if not first[end - 1].isalnum()), 0)


def _cell(name: str, row: Mapping[str, Any] | None, no_data: bool, asked: bool, short: str) -> Cell:
    """Nothing that is not known looks well. asked: its agent or launcher should be heard."""
    if row is None or no_data:
        return Cell(name, "none", "?", "no data", short)
    if row.get("role") == "evicted":
        return Cell(name, "s3", "x", "evicted", short)
    score = row.get("score")
    if asked and row.get("agent_age_s") is None and row.get("launcher_age_s") is None:
        return Cell(name, "none", "?", "no data: neither agent nor launcher was heard", short)
    if score is None:
        return Cell(name, "none", "-", "heard, but not scored yet", short)
    for least, level, mark in _LEVELS:
        if float(score) >= least:
            said = "over the threshold" if least == 1.0 else "over half the threshold" if least == 0.5 else "slightly unlike its peers"
            return Cell(name, level, mark, said, short)
    return Cell(name, "s0", "", "like its peers", short)


def _live(service: Service, name: str) -> dict[str, Any] | None:
    """What its controller wrote last of the telemetry; None where the service does not see that."""
    path = service.known.status_file(name)
    return None if path is None else service.status_files.read(path.with_name("live.json"))


def _steps(service: Service, detail: JobDetail, rank: int | None) -> StepMap | None:
    """None of a job whose steps are not traced."""
    path, shape = service.known.status_file(detail.name), service.shape(detail.name)
    found = None if path is None else service.status_files.read(path.with_name(FILE))
    if found is None or found.get("job") != detail.name:
        return None
    layout, placed = (None, {}) if shape is None else (shape.parallelism, shape.rank_machine)
    return draw_steps(found, detail.generation, layout, placed, rank)


def _files(service: Service, name: str) -> tuple[pathlib.Path, ...]:
    """What the job's controller writes for this page."""
    path = service.known.status_file(name)
    return () if path is None else (path, path.with_name("live.json"), path.with_name(FILE))


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
