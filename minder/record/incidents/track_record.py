"""Five figures of how well minder did, out of the ledger's events (pure): docs/reliability.md defines them.

detection: seconds from a fault, as the verdict dates it, to the first verdict that names a machine or a group.
isolation: of machines that were evicted and of which the outcome is known, those in which no fault was found.
recovery: of recoveries that were begun and are over, those after which the job stepped again without a person.
return: of machines that were given back after an eviction, a week ago or more, those that were not evicted again within that week.
signals: of what machines and other systems reported to the controller, what its rules judged.

What is not known is counted apart, and never for right.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from minder.model.history import LedgerEvent
from minder.model.share import Share
from minder.record.incidents import kinds

__all__ = ["TRACK_BARE", "TRACK_KINDS", "WATCHED_S", "TrackRecord", "TrackRecordFold"]

TRACK_KINDS = (
    kinds.JOB_REGISTERED,
    kinds.JOB_ENDED,
    kinds.GENERATION_STARTED,
    kinds.FIRST_STEP,
    kinds.VERDICT,
    kinds.INTENT,
    kinds.RESULT,
    kinds.AMBIGUOUS,
    kinds.APPROVAL_SETTLED,
    kinds.CLOSED,
    kinds.OUTCOME,
    kinds.UNBARRED,
    kinds.SIGNAL_COUNT,
)
TRACK_BARE = (kinds.JOB_REGISTERED, kinds.GENERATION_STARTED, kinds.FIRST_STEP)  # that they happened is all that counts
WATCHED_S = 7 * 86_400.0
_MOST = 20_000  # of each sort; older ones are let go
_WRONG, _RIGHT = "no-fault-found", "confirmed"
_ORDER = "order"
_WORKS = frozenset({"update", "grow", "skip"})  # verdicts that ask something of a job that works: nothing is recovered from


_NONE = Share(0, 0)


@dataclass(frozen=True, slots=True)
class TrackRecord:
    """The five figures of a period (unix seconds).

    detection_s: sorted seconds of the incidents that named a machine; undated: incidents whose verdict does not date the fault.
    isolation: machines without a fault; by_test, by_person: the same by whose word it is. recovery: those that succeeded without a
    person; with_person: those that a person had a hand in. returned: machines that stayed well for their week; again: those
    evicted again of the ones whose week is not over. signals: judged; lost: why, and how many.
    """

    since_s: float
    until_s: float
    detection_s: tuple[float, ...] = ()
    undated: int = 0
    isolation: Share = _NONE
    by_test: Share = _NONE
    by_person: Share = _NONE
    recovery: Share = _NONE
    with_person: int = 0
    returned: Share = _NONE
    again: int = 0
    signals: Share = _NONE
    lost: Mapping[str, int] = field(default_factory=dict)

    def detection_quantile(self, share: float) -> float | None:
        """The smallest of the detection times that so large a share of them does not pass; None without any.

        >>> [TrackRecord(0.0, 9.0, tuple(range(1, count + 1))).detection_quantile(0.95) for count in (0, 1, 2, 20, 21)]
        [None, 1, 2, 19, 20]
        """
        known = self.detection_s
        return known[max(0, math.ceil(share * len(known) - 1e-9) - 1)] if known else None


@dataclass(slots=True)
class _Isolation:
    time_s: float
    job: str | None
    machine: str
    by_person: str = ""
    by_test: str = ""


@dataclass(slots=True)
class _Recovery:
    time_s: float
    job: str | None
    incident: str
    person: bool = False
    started: bool = False  # its generation has begun
    end: str = ""  # "stepped" | "failed" | "unknown", "" while it is under way


@dataclass(slots=True)
class _Return:
    time_s: float
    job: str | None
    machine: str
    again_s: float | None = None

    def is_over(self, until_s: float) -> bool:
        return until_s - self.time_s >= WATCHED_S

    def is_again(self, until_s: float) -> bool:
        return self.again_s is not None and self.again_s <= until_s


class TrackRecordFold:
    """Feed it events of TRACK_KINDS, of every job, in ledger order."""

    def __init__(self) -> None:
        self._named: OrderedDict[str, tuple[float, str | None, float | None]] = OrderedDict()  # incident to when, whose, seconds
        self._since_s: OrderedDict[str, float | None] = OrderedDict()  # of incidents that name no machine yet
        self._orders: OrderedDict[str, None] = OrderedDict()  # incidents that a person's order opened
        self._approved: OrderedDict[str, None] = OrderedDict()  # operations that a person approved
        self._evicting: dict[str, tuple[str, tuple[str, ...]]] = {}  # operation to incident and machines, until its result
        self._isolated: OrderedDict[tuple[str, str], _Isolation] = OrderedDict()  # by incident and machine
        self._newest: dict[str, str] = {}  # machine to the incident of its newest eviction
        self._recoveries: OrderedDict[str, _Recovery] = OrderedDict()
        self._under_way: dict[str | None, dict[str, _Recovery]] = {}
        self._returns: OrderedDict[int, _Return] = OrderedDict()
        self._returned: dict[str, _Return] = {}
        self._signals: OrderedDict[int, tuple[float, str | None, Mapping[str, Any]]] = OrderedDict()

    def add(self, event: LedgerEvent) -> None:
        """Events of other kinds change nothing."""
        if (take := _TAKES.get(event.kind)) is not None:
            take(self, event)

    def record(self, since_s: float, until_s: float, jobs: Collection[str] | None = None) -> TrackRecord:
        """What began in the period, as it stands at its end. jobs: of these alone."""

        def counts(time_s: float, job: str | None) -> bool:
            return since_s <= time_s <= until_s and (jobs is None or job in jobs)

        named = [item for item in self._named.values() if counts(item[0], item[1])]
        isolated = [item for item in self._isolated.values() if counts(item.time_s, item.job)]
        recoveries = [item for item in self._recoveries.values() if counts(item.time_s, item.job)]
        returns = [item for item in self._returns.values() if counts(item.time_s, item.job)]
        lost: Counter[str] = Counter()
        judged = 0
        for time_s, job, payload in self._signals.values():
            if counts(time_s, job):
                judged += int(payload.get("judged") or 0)
                lost.update({str(why): int(count) for why, count in dict(payload.get("lost") or {}).items()})
        return TrackRecord(
            since_s=since_s,
            until_s=until_s,
            detection_s=tuple(sorted(seconds for _, _, seconds in named if seconds is not None)),
            undated=sum(seconds is None for _, _, seconds in named),
            isolation=_wrong([item.by_person or item.by_test for item in isolated]),
            by_test=_wrong([item.by_test for item in isolated]),
            by_person=_wrong([item.by_person for item in isolated]),
            recovery=_recovered(recoveries),
            with_person=sum(item.person for item in recoveries),
            returned=_stayed(returns, until_s),
            again=sum(item.is_again(until_s) for item in returns if not item.is_over(until_s)),
            signals=Share(judged, judged + lost.total()),
            lost=dict(lost),
        )

    def _note_verdict(self, event: LedgerEvent) -> None:
        payload, incident = event.payload, event.incident or ""
        if not incident or payload.get("kind") == "recovered":
            return
        if _ORDER in (payload.get("sources") or ()):
            _keep(self._orders, incident, None)
        if incident in self._named:
            return
        since = payload.get("since_s")
        earlier = self._since_s.get(incident)
        dated = [float(time_s) for time_s in (since, earlier) if isinstance(time_s, (int, float))]
        fault_s = min(dated, default=None)
        if payload.get("kind") in ("machine", "group") and payload.get("machines"):
            self._since_s.pop(incident, None)
            _keep(self._named, incident, (event.time_s, event.job, None if fault_s is None else max(0.0, event.time_s - fault_s)))
        else:
            _keep(self._since_s, incident, fault_s)

    def _note_intent(self, event: LedgerEvent) -> None:
        payload, name, incident = event.payload, event.operation_id or "", event.incident or ""
        if payload.get("action") not in kinds.ACTS and not isinstance(payload.get("decision"), Mapping):
            return
        if payload.get("action") == "evict":
            self._evicting[name] = (incident, tuple(map(str, payload.get("machines") or ())))
        if name in self._recoveries or payload.get("action") == "diagnose":  # tests while the job stands are part of what follows them
            return
        for earlier, item in self._of(event.job).items():
            if item.started:  # its generation never stepped
                self._end(earlier, item, "failed")
        if _asks_of_a_job_that_works(payload):
            return
        found = _Recovery(event.time_s, event.job, incident, name in self._approved or incident in self._orders)
        _keep(self._recoveries, name, found)
        self._under_way.setdefault(event.job, {})[name] = found

    def _note_result(self, event: LedgerEvent) -> None:
        name, outcome = event.operation_id or "", event.payload.get("outcome")
        incident, machines = self._evicting.pop(name, ("", ())) if event.kind == kinds.RESULT else ("", ())
        if outcome == "dry_run":
            self._under_way.get(event.job, {}).pop(name, None)
            self._recoveries.pop(name, None)
        if outcome not in ("done", "already_done"):
            return
        for machine in machines:
            _keep(self._isolated, (incident, machine), _Isolation(event.time_s, event.job, machine))
            self._newest[machine] = incident
            back = self._returned.pop(machine, None)
            if back is not None and event.time_s - back.time_s <= WATCHED_S:
                back.again_s = event.time_s

    def _note_generation(self, event: LedgerEvent) -> None:
        for item in self._of(event.job).values():
            item.started = True

    def _note_step(self, event: LedgerEvent) -> None:
        for name, item in self._of(event.job).items():
            self._end(name, item, "stepped")

    def _note_job_end(self, event: LedgerEvent) -> None:
        for name, item in self._of(event.job).items():
            self._end(name, item, "stepped" if event.payload.get("outcome") == "finished" else "failed")

    def _note_job(self, event: LedgerEvent) -> None:
        """Another run of it: how the last one ended is not written."""
        for name, item in self._of(event.job).items():
            self._end(name, item, "unknown")

    def _note_closing(self, event: LedgerEvent) -> None:
        for name, item in self._of(event.job).items():
            if item.incident == event.incident:
                self._end(name, item, "stepped" if event.payload.get("why") == "finished" else "failed")

    def _note_answer(self, event: LedgerEvent) -> None:
        if event.payload.get("answer") == "approved" and not event.payload.get("why"):
            name = event.operation_id or ""
            _keep(self._approved, name, None)
            if (item := self._recoveries.get(name)) is not None:
                item.person = True

    def _note_outcome(self, event: LedgerEvent) -> None:
        payload, machine = event.payload, str(event.payload.get("machine"))
        found = self._isolated.get((event.incident or self._newest.get(machine, ""), machine))
        word = str(payload.get("outcome"))
        if found is not None and word in (_RIGHT, _WRONG):
            if payload.get("test"):
                found.by_test = word
            else:
                found.by_person = word

    def _note_return(self, event: LedgerEvent) -> None:
        machine = str(event.payload.get("machine"))
        if machine in self._newest and machine not in self._returned:
            back = _Return(event.time_s, event.job, machine)
            _keep(self._returns, event.id, back)
            self._returned[machine] = back

    def _note_signals(self, event: LedgerEvent) -> None:
        _keep(self._signals, event.id, (event.time_s, event.job, event.payload))

    def _of(self, job: str | None) -> dict[str, _Recovery]:
        return dict(self._under_way.get(job, {}))

    def _end(self, name: str, item: _Recovery, end: str) -> None:
        item.end = end
        self._under_way[item.job].pop(name, None)


_TAKES = {
    kinds.VERDICT: TrackRecordFold._note_verdict,
    kinds.INTENT: TrackRecordFold._note_intent,
    kinds.RESULT: TrackRecordFold._note_result,
    kinds.AMBIGUOUS: TrackRecordFold._note_result,
    kinds.GENERATION_STARTED: TrackRecordFold._note_generation,
    kinds.FIRST_STEP: TrackRecordFold._note_step,
    kinds.JOB_ENDED: TrackRecordFold._note_job_end,
    kinds.JOB_REGISTERED: TrackRecordFold._note_job,
    kinds.CLOSED: TrackRecordFold._note_closing,
    kinds.APPROVAL_SETTLED: TrackRecordFold._note_answer,
    kinds.OUTCOME: TrackRecordFold._note_outcome,
    kinds.UNBARRED: TrackRecordFold._note_return,
    kinds.SIGNAL_COUNT: TrackRecordFold._note_signals,
}


def _keep(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    kept[key] = value
    if len(kept) > _MOST:
        kept.popitem(last=False)


def _wrong(words: Collection[str]) -> Share:
    known = [word for word in words if word]
    return Share(sum(word == _WRONG for word in known), len(known), len(words) - len(known))


def _recovered(recoveries: Collection[_Recovery]) -> Share:
    """A recovery with a person is over, and no automatic success."""
    ended = [item for item in recoveries if item.end in ("stepped", "failed")]
    return Share(sum(item.end == "stepped" and not item.person for item in ended), len(ended), len(recoveries) - len(ended))


def _stayed(returns: Collection[_Return], until_s: float) -> Share:
    """Only of those whose week is over: the others would be known when they fail, and not while they hold."""
    found = [not item.is_again(until_s) for item in returns if item.is_over(until_s)]
    return Share(sum(found), len(found), len(returns) - len(found))


def _asks_of_a_job_that_works(payload: Mapping[str, Any]) -> bool:
    decision = payload.get("decision")
    verdict = decision.get("verdict") if isinstance(decision, Mapping) else None
    sources = verdict.get("sources") if isinstance(verdict, Mapping) else None
    return bool(sources) and _WORKS.issuperset(sources or ())
