"""The records that rooms hand to each other. Plain, frozen, no imports beyond the standard library:
agents and training processes load this module too.

Shape legend: T grid rows (time), M machines, K metrics. Times are unix seconds (UTC).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from minder.excerpt import ExcerptPanel as ExcerptPanel
from minder.excerpt import TelemetryExcerpt as TelemetryExcerpt
from minder.failure import Failure as Failure
from minder.failure import Trial as Trial
from minder.planned import Maintenance as Maintenance
from minder.planned import Pause as Pause
from minder.tiers import TIER_ORDER as TIER_ORDER

if TYPE_CHECKING:
    import numpy as np

Cause = Literal["stall", "slowdown", "absence", "explicit", "numeric", "unknown"]
Tier = Literal["watch", "page", "evict"]
VerdictKind = Literal["machine", "group", "job", "recovered"]
SignalKind = Literal[
    "kernel", "xid", "link", "exit", "log", "step", "phase", "membership", "exception", "nonfinite", "spike", "waiting", "report", "order",
    "scrape", "ras"]  # fmt: skip
RequestKind = Literal["flows", "reach", "stacks", "dumps", "round", "still"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One scrape of one machine (or one device of it): canonical metric name to value, base units."""

    time_s: float
    machine: str
    values: Mapping[str, float]
    device: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Aligned telemetry: the grid rows that are new since the last window.

    values_TMK is float with NaN where there is no data. device_TMK, if present, names the index of the most
    deviating device for evidence (-1: none). present_TM is True where the machine was scraped at all in that row.
    """

    times_T: np.ndarray
    machines: tuple[str, ...]
    metrics: tuple[str, ...]
    values_TMK: np.ndarray
    present_TM: np.ndarray
    device_TMK: np.ndarray | None = None
    devices: tuple[str, ...] = ()
    low_TMK: np.ndarray | None = None  # smallest and largest device of the machine, NaN without devices
    high_TMK: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """An explicit event (events.jsonl of docs/recordings.md, plus `exception`, `nonfinite`, `spike`, `waiting` from our own workers).

    data by kind: exit {code, signal}, exception {type, fingerprint, victim, errno?, disk?}, xid {code}, link, scrape {state},
    phase {phase, state},
    step {step, loss, grad_norm, seconds}, report {name, severity, state} (another system's), membership {joined, left}, order (message),
    nonfinite {step, what}, spike {step, what, value, usual}, ras {answered, problems, silent, behind, ahead}.
    """

    time_s: float
    kind: SignalKind
    machine: str | None = None
    message: str = ""
    rank: int | None = None
    device: str | None = None
    pid: int | None = None
    generation: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flow:
    """One TCP connection of the job, as one end's kernel sees it (NETLINK_SOCK_DIAG).

    Times are ages in seconds at the sample. Addresses are "ip:port". unanswered_probes: window probes in a row that nothing came
    back for, not even an acknowledgement. unsent_bytes: of the send queue, what has not been handed to the network; 0 where the
    kernel (before Linux 4.6) does not tell.
    """

    machine: str
    time_s: float
    pid: int
    local: str
    remote: str
    receive_queue_bytes: int
    send_queue_bytes: int
    unacked_segments: int
    retransmits: int
    backoff: int
    round_trip_s: float
    bytes_acked: int
    bytes_received: int
    last_send_age_s: float
    last_receive_age_s: float
    unanswered_probes: int = 0
    unsent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a machine to reach a peer's address over the job's network; `reached` if anything there answered, or refused.

    Addresses are IPs without a port.
    """

    machine: str
    time_s: float
    local: str
    remote: str
    reached: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation for or against a verdict. `observed`/`expected` in the metric's base unit."""

    source: str
    machine: str | None = None
    message: str = ""
    metric: str | None = None
    device: str | None = None
    observed: float | None = None
    expected: float | None = None
    since_s: float | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """What a detector says of each machine at one grid row; higher is more anomalous.

    score_M and threshold are in the detector's own unit. evidence and since_s are only of machines above half the threshold.
    """

    time_s: float
    machines: tuple[str, ...]
    score_M: np.ndarray
    threshold: float
    evidence: Mapping[str, tuple[Evidence, ...]] = field(default_factory=dict)
    since_s: Mapping[str, float] = field(default_factory=dict)
    cause: Mapping[str, Cause] = field(default_factory=dict)
    quiet: bool = False  # a phase that all machines share: nobody's fault
    in_time_s: tuple[float, float] = (float("-inf"), float("inf"))  # silence before it, or oddness after it, did not stop the training


@dataclass(frozen=True, slots=True)
class Suspect:
    """Who may be to blame, from one source of evidence; `source` is the rule's name.

    alone: the highest tier while no other source names the same; None: `tier`.
    """

    time_s: float
    source: str
    kind: Literal["machine", "group", "job"]
    machines: tuple[str, ...]
    cause: Cause
    confidence: float
    since_s: float
    tier: Tier = "watch"
    evidence: tuple[Evidence, ...] = ()
    against: tuple[Evidence, ...] = ()
    alone: Tier | None = None
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, slots=True)
class Statement:
    """What a capture of the job's processes says, for itself: `source` is "stacks" or "collectives". No suspects: no machine is named.
    "round": one capture of stacks among several of a slow job (verdicts/votes.py); "look": the first of two, as soon as it is there.
    stands: stacks were the same twice; None: unknown."""

    time_s: float
    source: Literal["stacks", "collectives", "round", "look"]
    suspects: tuple[Suspect, ...] = ()
    stands: bool | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fused conclusion: one per episode; `recovered` closes it."""

    time_s: float
    kind: VerdictKind
    tier: Tier
    machines: tuple[str, ...]
    cause: Cause
    confidence: float
    since_s: float
    evidence: tuple[Evidence, ...] = ()
    against: tuple[Evidence, ...] = ()
    sources: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()  # what failed, for the memory of blame


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker slot of a machine, as its launcher tells it."""

    slot: int
    pid: int | None
    rank: int | None
    state: Literal["starting", "waiting", "running", "interrupted", "exited", "ended"]
    generation: int
    step: int | None = None
    step_time_s: float | None = None
    alive_time_s: float | None = None  # last tick of the worker's own background thread
    phase: str | None = None  # open phase: checkpoint, evaluation, compile
    loss: float | None = None
    first_step: int | None = None  # of this generation
    first_step_time_s: float | None = None
    job: str | None = None  # of a process that no launcher of ours started: the name that its environment gives
    device: str | None = None


