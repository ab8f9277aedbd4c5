"""Stages that ask whether now is the time: tier, membership, running operation, pause, cooldown, restart count."""

from __future__ import annotations

from minder.act.policy.case import Case, Ruling, passes, stops
from minder.act.policy.climb import is_spoilt
from minder.model.history import Maintenance, Pause

__all__ = ["barred_yet_inside", "cooldown", "in_progress", "membership", "paused", "readable", "restarts_left", "tier"]


def tier(case: Case) -> Ruling:
    """watch is noted, page pages, evict goes on. A restart goes on whatever the tier where workers are dead: the job stands anyway."""
    verdict = case.verdict
    if verdict.kind == "recovered":
        return stops("none", "tier_too_low", "recovered: nothing to do")
    if case.action == "restart" and case.context.workers_dead:
        return passes("pass, workers are dead")
    if verdict.tier == "watch":
        return stops("none", "tier_too_low", "tier watch: noted only")
    if case.rung == "skip_batch":
        return passes(f"pass, tier {verdict.tier}: no machine goes for it")
    if is_spoilt(verdict):
        return stops("page", "no_machine_to_blame", "the job trains on with spoilt weights: a person decides from where it goes on")
    if verdict.tier == "page" and case.trouble == "network" and case.rung == "evict":
        return passes("pass, alerts of the network evict here (policy.ladder.network_alerts)")
    if verdict.tier == "page" and (other := _contradicts(case)):
        return stops("page", "contradiction", f"the evidence contradicts itself: {other}")
    if verdict.tier == "page":
        return stops("page", "tier_too_low" if verdict.machines else "no_machine_to_blame", "tier page: a person should look")
    if case.action == "evict" and not case.machines:
        return stops("page", "no_machine_to_blame", "no machine is named")
    return passes(f"pass, tier {verdict.tier}")


def _contradicts(case: Case) -> str:
    """What speaks for another machine, where the verdict names some; "" if nothing does."""
    named = case.verdict.machines
    others = [item for item in case.verdict.against if named and item.machine is not None and item.machine not in named]
    return f"{others[0].source} speaks of {others[0].machine}: {others[0].message}"[:240] if others else ""


def membership(case: Case) -> Ruling:
    """Only machines that are in the job now, and are not out of it already, can be evicted."""
    machines = set(case.machines)
    barred = sorted(machines & case.history.barred)
    if barred and not machines & set(case.context.job.machines):
        return stops("none", "already_barred", f"{', '.join(barred)} was taken out of the job already")
    outside = sorted(machines - set(case.context.job.machines))
    if outside:
        return stops("page", "not_in_job", f"{', '.join(outside)} is not in job {case.context.job.name} now")
    return passes()


def barred_yet_inside(case: Case) -> Ruling:
    """A machine that was taken out and is in the job nevertheless came back by another hand: a person decides, not a second eviction."""
    begun = any(item.operation_id == case.operation_id for item in case.history.actions)
    barred = sorted(set(case.machines) & case.history.barred)
    if barred and not begun:
        return stops("page", "already_barred", f"{', '.join(barred)} is barred and in job {case.context.job.name} all the same: look how")
    return passes()


def in_progress(case: Case) -> Ruling:
    """One action at a time; one that never ends is a page, not a wait for ever."""
    now_s, limit_s = case.context.now_s, case.config.operation_timeout_s
    same = [item for item in case.history.actions if item.operation_id == case.operation_id]
    if any(item.finished for item in same):
        return stops("page", "already_in_progress", f"{case.operation_id} ended already and the verdict still stands: look at the machine")
    for item in (item for item in case.past if not item.finished and item.operation_id != case.context.in_progress):
        if now_s - item.time_s > limit_s:
            age = f"{now_s - item.time_s:.0f} s"
            return stops(
                "page", "already_in_progress", f"{item.operation_id} has had no result for {age}: look before anything else is done"
            )
    running = [item.operation_id for item in (*case.past, *same) if not item.finished]
    running += [case.context.in_progress] if case.context.in_progress else []
    overlap = sorted(set(case.machines) & set(case.planned))
    if running:
        return stops("none", "already_in_progress", f"operation {running[0]} in progress; will re-evaluate when it completes")
    if overlap:
        return stops("none", "already_in_progress", f"{', '.join(overlap)} is being evicted by this very decision")
    return passes()


def paused(case: Case) -> Ruling:
    """A pause or a maintenance window stops actions; the alarm goes out all the same."""
    for pause in case.history.pauses:
        if pause.until_s > case.context.now_s and _covers(pause, case):
            scope = f"{pause.scope} {pause.target}" if pause.target else pause.scope
            left_s = pause.until_s - case.context.now_s
            return stops("page", "paused", f"actions are paused for {scope} for another {left_s:.0f} s: {pause.reason}")
    for window in case.history.maintenance:
        what = _serviced(window, case) if window.from_s <= case.context.now_s < window.until_s else None
        if what is not None:
            left_s = window.until_s - case.context.now_s
            return stops("page", "paused", f"maintenance of {what} ({window.id}) for another {left_s:.0f} s: {window.reason}")
    return passes()


def _serviced(window: Maintenance, case: Case) -> str | None:
    """What of this window the action would touch; a restart touches every machine of the job."""
    if case.context.job.name in window.jobs:
        return f"job {case.context.job.name}"
    for machine in case.machines or case.context.job.machines:
        rack = case.context.domains.get(machine, {}).get("rack")
        if machine in window.machines:
            return machine
        if rack is not None and rack in window.racks:
            return f"rack {rack}"
    return None


def _covers(pause: Pause, case: Case) -> bool:
    if pause.scope == "all":
        return True
    if pause.scope == "job":
        return pause.target == case.context.job.name
    touched = case.machines or case.context.job.machines
    return any(case.context.domains.get(machine, {}).get("rack") == pause.target for machine in touched)


def cooldown(case: Case) -> Ruling:
    """Compilation, checkpoint load and evaluation look like hangs: what is not explicit waits until they are over."""
    if case.verdict.cause in case.config.cooldown_exempt or case.context.workers_dead:
        return passes(f"pass, cause {case.verdict.cause} does not wait" if not case.context.workers_dead else "pass, workers are dead")
    restart_s = case.history.last_restart_s
    if restart_s is not None and restart_s > case.context.now_s:  # the clock was set back since: the controller's own time moved with it
        restart_s = min(restart_s, case.context.job.generation_start_s)
    until_s = max(case.context.job.quiet_until_s, float("-inf") if restart_s is None else restart_s + case.config.cooldown_s)
    if case.context.now_s < until_s:
        return stops("none", "cooldown", f"quiet phase for another {until_s - case.context.now_s:.0f} s: asked again then")
    return passes()


def readable(case: Case) -> Ruling:
    """A version that is gone back to must have a checkpoint to go on from: without one the work of days would begin anew."""
    last = case.context.rollback
    if last is None or last.refused:
        return stops("page", "not_available", "no update of the job's code to take back" if last is None else last.refused)
    if last.unreadable:
        return stops("page", "not_available", f"update {last.of} cannot be taken back: {last.unreadable}")
    return passes(f"pass, update {last.to} goes on from a checkpoint that it reads")


def restarts_left(case: Case) -> Ruling:
    """Restarts in a row, without progress between them. With none left a person must look, and the job ends."""
    done, allowed = case.history.restarts, case.config.max_restarts
    if done >= allowed:
        return stops("page", "max_restarts", f"{done} of {allowed} restarts without progress are used up")
    return passes(f"pass, restart {done + 1} of {allowed} without progress")
