"""Plays one cell: a lab of real processes from its start to the end of the job, or until nothing moves any more."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrix_lab.cells import FAULTS, TRAINERS, Cell
from matrix_lab.injectors import Injector, make_injector
from matrix_lab.judge import Played, judge
from matrix_lab.rungs import right_climb
from matrix_lab.stage import MACHINES, MatrixStage, remove_leftovers, small_disk, trace_folder
from matrix_lab.traces import read_traces, read_troubles
from minder.act.controller.reporting.status import read_status
from minder.model.errors import LabError
from minder.record.incidents import kinds

__all__ = ["Patience", "play_cell"]

_LOOK_S = 0.05
_HELD = ("suspended", "diagnosing", "replaying")


@dataclass(slots=True)
class Patience:
    """How long a job may stand still: `stand_s` after a step, and three times that before a generation's first step. What minder itself
    holds still, to test it or to replay it, does not stand: that has limits of its own, and the cell's."""

    stand_s: float
    started_s: float
    generation: int | None = None

    def is_over(self, status: Mapping[str, Any], stepped_s: float, now_s: float) -> bool:
        if status.get("generation") != self.generation or status.get("phase") in _HELD:
            self.started_s, self.generation = now_s, status.get("generation")
        quiet_s = now_s - max(self.started_s, stepped_s)
        return quiet_s > (self.stand_s if stepped_s > self.started_s else 3 * self.stand_s)


def play_cell(cell: Cell, out: Path, seed: int, stand_s: float = 100.0, limit_s: float = 420.0) -> dict[str, Any]:
    """The row of one cell. stand_s: a job without a step for so long stands; before a generation's first step three times that, since
    processes that start share two cores. limit_s: for the whole cell.

    Raises LabError where the lab cannot be had.
    """
    remove_leftovers()
    began_s = time.time()
    fault = FAULTS[cell.fault]
    with ExitStack() as stack:
        memory = stack.enter_context(trace_folder())
        if fault.full_disk:
            kib = TRAINERS[cell.trainer].checkpoint_kib * 5 // 2
            try:
                stack.enter_context(small_disk(out.absolute() / "checkpoints", kib))
            except (OSError, subprocess.SubprocessError) as error:
                raise LabError(f"no small file system for {cell}: {error} (needs root)") from error
        stage = stack.enter_context(MatrixStage(cell, out, seed, memory))
        injector = make_injector(fault.outside, stage.lab, stage.options.machine, stage.second_index)
        stack.callback(injector.close)
        stage.start_controller()
        given_up = _watch(stage, injector, stand_s, began_s + limit_s)
        played = _played(stage, injector, given_up)
        row = judge(fault.expectation(cell.trainer), right_climb(cell), played)
    row |= {"timeline": _timeline(played, began_s)}
    return {"cell": str(cell), "seed": seed, **row, "seconds": round(time.time() - began_s), "load": round(os.getloadavg()[0], 1)}


def _watch(stage: MatrixStage, injector: Injector, stand_s: float, end_s: float) -> str:
    """Until the controller ends; why the job was given up before (Played.given_up)."""
    patience = Patience(stand_s, time.time())
    while stage.controller_status() is None:
        trained = read_traces(stage.memory)
        injector.look(trained)
        stepped_s = max((item.times_s[-1] for item in trained if item.steps), default=0.0)
        if patience.is_over(read_status(stage.status_path) or {}, stepped_s, time.time()):
            return "standing"
        if time.time() > end_s:
            return "not done"
        time.sleep(_LOOK_S)
    return ""


def _played(stage: MatrixStage, injector: Injector, given_up: str) -> Played:
    stage.stop_controller()
    with stage.ledger() as ledger:
        events = ledger.events(job=stage.job)
    troubles = read_troubles(stage.memory)
    happened = {trouble["what"] for trouble in troubles} >= {str(planned["what"]) for planned in stage.fault.inside}
    return Played(
        events=events,
        traces=read_traces(stage.memory),
        failures=[*troubles, *injector.fired],
        roles=stage.roles,
        standbys=[machine.name for machine in stage.lab.standbys],
        steps=stage.steps,
        ranks=MACHINES,
        complete=happened and injector.complete() and (not stage.fault.full_disk or _is_full(stage)),
        saved=any(stage.output.glob("final*")),
        given_up=given_up,
    )


def _is_full(stage: MatrixStage) -> bool:
    disk = os.statvfs(stage.output)
    return disk.f_bavail * disk.f_frsize < TRAINERS[stage.cell.trainer].checkpoint_kib * 1024


def _timeline(played: Played, began_s: float) -> Sequence[str]:
    """Failures, verdicts, decisions and generations in order, for the reader of a wrong row."""
    moments = [(float(item["time_s"]), f"{item['what']} of rank {item['rank']} at step {item['step']}") for item in played.failures]
    moments += [(event.time_s, words) for event in played.events if (words := _words(event.kind, event.payload, played))]
    return [f"{time_s - began_s:.0f} s: {what}" for time_s, what in sorted(moments)]


def _words(kind: str, payload: Mapping[str, Any], played: Played) -> str:
    names = ", ".join(played.name(machine) for machine in payload.get("machines") or ())
    return {
        kinds.VERDICT: f"verdict {payload.get('kind')} {payload.get('tier')} {payload.get('cause')} {names}",
        kinds.DECISION: f"decision {payload.get('action')} {names}",
        kinds.GENERATION_STARTED: f"generation {payload.get('generation')}",
        kinds.BARRED: f"evicted {played.name(str(payload.get('machine')))}",
        kinds.JOB_ENDED: f"ended: {payload.get('outcome')}",
    }.get(kind, "")
