"""Whether the job's history is right (pure): what no fault may lead to, as rules over the ledger, the steps, and what was done to whom.

Each rule returns lines that name what is wrong; no line is right. Rules know no kind of fault by name, except where a promise is made of
one alone (docs/state.md: what survives what).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from chaos_lab.steps import Step, restarts
from chaos_lab.wound import Wound
from minder.edge.cache.placement import place_backups
from minder.model.history import LedgerEvent
from minder.model.topology import Parallelism
from minder.record.incidents import fold_incident, kinds

__all__ = ["RULES", "Played", "by_incident", "judge"]

_SETTLE_S = 120.0  # so long after a fault was undone may its machine still be evicted for it: what is seen of it comes later
_EARLY_S = 3.0  # a ledger's clock and ours are one; what was decided just before the fault was is not of it
_FAULT_S = 10.0  # a fault stops the job within so long
_RESTARTS = 2
_CACHE_KINDS = ("cache-killed", "cache-stopped", "backup-cache", "launcher-killed")
_PAIR_KINDS = ("pair-lost", "backup-cache")


@dataclass(frozen=True, slots=True)
class Played:
    """A run, or a part of it. name: machine to what the lab calls it. flush_every: steps between two on a disk. stand_s: the longest time
    the job may stand. over: the job has been asked to end, and nothing more is to come. ended: controllers that ended by themselves."""

    events: Sequence[LedgerEvent]
    steps: Sequence[Step]
    wounds: Sequence[Wound]
    flush_every: int
    stand_s: float
    stood_s: float
    over: bool
    loss_error: str = ""
    ended: Sequence[str] = ()

    def of(self, *wanted: str) -> list[LedgerEvent]:
        return [event for event in self.events if event.kind in wanted]


def judge(played: Played) -> dict[str, list[str]]:
    """By rule what is wrong, in words; rules that hold are left out."""
    found = {name: rule(played) for name, rule in RULES.items()}
    return {name: lines for name, lines in found.items() if lines}


def by_incident(events: Iterable[LedgerEvent]) -> dict[str, list[LedgerEvent]]:
    """The events of each incident, in order."""
    found: dict[str, list[LedgerEvent]] = defaultdict(list)
    for event in events:
        if event.incident:
            found[event.incident].append(event)
    return found


def equal_losses(played: Played) -> list[str]:
    return [f"losses: {played.loss_error}"] if played.loss_error else []


def no_healthy_machine_evicted(played: Played) -> list[str]:
    """A parallel group that went as a whole is named apart: its other machines are healthy on purpose."""
    groups = _groups(played)
    wrong = []
    for event in played.of(kinds.BARRED):
        machine = str(event.payload["machine"])
        if any(_hurt(wound, machine, event.time_s) for wound in played.wounds):
            continue
        group = groups.get(event.operation_id or "", ())
        hit = [name for name in group if any(_hurt(wound, name, event.time_s) for wound in played.wounds)]
        reason = event.payload.get("reason") or ""
        wrong.append(f"over-evicted: {machine} with {', '.join(hit)}" if hit else f"healthy {machine} was evicted: {reason}".rstrip(": "))
    return wrong


def no_action_twice(played: Played) -> list[str]:
    wrong = []
    for kind in (kinds.INTENT, kinds.RESULT):
        counts = Counter(event.operation_id for event in played.of(kind) if event.operation_id)
        wrong += [f"{count} {kind} events of {name}" for name, count in counts.items() if count > 1]
    counts = Counter(event.payload["generation"] for event in played.of(kinds.GENERATION_STARTED))
    wrong += [f"generation {number} was started {count} times" for number, count in counts.items() if count > 1]
    barred: set[str] = set()
    for event in played.of(kinds.BARRED, kinds.UNBARRED):
        machine = str(event.payload["machine"])
        if event.kind == kinds.UNBARRED:
            barred.discard(machine)
        elif machine in barred:
            wrong.append(f"{machine} was evicted again while it was out")
        else:
            barred.add(machine)
    taken = Counter((step.step, step.generation) for step in played.steps)
    return wrong + [f"step {step} was taken {count} times in generation {number}" for (step, number), count in taken.items() if count > 1]


def no_incident_lost(played: Played) -> list[str]:
    """A fault that stopped the job stands in an incident; at the end each incident is closed, and each action has its result."""
    wrong = [f"no incident says why the job stood: {wound.kind} ({wound.number})" for wound in _unheard(played)]
    if not played.over:
        return wrong
    for name, events in by_incident(played.events).items():
        if (incident := fold_incident(events)).state != "closed":
            wrong.append(f"incident {name} is {incident.state} at the end")
    done = {event.operation_id for event in played.of(kinds.RESULT, kinds.AMBIGUOUS)}
    return wrong + [f"{event.operation_id} has no result" for event in played.of(kinds.INTENT) if event.operation_id not in done]


def at_most_one_step_lost(played: Played) -> list[str]:
    """One step, that in flight; where owner and backup left together what no disk had yet; while a cache was away, the steps since."""
    wrong = []
    started = {event.payload["generation"]: event.payload.get("rank_machine") or {} for event in played.of(kinds.GENERATION_STARTED)}
    placed = {number: {int(rank): str(machine) for rank, machine in ranks.items()} for number, ranks in started.items()}
    for restart in restarts(played.steps):
        allowed = 1
        recent = [wound for wound in played.wounds if wound.begin_s <= restart.time_s]
        hit = any(wound.kind in _PAIR_KINDS and wound.begin_s > restart.time_s - restart.stood_s - 5.0 for wound in recent)
        if hit or _pair_left(placed.get(restart.before, {}), placed.get(restart.generation, {})):
            allowed = played.flush_every + 1
        away = [wound.step for wound in recent if wound.kind in _CACHE_KINDS and _away(wound, restart.time_s - restart.stood_s)]
        if away:
            highest = max((step.step for step in played.steps if step.time_s < restart.time_s), default=0)
            allowed = max(allowed, highest - min(away) + 1)
        if restart.lost > allowed:
            wrong.append(f"generation {restart.generation} took {restart.lost} steps again, {allowed} allowed")
    return wrong


def never_stands_long(played: Played) -> list[str]:
    if played.stood_s <= played.stand_s:
        return []
    return [f"the job stood for {played.stood_s:.0f} s, {played.stand_s:.0f} s allowed"]


def no_restarts_in_vain(played: Played) -> list[str]:
    """A fault may cost one restart that does not help, and the one that does: a second failure is what names many a machine."""
    wrong = []
    for restart in restarts(played.steps):
        stopped_s = restart.time_s - restart.stood_s
        faults = sum(stopped_s - _FAULT_S <= wound.begin_s <= restart.time_s for wound in played.wounds)
        allowed = _RESTARTS * max(1, faults)
        if restart.generation - restart.before > allowed:
            wrong.append(f"{restart.generation - restart.before} restarts up to generation {restart.generation}, {allowed} allowed")
    return wrong


def controllers_live(played: Played) -> list[str]:
    return [f"controller ended by itself: {line}" for line in played.ended]


RULES = {
    rule.__name__: rule
    for rule in (
        equal_losses, no_healthy_machine_evicted, no_action_twice, no_incident_lost, at_most_one_step_lost, never_stands_long,
        no_restarts_in_vain, controllers_live,
    )
}  # fmt: skip


def _hurt(wound: Wound, machine: str, time_s: float) -> bool:
    end_s = float("inf") if wound.end_s is None else wound.end_s + _SETTLE_S
    return wound.faulty and machine in wound.machines and wound.begin_s - _EARLY_S <= time_s <= end_s


def _pair_left(before: Mapping[int, str], after: Mapping[int, str]) -> bool:
    """Whether a machine and the one with its backup are both out of the job, between two generations that stepped."""
    gone = set(before.values()) - set(after.values())
    if not after or len(gone) < 2:
        return False
    return any(before[rank] in gone and before[peer] in gone for rank, peer in place_backups(Parallelism(data=len(before)), before).items())


def _away(wound: Wound, time_s: float) -> bool:
    """A cache that was killed is back within seconds; one that was stopped when it is let go, and its peers find out a little later."""
    return time_s <= (wound.end_s or wound.begin_s) + 30.0


def _groups(played: Played) -> Mapping[str, Sequence[str]]:
    """Operation to the machines of an eviction of several."""
    decided = [(event.operation_id, event.payload.get("decision") or event.payload) for event in played.of(kinds.INTENT)]
    return {name: tuple(decision.get("machines") or ()) for name, decision in decided if name and len(decision.get("machines") or ()) > 1}


def _unheard(played: Played) -> list[Wound]:
    """Faults that stopped the job between two of its steps, with no incident open or begun in that time."""
    spans_s = []
    for events in by_incident(played.events).values():
        incident = fold_incident(events)
        spans_s.append((incident.opened_s, float("inf") if incident.closed_s is None else incident.closed_s))
    ends_s = {restart.time_s: restart.time_s - restart.stood_s for restart in restarts(played.steps)}
    unheard = []
    for wound in played.wounds:
        resumed = [time_s for time_s in ends_s if time_s > wound.begin_s]
        if not wound.stops or not resumed:
            continue
        first_s = min(resumed)
        if not any(opened_s <= first_s and closed_s >= wound.begin_s for opened_s, closed_s in spans_s):
            unheard.append(wound)
    return unheard
