"""When a job ran, as far as its events say (pure). All times are unix seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds

__all__ = ["RUN_KINDS", "Run", "find_runs"]

RUN_KINDS = (kinds.JOB_REGISTERED, kinds.JOB_ENDED, kinds.CONTROLLER_STARTED, kinds.GENERATION_STARTED, kinds.FIRST_STEP, kinds.DEGRADED)


@dataclass(frozen=True, slots=True)
class Run:
    """One run. end_s: its end, or the last that the ledger knows of one whose end was not seen.

    end "lost": the next run was registered, or the end was only noted when it was, and in between nothing is known.
    last_event_s: the newest event of the run. first_step_s: None while it has not stepped.
    """

    begin_s: float
    end_s: float
    end: Literal["finished", "failed", "lost", "running"]
    last_event_s: float
    first_step_s: float | None
    machines: int
    gpus: int | None

    @property
    def reports_no_steps(self) -> bool:
        """Whether nothing is known of its progress. A run that failed before its first step made none."""
        return self.first_step_s is None and self.end != "failed"


def find_runs(events: Sequence[LedgerEvent], until_s: float) -> list[Run]:
    """Runs out of one job's events in ledger order; a job that is only watched registers none.

    A failed end that nothing led up to was written down afterwards (by the next start, after a kill): the run is known to have
    lasted until the event before it. A run without an end lasts until `until_s`, or its newest event.
    """
    runs: list[Run] = []
    current: list[LedgerEvent] = []
    for event in events:
        if event.kind == kinds.JOB_REGISTERED:
            if current:
                runs.append(_run(current, current[-1].time_s, "lost"))
            current = [event]
        elif event.kind == kinds.JOB_ENDED and current:
            runs.append(_ended(current, event))
            current = []
        elif current:
            current.append(event)
    if current:
        runs.append(_run(current, max(until_s, current[-1].time_s), "running"))
    return runs


def _ended(current: Sequence[LedgerEvent], end: LedgerEvent) -> Run:
    if end.payload.get("outcome") == "finished":
        return _run(current, end.time_s, "finished")
    seen = current[-1].kind == kinds.DEGRADED and current[-1].payload.get("what") == "recovery"
    return _run(current, end.time_s if seen else current[-1].time_s, "failed" if seen else "lost")


def _run(events: Sequence[LedgerEvent], end_s: float, end: Literal["finished", "failed", "lost", "running"]) -> Run:
    payload = events[0].payload
    steps = [event.time_s for event in events if event.kind == kinds.FIRST_STEP]
    gpus = payload.get("gpus")
    return Run(
        begin_s=events[0].time_s,
        end_s=end_s,
        end=end,
        last_event_s=max(event.time_s for event in events),
        first_step_s=steps[0] if steps else None,
        machines=len(payload.get("machines") or ()),
        gpus=int(gpus) if isinstance(gpus, (int, float)) else None,
    )
