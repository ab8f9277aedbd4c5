"""The job's pool of standbys while it runs: who is ready, who comes back, who joins, and what keeps the others out.

A machine that an operator gave back becomes a standby again: its launcher is asked to start the workers that the eviction ended. The
order is the operator's UNBARRED event. It is an operation in the ledger before the launcher is asked, and its launcher knows it by name:
a controller that takes over asks again and starts nothing twice. Without such an order no machine ever comes back within a run. At the
beginning of another one, launchers that outlived the last are asked to start the workers anew that ended with it.

A machine that was not in the configuration joins by an operator's order. It is polled first. Only when agent and launcher both answer,
under the machine's own name and for this job, is it taken in: telemetry, windows, domains. What came of the order is in the ledger; a
controller that takes over reads there what has joined (minder.app.admission).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from minder.act.controller.standbys.standby_tests import Proofs
from minder.act.controller.state import JobState
from minder.act.policy.config import PolicyConfig
from minder.act.policy.trust import distrusted
from minder.act.recovery.restart import is_waiting, why_not_waiting
from minder.model.clock import Clock
from minder.model.decision import ActionResult
from minder.model.errors import MinderError, WireError
from minder.model.observation import MachineView
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.joins import JOIN_KINDS, Addresses, Join, clash, fold_joins
from minder.record.incidents.proofs import Proof
from minder.wire.client import MachineEndpoints
from minder.wire.fleet import Fleet

__all__ = ["Admits", "Joins", "Leftovers", "Pool", "Returns"]

_NUMBERS = re.compile(r"\d+")
_SAID_S = 10.0  # a launcher needs some seconds to start its workers
_ASK_AGAIN_S = 10.0
_ANSWERS_S = 3.0
_STOPPED = frozenset({"ended", "exited"})
_JOINS_WITHIN_S = 3600.0


@dataclass(slots=True)
class _Said:
    kind: str
    since_s: float
    is_reported: bool = False


class Pool:
    """`tick` once per tick; it raises LedgerError. admits: None where no machine can join, as in a job that is only watched. tested:
    whether standbys are tested while they wait."""

    def __init__(
        self, state: JobState, ledger: Ledger, fleet: Fleet, clock: Clock, admits: Admits | None, config: PolicyConfig | None = None,
        *, tested: bool = False,
    ) -> None:  # fmt: skip
        self._state, self._ledger, self._fleet, self._clock, self._config = state, ledger, fleet, clock, config or PolicyConfig()
        self._returns, self._leftovers = Returns(state, ledger, fleet, clock), Leftovers(state, ledger, fleet, clock)
        self._joins = None if admits is None else Joins(state, ledger, fleet, clock, admits, self.unproven)
        self._unproven: Mapping[str, str] = {}  # as it was last read: a ledger that fails takes no word away from the status
        self._said: dict[str, _Said] = {}  # by machine
        self.proofs, self._tested = Proofs(ledger), tested
        self._began = False  # ranks have been placed
        self._outside_before: frozenset[str] | None = None
        self.on_say: Callable[[str], None] = lambda text: None

    def tick(self) -> None:
        self.unproven()
        self._returns.tick()
        self._leftovers.tick()
        if self._joins is not None:
            self._joins.tick()
        self._tell()
        self._tell_untested()

    def unproven(self) -> Mapping[str, str]:
        """Machines that are given no ranks before they have passed an offline test, and why: by the ledger of all jobs. What probes
        prove is read as well. Raises LedgerError."""
        self.proofs.refresh()
        now_s = self._clock.now_s()
        self._unproven = distrusted(self._ledger.history(self._state.name, now_s), self._config, now_s)
        return self._unproven

    def standbys(self) -> list[str]:
        """Machines outside the job whose workers wait at the barrier, none of them barred, to be tested first, or with a probe that failed.
        Those that passed their probes come first, then those of which nothing is known, then slow ones; each in configured order."""
        fit = [machine for machine in self.waiting() if not self.proofs.of(machine).keeps_out]
        return sorted(fit, key=lambda machine: self.proofs.of(machine).turn)

    def untested(self, standbys: Sequence[str]) -> list[str]:
        """Those of these standbys that no probe has proven yet, where standbys are tested: none of them is called ready."""
        return [machine for machine in standbys if self._tested and self.proofs.of(machine).state == "unknown"]

    def waiting(self) -> list[str]:
        """The same, also with a probe that failed, in configured order."""
        views, now_s = self._fleet.views(), self._clock.now_s()
        waiting = [machine for machine in self._outside() if is_waiting(views.get(machine), now_s)]
        return [machine for machine in waiting if machine not in self._unproven and not self._takes_no_updates(machine)]

    def _takes_no_updates(self, machine: str) -> str:
        """Why it could not run the job's present version, "" if it can."""
        if not self._state.update or "updates" in (self._fleet.launcher_state(machine).get("offers") or ()):
            return ""
        return f"its launcher takes no updates, and the job runs update {self._state.update}: start it with --allow-updates DIR"

    def proven(self) -> dict[str, Proof]:
        """Machines outside the job to what their probes prove; empty where standbys are not tested and none ever was."""
        known = {machine: self.proofs.of(machine) for machine in self._outside()}
        return {machine: proof for machine, proof in known.items() if self._tested or proof.state != "unknown"}

    def missing(self) -> dict[str, str]:
        """Machines that could be standbys and are not, and why not."""
        views, now_s = self._fleet.views(), self._clock.now_s()
        out = self._outside()
        reasons = {
            machine: why_not_waiting(views.get(machine), now_s)
            or self._takes_no_updates(machine)
            or self._unproven.get(machine, "")
            or self.proofs.of(machine).keeps_out
            for machine in out
        }
        return {machine: why for machine, why in {**reasons, **self._ordered()}.items() if why}

    def _outside(self) -> list[str]:
        out = set(self._state.rank_machine.values()) | self._state.barred | (self._joins.pending if self._joins is not None else set())
        return [machine for machine in self._fleet.machines if machine not in out]

    def _tell_untested(self) -> None:
        """A standby that takes ranks although none of its probes was judged: used, since unknown is not faulty, and said. The machines
        that a job begins on were no standbys."""
        outside = frozenset(self._outside())
        entered = (self._outside_before or frozenset()) & set(self._state.rank_machine.values())
        self._outside_before = outside
        began, self._began = self._began, self._began or bool(self._state.rank_machine)
        for machine in sorted(entered) if self._tested and began else ():
            if self.proofs.of(machine).state == "unknown":
                text = f"{machine} took ranks although no probe of it has been judged yet: no proven standby was ready before it"
                self._ledger.append(kinds.NOTE, {"text": text}, job=self._state.name)
                self.on_say(text)

    def _ordered(self) -> dict[str, str]:
        return {**self._returns.missing(), **(self._joins.missing() if self._joins is not None else {})}

    def _tell(self) -> None:
        """What keeps a machine out that a person ordered in is said once, and again when it changes. Ages grow: they are no change."""
        ordered, now_s = self._ordered(), self._clock.monotonic_s()
        self._said = {machine: said for machine, said in self._said.items() if machine in ordered}
        for machine, why in ordered.items():
            kind, said = _NUMBERS.sub("", why), self._said.get(machine)
            if said is None or said.kind != kind:
                said = self._said[machine] = _Said(kind, now_s)
            if not said.is_reported and now_s - said.since_s >= _SAID_S:
                text = f"{machine} is no standby yet: {why}"
                self._ledger.append(kinds.NOTE, {"text": text}, job=self._state.name)
                said.is_reported = True
                self.on_say(text)


