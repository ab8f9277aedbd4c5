"""The list of stages, and how verdicts go through it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from minder.policy import approval, limits, timing
from minder.policy.case import Case, Stage
from minder.policy.config import PolicyConfig
from minder.policy.context import PolicyContext
from minder.policy.price import price
from minder.types import TIER_ORDER, Decision, History, Price, Reason, Verdict

__all__ = ["EVICT_STAGES", "RESTART_STAGES", "RETRY_REASONS", "Policy", "operation_name"]

EVICT_STAGES: tuple[tuple[str, Stage], ...] = (
    ("tier", timing.tier),
    ("membership", timing.membership),
    ("in_progress", timing.in_progress),
    ("barred_yet_inside", timing.barred_yet_inside),
    ("pause", timing.paused),
    ("cooldown", timing.cooldown),
    ("shared_domain", limits.shared_domain),
    ("group_size", limits.group_size),
    ("budgets", limits.budgets),
    ("breaker", limits.breaker),
    ("engine", limits.engine),
    ("standbys", limits.standbys),
    ("shared_machine", limits.shared_machine),
    ("price", price),
    ("dry_run", limits.dry_run),
    ("approval", approval.answered),
)
RESTART_STAGES: tuple[tuple[str, Stage], ...] = (
    ("tier", timing.tier),
    ("in_progress", timing.in_progress),
    ("approval", approval.restart_waits),
    ("pause", timing.paused),
    ("cooldown", timing.cooldown),
    ("max_restarts", timing.restarts_left),
    ("dry_run", limits.would_restart),
)

# A decision with one of these said "not now": ask again with the same verdict at the next tick.
RETRY_REASONS: frozenset[Reason] = frozenset({"cooldown", "already_in_progress", "awaiting_approval"})


class Policy:
    """Decides by the stages above, in their order. Pure: the same input gives the same decisions and operation ids."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        self.config = config or PolicyConfig()

    def decide(self, verdicts: Sequence[Verdict], history: History, context: PolicyContext) -> list[Decision]:
        """One decision per verdict, except that evictions that pass together become one decision (one restart for all).

        At most one decision acts ("evict" or "restart"); it comes first. Where an eviction was stopped although workers are
        dead, a "restart" of the job as it is may be added.
        """
        suspects = self._suspects(verdicts, context)
        acting: list[Decision] = []
        others: list[Decision] = []
        for verdict in sorted(verdicts, key=_urgency):
            if verdict.kind == "job":
                continue
            planned = tuple(machine for decision in acting for machine in decision.machines)
            taken = tuple(standby for decision in acting for standby in decision.replacements)
            case = self._case(verdict, "evict", history, context)
            decision = _run(replace(case, planned=planned, taken=taken, suspects=suspects), EVICT_STAGES)
            (acting if decision.action == "evict" else others).append(decision)
        first = [_merge(acting, context)] if acting else []
        restarts = self._restarts(verdicts, [] if acting else others, history, context)
        if acting:
            restarts = [_wait_for(first[0], decision) for decision in restarts]
        return sorted([*first, *restarts, *others], key=lambda decision: decision.action not in ("evict", "restart"))

    def recheck(self, decision: Decision, history: History, context: PolicyContext) -> Decision:
        """The same decision just before acting on it, if every stage still passes; else "page" or "none" with the reason.

        Replacements may change where a chosen standby is gone. The decision's own intent in `history` does not count against it.
        """
        if decision.action not in ("evict", "restart"):
            return decision
        action: Literal["evict", "restart"] = "evict" if decision.action == "evict" else "restart"
        own = decision.operation_id
        before = replace(history, actions=tuple(item for item in history.actions if item.operation_id != own))
        if action == "restart" and any(item.operation_id == own and item.action == "restart" for item in history.actions):
            before = replace(before, restarts=max(0, before.restarts - 1))
        around = replace(context, in_progress=None) if context.in_progress == own else context
        case = Case(decision.verdict, action, own, before, around, self.config, preferred=decision.replacements)
        again = _run(replace(case, suspects=self._suspects([], context)), EVICT_STAGES if action == "evict" else RESTART_STAGES)
        stages = (*decision.stages, *(f"recheck {line}" for line in again.stages))
        if again.action == action:
            return replace(decision, replacements=again.replacements, price=again.price or decision.price, stages=stages)
        return replace(again, stages=stages)

    def _suspects(self, verdicts: Sequence[Verdict], context: PolicyContext) -> tuple[str, ...]:
        since_s = context.now_s - self.config.domain_window_s
        named = [verdict for verdict in verdicts if verdict.kind in ("machine", "group") and TIER_ORDER[verdict.tier] >= TIER_ORDER["page"]]
        recent = [machine for machine, time_s in context.suspects.items() if time_s >= since_s]
        return tuple(dict.fromkeys([*(machine for verdict in named for machine in verdict.machines), *recent]))

    def _case(self, verdict: Verdict, action: Literal["evict", "restart"], history: History, context: PolicyContext) -> Case:
        return Case(verdict, action, operation_name(verdict, action, context), history, context, self.config)

    def _restarts(
        self, verdicts: Sequence[Verdict], stopped: Sequence[Decision], history: History, context: PolicyContext
    ) -> list[Decision]:
        """Job verdicts, and the restart in place of a job whose eviction was stopped while its workers are dead."""
        blameless = sorted((verdict for verdict in verdicts if verdict.kind == "job"), key=_urgency)
        found = [_run(self._case(verdict, "restart", history, context), RESTART_STAGES) for verdict in blameless]
        stuck = [item for item in stopped if item.reason not in RETRY_REASONS and item.verdict.kind != "recovered"]
        in_place = context.workers_dead and not context.machines_lost & set(context.job.machines)
        if stuck and in_place and not found:
            whole = replace(stuck[0].verdict, machines=(), kind="job")
            found = [_run(self._case(whole, "restart", history, context), RESTART_STAGES)]
            told = any(item.action == "page" for item in stopped)  # one page per trouble, unless the second says something new
            found = [item for item in found if item.action == "restart" or item.reason == "max_restarts" or not told]
        kept = [decision for decision in found if decision.action == "restart"][:1]
        return kept + [_wait_for(kept[0], item) if item.action == "restart" else item for item in found if item not in kept]


