"""Traced steps of the running job: asked of its launchers or agents beside the ticks, analysed there, handed to the rules.

One thread asks and computes; a tick only takes what is ready. The next study begins no sooner than twenty times what the last one took, and
the window holds a million operations at most. A job that traces nothing is asked every ten seconds: each machine looks at a folder.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from minder.diagnose.step_traces.window import TraceWindow, read_traced_step
from minder.model.errors import WireError
from minder.model.evidence import StepStudy
from minder.model.log import event
from minder.model.observation import JobView
from minder.wire.fleet import Fleet

__all__ = ["StepTraces"]

_log = logging.getLogger("minder.controller")
_ASK_S = 5.0
_SOONEST_S, _LATEST_S, _STEPS = 1.0, 10.0, 5.0  # between two looks: so many steps of the job, within these
_FRESH_STEPS = 2  # that a study needs beyond the one before
_IDLE_TIMES = 20.0  # of what the last study took: a twentieth of a core at most
_SURE_TIMES = 3.0  # a clock is corrected by what is clearly more than the error of that


class StepTraces:
    """`ask` and `take` once per tick. now_s: the clock of the studies."""

    def __init__(self, fleet: Fleet, now_s: Callable[[], float]) -> None:
        self._fleet, self._now_s = fleet, now_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="minder-traces")
        self._pending: tuple[Future[StepStudy | None], int] | None = None
        self._generation: int | None = None
        self._window = TraceWindow()
        self._next: dict[str, tuple[float, int]] = {}  # machine to the process that answered, and the number to ask it for
        self._due_s = self._study_due_s = -math.inf  # of the monotonic clock

    def ask(self, job: JobView | None, step_s: float, slow_since_s: float | None) -> None:
        """Start a look, if one is due. step_s: a usual step, NaN if unknown. slow_since_s: since when the job is slower than usual."""
        if job is None or job.phase != "running" or self._pending is not None:
            return
        if job.generation != self._generation:
            self._generation, self._window = job.generation, TraceWindow()
            self._due_s = -math.inf
        if time.monotonic() < self._due_s:
            return
        pause_s = _LATEST_S if self._window.empty or math.isnan(step_s) else min(max(_STEPS * step_s, _SOONEST_S), _LATEST_S)
        self._due_s = time.monotonic() + pause_s
        self._pending = (self._thread.submit(self._look, job, slow_since_s), job.generation)

    def take(self, generation: int) -> Sequence[StepStudy]:
        """A study that has ended since the last call. Raises whatever went wrong in it."""
        if self._pending is None or not self._pending[0].done():
            return ()
        (future, asked), self._pending = self._pending, None
        found = future.result()
        return (found,) if found is not None and asked == generation else ()

    def close(self) -> None:
        """What still runs is left to end by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _look(self, job: JobView, slow_since_s: float | None) -> StepStudy | None:
        answers = self._fleet.traces({machine: self._next.get(machine, (0.0, 0))[1] for machine in job.machines}, _ASK_S)
        behind_s = self._corrections()
        for machine, answer in answers.items():
            if not isinstance(answer, WireError):
                self._take_in(job, machine, answer, behind_s.get(machine, 0.0))
        due = not self._window.empty and self._window.fresh >= _FRESH_STEPS and time.monotonic() >= self._study_due_s
        if not due:
            return None
        began_s = time.thread_time()
        study = self._window.study(self._now_s(), slow_since_s)
        took_s = time.thread_time() - began_s
        self._study_due_s = time.monotonic() + _IDLE_TIMES * took_s
        if study is not None:
            event(_log, logging.DEBUG, "steps studied", job=job.name, cause=study.cause, steps=study.steps, took_s=round(took_s, 3))
        return study

    def _take_in(self, job: JobView, machine: str, answer: Mapping[str, Any], behind_s: float) -> None:
        """An answer is the machine's word on its own ranks; those of another job, machine or generation are left out."""
        try:
            started_s, following, rows = float(answer.get("started_s", 0.0)), int(answer["next"]), answer["steps"]
        except (KeyError, TypeError, ValueError):
            return
        known = self._next.get(machine)
        again = known is not None and abs(known[0] - started_s) > 0.5
        self._next[machine] = (started_s, 0 if again else following)
        for row in rows if isinstance(rows, list) and not again else ():
            if not isinstance(row, Mapping) or row.get("job") != job.name or job.rank_machine.get(row.get("rank", -1)) != machine:
                continue
            try:
                step = read_traced_step(row, behind_s)
            except WireError:
                continue
            if step.begin_s >= job.generation_start_s - 1.0:
                self._window.add(machine, step)

    def _corrections(self) -> dict[str, float]:
        """Of clocks that are surely off. Clocks that agree by NTP do so better than answers over HTTP can show."""
        offsets = self._fleet.clock_offsets()
        return {machine: -offset_s for machine, (offset_s, error_s) in offsets.items() if abs(offset_s) > _SURE_TIMES * error_s}
