"""A machine that was not in the configuration joins the pool of a running job, by an operator's order.

It is polled first. Only when agent and launcher both answer, under the machine's own name and for this job, is it taken in: telemetry,
windows, domains. What came of the order is in the ledger; a controller that takes over reads there what has joined (minder.app.admission).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from minder.act.controller.state import JobState
from minder.model.clock import Clock
from minder.model.decision import ActionResult
from minder.model.errors import MinderError
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.joins import JOIN_KINDS, Addresses, Join, clash, fold_joins
from minder.wire.client import MachineEndpoints
from minder.wire.fleet import Fleet

__all__ = ["Admits", "Joins"]

_PATIENCE_S = 3600.0


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
        self._unproven = unproven
        self._state, self._ledger, self._fleet, self._clock, self._admits = state, ledger, fleet, clock, admits
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
        self._open[join.machine] = (join, self._clock.steady_s())

    def _turn(self, join: Join, since_s: float) -> None:
        wrong, why = self._look(join)
        self._why[join.machine] = why
        if not wrong and why and self._clock.steady_s() - since_s > _PATIENCE_S:
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
