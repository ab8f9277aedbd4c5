"""Plays one demo: start, wait for the step, inject, wait for the end, compare the losses."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minder.act.controller.reporting.status import read_status
from minder.model.errors import LabError
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.simulate.demo.options import DemoOptions
from minder.simulate.demo.outcome import BLAMELESS, Outcome, judge_outcome
from minder.simulate.demo.stage import Stage

__all__ = ["Played", "compare_with_undisturbed", "count_repeated_steps", "play"]

_SCRIPT_FAULTS = ("exception", "nan")


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a demo. comparison: of the losses with an undisturbed run (None: not compared)."""

    options: DemoOptions
    job: str
    target: str | None
    fault_s: float | None
    outcome: Outcome
    comparison: Any
    events: tuple[LedgerEvent, ...]
    seconds: float

    @property
    def right(self) -> bool:
        return self.outcome.right and (self.comparison is None or bool(self.comparison.equal))


def play(options: DemoOptions, show: Callable[[Stage, str], None], *, deadline_s: float = 240.0, compare: bool = True) -> Played:
    """`show(stage, message)` is called a few times a second. Raises LabError if the lab cannot be built or the job never starts."""
    started_s = time.time()
    with Stage(options) as stage:
        stage.start_controller()
        watcher = _Watcher(stage, show, started_s + deadline_s)
        watcher.until(lambda status: (status.get("step") or 0) >= options.injected_at - 1, "training")
        fault_s = _inject(stage, options)
        watcher.fault_s = fault_s
        watcher.until(lambda status: status.get("phase") in ("finished", "failed"), "fault injected", patient=True)
        stage.stop_controller()
        with stage.ledger() as ledger:
            events = tuple(ledger.events(job=stage.job))
        fault_s = fault_s if fault_s is not None else _script_fault_time(options, events)
        target = None if options.fault in BLAMELESS else stage.target.name
        job = stage.job
    outcome = judge_outcome(options.fault, target, fault_s, events)
    if outcome.steps_lost is not None or (outcome.generations > 1 and options.plain):
        outcome = replace(outcome, steps_lost=count_repeated_steps(options.out.absolute() / "train" / "losses.jsonl"))
    comparison = compare_with_undisturbed(options) if compare and not options.plain else None
    return Played(options, job, target, fault_s, outcome, comparison, events, time.time() - started_s)


def count_repeated_steps(losses: Path) -> int:
    """Steps that the job took more than once: what the fault made it do again. The job's own record; the ledger's is sampled."""
    try:
        lines = [json.loads(line) for line in losses.read_text().splitlines() if line.endswith("}")]
    except OSError:
        return 0
    return len(lines) - len({line["step"] for line in lines})


class _Watcher:
    def __init__(self, stage: Stage, show: Callable[[Stage, str], None], end_s: float) -> None:
        self._stage = stage
        self._show = show
        self._end_s = end_s
        self.fault_s: float | None = None

    def until(self, reached: Callable[[dict[str, Any]], bool], message: str, patient: bool = False) -> None:
        while True:
            status = read_status(self._stage.status_path) or {}
            self._show(self._stage, message)
            if reached(status):
                return
            if self._stage.controller_status() is not None and not patient:
                raise LabError(f"the controller ended early: see {self._stage.folder / 'controller.log'}")
            if self._stage.controller_status() is not None or time.time() > self._end_s:
                return
            time.sleep(0.15)


def _inject(stage: Stage, options: DemoOptions) -> float | None:
    if options.fault in _SCRIPT_FAULTS:
        return None
    record = stage.inject(options.fault, options.machine)
    return record.time_s


def _script_fault_time(options: DemoOptions, events: tuple[LedgerEvent, ...]) -> float | None:
    """The script's own fault happened when its marker file was written."""
    marker = options.out.absolute() / "train" / f"fault-{options.fault}"
    if marker.exists():
        return marker.stat().st_mtime
    first = [event.payload.get("since_s") for event in events if event.kind == kinds.VERDICT]
    return float(first[0]) if first and first[0] is not None else None


def compare_with_undisturbed(options: DemoOptions) -> Any:
    """The run's losses beside those of an undisturbed run of the same seed, which is computed once and kept beside the runs' folders.

    Returns a Comparison. Raises LabError if the undisturbed run cannot be had.
    """
    from minder.simulate.lab.reference import compare_losses, reference_losses

    out = options.out.absolute()
    reference = reference_losses(options.seed, options.total_steps, options.machines, out.parent / "undisturbed")
    return compare_losses(out / "train", reference)