@dataclass(frozen=True, slots=True)
class MachineView:
    """What the controller last heard of a machine. Ages are None if it was never heard of."""

    machine: str
    agent_age_s: float | None
    launcher_age_s: float | None
    workers: tuple[WorkerView, ...] = ()
    agent_restarted_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """The job as the controller knows it. `quiet_until_s`: start-up, compilation, checkpoint load, evaluation."""

    name: str
    generation: int
    phase: Literal["starting", "running", "recovering", "finished", "failed"]
    machines: tuple[str, ...]
    standbys: tuple[str, ...]
    barred: tuple[str, ...]
    rank_machine: Mapping[int, str]
    quiet_until_s: float
    generation_start_s: float


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a verdict rule may look at in one tick. Nothing here lies in the future of `now_s`."""

    now_s: float
    window: Window | None = None
    signals: Sequence[Signal] = ()
    job: JobView | None = None
    fleet: Mapping[str, MachineView] = field(default_factory=dict)
    flows: Sequence[Flow] = ()
    clock_error_s: float = 0.05
    statements: Sequence[Statement] = ()
    attempts: Sequence[Attempt] = ()


@dataclass(frozen=True, slots=True)
class RuleResult:
    """Suspects, and what the rule wants to see before it says more. blind: it could not look, so its silence means nothing."""

    suspects: tuple[Suspect, ...] = ()
    requests: frozenset[RequestKind] = frozenset()
    blind: bool = False


class Rule(Protocol):
    """A verdict rule: stateful, causal, no I/O."""

    name: str

    def observe(self, observation: Observation) -> RuleResult: ...


@dataclass(frozen=True, slots=True)
class Price:
    """GPU-seconds (device-seconds without GPUs) lost by acting now against waiting."""

    acting_gpu_s: float
    waiting_gpu_s: float


Reason = Literal[
    "act",
    "dry_run",
    "below_break_even",
    "tier_too_low",
    "no_machine_to_blame",
    "budget_job",
    "budget_hour",
    "breaker",
    "shared_domain",
    "cooldown",
    "paused",
    "group_too_large",
    "no_standby",
    "already_in_progress",
    "already_barred",
    "not_in_job",
    "shared_machine",
    "max_restarts",
    "max_restarts_per_day",
    "no_trial",
    "ledger_unavailable",
    "awaiting_approval",
    "approval_rejected",
    "approval_timeout",
    "approval_lapsed",
    "engine",
]


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy wants done. `evict` and `trial` include the restart that follows.

    trial: `replacements` takes the ranks of the machine, which is neither barred nor evicted; a member of the job gets that one's in turn.
    """

    operation_id: str
    time_s: float
    action: Literal["evict", "trial", "restart", "page", "none"]
    machines: tuple[str, ...]
    reason: Reason
    detail: str
    verdict: Verdict
    price: Price | None = None
    replacements: tuple[str, ...] = ()
    jobs_affected: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()  # "stage: pass" lines, in order


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What an actuator did. `ambiguous`: it is not known whether it happened; never retried blindly."""

    operation_id: str
    time_s: float
    outcome: Literal["done", "already_done", "failed", "ambiguous", "dry_run"]
    detail: str = ""
    undo: str = ""


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
    """One eviction, trial or restart that the ledger knows of."""

    time_s: float
    job: str
    machines: tuple[str, ...]
    action: Literal["evict", "trial", "restart"]
    operation_id: str
    finished: bool


@dataclass(frozen=True, slots=True)
class Approval:
    """An eviction that an operator was asked about. why: a typed word for an end that nobody chose; note: the operator's words."""

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
    """What the ledger knows and the policy needs. restarts: in a row, without progress between them (minder.incidents.history)."""

    actions: tuple[PastEviction, ...] = ()
    pauses: tuple[Pause, ...] = ()
    barred: frozenset[str] = frozenset()
    last_restart_s: float | None = None
    restarts: int = 0
    restarts_today: int = 0
    progress_s: float = float("-inf")  # when restarts were last counted anew
    failures: tuple[Failure, ...] = ()  # of the last 24 hours
    trials: tuple[Trial, ...] = ()  # of the last 24 hours, the open ones among them
    approvals: tuple[Approval, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