def operation_name(verdict: Verdict, action: str, context: PolicyContext) -> str:
    """The same conclusion about the same generation has the same name, also after the controller was restarted."""
    job = context.job
    facts = [job.name, job.generation, action, sorted(verdict.machines), int(verdict.since_s)]
    return f"{action}-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]}"


def _urgency(verdict: Verdict) -> tuple[int, bool, float, float, tuple[str, ...]]:
    """Budgets go to the surest verdicts first; the order of the input does not matter."""
    return (-TIER_ORDER[verdict.tier], verdict.cause != "explicit", -verdict.confidence, verdict.since_s, verdict.machines)


def _run(case: Case, stages: Sequence[tuple[str, Stage]]) -> Decision:
    """Through the stages until one stops the case."""
    lines: list[str] = []
    cost: Price | None = None
    replacements: tuple[str, ...] = ()
    action: Literal["evict", "restart", "page", "none"] = case.action
    reason: Reason = "act"
    detail = f"every stage passed: {case.action}"
    for name, stage in stages:
        ruling = stage(case)
        lines.append(f"{name}: {ruling.say}")
        cost = ruling.price or cost
        replacements = replacements if ruling.replacements is None else ruling.replacements
        if ruling.action is not None:
            action, reason, detail = ruling.action, ruling.reason, ruling.say
            break
    return Decision(
        operation_id=case.operation_id,
        time_s=case.context.now_s,
        action=action,
        machines=case.machines,
        reason=reason,
        detail=detail,
        verdict=case.verdict,
        price=cost,
        replacements=replacements,
        jobs_affected=_jobs_affected(case.machines, case.context),
        stages=tuple(lines),
    )


def _jobs_affected(machines: Sequence[str], context: PolicyContext) -> tuple[str, ...]:
    """Every job that would die with these machines, this one first."""
    others = sorted({job for machine in machines for job in context.other_jobs.get(machine, ())} - {context.job.name})
    return (context.job.name, *others)


def _merge(decisions: Sequence[Decision], context: PolicyContext) -> Decision:
    """Machines that must go at the same moment go in one eviction, with one restart."""
    if len(decisions) == 1:
        return decisions[0]
    verdicts = [decision.verdict for decision in decisions]
    prices = [decision.price for decision in decisions if decision.price]
    verdict = replace(
        verdicts[0],
        kind="group" if any(verdict.kind == "group" for verdict in verdicts) else "machine",
        machines=tuple(machine for item in verdicts for machine in item.machines),
        confidence=min(item.confidence for item in verdicts),
        since_s=min(item.since_s for item in verdicts),
        evidence=tuple(piece for item in verdicts for piece in item.evidence),
        against=tuple(piece for item in verdicts for piece in item.against),
        sources=tuple(dict.fromkeys(source for item in verdicts for source in item.sources)),
    )
    return replace(
        decisions[0],
        operation_id=operation_name(verdict, "evict", context),
        machines=verdict.machines,
        verdict=verdict,
        detail=f"{len(decisions)} verdicts at once: one eviction, one restart",
        price=Price(max(p.acting_gpu_s for p in prices), max(p.waiting_gpu_s for p in prices)) if prices else None,
        replacements=tuple(standby for item in decisions for standby in item.replacements),
        jobs_affected=_jobs_affected(verdict.machines, context),
        stages=tuple(f"{' '.join(item.machines)} {line}" for item in decisions for line in item.stages),
    )


def _wait_for(running: Decision, decision: Decision) -> Decision:
    """A restart that another decision of this call includes."""
    if decision.action != "restart":
        return decision
    detail = f"{running.operation_id} restarts the job"
    return replace(
        decision, action="none", reason="already_in_progress", detail=detail, stages=(*decision.stages, f"in_progress: {detail}")
    )
