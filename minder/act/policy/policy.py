"""The list of stages, and how verdicts go through it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, cast, get_args

from minder.act.policy import approval, domains, limits, skipping, timing, trial, trust
from minder.act.policy.allowance import allowance
from minder.act.policy.blame import Blame, attribute
from minder.act.policy.case import Case, Stage
from minder.act.policy.climb import PASSED_ON, bad_batch, climbed, is_for, passed_beside, why_not
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.policy.ladder import ACTION_OF, Rung
from minder.act.policy.price import price, price_of
from minder.act.policy.proof import unproven, weigh
from minder.act.policy.resize import with_joins
from minder.model.decision import Climb, Decision, PassedOver, Price, Reason, RungName, Size
from minder.model.evidence import TIER_ORDER, Verdict
from minder.model.history import History

__all__ = [
    "DIAGNOSE_STAGES",
    "EVICT_STAGES",
    "REPLAY_STAGES",
    "RESTART_STAGES",
    "RETRY_REASONS",
    "ROLLBACK_STAGES",
    "SKIP_STAGES",
    "TRIAL_STAGES",
    "Policy",
    "operation_name",
]

_Act = Literal["evict", "trial", "restart", "diagnose", "replay"]
_ACTS = get_args(_Act)
_OF_THE_JOB = ("restart", "diagnose", "replay")  # no machine is exchanged
_HOLD = ("evict", "trial", "diagnose", "replay")
_OUTSIDE = ("already_barred", "not_in_job")  # what is said of a machine outside the job is no reason to restart it

EVICT_STAGES: tuple[tuple[str, Stage], ...] = (
    ("tier", timing.tier),
    ("membership", timing.membership),
    ("in_progress", timing.in_progress),
    ("barred_yet_inside", timing.barred_yet_inside),
    ("pause", timing.paused),
    ("cooldown", timing.cooldown),
    ("everywhere", trust.everywhere),
    ("rules", trust.rules_stand),
    ("shared_domain", domains.shared_domain),
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
TRIAL_STAGES: tuple[tuple[str, Stage], ...] = (
    ("tier", timing.tier),
    ("membership", timing.membership),
    ("in_progress", timing.in_progress),
    ("approval", approval.restart_waits),
    ("pause", timing.paused),
    ("cooldown", timing.cooldown),
    ("possible", trial.possible),
    ("partner", trial.partner),
    ("shared_machine", limits.shared_machine),
    ("max_restarts", timing.restarts_left),
    ("dry_run", trial.dry_run),
)
_WHOLE_JOB: tuple[tuple[str, Stage], ...] = (  # no machine goes
    ("tier", timing.tier),
    ("in_progress", timing.in_progress),
    ("approval", approval.restart_waits),
    ("pause", timing.paused),
    ("cooldown", timing.cooldown),
    ("max_restarts", timing.restarts_left),
)
DIAGNOSE_STAGES = (*_WHOLE_JOB, ("dry_run", limits.would_diagnose))
REPLAY_STAGES = (*_WHOLE_JOB, ("dry_run", limits.would_replay))
RESTART_STAGES = (*_WHOLE_JOB, ("launchers", limits.launchers), ("dry_run", limits.would_restart))
ROLLBACK_STAGES = (*_WHOLE_JOB, ("launchers", limits.launchers), ("checkpoint", timing.readable), ("dry_run", limits.would_restart))
SKIP_STAGES = (
    *_WHOLE_JOB,
    ("launchers", limits.launchers),
    ("bound", skipping.bounded),
    ("checkpoint", skipping.saved_before),
    ("dry_run", skipping.would_skip),
)
_STAGES_OF_RUNG: dict[str, tuple[tuple[str, Stage], ...]] = {"rollback": ROLLBACK_STAGES, "skip_batch": SKIP_STAGES}
_RUNG_OF: dict[str, RungName] = {"evict": "evict", "trial": "trial", "restart": "reattempt", "diagnose": "diagnose"}  # of old decisions
_MEANWHILE = Rung(rung="reattempt", on=("standstill",))
_STAGES = {"evict": EVICT_STAGES, "trial": TRIAL_STAGES, "restart": RESTART_STAGES, "diagnose": DIAGNOSE_STAGES, "replay": REPLAY_STAGES}

# A decision with one of these said "not now": ask again with the same verdict at the next tick.
RETRY_REASONS: frozenset[Reason] = frozenset({"cooldown", "already_in_progress", "awaiting_approval", "launcher_gone"})


class Policy:
    """Decides by the stages above, in their order. Pure: the same input gives the same decisions and operation ids."""

    def __init__(self, config: PolicyConfig | None = None) -> None:
        self.config = config or PolicyConfig()

    def decide(self, verdicts: Sequence[Verdict], history: History, context: PolicyContext) -> list[Decision]:
        """One decision per verdict, except that evictions that pass together become one decision (one restart for all).

        Whose a trouble is, is a matter of its failures and of what is remembered (minder.act.policy.blame); what is done about it is the
        ladder's (minder.act.policy.ladder): the first rung for it that can be used.
        At most one decision acts ("evict", "trial", "diagnose", "replay" or "restart"), the one of the highest rank; it comes first.
        Where another than a restart was stopped although workers are dead, a "restart" of the job as it is may be added, and a page where
        the day has seen too many restarts.
        """
        weighed = [weigh(verdict, history, context.now_s) for verdict in verdicts]
        blamed = [(verdict, attribute(verdict, history, context)) for verdict in sorted(weighed, key=_urgency)]
        blamed.sort(key=lambda item: -self._highest(item[1]))  # the highest rung takes standbys and budgets first
        suspects = self._suspects(weighed, context)
        acting: list[Decision] = []
        others: list[Decision] = []
        in_place: list[Decision] = []
        for verdict, blame in blamed:
            planned = tuple(machine for decision in acting if decision.action == "evict" for machine in decision.machines)
            taken = tuple(standby for decision in acting for standby in decision.replacements)
            around = Case(verdict, "evict", "", history, context, self.config, (), planned, taken, suspects)
            action, decision = self._climb(around, blame)
            where = in_place if action == "restart" else acting if decision.action in _HOLD else others
            where.append(decision)
        best = max(acting, key=self._rank, default=None)
        together = [item for item in acting if best is not None and item.action == best.action == "evict"]
        first = [_merge(together, context)] if together else [] if best is None else [best]
        waiting = [_wait_for(first[0], item) for item in acting if item is not best and item not in together]
        restarts = self._restarts(in_place, [] if acting else others, history, context)
        if acting:
            restarts = [_wait_for(first[0], decision) for decision in restarts]
        found = sorted([*first, *restarts, *waiting, *others], key=lambda decision: decision.action not in _ACTS)
        found[:1] = [self._sized(decision, Case(decision.verdict, "evict", "", history, context, self.config)) for decision in found[:1]]
        return [*found, *self._too_often(found, history, context)]

    def _highest(self, blame: Blame) -> int:
        return max((rank for rank, item in self.config.ladder.climb(blame.trouble) if item.rung != "page"), default=0)

    def _rank(self, decision: Decision) -> int:
        return self.config.ladder.rank(decision.rung, decision.trouble)

    def _climb(self, around: Case, blame: Blame) -> tuple[str, Decision]:
        """(the action that was wanted, the decision): the first rung for this trouble that can be used; a person, if none can."""
        passed: list[PassedOver] = []
        tried: dict[str, Decision] = {}  # by action: the first rung that a stage refused
        verdict, history, context, ladder = around.verdict, around.history, around.context, self.config.ladder
        for _, item in ladder.climb(blame.trouble):
            action = ACTION_OF.get(item.rung)
            if item.rung == "page" or action == "page" or action in tried or not is_for(item, verdict):
                continue
            why = unproven(item, blame, verdict, ladder) or why_not(item, blame, verdict, history, context, ladder.window_s)
            if why is not None or action is None:
                passed += [] if why is None else [why]
                continue
            decision = self._on(item, action, blame, around, passed)
            if decision.action != "page" or decision.reason not in PASSED_ON:
                stopped = item.rung in _STAGES_OF_RUNG and decision.reason in ("not_available", "used_up")
                return "page" if stopped else action, decision  # a person is called, and dead workers are started again as they were
            tried[action] = decision
            passed = [*decision.passed_over]
        if tried:
            wanted, decision = next(iter(tried.items()))
            return wanted, replace(decision, passed_over=tuple(passed))
        return "page", self._person(around, blame, passed)

    def _on(self, item: Rung, action: _Act, blame: Blame, around: Case, passed: Sequence[PassedOver]) -> Decision:
        """The decision of one rung, by its stages."""
        machines = () if action in _OF_THE_JOB else blame.machines
        back = around.context.rollback if item.rung == "rollback" else None
        batch = bad_batch(around.verdict) if item.rung == "skip_batch" else None
        what = "skip" if batch is not None else action if back is None else "rollback"
        name = operation_name(replace(around.verdict, machines=machines), what, around.context)
        case = replace(around, action=action, operation_id=name, machines=machines, rung=item.rung, trouble=blame.trouble)
        beside = passed_beside(item, around.context) if item.beside else ()
        missing = {skipped.rung for skipped in beside}
        decision = replace(_run(case, blame), beside=tuple(name for name in item.beside if name not in missing))
        if back is not None and decision.action == action:
            said = f"update {back.of} is taken back to {back.to}: first seen after it; {blame.say}"
            decision = replace(decision, update=back.to, detail=said)
        if batch is not None and decision.action == action:
            decision = replace(decision, skip=str(batch), detail=f"batch {batch} is left out from now on: {blame.say}")
        return _placed(decision, (*passed, *beside), self._climbed(around))

    def _climbed(self, around: Case) -> tuple[Climb, ...]:
        return climbed(around.history, around.context.now_s - self.config.ladder.window_s)

    def _person(self, around: Case, blame: Blame, passed: Sequence[PassedOver]) -> Decision:
        """No rung is left, or the ladder has none for this trouble: as the tier of the verdict says, at most a page."""
        name = operation_name(replace(around.verdict, machines=blame.machines), "page", around.context)
        case = replace(around, operation_id=name, machines=blame.machines, rung="page", trouble=blame.trouble)
        ruling, left = timing.tier(case), ", ".join(dict.fromkeys(item.rung for item in passed))
        say = f"no rung is left for a trouble of kind {blame.trouble}" + (f" after {left}: {blame.say}" if left else f": {blame.say}")
        action: Literal["page", "none"] = ruling.action or "page"
        unnamed, doubt = (
            any(item.reason == "no_machine_to_blame" for item in passed),
            [item for item in passed if item.reason == "unproven"],
        )
        if doubt:  # what the tests found, if there were any, says more than that no rung is left
            say = "; ".join([doubt[0].detail, *(item.detail for item in passed if item.rung == "diagnose")])
        left_over: Reason = "no_machine_to_blame" if unnamed else "unproven" if doubt else "end_of_ladder"
        reason: Reason = ruling.reason if ruling.action is not None else left_over
        decision = Decision(
            name, around.context.now_s, action, blame.machines, reason, say if ruling.action is None else ruling.say, around.verdict,
            jobs_affected=_jobs_affected(blame.machines, around.context), stages=(f"blame: {blame.say}", f"tier: {ruling.say}"),
            rung="page", trouble=blame.trouble,
        )  # fmt: skip
        return replace(decision, passed_over=tuple(passed), climbed=self._climbed(around))

    def recheck(self, decision: Decision, history: History, context: PolicyContext) -> Decision:
        """The same decision just before acting on it, if every stage still passes; else "page" or "none" with the reason.

        Replacements may change where a chosen standby is gone. The decision's own intent in `history` does not count against it.
        """
        if decision.action not in _ACTS:
            return decision
        own = decision.operation_id
        before = replace(history, actions=tuple(item for item in history.actions if item.operation_id != own))
        if decision.action in ("trial", "restart") and any(item.operation_id == own for item in history.actions):
            before = replace(before, restarts=max(0, before.restarts - 1))
        around = replace(context, in_progress=None) if context.in_progress == own else context
        action = cast(_Act, decision.action)
        case = Case(decision.verdict, action, own, before, around, self.config, decision.machines, preferred=decision.replacements)
        case = replace(case, rung=decision.rung or _RUNG_OF[action], trouble=decision.trouble)
        again = _run(replace(case, suspects=self._suspects([], context)))
        stages = (*decision.stages, *(f"recheck {line}" for line in again.stages))
        if again.action == action:
            found = replace(decision, replacements=again.replacements, size=again.size, price=again.price or decision.price, stages=stages)
            return self._sized(found, case)
        return _placed(replace(again, stages=stages), decision.passed_over, decision.climbed)

    def _sized(self, decision: Decision, around: Case) -> Decision:
        """With the standbys that a job which is short takes in besides."""
        if decision.action not in ("evict", "restart"):
            return decision
        case = replace(around, machines=decision.machines, suspects=self._suspects([decision.verdict], around.context))
        return with_joins(decision, case, limits.ready_standbys(case))

    def _suspects(self, verdicts: Sequence[Verdict], context: PolicyContext) -> tuple[str, ...]:
        since_s = context.now_s - self.config.domain_window_s
        named = [verdict for verdict in verdicts if verdict.kind in ("machine", "group") and TIER_ORDER[verdict.tier] >= TIER_ORDER["page"]]
        recent = [machine for machine, time_s in context.suspects.items() if time_s >= since_s]
        return tuple(dict.fromkeys([*(machine for verdict in named for machine in verdict.machines), *recent]))

    def _restarts(
        self, found: list[Decision], stopped: Sequence[Decision], history: History, context: PolicyContext
    ) -> list[Decision]:  # fmt: skip
        """found: restarts in place that are wanted, or were stopped. To them comes the restart of a job whose eviction or trial was
        stopped while its workers are dead or hang: a person is called, and the job does not wait for one."""
        stuck = [item for item in stopped if item.reason not in (*RETRY_REASONS, *_OUTSIDE) and item.verdict.kind != "recovered"]
        stands = context.hangs and any(limits.HANG in item.verdict.sources for item in stuck)
        # Processes whose ranks have failed may take a while to end.
        failed = any(item.verdict.kind == "job" and limits.CRASH in item.verdict.sources for item in stuck)
        in_place = (context.workers_dead or stands or failed) and not context.machines_lost & set(context.job.machines)
        if stuck and in_place and not found:
            dead = "the job's workers are dead" if context.workers_dead else "the job stands" if stands else "the job's ranks have failed"
            blame = Blame("standstill", (), f"{dead}, and {stuck[0].reason} stopped what was wanted first")
            verdict = replace(stuck[0].verdict, kind="job", machines=())
            around = Case(verdict, "restart", "", history, context, self.config)
            found = [self._on(_MEANWHILE, "restart", blame, around, stuck[0].passed_over)]
            paged = any(item.action == "page" for item in stopped)  # one page per trouble, unless the second says something new
            found = [item for item in found if item.action == "restart" or item.reason == "max_restarts" or not paged]
        restarts = [decision for decision in found if decision.action == "restart"]
        kept = sorted(restarts, key=lambda decision: not decision.skip)[:1]  # its crash is an echo of a bad batch
        return kept + [_wait_for(kept[0], item) if item.action == "restart" else item for item in found if item not in kept]

    def _too_often(self, decisions: Sequence[Decision], history: History, context: PolicyContext) -> list[Decision]:
        """A job that is restarted all day makes progress, or it would have ended: it goes on, and a person should know."""
        limit = allowance(self.config, len(context.job.machines), None).restarts
        acting = [decision for decision in decisions if decision.action in ("trial", *_OF_THE_JOB)]
        if not acting or history.restarts_today < limit:
            return []
        detail = f"{history.restarts_today} restarts within 24 hours, {limit} are usual at most: look why the job keeps failing"
        name = f"page-{acting[0].operation_id}"
        return [replace(acting[0], operation_id=name, action="page", reason="max_restarts_per_day", detail=detail, replacements=())]


def operation_name(verdict: Verdict, action: str, context: PolicyContext) -> str:
    """The same conclusion about the same generation has the same name, also after the controller was restarted."""
    job = context.job
    facts = [job.name, job.generation, action, sorted(verdict.machines), int(verdict.since_s)]
    return f"{action}-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]}"


def _urgency(verdict: Verdict) -> tuple[int, bool, float, float, tuple[str, ...]]:
    """Budgets go to the surest verdicts first; the order of the input does not matter."""
    return (-TIER_ORDER[verdict.tier], verdict.cause != "explicit", -verdict.confidence, verdict.since_s, verdict.machines)


def _run(case: Case, blame: Blame | None = None) -> Decision:
    """Through the stages of its action until one stops the case."""
    lines: list[str] = [] if blame is None else [f"blame: {blame.say}"]
    cost: Price | None = None
    size: Size | None = None
    replacements: tuple[str, ...] = ()
    action: Literal["evict", "trial", "restart", "diagnose", "replay", "page", "none"] = case.action
    reason: Reason = "act"
    detail = f"every stage passed: {case.action}" if blame is None or not case.verdict.failures else f"{case.action}: {blame.say}"
    for name, stage in _STAGES_OF_RUNG.get(case.rung) or _STAGES[case.action]:
        ruling = stage(case)
        lines.append(f"{name}: {ruling.say}")
        cost, size = ruling.price or cost, ruling.size or size
        replacements = replacements if ruling.replacements is None else ruling.replacements
        if ruling.action is not None:
            action, reason, detail = ruling.action, ruling.reason, ruling.say
            break
    if action in _ACTS and cost is None:
        cost = price_of(case)
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
        rung=case.rung,
        trouble=case.trouble,
        size=size if action in _ACTS or reason == "dry_run" else None,
    )


def _placed(decision: Decision, passed: Sequence[PassedOver], climbs: tuple[Climb, ...]) -> Decision:
    """With its place on the ladder. A page is a person's rung: the one below was stopped, and why stands with those passed over."""
    if decision.action != "page":
        return replace(decision, passed_over=tuple(passed), climbed=climbs)
    stopped = PassedOver(decision.rung, decision.reason, decision.detail)
    return replace(decision, rung="page", passed_over=(*passed, stopped), climbed=climbs, beside=())


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
        machines=tuple(dict.fromkeys(machine for item in decisions for machine in item.machines)),
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
        size=min((item.size for item in decisions if item.size), key=lambda size: size.machines, default=None),
        jobs_affected=_jobs_affected(verdict.machines, context),
        stages=tuple(f"{' '.join(item.machines)} {line}" for item in decisions for line in item.stages),
    )


def _wait_for(running: Decision, decision: Decision) -> Decision:
    """What another decision of this call, of a higher rank, makes needless for now."""
    if decision.action not in _ACTS:
        return decision
    detail = f"{running.operation_id} restarts the job"
    return replace(
        decision, action="none", reason="already_in_progress", detail=detail, stages=(*decision.stages, f"in_progress: {detail}")
    )
