"""What the policy must know of the past, out of ledger events. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from minder.model.evidence import TIER_ORDER
from minder.model.history import Approval, History, LedgerEvent, Maintenance, PastEviction, Pause
from minder.model.pairs import PairWord
from minder.record.incidents import kinds
from minder.record.incidents.approvals import APPROVAL_KINDS, ApprovalFold
from minder.record.incidents.climbs import ClimbFold
from minder.record.incidents.failures import MEMORY_S, BlameFold, is_restart, restarts_in_a_row
from minder.record.incidents.maintenance import coming_windows, note_window
from minder.record.incidents.pairs import fold_pairs, pair_words
from minder.record.incidents.rules import RULE_KINDS, RuleFold
from minder.record.incidents.trust import TrustFold

__all__ = [
    "HISTORY_KINDS",
    "RECENT_S",
    "HistoryFold",
    "active_pauses",
    "find_barrings",
    "find_bars",
    "fold_history",
    "fold_suspects",
]

Pauses = dict[tuple[Any, Any], Pause]  # by scope and target
Bars = dict[tuple[str | None, str], LedgerEvent]  # by job (None: every one) and machine

RECENT_S = 3600.0
DAY_S = 86_400.0
_OWN_KINDS = (
    kinds.JOB_REGISTERED,
    kinds.GENERATION_STARTED,
    kinds.VERDICT,
    kinds.INTENT,
    kinds.RESULT,
    kinds.PROGRESS,
    kinds.TRIAL_ENDED,
    kinds.BARRED,
    kinds.UNBARRED,
    kinds.PAUSE,
    kinds.UNPAUSE,
    kinds.MAINTENANCE,
    kinds.MAINTENANCE_ENDED,
    kinds.APPROVAL_ASKED,
    kinds.APPROVAL_SETTLED,
    kinds.APPROVAL_CLOSED,
    kinds.APPROVAL_MOVED,
    kinds.JOB_ENDED,
    kinds.PAIRS,
)
HISTORY_KINDS = tuple(dict.fromkeys((*_OWN_KINDS, *RULE_KINDS)))


def fold_history(events: Sequence[LedgerEvent], job: str, now_s: float) -> History:
    """History of `job` at `now_s` from events of every job, in ledger order.

    `actions` holds the job's evictions and restarts since its run began (the last job_registered), and those of all jobs in
    the last hour; dry runs are no actions, failed and ambiguous ones are. `restarts` are those in a row without
    progress between them; `failures` and `trials` are of the last 24 hours.
    An operation with a word of a newer version (an intent that carries a decision, action "replay", say) stands in `actions` as it is: it
    is open until its result, and a cooldown counts from it, since something was done to the job. It is no eviction and no restart, so it
    uses up no budget: whether it took a machine away is not known, and what keeps machines out is said by BARRED events, not by words.
    `approvals`: what operators were asked about it. `last_restart_s` is the start of the newest generation, if it is not the run's first.
    What belongs to the run, and what came after what, is a matter of the ledger's order: the clock may have been set back in between.
    """
    found = HistoryFold()
    for event in events:
        found.add(event)
    return found.history(job, now_s)


class HistoryFold:
    """The past of every job out of events of HISTORY_KINDS that come one by one, in ledger order. What it answers costs what is in
    the answer, not what the ledger holds."""

    def __init__(self) -> None:
        self._actions = _ActionFold()
        self._approvals: dict[str | None, ApprovalFold] = defaultdict(ApprovalFold)
        self._begun_id: dict[str | None, int] = {}  # of the event that began the newest run
        self._newest_s = -math.inf
        self._started_s: dict[str | None, list[float]] = defaultdict(list)  # of the newest run
        self._pauses: Pauses = {}
        self._barred: Bars = {}
        self._windows: dict[str, Maintenance] = {}
        self._blame: dict[str | None, BlameFold] = defaultdict(BlameFold)
        self._climbs: dict[str | None, ClimbFold] = defaultdict(ClimbFold)
        self._trust, self._rules = TrustFold(), RuleFold()
        self._paired: dict[str | None, dict[str, PairWord]] = defaultdict(dict)  # by job

    def add(self, event: LedgerEvent) -> None:
        """Events of other kinds change nothing."""
        self._newest_s = event.time_s
        if event.kind == kinds.JOB_REGISTERED:
            self._begun_id[event.job], self._started_s[event.job] = event.id, []
        elif event.kind == kinds.GENERATION_STARTED:
            self._started_s[event.job].append(event.time_s)
        self._actions.add(event)
        self._blame[event.job].add(event)
        self._climbs[event.job].add(event)
        self._trust.add(event)
        self._rules.add(event)
        _note_pause(self._pauses, event)
        _note_bar(self._barred, event)
        note_window(self._windows, event)
        if event.kind == kinds.PAIRS:
            for run in fold_pairs([event]):
                self._paired[event.job] |= pair_words(run.graph, run.time_s)
        if event.kind in APPROVAL_KINDS:
            self._approvals[event.job].add(event)

    def history(self, job: str, now_s: float) -> History:
        begun_id, started = self._begun_id.get(job, 0), self._started_s.get(job, [])
        own = self._actions.of_job(job, begun_id)
        until_s = math.inf
        if self._newest_s > now_s:  # the past is asked for; else a time in the future is one before the clock was set back
            until_s = now_s
            own = [item for item in own if item.time_s <= now_s]
        blame = self._blame.get(job) or BlameFold()
        recent = [item for item in self._actions.since(now_s - RECENT_S, now_s) if item.job != job or item.event_id < begun_id]
        return History(
            actions=tuple(sorted([*own, *recent], key=lambda action: action.time_s)),
            pauses=tuple(pause for pause in self._pauses.values() if pause.until_s > now_s),
            maintenance=coming_windows(self._windows, now_s),
            barred=frozenset(machine for owner, machine in self._barred if owner in (None, job)),
            last_restart_s=started[-1] if len(started) > 1 else None,
            restarts=restarts_in_a_row(own, blame.progress, blame.cured),
            restarts_today=sum(is_restart(item) and item.time_s > now_s - DAY_S for item in own),
            failures=blame.failures(now_s),
            left_behind=blame.left_behind(now_s, until_s),
            trials=blame.trials(now_s),
            approvals=tuple(self.approvals(job)),
            climbs=self._climbs[job].climbs(now_s - MEMORY_S, until_s) if job in self._climbs else (),
            evicted_s=dict(self._trust.evicted_s),
            rules=self._rules.records(),
            paired={name: word for name, word in self._paired.get(job, {}).items() if word.time_s <= until_s},
        )

    def approvals(self, job: str) -> list[Approval]:
        """What operators were asked about this job, oldest first."""
        return self._approvals[job].approvals() if job in self._approvals else []


class _ActionFold:
    """Operations that were no dry runs, by time: evictions, restarts, and what a newer version decided."""

    def __init__(self) -> None:
        self._known: dict[str, PastEviction] = {}
        self._all: list[tuple[float, int, str]] = []  # time, place in the ledger, operation
        self._by_job: dict[str, list[tuple[int, str]]] = defaultdict(list)  # place in the ledger, operation

    def add(self, event: LedgerEvent) -> None:
        name = event.operation_id
        if event.kind == kinds.RESULT and name in self._known:
            if event.payload.get("outcome") == "dry_run":
                del self._known[name]
            else:
                self._known[name] = replace(self._known[name], finished=True)
        if event.kind == kinds.GENERATION_STARTED and name in self._known:
            self._known[name] = replace(self._known[name], resumed=True)
        action = event.payload.get("action")
        known = action in kinds.ACTS or isinstance(event.payload.get("decision"), Mapping)  # smaller steps carry no decision
        if event.kind != kinds.INTENT or name is None or not known:
            return
        machines = tuple(str(machine) for machine in event.payload.get("machines") or ())
        self._known[name] = PastEviction(event.time_s, event.job or "", machines, cast(Any, str(action)), name, False, event.id)
        insort(self._all, (event.time_s, event.id, name))
        self._by_job[event.job or ""].append((event.id, name))

    def of_job(self, job: str, since_id: int) -> list[PastEviction]:
        """Intended after that event."""
        places = self._by_job.get(job, [])
        begin = bisect_left(places, since_id, key=lambda place: place[0])
        return [self._known[name] for _, name in places[begin:] if name in self._known]

    def since(self, since_s: float, until_s: float) -> list[PastEviction]:
        """Both ends belong to it."""
        places = self._all
        begin, end = bisect_left(places, since_s, key=lambda place: place[0]), bisect_right(places, until_s, key=lambda place: place[0])
        return [self._known[name] for _, _, name in places[begin:end] if name in self._known]


def active_pauses(events: Sequence[LedgerEvent], now_s: float) -> tuple[Pause, ...]:
    """Pauses that hold at `now_s`; a later pause of the same scope and target replaces the earlier one."""
    pauses: Pauses = {}
    for event in events:
        _note_pause(pauses, event)
    return tuple(pause for pause in pauses.values() if pause.until_s > now_s)


def _note_pause(pauses: Pauses, event: LedgerEvent) -> None:
    key = (event.payload.get("scope"), event.payload.get("target"))
    if event.kind == kinds.UNPAUSE and key[0] == "everything":
        pauses.clear()
    elif event.kind == kinds.UNPAUSE:
        pauses.pop(key, None)
    elif event.kind == kinds.PAUSE and (pause := _pause(event.payload)):
        pauses[key] = pause


def _pause(payload: Mapping[str, Any]) -> Pause | None:
    scope, target, until_s = payload.get("scope"), payload.get("target"), payload.get("until_s")
    if scope not in ("all", "job", "rack") or not isinstance(until_s, (int, float)):
        return None
    return Pause(scope, None if target is None else str(target), float(until_s), str(payload.get("reason", "")))


def find_barrings(events: Sequence[LedgerEvent], machine: str) -> dict[str | None, LedgerEvent]:
    """Job (None: every job) to the event that bars this machine from it now."""
    return {owner: event for (owner, name), event in find_bars(events).items() if name == machine}


def find_bars(events: Sequence[LedgerEvent]) -> Bars:
    """(job, machine) to the event that bars it now; job None: from every job."""
    barred: Bars = {}
    for event in events:
        _note_bar(barred, event)
    return barred


def _note_bar(barred: Bars, event: LedgerEvent) -> None:
    machine = str(event.payload.get("machine"))
    if event.kind == kinds.BARRED:
        barred[event.job, machine] = event
    elif event.kind == kinds.UNBARRED:
        for key in [key for key in barred if key[1] == machine and event.job in (None, key[0])]:
            del barred[key]


def fold_suspects(events: Iterable[LedgerEvent], since_s: float) -> dict[str, float]:
    """Machines accused at or after `since_s` and not recovered since, with the time of the last accusation. Accused: by a tier of page or
    evict, or by one that this version does not know."""
    suspects: dict[str, float] = {}
    for event in events:
        payload = event.payload
        if event.kind != kinds.VERDICT or event.time_s < since_s:
            continue
        for machine in map(str, payload.get("machines") or ()):
            if payload.get("kind") == "recovered":
                suspects.pop(machine, None)
            elif TIER_ORDER[str(payload.get("tier"))] > TIER_ORDER["watch"]:
                suspects[machine] = event.time_s
    return suspects