@dataclass(slots=True)
class _Order:
    operation_id: str
    machine: str
    asked_s: float | None = None  # by the monotonic clock
    why: str = ""  # what keeps the machine from being a standby


class Returns:
    """`tick` once per tick. It raises LedgerError."""

    def __init__(self, state: JobState, ledger: Ledger, fleet: Fleet, clock: Clock) -> None:
        self._state, self._ledger, self._fleet, self._clock = state, ledger, fleet, clock
        self._since_id = 0
        self._orders: dict[str, _Order] = {}

    def tick(self) -> None:
        self._read()
        for order in list(self._orders.values()):
            self._turn(order)

    def missing(self) -> dict[str, str]:
        """Machines that were returned and are no standbys yet, and why not."""
        return {machine: f"it was returned, but {order.why}" for machine, order in self._orders.items() if order.why}

    def _read(self) -> None:
        """New bars, and bars that were lifted. Raises LedgerError; then the next call reads the same."""
        events = self._ledger.events(since_id=self._since_id, kinds=(kinds.BARRED, kinds.UNBARRED))
        if not events:
            return
        barred = self._ledger.history(self._state.name, self._clock.now_s()).barred
        for event in events:
            machine = str(event.payload.get("machine"))
            if event.job not in (None, self._state.name):
                continue
            before = self._orders.get(machine)
            if before is not None:
                self._finish(before, "failed", "it was barred again" if event.kind == kinds.BARRED else "it was returned again")
            order = _Order(f"rejoin-{self._state.name}-{event.id}", machine)
            if event.kind == kinds.UNBARRED:
                self._state.returned_s[machine] = event.time_s
            if event.kind == kinds.UNBARRED and machine not in barred and self._ledger.result(order.operation_id) is None:
                self._orders[machine] = order
        self._state.barred = set(barred)
        self._since_id = events[-1].id

    def _turn(self, order: _Order) -> None:
        if order.machine not in self._fleet.machines:
            del self._orders[order.machine]
            return
        if order.machine in self._state.rank_machine.values():
            self._finish(order, "done", "it runs ranks of the job")
            return
        view = self._fleet.views()[order.machine]
        why = why_not_waiting(view, self._clock.now_s())
        if not why:
            self._finish(order, "done", "its workers wait at the barrier")
        elif self._may_ask(order, view):
            order.why = self._ask(order) or why
        else:
            order.why = self._fleet.refusals().get(order.machine) or why

    def _may_ask(self, order: _Order, view: MachineView) -> bool:
        """A launcher that answers and has a worker that ended. One that was started anew has started its workers by itself."""
        heard = view.launcher_age_s is not None and view.launcher_age_s <= _ANSWERS_S
        due = order.asked_s is None or self._clock.monotonic_s() - order.asked_s >= _ASK_AGAIN_S
        return heard and due and any(worker.state in _STOPPED for worker in view.workers)

    def _ask(self, order: _Order) -> str:
        """What went wrong, or "". A launcher of any version knows the request."""
        known = int(self._fleet.launcher_state(order.machine).get("generation") or 0)
        body = {
            "operation_id": order.operation_id,
            "generation": max(self._state.generation, known),
            "desired": "parked",
            "world_size": 0,
            "assignments": [],
            "grace_s": 5.0,
        }
        self._ledger.intend(order.operation_id, {"action": "rejoin", "machines": [order.machine]}, job=self._state.name)
        self._ledger.check_fence()
        order.asked_s = self._clock.monotonic_s()
        answer = self._fleet.post_workers({order.machine: body}, timeout_s=2.0)[order.machine]
        return str(answer) if isinstance(answer, WireError) else ""

    def _finish(self, order: _Order, outcome: Literal["done", "failed"], detail: str) -> None:
        self._ledger.intend(order.operation_id, {"action": "rejoin", "machines": [order.machine]}, job=self._state.name)
        self._ledger.complete(order.operation_id, ActionResult(order.operation_id, self._clock.now_s(), outcome, detail))
        del self._orders[order.machine]


