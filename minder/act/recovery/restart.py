"""Brings a generation up: every launcher is told its ranks at once, then the workers are watched until they run.

A launcher that gets a newer generation parks or ends its older workers itself, so survivors and standbys get the same request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from minder.act.recovery.placement import GenerationPlan
from minder.model.errors import WireError
from minder.model.observation import MachineView
from minder.wire.fleet import Fleet

__all__ = ["StartResult", "await_waiting", "start_generation"]

_POLL_S = 0.05
_SILENT_S = 3.0
_FROZEN_S = 8.0  # a waiting process ticks four times a second, with low priority on a busy machine


@dataclass(frozen=True, slots=True)
class StartResult:
    """missing: machine to reason, for machines whose workers do not run the generation at the deadline."""

    generation: int
    missing: Mapping[str, str]
    seconds: float


def await_waiting(fleet: Fleet, machines: Iterable[str], deadline_s: float, *, give_up: Callable[[], bool] = lambda: False) -> list[str]:
    """Wait until the workers of these machines stand at the barrier. Returns those that do not at the deadline (seconds)."""
    wanted, end_s = list(machines), time.monotonic() + deadline_s
    while True:
        views = fleet.views()
        late = [machine for machine in wanted if not is_waiting(views.get(machine))]
        if not late or time.monotonic() > end_s or give_up():
            return late
        time.sleep(_POLL_S * 2)


def is_waiting(view: MachineView | None, now_s: float | None = None) -> bool:
    """Whether a machine answers, all its worker slots wait at the barrier, and, as far as `now_s` (unix seconds; None: the system's
    clock) tells, none of them is frozen there: a stopped process would stand at the barrier for ever."""
    return not why_not_waiting(view, now_s)


def why_not_waiting(view: MachineView | None, now_s: float | None = None) -> str:
    """What keeps a machine from taking a place in the job, in words; "" if nothing does (see `is_waiting`)."""
    if view is None or view.launcher_age_s is None:
        return "its launcher was never heard of"
    if view.launcher_age_s > _SILENT_S:
        return f"its launcher has been silent for {view.launcher_age_s:.0f} s"
    if not view.workers:
        return "its launcher has no worker"
    states = sorted({worker.state for worker in view.workers} - {"waiting"})
    if states == ["ended"]:
        return "its launcher has ended its workers and was not asked to start them again"
    if states:
        return f"its worker does not wait at the barrier ({', '.join(states)})"
    seen_s = (time.time() if now_s is None else now_s) - view.launcher_age_s
    ticks = [worker.alive_time_s for worker in view.workers if worker.alive_time_s]
    frozen = not all(seen_s - tick_s < _FROZEN_S for tick_s in ticks)
    return "its worker stands still at the barrier, as if stopped" if frozen else ""


def start_generation(fleet: Fleet, plan: GenerationPlan, deadline_s: float, grace_s: float = 5.0) -> StartResult:
    """Tell every machine its ranks and wait until all its workers run them. Idempotent: the launchers know the operation."""
    started_s = time.monotonic()
    answers = fleet.post_workers({machine: plan.request_for(machine, grace_s) for machine in plan.machines})
    missing = {machine: str(answer) for machine, answer in answers.items() if isinstance(answer, WireError)}
    pending = [machine for machine in plan.machines if machine not in missing]
    while pending and time.monotonic() - started_s < deadline_s:
        fleet.refresh(pending)
        views = fleet.views()
        pending = [machine for machine in pending if not _runs(views.get(machine), plan.generation)]
        if pending:
            time.sleep(_POLL_S)
    for machine in pending:
        missing[machine] = f"its workers do not run generation {plan.generation} after {deadline_s:.0f} s"
    return StartResult(plan.generation, missing, time.monotonic() - started_s)


def _runs(view: MachineView | None, generation: int) -> bool:
    if view is None or not view.workers:
        return False
    busy = [worker for worker in view.workers if worker.rank is not None]
    return bool(busy) and all(worker.generation == generation and worker.state in ("running", "exited") for worker in busy)
