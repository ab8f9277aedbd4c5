"""What happens next to an incident, by itself or by a person, and what each minute of it costs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from minder.model.decision import Decision
from minder.model.history import Maintenance, Pause
from minder.record.incidents.endings import ENDS
from minder.record.incidents.record import Incident

__all__ = ["Cost", "Outlook", "cost_per_minute", "outlook"]

_ALONE = {
    "dry_run": "Nothing happens by itself: this is a dry run. Act by hand, or start the controller with --act.",
    "below_break_even": "Nothing happens by itself: acting would cost more than waiting. It is weighed again when the verdict changes.",
    "tier_too_low": "Nothing happens by itself: the verdict is not sure or not bad enough to act on. A person should look.",
    "no_machine_to_blame": "Nothing happens by itself: no machine is to blame. A person should look at the job.",
    "budget_job": "Nothing happens by itself: this job's budget of evictions is used up. A person decides.",
    "budget_day": "Nothing happens by itself: this day's budget of evictions is used up. A person decides.",
    "budget_hour": "Nothing happens by itself: this hour's budget of evictions is used up. A person decides.",
    "breaker": "Nothing happens by itself: too many machines were evicted at once, which looks like a trouble of something they share.",
    "shared_domain": "Nothing happens by itself: several machines that share a rack or a switch are accused. Look at what they share.",
    "group_too_large": "Nothing happens by itself: the group to be evicted is too large. A person decides.",
    "no_standby": "It waits for a standby, and is decided again once one is ready. Add one, or give a machine back.",
    "already_barred": "Nothing happens by itself: the machine had been taken out already. Look how it came back.",
    "not_in_job": "Nothing happens by itself: the machine is not in the job now.",
    "shared_machine": "Nothing happens by itself: other jobs run on the machine too. A person decides.",
    "end_of_ladder": "Nothing happens by itself: no rung of the ladder is left for this trouble. A person decides.",
    "no_trial": "Nothing happens by itself: whether it is the machine or the program is for a person to try.",
    "contradiction": "Nothing happens by itself: the evidence contradicts itself. A person should look.",
    "everywhere": "Nothing happens by itself: the same failure was seen on several machines, so look at the code and at what they share.",
    "rule_demoted": "Nothing happens by itself: the rule was wrong too often to evict. Look at the machine, and say what was found.",
    "max_restarts": "Nothing happens by itself: all restarts of this run are used up, and the job will end as failed.",
    "ledger_unavailable": "Nothing happens while the ledger cannot be written. What was concluded waits for it.",
    "awaiting_approval": "The eviction waits for an operator's answer.",
    "approval_rejected": "Nothing happens by itself: an operator rejected the eviction.",
    "approval_timeout": "Nothing happens by itself: no operator answered in time. A person should look.",
    "approval_lapsed": "Nothing happens by itself: the answer came when its trouble was no longer seen.",
}


@dataclass(frozen=True, slots=True)
class Outlook:
    """what: a sentence. by_s: when, where that is known. waits_for_person: nothing goes on without one."""

    what: str
    by_s: float | None = None
    waits_for_person: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """gpu_minutes: what one more minute of this costs; 0.0 once it is over, None where the ledger does not say enough. why: in words."""

    gpu_minutes: float | None
    why: str


def outlook(
    incident: Incident, pauses: tuple[Pause, ...] = (), windows: tuple[Maintenance, ...] = (), operation_timeout_s: float = 900.0
) -> Outlook:
    """From the incident alone, and the pauses and maintenance windows that hold now."""
    if incident.state == "closed":
        unexamined = [machine for machine in incident.evicted if machine not in incident.outcomes]
        if unexamined:
            over = "It is over" if incident.closed_by in ENDS.values() else "The job goes on"
            return Outlook(f"{over}. What the repair found of {', '.join(unexamined)} is not reported yet.", None, False)
        return Outlook("Nothing: it is over.")
    acted_s = incident.timings.acted_s
    if incident.state == "acting" and incident.decision is not None and incident.decision.action == "diagnose":
        return Outlook("The job stands while its machines are tested. Then it goes on, with or without one of them.")
    if incident.state == "acting" and incident.decision is not None and incident.decision.action == "replay":
        return Outlook("The job stands while groups of its machines replay it. Then it goes on, with or without one of them.")
    if incident.state == "acting":
        late_s = None if acted_s is None else acted_s + operation_timeout_s
        return Outlook("The action is under way. Without a result by then, a person is paged and nothing is tried again.", late_s)
    if incident.state == "recovering":
        where = f" on {', '.join(incident.replacements)}" if incident.replacements else ""
        return Outlook(f"The job starts again{where}; the incident closes with its first new step.")
    return _undecided(incident, pauses, windows)


def _undecided(incident: Incident, pauses: tuple[Pause, ...], windows: tuple[Maintenance, ...]) -> Outlook:
    decision = incident.decision
    if decision is None:
        return Outlook("The policy decides at the controller's next tick, within seconds. Longer than that: look at the controller.")
    if decision.reason == "paused":
        return _paused(incident, decision, pauses, windows)
    if decision.reason in ("cooldown", "already_in_progress", "launcher_gone"):
        return Outlook(f"Decided again by itself: {decision.detail}.")
    return Outlook(_ALONE.get(decision.reason, "A person should look."), None, True)


def _paused(incident: Incident, decision: Decision, pauses: tuple[Pause, ...], windows: tuple[Maintenance, ...]) -> Outlook:
    for window in windows:
        if f"({window.id})" in decision.detail:
            return Outlook(f"Nothing during the maintenance {window.id}: {window.reason}. Alarms go on.", window.until_s, True)
    held = [pause for pause in pauses if pause.scope != "job" or pause.target == incident.job]
    until_s = max((pause.until_s for pause in held), default=None)
    return Outlook("Nothing while actions are paused. Alarms go on.", until_s, True)


def cost_per_minute(incident: Incident, gpus: int | None) -> Cost:
    """GPU-minutes per minute. gpus: of the job, as it registered them."""
    if incident.state == "closed":
        lost = incident.gpu_seconds_lost
        return Cost(0.0, "over" + ("" if lost is None else f"; it cost {lost / 60.0:.1f} GPU-minutes in all"))
    if not gpus:
        return Cost(None, "not known: the ledger does not say how many GPUs the job has")
    if incident.state in ("acting", "recovering"):
        return Cost(float(gpus), f"all {gpus} GPUs of the job stand until its first new step")
    verdict = incident.verdict
    if verdict is None:
        return Cost(None, "not known: there is no verdict")
    if verdict.cause != "slowdown":
        return Cost(float(gpus), f"all {gpus} GPUs of the job stand, as far as the verdict says")
    share = _speed_lost(incident)
    if share is None:
        return Cost(None, "not known: how much slower the job is was not measured")
    return Cost(gpus * share, f"{gpus} GPUs lose {share:.0%} of their speed")


def _speed_lost(incident: Incident) -> float | None:
    for item in incident.evidence:
        if item.metric == "step_seconds" and item.observed and item.expected:
            return min(1.0, max(0.0, 1.0 - item.expected / item.observed))
    return None
