"""GPU-seconds lost by acting now against waiting for a person."""

from __future__ import annotations

import math

from minder.act.policy.case import Case, Ruling
from minder.act.policy.limits import ready_standbys
from minder.act.policy.resize import fewer
from minder.model.decision import Price, Size

__all__ = ["price", "price_of", "speed_lost_share"]


def price(case: Case) -> Ruling:
    """Below break-even nothing is evicted; where the price is not known (NaN, infinite) neither."""
    found = price_of(case)
    said = f"acting costs {found.acting_gpu_s:.0f} GPU-s, waiting {found.waiting_gpu_s:.0f} GPU-s"
    if case.context.remaining_s is not None and _costs_by_speed(case):
        said += f"; the job has about {case.context.remaining_s:.0f} s left"
    if math.isfinite(found.acting_gpu_s) and found.waiting_gpu_s >= found.acting_gpu_s * case.config.break_even:
        return Ruling(f"pass, {said}", price=found)
    return Ruling(said, "page", "below_break_even", price=found)


def price_of(case: Case) -> Price:
    """Acting: restart plus the work since the last checkpoint, on every GPU of the job; a diagnosis or a replay
    stands as long as it may at most; a job
    that goes on with fewer machines also loses their share of its speed, for as long as a slow machine would slow it down, or until a
    person brings a standby.

    Waiting, weighed by the verdict's confidence: a stopped job loses everything until a person comes, and then pays the same
    restart; a slow one loses a share of its speed until the configured horizon, or until the job is done where that comes first.
    Where workers are dead, the restart comes whatever is to blame: that part has no doubt.
    """
    context, config, confidence = case.context, case.config, case.verdict.confidence
    gpus = max(1, context.gpus)
    restart_s = context.expected_restart_s + context.since_checkpoint_s
    test_s = {"diagnose": config.diagnose_limit_s, "replay": config.replay_limit_s}.get(case.action, 0.0)
    acting_s = restart_s + test_s + _missing_share(case) * (_slow_s(case) if _costs_by_speed(case) else config.response_s)
    if _costs_by_speed(case):
        waiting_s = speed_lost_share(case) * _slow_s(case) * confidence
    else:
        waiting_s = config.response_s * confidence + restart_s * (1.0 if context.workers_dead else confidence)
    return Price(acting_gpu_s=gpus * acting_s, waiting_gpu_s=gpus * waiting_s)


def _missing_share(case: Case) -> float:
    """Of the job's machines, that it goes on without."""
    ready = ready_standbys(case) if case.action == "evict" and case.context.sizes is not None else []
    size = fewer(case, ready) if len(ready) < len(case.machines) else ""
    machines = len(case.context.job.machines)
    return max(0.0, 1.0 - size.machines / machines) if isinstance(size, Size) and machines else 0.0


def _costs_by_speed(case: Case) -> bool:
    """A job that steps on, but slowly."""
    return case.verdict.cause in ("slowdown", "unknown") and not case.context.workers_dead


def _slow_s(case: Case) -> float:
    """For how long a slow machine would slow the job down."""
    remaining_s = case.context.remaining_s
    return case.config.slowdown_horizon_s if remaining_s is None else min(case.config.slowdown_horizon_s, remaining_s)


def speed_lost_share(case: Case) -> float:
    """By the replay of the job's own steps; else as measured against its past, which a machine that was slow from the start on spoils; else
    from the verdict's step_seconds evidence, else the configured assumption. In 0..1."""
    shares = [
        (item.source, min(1.0, max(0.0, 1.0 - item.expected / item.observed)))
        for item in case.verdict.evidence
        if item.metric == "step_seconds" and item.observed and item.expected and item.observed > 0
    ]
    replayed = [share for source, share in shares if source == "whatif"]
    if replayed:
        return max(replayed)
    if case.context.speed_lost_share is not None:
        return min(1.0, max(0.0, case.context.speed_lost_share))
    return shares[0][1] if shares else case.config.assumed_slowdown_share