class Leftovers:
    """At the beginning of a run, until ranks are placed: launchers whose workers have all ended, with the run before it, start them anew,
    those of standbys too. A worker that runs is left alone: this ledger may not be the one that knows of it. `tick` raises LedgerError."""

    def __init__(self, state: JobState, ledger: Ledger, fleet: Fleet, clock: Clock) -> None:
        self._state, self._ledger, self._fleet, self._clock = state, ledger, fleet, clock
        self._asked: set[str] = set()

    def tick(self) -> None:
        if self._state.generation or not self._state.run:
            return
        views = self._fleet.views()
        due = [name for name in self._fleet.machines if name not in self._asked | self._state.barred and _has_ended(views.get(name))]
        if not due:
            return
        self._ledger.check_fence()
        self._asked |= set(due)
        name = f"anew-{self._state.name}-{self._state.run}-{int(self._clock.now_s())}"
        for desired in ("ended", "parked"):  # one that finished its part stays as it is where it is only parked
            self._fleet.post_workers({machine: self._request(machine, name, desired) for machine in due}, timeout_s=2.0)

    def _request(self, machine: str, name: str, desired: str) -> dict[str, Any]:
        known = int(self._fleet.launcher_state(machine).get("generation") or 0)
        body = {"operation_id": f"{name}/{desired}", "generation": known, "desired": desired}
        return body | {"world_size": 0, "assignments": [], "grace_s": 5.0}


def _has_ended(view: MachineView | None) -> bool:
    if view is None or view.launcher_age_s is None or view.launcher_age_s > _ANSWERS_S:
        return False
    return bool(view.workers) and all(worker.state in _STOPPED for worker in view.workers)


