"""The job's pool of standbys while it runs: who is ready, who comes back, who joins, and what keeps the others out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from minder.act.controller.joins import Admits, Joins
from minder.act.controller.returns import Returns
from minder.act.controller.state import JobState
from minder.act.policy.config import PolicyConfig
from minder.act.policy.trust import distrusted
from minder.act.recovery.restart import is_waiting, why_not_waiting
from minder.model.clock import Clock
from minder.record.incidents import Ledger, kinds
from minder.wire.fleet import Fleet

__all__ = ["Pool"]

_NUMBERS = re.compile(r"\d+")
_SAID_S = 10.0  # a launcher needs some seconds to start its workers


@dataclass(slots=True)
class _Said:
    kind: str
    since_s: float
    told: bool = False


class Pool:
    """`tick` once per tick; it raises LedgerError. admits: None where no machine can join, as in a job that is only watched."""

    def __init__(
        self, state: JobState, ledger: Ledger, fleet: Fleet, clock: Clock, admits: Admits | None, config: PolicyConfig | None = None
    ) -> None:  # fmt: skip
        self._state, self._ledger, self._fleet, self._clock, self._config = state, ledger, fleet, clock, config or PolicyConfig()
        self._returns = Returns(state, ledger, fleet, clock)
        self._joins = None if admits is None else Joins(state, ledger, fleet, clock, admits, self.unproven)
        self._unproven: Mapping[str, str] = {}  # as it was last read: a ledger that fails takes no word away from the status
        self._said: dict[str, _Said] = {}  # by machine
        self.on_say: Callable[[str], None] = lambda text: None

    def tick(self) -> None:
        self.unproven()
        self._returns.tick()
        if self._joins is not None:
            self._joins.tick()
        self._tell()

    def unproven(self) -> Mapping[str, str]:
        """Machines that are given no ranks before they have passed an offline test, and why: by the ledger of all jobs.
        Raises LedgerError."""
        now_s = self._clock.now_s()
        self._unproven = distrusted(self._ledger.history(self._state.name, now_s), self._config, now_s)
        return self._unproven

    def standbys(self) -> list[str]:
        """Machines outside the job whose workers wait at the barrier, in configured order, none of them barred or to be tested first."""
        views, now_s = self._fleet.views(), self._clock.now_s()
        waiting = [machine for machine in self._outside() if is_waiting(views.get(machine), now_s)]
        return [machine for machine in waiting if machine not in self._unproven]

    def missing(self) -> dict[str, str]:
        """Machines that could be standbys and are not, and why not."""
        views, now_s = self._fleet.views(), self._clock.now_s()
        out = self._outside()
        reasons = {machine: why_not_waiting(views.get(machine), now_s) or self._unproven.get(machine, "") for machine in out}
        return {machine: why for machine, why in {**reasons, **self._ordered()}.items() if why}

    def _outside(self) -> list[str]:
        out = set(self._state.rank_machine.values()) | self._state.barred | (self._joins.pending if self._joins is not None else set())
        return [machine for machine in self._fleet.machines if machine not in out]

    def _ordered(self) -> dict[str, str]:
        return {**self._returns.missing(), **(self._joins.missing() if self._joins is not None else {})}

    def _tell(self) -> None:
        """What keeps a machine out that a person ordered in is said once, and again when it changes. Ages grow: they are no change."""
        ordered, now_s = self._ordered(), self._clock.steady_s()
        self._said = {machine: said for machine, said in self._said.items() if machine in ordered}
        for machine, why in ordered.items():
            kind, said = _NUMBERS.sub("", why), self._said.get(machine)
            if said is None or said.kind != kind:
                said = self._said[machine] = _Said(kind, now_s)
            if not said.told and now_s - said.since_s >= _SAID_S:
                text = f"{machine} is no standby yet: {why}"
                self._ledger.append(kinds.NOTE, {"text": text}, job=self._state.name)
                said.told = True
                self.on_say(text)
