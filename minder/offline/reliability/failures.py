"""Machines that had to leave their jobs in a period, and how that turned out, out of the ledger's incidents (pure)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minder.offline.reliability.account import Account
from minder.record.incidents import Incident

__all__ = ["Departure", "FailureCount", "count_failures", "find_departures", "repeat_offenders"]

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Departure:
    """A machine that was evicted (or would have been, in a dry run). outcome: confirmed, no-fault-found, or None: unknown yet."""

    machine: str
    incident: str
    job: str | None
    time_s: float
    cause: str
    dry: bool
    outcome: str | None


@dataclass(frozen=True, slots=True)
class FailureCount:
    """failures: departures from jobs whose runs are recorded, dry ones too; machine_days: machines of those jobs times their time."""

    failures: int
    evicted: int
    dry: int
    confirmed: int
    no_fault_found: int
    machine_days: float


def find_departures(incidents: Iterable[Incident]) -> list[Departure]:
    """One per machine and incident, in order of time."""
    found = []
    for incident in incidents:
        cause = incident.verdict.cause if incident.verdict else "unknown"
        dry = [machine for item in incident.decisions if item.reason == "dry_run" for machine in item.machines]
        for machine in dict.fromkeys([*incident.evicted, *dry]):
            is_dry = machine not in incident.evicted
            outcome = incident.outcomes.get(machine)
            found.append(Departure(machine, incident.id, incident.job, incident.opened_s, cause, is_dry, outcome))
    return sorted(found, key=lambda item: item.time_s)


def count_failures(departures: Iterable[Departure], account: Account) -> FailureCount:
    """What a rate can be made of. An eviction that was wrong took a standby too, so it counts."""
    known = {item.job for item in account.jobs if item.machine_s > 0}
    own = [item for item in departures if item.job in known]
    return FailureCount(
        failures=len(own),
        evicted=sum(not item.dry for item in own),
        dry=sum(item.dry for item in own),
        confirmed=sum(item.outcome == "confirmed" for item in own),
        no_fault_found=sum(item.outcome == "no-fault-found" for item in own),
        machine_days=sum(item.machine_s for item in account.jobs) / _DAY_S,
    )


def repeat_offenders(departures: Iterable[Departure]) -> list[tuple[str, list[Departure]]]:
    """Machines that left more than once, most often first."""
    of_machine: dict[str, list[Departure]] = {}
    for item in departures:
        of_machine.setdefault(item.machine, []).append(item)
    return sorted(((machine, items) for machine, items in of_machine.items() if len(items) > 1), key=lambda pair: (-len(pair[1]), pair[0]))