class Admits(Protocol):
    """What is wired for machines of the configuration, for one that joins later."""

    def known(self) -> Addresses: ...

    def endpoints(self, join: Join) -> MachineEndpoints:
        """With the job's tokens. Raises ConfigError."""
        ...

    def admit(self, join: Join) -> None: ...


class Joins:
    """`tick` once per tick. It raises LedgerError. unproven: machines that pass an offline test first, and why."""

    def __init__(
        self,
        state: JobState,
        ledger: Ledger,
        fleet: Fleet,
        clock: Clock,
        admits: Admits,
        unproven: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._state, self._ledger, self._fleet, self._clock, self._admits = state, ledger, fleet, clock, admits
        self._unproven = unproven
        self._read_id = 0
        self._open: dict[str, tuple[Join, float]] = {}  # machine to its order and when it was taken up
        self._why: dict[str, str] = {}

    @property
    def pending(self) -> frozenset[str]:
        """Machines that are polled and not taken in yet: no standbys, whatever their workers do."""
        return frozenset(self._open)

    def tick(self) -> None:
        self._read()
        for join, since_s in list(self._open.values()):
            self._turn(join, since_s)

    def missing(self) -> dict[str, str]:
        """Machines that are to join and have not yet, and why not."""
        return {machine: f"it is to join as a standby, but {why}" for machine, why in self._why.items() if machine in self._open}

    def _read(self) -> None:
        """New orders. Raises LedgerError; then the next call reads the same."""
        events = self._ledger.events(job=self._state.name, kinds=(kinds.STANDBY_ADDED,), since_id=self._read_id)
        if not events:
            return
        for join in fold_joins(self._ledger.events(job=self._state.name, kinds=JOIN_KINDS)):
            before = self._open.get(join.machine)
            if join.state != "asked" or (before is not None and before[0] == join):
                continue
            if before is not None:
                self._finish(before[0], "failed", "a newer order names other addresses")
            self._begin(join)
        self._read_id = events[-1].id

    def _begin(self, join: Join) -> None:
        known = self._admits.known()
        why = clash(join, known) or self._unproven().get(join.machine)
        if why or join.machine in known:
            self._finish(join, "failed" if why else "already_done", why or "it is a machine of the job already")
            return
        self._ledger.intend(join.operation_id, {"action": "join", "machines": [join.machine]}, job=self._state.name)
        try:
            self._fleet.add(self._admits.endpoints(join))
        except MinderError as error:
            self._finish(join, "failed", str(error))
            return
        self._open[join.machine] = (join, self._clock.monotonic_s())

    def _turn(self, join: Join, since_s: float) -> None:
        wrong, why = self._look(join)
        self._why[join.machine] = why
        if not wrong and why and self._clock.monotonic_s() - since_s > _JOINS_WITHIN_S:
            wrong = f"{why}, for an hour: order it again"
        if wrong:
            self._fleet.remove(join.machine)
            self._finish(join, "failed", wrong)
        elif not why:
            self._admits.admit(join)
            self._finish(join, "done", f"a standby of {self._state.name}")

    def _look(self, join: Join) -> tuple[str, str]:
        """(what makes it another machine than was ordered, what is still missing); both "" where it is the one."""
        agent, launcher = self._fleet.names(join.machine)
        job = str(self._fleet.launcher_state(join.machine).get("job", self._state.name))
        if agent not in ("", join.machine):
            return f"the agent at {join.agent} is {agent}'s", ""
        if launcher not in ("", join.machine) or job != self._state.name:
            return f"the launcher at {join.launcher} is {launcher}'s of job {job}", ""
        view = self._fleet.views()[join.machine]
        refused = self._fleet.refusals().get(join.machine)
        if refused:
            return "", refused
        if view.launcher_age_s is None or not launcher:
            return "", f"no launcher answers at {join.launcher}"
        return "", "" if view.agent_age_s is not None else f"no agent answers at {join.agent}"

    def _finish(self, join: Join, outcome: Literal["done", "already_done", "failed"], detail: str) -> None:
        self._ledger.intend(join.operation_id, {"action": "join", "machines": [join.machine]}, job=self._state.name)
        self._ledger.complete(join.operation_id, ActionResult(join.operation_id, self._clock.now_s(), outcome, detail))
        self._open.pop(join.machine, None)
        self._why.pop(join.machine, None)
