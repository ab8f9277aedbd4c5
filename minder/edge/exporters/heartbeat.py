"""The job's heartbeat pages as metrics: steps, their duration, loss, gradient norm, and what they say explicitly."""

from __future__ import annotations

import math
from collections.abc import Sequence

from minder.edge.exporters.jobs import JobProcess
from minder.edge.exporters.reading import Reading
from minder.model.errors import WireError
from minder.model.evidence import Signal
from minder.wire.heartbeat import NONFINITE_LOCAL_GRADIENT, HeartbeatView, StepRecord, read_heartbeat, was_said

__all__ = ["HeartbeatExporter"]

_STALE_STEP_S = 60.0  # after a minute without a step its duration says nothing any more


class HeartbeatExporter:
    """Reads all pages at every sample. Steps between two samples are found in the pages' rings of 64."""

    def __init__(self, machine: str) -> None:
        self._machine = machine
        self._flag_counts: dict[str, tuple[int, int]] = {}  # page to (pid, records already looked at)
        self._phase = ""

    def read(self, processes: Sequence[JobProcess], now_s: float, since_s: float) -> Reading:
        """since_s: the last scrape; step_seconds is the mean of the steps from there on, else the last one."""
        reading = Reading()
        pages = [(process, view) for process in processes for view in (_read(process),) if view is not None]
        for process, view in pages:
            self._nonfinite(reading, process, view)
        self._phases(reading, [view for _, view in pages], now_s)
        alive = [view.alive_time_s for _, view in pages if view.alive_time_s > 0]
        if alive:
            reading.gauge("job_alive_age_seconds", max(0.0, now_s - min(alive)))
        stepped = [view for _, view in pages if view.last is not None]
        if stepped:
            self._steps(reading, stepped, now_s, min(since_s, now_s - 1.0))
        return reading

    def _steps(self, reading: Reading, views: list[HeartbeatView], now_s: float, since_s: float) -> None:
        lasts = [view.last for view in views if view.last is not None]
        reading.counter("steps", min(last.step for last in lasts))
        newest = max(lasts, key=lambda last: (last.step, last.time_s))
        reading.gauge("job_loss", newest.loss)
        reading.gauge("job_grad_norm", newest.grad_norm)
        recent = [record.seconds for view in views for record in view.recent if record.time_s >= since_s]
        durations = [seconds for seconds in recent if math.isfinite(seconds)]
        if durations:
            reading.gauge("step_seconds", sum(durations) / len(durations))
        elif now_s - newest.time_s < _STALE_STEP_S:
            reading.gauge("step_seconds", newest.seconds)

    def _nonfinite(self, reading: Reading, process: JobProcess, view: HeartbeatView) -> None:
        """Each flagged step once, and the first of each stretch of losses that are not finite. Where a page was flagged before the agent
        started, its last 64 steps are reported."""
        page = process.heartbeat or ""
        pid, count = self._flag_counts.get(page, (view.pid, 0))
        new = view.count - (count if pid == view.pid and count <= view.count else 0)
        self._flag_counts[page] = (view.pid, view.count)
        before = view.recent[-new - 1] if new < len(view.recent) else None
        for record in view.recent[-new:] if new else ():
            if record.flags & NONFINITE_LOCAL_GRADIENT:
                self._report(reading, process, view, record, "gradient")
            elif _is_spoilt(record) and (before is None or not _is_spoilt(before)):
                self._report(reading, process, view, record, "loss")
            before = record

    def _report(self, reading: Reading, process: JobProcess, view: HeartbeatView, record: StepRecord, what: str) -> None:
        rank = view.rank if view.rank >= 0 else process.rank
        generation = view.generation if view.generation >= 0 else process.generation
        message = f"{'local gradient' if what == 'gradient' else 'loss'} of rank {rank} was not finite at step {record.step}"
        data = {"step": record.step, "what": what}
        reading.signals.append(Signal(record.time_s, "nonfinite", self._machine, message, rank, None, process.pid, generation, data))

    def _phases(self, reading: Reading, views: list[HeartbeatView], now_s: float) -> None:
        """The machine is in a phase while any of its ranks is; quick ones between two samples are not seen."""
        opened = min(((view.phase_since_s, view.phase) for view in views if view.phase), default=(now_s, ""))
        since_s, phase = opened
        if phase != self._phase:
            if self._phase:
                reading.signals.append(_phase_signal(now_s, self._machine, self._phase, "end"))
            if phase:
                reading.signals.append(_phase_signal(since_s, self._machine, phase, "begin"))
            self._phase = phase
        if phase:
            reading.info.append(("job_phase_info", {"phase": phase}))


def _is_spoilt(record: StepRecord) -> bool:
    return was_said(record.loss) and not math.isfinite(record.loss)


def _phase_signal(time_s: float, machine: str, phase: str, state: str) -> Signal:
    return Signal(time_s, "phase", machine, f"{phase} {state}", data={"phase": phase, "state": state})


def _read(process: JobProcess) -> HeartbeatView | None:
    if process.heartbeat is None:
        return None
    try:
        return read_heartbeat(process.heartbeat)
    except WireError:
        return None
