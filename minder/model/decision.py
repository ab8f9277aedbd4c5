"""What the policy wants done, at what price and for what reason, and what an actuator did. Plain and frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from minder.model.evidence import Failure, Verdict

__all__ = ["ActionResult", "Climb", "Decision", "PassedOver", "Price", "Reason", "RungName", "Size"]

RungName = Literal["reattempt", "diagnose", "trial", "rollback", "skip_batch", "replay", "over_evict", "evict", "page"]


@dataclass(frozen=True, slots=True)
class Price:
    """GPU-seconds (device-seconds without GPUs) lost by acting now against waiting."""

    acting_gpu_s: float
    waiting_gpu_s: float


@dataclass(frozen=True, slots=True)
class Size:
    """Machines that a job goes on with, of those that it has at full size."""

    machines: int
    full: int

    @property
    def words(self) -> str:
        """
        >>> Size(5, 6).words
        'goes on with 5 of 6 machines'
        """
        return f"goes on with {self.machines} of {self.full} machines"


Reason = Literal[
    "act",
    "dry_run",
    "below_break_even",
    "tier_too_low",
    "no_machine_to_blame",
    "budget_job",
    "budget_day",
    "budget_hour",
    "breaker",
    "shared_domain",
    "cooldown",
    "paused",
    "group_too_large",
    "no_standby",
    "launcher_gone",
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
    "not_available",
    "used_up",
    "too_early",
    "end_of_ladder",
    "contradiction",
    "everywhere",
    "rule_demoted",
    "unproven",
]


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A rung below the one that was taken, or what should have run beside it, and why it was not. rung: a RungName, or "probes"."""

    rung: str
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Climb:
    """One rung that a job has climbed. outcome: "" while it is under way, then the result's word ("done", "failed", "ambiguous"), "held"
    once the job made progress after it, "came back" where the same trouble did. failures: what it was climbed for. finding: what a
    diagnosis or a replay found, "" of other rungs. suspects: machines that its verdict named."""

    rung: str
    time_s: float
    operation_id: str
    machines: tuple[str, ...] = ()
    trouble: str = ""
    incident: str | None = None
    outcome: str = ""
    failures: tuple[Failure, ...] = ()
    finding: str = ""
    suspects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy wants done. `evict` and `trial` include the restart that follows; after `diagnose` and `replay` the job is started
    again too, with or without one of its machines.

    trial: `replacements` takes the ranks of the machine, which is neither barred nor evicted; a member of the job gets that one's in turn.
    rung: of the ladder; of a "none" the one that waits. trouble: what kind it is for (minder.act.policy.ladder). passed_over: rungs that
    could not be used. climbed: what this job has climbed before, within the ladder's window, newest last. beside: what runs with it.
    size: how many machines the job goes on with, where that changes. joins: standbys that make the job larger, in no machine's place.
    update: the version of the job's code that a rollback leads to; None where nothing is taken back.
    skip: batches that the job leaves out from now on, as minder.model.batch_ranges writes them; "" for none.
    """

    operation_id: str
    time_s: float
    action: Literal["evict", "trial", "restart", "diagnose", "replay", "page", "none"]
    machines: tuple[str, ...]
    reason: Reason
    detail: str
    verdict: Verdict
    price: Price | None = None
    replacements: tuple[str, ...] = ()
    jobs_affected: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()  # "stage: pass" lines, in order
    rung: RungName | Literal[""] = ""  # "" in what an earlier version wrote
    trouble: str = ""
    passed_over: tuple[PassedOver, ...] = ()
    climbed: tuple[Climb, ...] = ()
    beside: tuple[str, ...] = ()
    size: Size | None = None
    joins: tuple[str, ...] = ()
    update: int | None = None
    skip: str = ""


@dataclass(frozen=True, slots=True)
class ActionResult:
    """What an actuator did. `ambiguous`: it is not known whether it happened; never retried blindly."""

    operation_id: str
    time_s: float
    outcome: Literal["done", "already_done", "failed", "ambiguous", "dry_run"]
    detail: str = ""
    undo: str = ""
