"""The machine's training processes as the agent reports them to a controller: who they are, and the newest step of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from minder.edge.agent.steplog import LoggedSteps, StepLog
from minder.edge.exporters.jobs import JobProcess
from minder.model.errors import WireError
from minder.wire.heartbeat import HeartbeatView, read_heartbeat

__all__ = ["describe_processes"]


def describe_processes(processes: Sequence[JobProcess], logs: Sequence[StepLog], has_gpus: bool) -> list[dict[str, Any]]:
    """One row per process: job, pid, rank, slot, generation, device, and from its heartbeat page step, step_time_s, first_step,
    first_step_time_s, alive_time_s, phase, loss, work, work_unit (None where unknown).

    A followed log's step is that of the lowest rank here that has no page of its own, since a log names no rank.
    """
    rows = [_row(process, has_gpus) for process in processes]
    silent = [row for row in rows if row["step"] is None and row["alive_time_s"] is None]
    logged = [log.steps for log in logs if log.steps is not None]
    if logged and silent:
        newest = max(logged, key=lambda steps: steps.time_s)
        reader = min(silent, key=lambda row: (row["rank"] is None, row["rank"] or 0, row["pid"]))
        reader.update(_from_log(newest))
    return rows


def _row(process: JobProcess, has_gpus: bool) -> dict[str, Any]:
    page = _read(process)
    last = page.last if page is not None else None
    return {
        "job": process.job,
        "pid": process.pid,
        "rank": page.rank if page is not None and page.rank >= 0 else process.rank,
        "slot": process.slot,
        "generation": page.generation if page is not None and page.generation >= 0 else process.generation,
        "device": process.device if has_gpus else None,
        "step": last.step if last is not None else None,
        "step_time_s": last.time_s if last is not None else None,
        "first_step": page.recent[0].step if page is not None and page.recent else None,
        "first_step_time_s": page.recent[0].time_s if page is not None and page.recent else None,
        "alive_time_s": page.alive_time_s or None if page is not None else None,
        "phase": page.phase or None if page is not None else None,
        "loss": last.loss if last is not None and math.isfinite(last.loss) else None,
        "work": page.work if page is not None else None,
        "work_unit": page.work_unit if page is not None else None,
    }


def _from_log(steps: LoggedSteps) -> dict[str, Any]:
    loss = steps.loss if steps.loss is not None and math.isfinite(steps.loss) else None
    return {
        "step": steps.step,
        "step_time_s": steps.time_s,
        "first_step": steps.first_step,
        "first_step_time_s": steps.first_time_s,
        "loss": loss,
    }


def _read(process: JobProcess) -> HeartbeatView | None:
    """The process' own page: one that a former process of that slot left behind is none of its."""
    if process.heartbeat is None:
        return None
    try:
        page = read_heartbeat(process.heartbeat)
    except WireError:
        return None
    return page if page.pid == process.pid else None
