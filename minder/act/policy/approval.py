"""Stages of approval mode: what an operator has said, or has yet to say, about an eviction."""

from __future__ import annotations

from minder.act.policy.case import Case, Ruling, passes, stops
from minder.act.policy.config import PolicyConfig
from minder.model.decision import Decision
from minder.model.evidence import Verdict
from minder.model.history import Approval, History

__all__ = ["FACTS", "answered", "awaits_answer", "is_ordered", "restart_waits"]

# What happened stays true, though nothing shows it any more; whatever else was concluded must still be seen when it is acted on.
FACTS = frozenset({"explicit", "numeric"})
_JOB_STEPS = frozenset({"slowdown", "unknown"})


def answered(case: Case) -> Ruling:
    """A trouble that an operator is being asked about, or has answered for, is not asked about again."""
    if is_ordered(case.verdict):
        return passes("pass, an operator ordered it")
    for item in _concerning(case):
        own = item.decision.operation_id == case.operation_id
        if item.state == "approved" and own:
            return passes(f"pass, approved by {item.by}: {item.note}")
        if item.state in ("waiting", "approved"):
            return stops("none", "awaiting_approval", f"{item.decision.operation_id} waits for an operator already")
        if item.settled_s is None or not (own or case.verdict.since_s <= item.settled_s):
            continue
        if item.state == "rejected":
            return stops("none", "approval_rejected", f"{item.by} rejected the eviction: {item.note}")
        if item.why == "timeout":
            return stops("page", "approval_timeout", f"no operator answered for {item.until_s - item.asked_s:.0f} s: look at the machine")
    return passes("pass, an operator is asked" if case.config.approval == "required" else "pass")


def is_ordered(verdict: Verdict) -> bool:
    """Whether an operator's order is among what speaks against these machines."""
    return len(verdict.machines) == 1 and any(item.source == "order" for item in verdict.evidence)


def restart_waits(case: Case) -> Ruling:
    """A job that stands because of the accused machine is not started again with it while an operator is asked. One that was only
    slow is: what killed its workers is another matter."""
    for item in _concerning(case):
        if item.state in ("waiting", "approved") and item.decision.verdict.cause not in _JOB_STEPS:
            return stops("none", "awaiting_approval", f"{item.decision.operation_id} waits for an operator, and includes a restart")
    return passes()


def awaits_answer(decision: Decision, history: History, config: PolicyConfig) -> bool:
    """Whether an operator must be asked before this decision is carried out. What an operator ordered needs no second yes."""
    if config.approval != "required" or decision.action != "evict" or is_ordered(decision.verdict):
        return False
    approved = {item.decision.operation_id for item in history.approvals if item.state in ("approved", "carried_out")}
    return decision.operation_id not in approved


def _concerning(case: Case) -> list[Approval]:
    """Questions of this generation about these machines (for a restart: about any), the newest first."""
    found = [item for item in case.history.approvals if item.generation == case.context.job.generation]
    if case.action == "evict":
        found = [item for item in found if set(item.decision.machines) & set(case.machines)]
    return found[::-1]
