"""Brings a generation up: every launcher is sent its ranks at once, then the workers are watched until they run.

A launcher that gets a newer generation parks or ends its older workers itself, so survivors and standbys get the same request.
A launcher that was restarted meanwhile has forgotten its ranks: it gets them again, and its machine is no worse for that.

A machine that answers and whose workers are on their way is late, not missing: a fresh process may load for longer than one that restarts
in place. It gets as long as machines get at the job's start. Where most are late even then, what they have in common is slow (a host, a
file system, the code), and none of them is missing: the job goes on starting.

A machine that ends one process after the other while most of the others run does not come to run it by being waited for: it is missing
after `_ENDS_S` already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minder.act.recovery.generation_plan import GenerationPlan
from minder.diagnose.verdicts.absence import is_unmanned
from minder.model.clock import Clock
from minder.model.errors import NoAnswerError, WireError
from minder.model.observation import MachineView
from minder.wire.fleet import Fleet

__all__ = ["StartResult", "await_waiting", "start_generation"]

Deliver = Callable[[Sequence[str]], dict[str, Any]]
_POLL_S = 0.05
_SILENT_S = 3.0
_RETURNS_S = 5.0  # a launcher that is started again answers by then
_TELL_AGAIN_S = 1.0
_LATE_STATES = ("starting", "interrupted")
_ENDS_S = 20.0
_MOST_PROCESSES = 4  # of one slot: the one that could not be restarted in place, and three that ended
_FROZEN_S = 8.0  # a waiting process ticks four times a second, with low priority on a busy machine


@dataclass(frozen=True, slots=True)
class StartResult:
    """missing: machine to reason, for machines whose workers do not run the generation at the deadline. late: those that are not named for
    it, since most machines are."""

    generation: int
    missing: Mapping[str, str]
    seconds: float
    late: tuple[str, ...] = ()


def await_waiting(
    fleet: Fleet, machines: Iterable[str], deadline_s: float, clock: Clock, *, give_up: Callable[[], bool] = lambda: False
) -> list[str]:  # fmt: skip
    """Wait until the workers of these machines stand at the barrier. Returns those that do not at the deadline (seconds)."""
    wanted, end_s = list(machines), clock.monotonic_s() + deadline_s
    while True:
        views = fleet.views()
        late = [machine for machine in wanted if not is_waiting(views.get(machine), clock.now_s())]
        if not late or clock.monotonic_s() > end_s or give_up():
            return late
        clock.sleep(_POLL_S * 2)


def is_waiting(view: MachineView | None, now_s: float) -> bool:
    """Whether a machine answers, all its worker slots wait at the barrier, and, as far as `now_s` (unix seconds) shows, none of them is
    frozen there: a stopped process would stand at the barrier for ever."""
    return not why_not_waiting(view, now_s)


def why_not_waiting(view: MachineView | None, now_s: float) -> str:
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
    seen_s = now_s - view.launcher_age_s
    ticks = [worker.alive_time_s for worker in view.workers if worker.alive_time_s]
    frozen = not all(seen_s - tick_s < _FROZEN_S for tick_s in ticks)
    return "its worker stands still at the barrier, as if stopped" if frozen else ""


def start_generation(
    fleet: Fleet,
    plan: GenerationPlan,
    deadlines_s: tuple[float, float],
    clock: Clock,
    grace_s: float = 5.0,
    deliver: Deliver | None = None,
) -> StartResult:
    """Tell every machine its ranks and wait until all its workers run them. Idempotent: the launchers know the operation. deadlines_s: of a
    machine that shows nothing of them, and of one whose workers are on their way. deliver: brings the generation's code to launchers that
    do not have it, and returns machine to why it cannot."""
    started_s = clock.monotonic_s()
    telling = _Telling(fleet, plan, clock, grace_s, deliver)
    telling.tell(plan.machines)
    while pending := telling.pending():
        waited_s = clock.monotonic_s() - started_s
        if waited_s >= _ENDS_S and 2 * len(pending) < len(plan.machines) and set(pending) <= set(telling.ending()):
            break
        if waited_s >= deadlines_s[0] and (waited_s >= max(deadlines_s) or set(pending) - set(telling.late())):
            break
        fleet.refresh(pending)
        if telling.pending():
            clock.sleep(_POLL_S)
            telling.tell(telling.unreached())
    waited_s = clock.monotonic_s() - started_s
    late = telling.late()
    excused = late if 2 * len(late) > len(plan.machines) or waited_s < max(deadlines_s) else []
    for machine in telling.pending():
        if machine not in excused:
            ended = ", one process after the other ended" if machine in telling.ending() else ""
            why = f"its workers do not run generation {plan.generation} after {waited_s:.0f} s{ended}"
            telling.missing[machine] = telling.errors.get(machine) or why
    return StartResult(plan.generation, telling.missing, waited_s, tuple(excused))


class _Telling:
    """Whom a generation's request has reached. missing: machine to why it cannot; errors: the same, of those that are asked again."""

    def __init__(self, fleet: Fleet, plan: GenerationPlan, clock: Clock, grace_s: float, deliver: Deliver | None) -> None:
        self._fleet, self._plan, self._clock, self._grace_s = fleet, plan, clock, grace_s
        self._deliver = deliver
        self._ordered_s: dict[str, float] = {}
        self._pids: dict[str, dict[int, set[int]]] = {}  # machine to slot to every process that it had since it got its ranks
        self.missing: dict[str, str] = {}
        self.errors: dict[str, str] = {}

    def tell(self, machines: Iterable[str]) -> None:
        requests = {machine: self._plan.request_for(machine, self._grace_s) for machine in machines}
        if not requests:
            return
        without = {} if self._deliver is None else self._deliver(list(requests))
        answers = without | self._fleet.post_workers({machine: body for machine, body in requests.items() if machine not in without})
        now_s, views = self._clock.monotonic_s(), self._fleet.views()
        for machine, answer in answers.items():
            self._ordered_s[machine] = now_s
            self.errors.pop(machine, None)
            if isinstance(answer, NoAnswerError) and _was_heard(views.get(machine)):
                self.errors[machine] = str(answer)
            elif isinstance(answer, WireError):
                self.missing[machine] = str(answer)

    def pending(self) -> list[str]:
        """Machines that may still come to run it."""
        views = self._fleet.views()
        found = [name for name in self._plan.machines if name not in self.missing and not _runs(views.get(name), self._plan.generation)]
        for name in found:
            workers = () if (view := views.get(name)) is None else view.workers
            for worker in workers:
                if worker.pid is not None:
                    self._pids.setdefault(name, {}).setdefault(worker.slot, set()).add(worker.pid)
        return found

    def late(self) -> list[str]:
        """Machines that answer and whose workers are on their way. Each slot may have begun anew once, as one does that could not be
        restarted in place; a process that ends again and again is not on its way."""
        views = self._fleet.views()
        return [machine for machine in self.pending() if self._is_late(machine, views.get(machine))]

    def _is_late(self, machine: str, view: MachineView | None) -> bool:
        if view is None or view.launcher_age_s is None or view.launcher_age_s > _SILENT_S or machine in self.errors:
            return False
        begun = sum(map(len, self._pids.get(machine, {}).values()))
        living = bool(view.workers) and all(worker.pid is not None and worker.state in _LATE_STATES for worker in view.workers)
        return living and begun <= 2 * len(view.workers)

    def ending(self) -> list[str]:
        """Of those the ones that answer and whose processes end again and again."""
        begun = {name: max(map(len, self._pids.get(name, {}).values()), default=0) for name in self.pending() if name not in self.errors}
        return [name for name, most in begun.items() if most > _MOST_PROCESSES]

    def unreached(self) -> list[str]:
        """Of those the ones that gave no answer, and launchers that got their ranks and forgot them: their workers wait without a rank."""
        views, now_s = self._fleet.views(), self._clock.monotonic_s()
        due = [machine for machine in self.pending() if now_s - self._ordered_s[machine] >= _TELL_AGAIN_S]
        return [machine for machine in due if machine in self.errors or is_unmanned(views.get(machine))]


def _was_heard(view: MachineView | None) -> bool:
    """So lately that its launcher may be on its way back."""
    return view is not None and view.launcher_age_s is not None and view.launcher_age_s < _RETURNS_S


def _runs(view: MachineView | None, generation: int) -> bool:
    if view is None or not view.workers:
        return False
    busy = [worker for worker in view.workers if worker.rank is not None]
    return bool(busy) and all(worker.generation == generation and worker.state in ("running", "exited") for worker in busy)
