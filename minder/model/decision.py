"""What the policy wants done, at what price and for what reason, and what an actuator did. Plain and frozen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from minder.model.evidence import Verdict

__all__ = ["ActionResult", "Decision", "Price", "Reason"]


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
