"""Which rung a trouble is on: what was climbed for it before, what can be used now, and what is passed over. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from minder.act.policy.blame import OF_NUMBERS, Blame
from minder.act.policy.context import PolicyContext, Rollback
from minder.act.policy.ladder import ACTION_OF, Rung
from minder.model.batch_ranges import parse_ranges
from minder.model.decision import Climb, PassedOver, Reason
from minder.model.evidence import SPOILT, Failure, Verdict
from minder.model.history import History

__all__ = ["PASSED_ON", "bad_batch", "climbed", "is_for", "is_spoilt", "passed_beside", "why_not", "why_not_skipped"]

# A rung that a stage stopped with one of these cannot be used here, and the next one is looked at. What else stops it (a pause, a budget,
# a dry run) is for a person, and ends the climb.
PASSED_ON: frozenset[Reason] = frozenset({"no_trial", "no_standby"})
_WORDS = {
    "diagnose": "stop-time diagnosis",
    "rollback": "the rollback of the last update of the job's code",
    "skip_batch": "leaving a batch out",
    "replay": "dual-phase replay",
    "probes": "probes beside the restart",
}
_MOST_TOLD = 12


def is_for(item: Rung, verdict: Verdict) -> bool:
    """A group is evicted as one, and a single machine by itself: the other rung does not concern it."""
    return item.rung != "over_evict" or verdict.kind == "group"


def why_not(item: Rung, blame: Blame, verdict: Verdict, history: History, context: PolicyContext, window_s: float) -> PassedOver | None:
    """Why this rung cannot be used now, or None."""
    if item.rung == "skip_batch" and (kept := why_not_skipped(blame, verdict, context)) is not None:
        return kept
    if item.rung not in context.offers:
        return PassedOver(item.rung, "not_available", f"{_WORDS.get(item.rung, item.rung)} is not available here")
    if item.rung == "rollback" and (why := _kept(blame, verdict, history, context)):
        return PassedOver(item.rung, "not_available", why)
    action, named = ACTION_OF.get(item.rung), len(blame.machines)
    if action in ("evict", "trial") and not named:
        return PassedOver(item.rung, "no_machine_to_blame", "no machine is named")
    if action == "trial" and named > 1:
        return PassedOver(item.rung, "no_trial", f"{named} machines are named, and a trial exchanges one")
    if item.after > blame.seen and not (item.rung == "skip_batch" and is_spoilt(verdict)):
        return PassedOver(item.rung, "too_early", f"only from the time on that it comes back {item.after} times; it did {blame.seen}")
    if item.times is None:
        return None
    past = _used(item.rung, verdict.failures, history, context.now_s - window_s)
    if blame.trouble == "slow":
        past = _used_for(item.rung, verdict.machines, history, context.now_s - window_s)
    used = blame.seen if item.rung == "reattempt" else len(past)
    if used >= item.times:
        found = next((climb.finding for climb in reversed(past) if climb.finding), "")
        return PassedOver(item.rung, "used_up", f"{used} of {item.times} for this trouble already" + (f": {found}" if found else ""))
    return None


def bad_batch(verdict: Verdict) -> int | None:
    """The batch that a verdict on numbers is about; None where its failures name none."""
    return next((item.batch for item in verdict.failures if item.sort in OF_NUMBERS and item.batch is not None), None)


def is_spoilt(verdict: Verdict) -> bool:
    """Whether the job trains on with weights that all ranks' own numbers have spoilt: going back is right whatever it was, and with the
    batch it would be spoilt again."""
    return verdict.kind == "job" and any(item.source == SPOILT for item in verdict.evidence)


def why_not_skipped(blame: Blame, verdict: Verdict, context: PolicyContext) -> PassedOver | None:
    """Why minder does not leave the batch out by itself; where a person can, with the command."""
    batch, skips, name = bad_batch(verdict), context.skips, "skip_batch"
    if skips is None or "skip_batch" not in context.offers:
        return PassedOver(name, "not_available", "the job's loader does not skip: it has to ask minder.skipped_batches()")
    if batch is None:
        return PassedOver(name, "not_available", "the batch is not known")
    if any(batch in item for item in parse_ranges(skips.held)):
        return PassedOver(name, "used_up", f"batch {batch} is left out already: the loader numbers batches otherwise")
    if skips.waits:
        return PassedOver(name, "already_in_progress", f"{skips.waits} waits, and comes with the next restart")
    if skips.refused == "off":
        command = f"`minder job skip {context.job.name} {batch}` leaves batch {batch} out"
        return PassedOver(name, "not_available", f'skip_batches = "off" in [policy]: if it is the data, {command}')
    if skips.refused == "dry_run" and blame.seen:
        return PassedOver(name, "dry_run", f"dry run: would skip batch {batch}; --act turns it on")
    return None


def _kept(blame: Blame, verdict: Verdict, history: History, context: PolicyContext) -> str:
    """Why the last update is not taken back for this trouble, "" where it is: it may be, and the failure was first seen after it."""
    last = context.rollback
    if last is None:
        return "no update of the job's code to take back"
    if last.refused:
        return last.refused
    if not verdict.failures:
        return "no failure with an identity that could be new"
    first = verdict.failures[0]
    before = [item for item in history.failures if _is_before(item, last) and _is_known(item, first)]
    return f"the failure is older than update {last.of}: seen on {before[-1].machine}" if before else ""


def _is_before(item: Failure, last: Rollback) -> bool:
    """By the generation where it is of this run; the clock may have been set since."""
    return item.time_s < last.since_s or 0 < item.generation < last.since_generation


def _is_known(item: Failure, first: Failure) -> bool:
    """The same failure by its fingerprint; one without is the same where it was on that machine or of those ranks."""
    if item.kind == "machine" or item.sort != first.sort or item.fingerprint != first.fingerprint:
        return False
    return bool(first.fingerprint) or item.machine == first.machine or bool(set(item.ranks) & set(first.ranks))


def passed_beside(item: Rung, context: PolicyContext) -> tuple[PassedOver, ...]:
    """What should run beside the rung and is not offered."""
    missing = [name for name in item.beside if name not in context.offers]
    return tuple(PassedOver(name, "not_available", f"{_WORDS.get(name, name)} are not available here") for name in missing)


def climbed(history: History, since_s: float) -> tuple[Climb, ...]:
    """The job's newest climbs since then, oldest first."""
    return tuple(item for item in history.climbs if item.time_s >= since_s)[-_MOST_TOLD:]


def _used(rung: str, failures: Iterable[Failure], history: History, since_s: float) -> list[Climb]:
    """When the job climbed this rung for one of these failures, oldest first."""
    wanted = list(failures)
    return [item for item in history.climbs if item.rung == rung and item.time_s >= since_s and _is_same(item, wanted)]


def _used_for(rung: str, machines: Iterable[str], history: History, since_s: float) -> list[Climb]:
    """When the job climbed this rung because one of these machines was slow, oldest first: slowness has no failure to be known by."""
    named = set(machines)
    return [
        item
        for item in history.climbs
        if item.rung == rung and item.trouble == "slow" and item.time_s >= since_s and named & set(item.suspects)
    ]


def _is_same(item: Climb, failures: Iterable[Failure]) -> bool:
    """The same failure on the same machine, or of the same ranks on another one."""
    pairs = ((old, new) for old in item.failures for new in failures)
    return any(old.is_like(new) and (old.machine == new.machine or bool(set(old.ranks) & set(new.ranks))) for old, new in pairs)
