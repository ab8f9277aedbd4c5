"""Past decisions taken again with other settings: from the ledger alone, nothing is written and nothing is acted on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minder.act.controller.state import fold_job
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.policy.ladder import OFFERED, WITH_LAUNCHERS
from minder.act.policy.limits import HANG
from minder.act.policy.policy import Policy
from minder.model.clock import format_time
from minder.model.decision import Decision
from minder.model.errors import WireError
from minder.model.history import LedgerEvent
from minder.record.api.policy import DryRun, Redecided
from minder.record.incidents import kinds
from minder.record.incidents.history import HISTORY_KINDS, fold_history, fold_suspects
from minder.wire.codec import from_json

__all__ = ["DRY_RUN_KINDS", "MOST_DECISIONS", "RESTART_S", "DecidedAgain", "decide_again", "redecide", "would_evict"]

DRY_RUN_KINDS = (*HISTORY_KINDS, kinds.DECISION, kinds.FIRST_STEP, kinds.VERDICT)
MOST_DECISIONS = 200
RESTART_S = 30.0  # where none was measured
_UNKNOWN = (
    "which standbys were ready: all that the job registered and no generation used",
    "which machines answered then: a group that stands in one rack or behind one switch is paged",
    "what a restart cost, where the decision of then has no price, and how much speed was lost: the policy's own assumptions",
    "what else would have changed: the history stays as it was",
)


def redecide(job: str, events: Sequence[LedgerEvent], config: PolicyConfig) -> DryRun:
    """The job's newest decisions about machines (at most MOST_DECISIONS) under `config`. events: of DRY_RUN_KINDS, of every job."""
    changed, then_evicted, now_evicted = [], 0, 0
    decided = decide_again(job, events, config)
    for index, then, now in decided:
        then_evicted += would_evict(then)
        now_evicted += would_evict(now)
        if (then.action, then.reason) == (now.action, now.reason) or (would_evict(then) and would_evict(now)):
            continue
        changed.append(
            Redecided(
                incident=events[index].incident or "",
                time=format_time(events[index].time_s),
                machines=then.verdict.machines,
                then=then.action,
                then_reason=then.reason,
                now=now.action,
                now_reason=now.reason,
                detail=now.detail,
            )
        )
    return DryRun(
        job=job,
        verdicts=len(decided),
        evictions_then=then_evicted,
        evictions_now=now_evicted,
        changed=tuple(changed),
        unknown=_UNKNOWN,
    )


class DecidedAgain(NamedTuple):
    """A decision as it was taken, and as it would be now. place: among the events."""

    place: int
    then: Decision
    now: Decision


def decide_again(
    job: str, events: Sequence[LedgerEvent], config: PolicyConfig, machines_only: bool = True
) -> list[DecidedAgain]:  # fmt: skip
    """Each of the job's newest decisions, oldest first; machines_only: of those about machines."""
    return [DecidedAgain(index, then, _again(job, events[:index], then, config)) for index, then in _decisions(job, events, machines_only)]


def would_evict(decision: Decision) -> bool:
    """A dry run stops at its last stage: all others passed."""
    return decision.action == "evict" or decision.reason == "dry_run"


def _decisions(job: str, events: Sequence[LedgerEvent], machines_only: bool) -> list[tuple[int, Decision]]:
    """The last decision of every operation (that concerned machines), with its place among the events."""
    found: dict[str, tuple[int, Decision]] = {}
    for index, event in enumerate(events):
        if event.kind != kinds.DECISION or event.job != job:
            continue
        try:
            decision = from_json(Decision, event.payload)
        except WireError:  # written by a version that knows more than this one
            continue
        if decision.verdict.machines or not machines_only:
            found[decision.operation_id] = (index, decision)
    return sorted(found.values(), key=lambda item: item[0])[-MOST_DECISIONS:]


def _again(job: str, before: Sequence[LedgerEvent], then: Decision, config: PolicyConfig) -> Decision:
    own = [event for event in before if event.job == job]
    state = fold_job(job, own)
    registered = next((event.payload for event in reversed(own) if event.kind == kinds.JOB_REGISTERED), None) or _attached(own)
    if not state.rank_machine:  # a job that is only watched registers nothing
        members = [str(name) for name in registered.get("machines") or then.verdict.machines]
        state.rank_machine, state.phase = dict(enumerate(members)), "running"
    used, gpus = set(state.rank_machine.values()), int(registered.get("gpus") or 1)
    restart_s, unsaved_s = _restart_cost(then, config, gpus)
    standbys = tuple(name for name in map(str, registered.get("standbys") or ()) if name not in used | state.barred)
    context = PolicyContext(
        now_s=then.time_s,
        job=state.view(standbys),
        standbys_ready=standbys,
        domains=registered.get("domains") or {},
        gpus=gpus,
        largest_group=int(registered.get("largest_group") or 1),
        since_checkpoint_s=unsaved_s,
        expected_restart_s=restart_s,
        workers_dead=then.verdict.kind == "job" and then.action in kinds.ACTS,
        hangs=HANG in then.verdict.sources,
        offers=OFFERED | (WITH_LAUNCHERS if _was_offered(then, registered) else frozenset()),
        suspects=fold_suspects([event for event in before if event.kind == kinds.VERDICT], then.time_s - config.domain_window_s),
    )
    history = fold_history(before, job, then.time_s)
    decided = Policy(config).decide([then.verdict], history, context)
    return next((item for item in decided if item.machines == then.verdict.machines), decided[0])


def _restart_cost(then: Decision, config: PolicyConfig, gpus: int) -> tuple[float, float]:
    """Seconds of a restart, and of work since the last checkpoint, which the decision reckoned with then; as is assumed where it does not
    say: it has no price, or one of a job that went on with fewer machines."""
    known = then.price is not None and then.size is None and math.isfinite(then.price.acting_gpu_s)
    if then.price is None or not known:
        return RESTART_S, config.assumed_unsaved_s
    test_s = {"diagnose": config.diagnose_limit_s, "replay": config.replay_limit_s}.get(then.action, 0.0)
    both_s = max(0.0, then.price.acting_gpu_s / max(1, gpus) - test_s)
    return min(both_s, RESTART_S), max(0.0, both_s - RESTART_S)


def _was_offered(then: Decision, registered: Mapping[str, Any]) -> bool:
    """Whether the job's machines could be tested while it stood: its launchers did not say otherwise."""
    missing = any(item.reason == "not_available" and item.rung in WITH_LAUNCHERS for item in then.passed_over)
    return bool(registered.get("launchers")) and not missing


def _attached(events: Sequence[LedgerEvent]) -> Mapping[str, Any]:
    """What a watch said of the job when it attached: machines, standbys, gpus. Empty for one of an earlier version."""
    attached = (event.payload.get("attached") for event in reversed(events) if event.kind == kinds.NOTE)
    return next((dict(item) for item in attached if isinstance(item, Mapping)), {})
