"""Stages of a batch that is left out: how many there may be, and whether a checkpoint from before it is there. No machine goes."""

from __future__ import annotations

from minder.act.policy.case import Case, Ruling, passes, stops
from minder.act.policy.climb import bad_batch
from minder.model.batch_ranges import consumed_alike, format_ranges, parse_ranges

__all__ = ["bounded", "saved_before", "would_skip"]


def bounded(case: Case) -> Ruling:
    """Data that is bad again and again is for a person: so many batches are no accident."""
    skips, most = case.context.skips, case.config.max_skipped_batches
    if skips is None:
        return stops("page", "not_available", "minder only watches this job")
    if skips.today + 1 > most:
        return stops("page", "used_up", f"{skips.today} batches were left out within 24 hours, {most} are allowed: look at the data")
    return passes(f"pass, {skips.today + 1} of {most} batches within 24 hours")


def saved_before(case: Case) -> Ruling:
    """What the job goes on from has learned nothing from the batch. Without it the work of days would begin anew."""
    batch, skips = bad_batch(case.verdict), case.context.skips
    if batch is None or skips is None:
        return stops("page", "not_available", "the batch is not known")
    if skips.saved is None:
        return stops("page", "not_available", f"batch {batch} cannot be left out: which steps are saved without it is not known")
    wanted = parse_ranges(format_ranges((*parse_ranges(skips.held), range(batch, batch + 1))))
    steps = [step for step, left_out in skips.saved if consumed_alike(step, parse_ranges(left_out), wanted)]
    if steps:
        return passes(f"pass, step {max(steps)} is saved and was made without batch {batch}")
    if not skips.saved and case.context.workers_dead:
        return passes("pass, nothing is saved yet: the job begins anew either way")
    return stops("page", "not_available", f"batch {batch} cannot be left out: no complete checkpoint is from before it")


def would_skip(case: Case) -> Ruling:
    """Last. Dead workers are started again without it where minder must not act."""
    batch, name = bad_batch(case.verdict), case.context.job.name
    if case.context.restart_refused:
        return stops("page", "engine", case.context.restart_refused)
    if case.config.dry_run:
        return stops("page", "dry_run", f"dry run: would skip batch {batch} and start {name} again; --act turns it on")
    return passes()
