"""What the collectives say of machines, as suspects for the verdict rules."""

from __future__ import annotations

from collections.abc import Mapping

from minder.diagnose.flight_recorder.analyse import Analysis, Culprit
from minder.diagnose.flight_recorder.records import Collection
from minder.model.evidence import Evidence, Suspect, Tier

__all__ = ["suspects_from_collectives"]

_SURE, _LIKELY = 0.9, 0.5


def suspects_from_collectives(
    collection: Collection, analysis: Analysis, time_s: float, rank_machine: Mapping[int, str]
) -> tuple[Suspect, ...]:
    """One suspect per machine that holds a culprit. Ranks that are on no known machine give none.

    A mismatch is the program's doing: it makes the job suspect, with the rank in the evidence if there is one, and no machine. Only what is
    unambiguous (0.9 and more) may go as far as an eviction. `since_s` is when the first operation began to wait.
    """
    if analysis.cause == "mismatch" and not analysis.culprits and analysis.confidence >= _LIKELY:
        evidence = (Evidence("collectives", None, analysis.detail),)
        return (Suspect(time_s, "collectives", "job", (), "stall", analysis.confidence, time_s, "page", evidence),)
    by_machine: dict[str, list[Culprit]] = {}
    for culprit in analysis.culprits:
        machine = rank_machine.get(culprit.rank)
        if machine is not None:
            by_machine.setdefault(machine, []).append(culprit)
    return tuple(_suspect(collection, machine, culprits, time_s) for machine, culprits in by_machine.items())


def _suspect(collection: Collection, machine: str, culprits: list[Culprit], time_s: float) -> Suspect:
    confidence = max(culprit.confidence for culprit in culprits)
    is_program = all(culprit.cause == "mismatch" for culprit in culprits)
    is_late = all(culprit.cause == "launched late" for culprit in culprits)
    tier: Tier = "page" if confidence >= _LIKELY else "watch"
    if confidence >= _SURE and not is_program and not is_late:
        tier = "evict"
    since = [culprit.since_ns / 1e9 for culprit in culprits if culprit.since_ns]
    return Suspect(
        time_s=time_s,
        source="collectives",
        kind="job" if is_program else "machine",
        machines=() if is_program else (machine,),
        cause="slowdown" if is_late else "stall",
        confidence=confidence,
        since_s=min([time_s, *since]),
        tier=tier,
        evidence=tuple(_evidence(collection, machine, culprit) for culprit in culprits),
    )


def _evidence(collection: Collection, machine: str, culprit: Culprit) -> Evidence:
    group = "its group" if culprit.group is None else collection.groups[culprit.group].label
    return Evidence(
        source="collectives",
        machine=machine,
        message=f"rank {culprit.rank}: {culprit.cause} in {group}; {culprit.waiting} ranks wait for it",
        metric="last_enqueued_collective",
        observed=None if culprit.last_enqueued is None else float(culprit.last_enqueued),
        expected=None if culprit.peers_enqueued is None else float(culprit.peers_enqueued),
        since_s=culprit.since_ns / 1e9 if culprit.since_ns else None,
    )
