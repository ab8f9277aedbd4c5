"""What the ledger remembers: its events, past actions, trials, approvals, pauses, maintenance. Plain and frozen; times are unix seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from minder.model.decision import Climb, Decision
from minder.model.evidence import Failure
from minder.model.pairs import PairWord

__all__ = ["Approval", "History", "LedgerEvent", "Maintenance", "PastEviction", "Pause", "RuleRecord", "Trial"]


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """One line of the append-only ledger."""

    id: int
    time_s: float
    kind: str
    job: str | None
    incident: str | None
    operation_id: str | None
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PastEviction:
    """One eviction, trial, diagnosis, replay or restart that the ledger knows of. event_id: of its intent; the order of the ledger, which
    no clock changes. resumed: of a diagnosis or a replay that started the job again itself; otherwise what followed it did."""

    time_s: float
    job: str
    machines: tuple[str, ...]
    action: Literal["evict", "trial", "restart", "diagnose", "replay"]
    operation_id: str
    finished: bool
    event_id: int = field(default=0, compare=False)
    resumed: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Pause:
    """Actions (never alarms) are stopped for a scope until a time."""

    scope: Literal["all", "job", "rack"]
    target: str | None
    until_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A planned window in which nothing is done to these machines, machines of these racks, or jobs. Alarms go on."""

    id: str
    from_s: float
    until_s: float
    machines: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """A machine that was taken off its ranks to see whether a failure follows them. Neither barred nor evicted.

    partner: who took its ranks: a standby, or a machine of the job that exchanged its own with it. finding: "" while it lasts, then
    "follows the rank", "stays with the machine" or "did not come back".
    """

    operation_id: str
    machine: str
    partner: str
    ranks: tuple[int, ...]
    begun_s: float
    exchanged: bool
    incident: str | None = None
    finding: str = ""


@dataclass(frozen=True, slots=True)
class RuleRecord:
    """What tests and repairs said of the machines that one rule named with one tier, in every job of the ledger. evictions: how many
    machines went for it. confirmed_s, no_fault_s: when each outcome came, oldest first. restored_s: when a person last had it counted
    anew; None: never."""

    rule: str
    tier: str
    evictions: int = 0
    confirmed_s: tuple[float, ...] = ()
    no_fault_s: tuple[float, ...] = ()
    restored_s: float | None = None

    @property
    def confirmed(self) -> int:
        return len(self.confirmed_s)

    @property
    def no_fault_found(self) -> int:
        return len(self.no_fault_s)


@dataclass(frozen=True, slots=True)
class Approval:
    """An eviction that an operator was asked about. why: a typed word for an end that no operator chose; note: the operator's words."""

    decision: Decision
    job: str
    incidents: tuple[str, ...]
    generation: int
    asked_s: float
    until_s: float
    on_timeout: str = "page"
    state: Literal["waiting", "approved", "rejected", "expired", "carried_out"] = "waiting"
    settled_s: float | None = None
    by: str = ""
    note: str = ""
    why: str = ""
    closed: bool = False  # the controller has seen to it


@dataclass(frozen=True, slots=True)
class History:
    """What the ledger knows and the policy needs. restarts: in a row, without progress between them (minder.record.incidents.history).

    climbs: rungs of the ladder that the job climbed in the last 24 hours, oldest first. evicted_s: machine to when it was evicted, from any
    job, since it last passed an offline test. rules: of every rule of which anything is known. paired: machine to what the job's newest
    pair tests say of it; a test that was not judged says nothing, and leaves what is known.
    """

    actions: tuple[PastEviction, ...] = ()
    pauses: tuple[Pause, ...] = ()
    barred: frozenset[str] = frozenset()
    last_restart_s: float | None = None
    restarts: int = 0
    restarts_today: int = 0
    failures: tuple[Failure, ...] = ()  # of the last 24 hours, in the ledger's order
    left_behind: int = 0  # the first of them, which the job left behind by progress: restarts were counted anew since
    trials: tuple[Trial, ...] = ()  # of the last 24 hours, the open ones among them
    approvals: tuple[Approval, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    climbs: tuple[Climb, ...] = ()
    evicted_s: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    rules: tuple[RuleRecord, ...] = ()
    paired: Mapping[str, PairWord] = field(default_factory=dict)
