"""How often what a rule said was right: of the machines that it named, what tests and repairs found. Over all jobs of the ledger. Pure.

One conclusion counts once, with the newest word on it; a person's outcome goes before a test's. A test that failed confirms. A test that
passed is "no fault found" only where its order says that nothing was repaired: else it says nothing of the machine as it was. Every rule
that took part in a verdict is credited, or not, with it. A person restores a rule: then it is counted anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from minder.model.history import LedgerEvent, RuleRecord
from minder.record.incidents import kinds
from minder.record.incidents.trust import NOT_TESTED

__all__ = ["RULE_KINDS", "RuleFold"]

RULE_KINDS = (kinds.VERDICT, kinds.INTENT, kinds.RESULT, kinds.OUTCOME, kinds.RETEST_ASKED, kinds.RULE_RESTORED)
_MOST = 20_000  # conclusions that are remembered
_RIGHT, _WRONG = "confirmed", "no-fault-found"


@dataclass(frozen=True, slots=True)
class _Said:
    """What rules concluded of one machine in one incident. evicted: it went for that. word: what was found, by a person or a test."""

    event_id: int
    rules: tuple[str, ...]
    tier: str
    evicted: bool = False
    word: str = ""
    by_person: bool = False
    judged_s: float = 0.0


class RuleFold:
    """Feed it events of RULE_KINDS, of every job, in ledger order."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], _Said] = {}  # by incident and machine
        self._newest: dict[str, str] = {}  # machine to the incident of its newest conclusion
        self._evictions: dict[str, tuple[str, tuple[str, ...]]] = {}  # operation to its incident and machines, until its result
        self._tests: dict[str, tuple[str, bool]] = {}  # operation to its machine, and whether nothing was repaired before it
        self._restored: dict[tuple[str, str], tuple[int, float]] = {}  # by rule and tier: event id and time
        self._records: tuple[RuleRecord, ...] | None = None  # counted once, until something changes

    def add(self, event: LedgerEvent) -> None:
        payload, name, incident = event.payload, event.operation_id or "", event.incident or ""
        if event.kind == kinds.VERDICT:
            self._conclude(event)
        elif event.kind == kinds.INTENT and payload.get("action") == "evict" and incident:
            self._evictions[name] = (incident, tuple(map(str, payload.get("machines") or ())))
        elif event.kind == kinds.RESULT:
            self._end(name, event)
        elif event.kind == kinds.RETEST_ASKED and name:
            self._tests[name] = (str(payload.get("machine")), payload.get("untouched") is True)
        elif event.kind == kinds.OUTCOME and payload.get("outcome") in (_RIGHT, _WRONG):
            machine = str(payload.get("machine"))
            by_person = not payload.get("test")
            self._judge(incident or self._newest.get(machine, ""), machine, str(payload["outcome"]), event.time_s, by_person)
        elif event.kind == kinds.RULE_RESTORED:
            self._restored[str(payload.get("rule")), str(payload.get("tier") or "evict")] = (event.id, event.time_s)
            self._records = None

    def records(self) -> tuple[RuleRecord, ...]:
        """Of every rule and tier of which anything is known, by name."""
        if self._records is None:
            self._records = self._count()
        return self._records

    def _count(self) -> tuple[RuleRecord, ...]:
        found: dict[tuple[str, str], RuleRecord] = {
            key: RuleRecord(*key, restored_s=restored_s) for key, (_, restored_s) in self._restored.items()
        }
        for said in sorted(self._said.values(), key=lambda item: item.judged_s):
            for rule in said.rules if said.evicted or said.word else ():
                key = (rule, said.tier)
                old = found.setdefault(key, RuleRecord(*key))
                if said.event_id <= self._restored.get(key, (0, 0.0))[0]:
                    continue
                found[key] = replace(
                    old,
                    evictions=old.evictions + said.evicted,
                    confirmed_s=(*old.confirmed_s, *([said.judged_s] if said.word == _RIGHT else [])),
                    no_fault_s=(*old.no_fault_s, *([said.judged_s] if said.word == _WRONG else [])),
                )
        return tuple(found[key] for key in sorted(found))

    def _conclude(self, event: LedgerEvent) -> None:
        payload, incident = event.payload, event.incident or ""
        if not incident or payload.get("kind") not in ("machine", "group"):
            return
        for machine in map(str, payload.get("machines") or ()):
            old = self._said.get((incident, machine))
            rules = tuple(dict.fromkeys([*(old.rules if old is not None else ()), *map(str, payload.get("sources") or ())]))
            tier = str(payload.get("tier"))
            fresh = _Said(event.id, rules, tier)
            self._said[incident, machine] = fresh if old is None else replace(old, rules=rules, tier=old.tier if old.evicted else tier)
            self._newest[machine] = incident
        while len(self._said) > _MOST:
            del self._said[next(iter(self._said))]

    def _end(self, name: str, event: LedgerEvent) -> None:
        """Of an eviction or a test."""
        payload = event.payload
        happened = payload.get("outcome") in ("done", "already_done")
        incident, machines = self._evictions.pop(name, ("", ()))
        for machine in machines if happened else ():
            said = self._said.get((incident, machine))
            if said is not None:
                self._said[incident, machine] = replace(said, evicted=True)
                self._records = None
        machine, untouched = self._tests.pop(name, ("", False))
        tested = not str(payload.get("detail") or "").startswith(NOT_TESTED)
        if machine and tested and (untouched or not happened):
            self._judge(self._newest.get(machine, ""), machine, _WRONG if happened else _RIGHT, event.time_s, by_person=False)

    def _judge(self, incident: str, machine: str, word: str, time_s: float, by_person: bool) -> None:
        said = self._said.get((incident, machine))
        if said is not None and (by_person or not said.by_person):
            self._said[incident, machine] = replace(said, word=word, by_person=by_person, judged_s=time_s)
            self._records = None
