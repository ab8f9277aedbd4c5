"""The stage that asks whether a rack or a switch is at fault instead of the machines in it."""

from __future__ import annotations

from minder.act.policy.case import Case, Ruling, passes, stops

__all__ = ["shared_domain"]

_OUTLIER_SOURCES = frozenset({"stacks", "collectives"})


def shared_domain(case: Case) -> Ruling:
    """Two suspects behind one switch, or in one rack, accuse what they share. What the whole job shares says nothing.

    A parallel group may stand in one rack. It goes all the same where stacks or Flight Recorder dumps show outliers inside that rack,
    no machine of the rack outside the group is accused, and another machine of the rack is proven alive: the rack is not at fault then.
    """
    accused = set(case.suspects) | set(case.machines) | set(case.planned) | _recently_evicted(case)
    said = []
    for kind, name in _domains(case):
        together = sorted(other for other in accused if case.context.domains.get(other, {}).get(kind) == name)
        if len(together) < 2:
            continue
        shared = f"{', '.join(together)} share {kind} {name}"
        if case.verdict.kind != "group" or not set(together) <= set(case.machines):
            return stops("page", "shared_domain", f"{shared}: it may be at fault")
        outliers = _outliers(case, kind, name)
        if not outliers:
            return stops("page", "shared_domain", f"{shared}: it may be at fault, since neither stacks nor dumps show an outlier in it")
        alive = _proven_alive(case, kind, name)
        if alive is None:
            return stops("page", "shared_domain", f"{shared}: it may be at fault, since no other machine of it is proven alive")
        said.append(f"{kind} {name} is not at fault: {', '.join(outliers)} stand apart in it and {alive} answers")
    return passes(f"pass, {'; '.join(said)}" if said else "pass")


def _domains(case: Case) -> list[tuple[str, str]]:
    """(kind, name) of what the accused machines hang on and not all of the job does."""
    domains, found = case.context.domains, dict[tuple[str, str], None]()
    for machine in case.machines:
        for kind in case.config.domain_kinds:
            name = domains.get(machine, {}).get(kind)
            if name is not None and not all(domains.get(other, {}).get(kind) == name for other in case.context.job.machines):
                found[kind, name] = None
    return list(found)


def _outliers(case: Case, kind: str, name: str) -> list[str]:
    """Machines of the group in this domain that stand apart from their peers by their own stacks or dumps."""
    outliers = {item.machine for item in case.verdict.evidence if item.source in _OUTLIER_SOURCES}
    return [machine for machine in case.machines if machine in outliers and case.context.domains.get(machine, {}).get(kind) == name]


def _proven_alive(case: Case, kind: str, name: str) -> str | None:
    """A machine of the domain that answers and that nothing is said of. In the job it waits where its peers wait, or works; a standby
    proves that its rack has power, and nothing of a switch that carries the job's traffic."""
    context = case.context
    spoken_of = (
        {item.machine for item in case.verdict.evidence if item.source != "progress"} | _recently_evicted(case) | case.history.barred
    )
    spoken_of |= set(case.suspects) - set(case.machines)
    fit = {*context.job.machines, *(context.standbys_ready if kind == "rack" else ())}
    inside = (machine for machine, found in context.domains.items() if found.get(kind) == name)
    return next((machine for machine in inside if machine in fit & context.answering and machine not in spoken_of), None)


def _recently_evicted(case: Case) -> set[str]:
    since_s = case.context.now_s - case.config.domain_window_s
    own = case.operation_id
    recent = [item for item in case.history.actions if item.action == "evict" and item.time_s >= since_s and item.operation_id != own]
    return {machine for item in recent for machine in item.machines}
