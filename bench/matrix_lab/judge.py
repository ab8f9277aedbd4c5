"""What came of a cell, and whether that is right (pure): from the ledger, the scripts' traces, and what was done to the job."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matrix_lab.cells import Expectation
from matrix_lab.rungs import PERSON, Climb, misclimbed
from matrix_lab.traces import Trained
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds

__all__ = ["Played", "judge"]

_SHOWN = (kinds.VERDICT, kinds.DECISION, kinds.EVIDENCE, kinds.JOB_ENDED)


@dataclass(frozen=True, slots=True)
class Played:
    """One run of a cell. roles: machine to target or second. failures: what was done to whom. complete: all that the fault is made of.

    saved: the job has written its final model. given_up: "standing" where nothing moved any more, "not done" where
    it moved and its time was over; else empty.
    """

    events: Sequence[LedgerEvent]
    traces: Sequence[Trained]
    failures: Sequence[Mapping[str, Any]]
    roles: Mapping[str, str]
    standbys: Sequence[str]
    steps: int
    ranks: int
    complete: bool
    saved: bool
    given_up: str

    def of(self, *wanted: str) -> list[Mapping[str, Any]]:
        return [event.payload for event in self.events if event.kind in wanted]

    @property
    def end(self) -> str:
        """finished, failed, standing, not done, or cut off: the controller ended and the job did not."""
        ends = self.of(kinds.JOB_ENDED)
        return str(ends[-1]["outcome"]) if ends else self.given_up or "cut off"

    @property
    def placements(self) -> list[Mapping[str, str]]:
        """Rank to machine, generation by generation."""
        return [payload.get("rank_machine") or {} for payload in self.of(kinds.GENERATION_STARTED)]

    @property
    def evicted(self) -> list[str]:
        return list(dict.fromkeys(str(payload["machine"]) for payload in self.of(kinds.BARRED)))

    @property
    def rungs(self) -> list[tuple[str, float | None]]:
        """What was climbed, in order: (rung, seconds from the intent to the next first step of the job; None where none came). A person who
        is called stands once, however many pages say so. First steps are the ledger's and the scripts' own: minder does not see the steps
        of every trainer."""
        firsts_s = [event.time_s for event in self.events if event.kind == kinds.FIRST_STEP]
        firsts_s = sorted([*firsts_s, *(item.times_s[0] for item in self.traces if item.times_s)])
        found: list[tuple[str, float | None]] = []
        for event in self.events:
            if event.kind == kinds.INTENT and "decision" in event.payload:
                first_s = next((time_s for time_s in firsts_s if time_s >= event.time_s), None)
                found.append((str(event.payload["decision"]["rung"]), None if first_s is None else round(first_s - event.time_s, 1)))
            elif event.kind == kinds.DECISION and event.payload.get("action") == PERSON and found[-1:] != [(PERSON, None)]:
                found.append((PERSON, None))
        return found

    def name(self, machine: str) -> str:
        """Its role, or what the lab calls it."""
        return self.roles.get(machine) or machine.rsplit("-", 1)[-1]

    @property
    def accused(self) -> list[str]:
        """Machines that a verdict of tier page or evict names."""
        verdicts = [item for item in self.of(kinds.VERDICT) if item.get("kind") in ("machine", "group")]
        return list(dict.fromkeys(machine for item in verdicts if item.get("tier") in ("page", "evict") for machine in item["machines"]))


def judge(expect: Expectation, climb: Climb, played: Played) -> dict[str, Any]:
    """The row of the table: {right, wrong, end, evicted, accused, failures, restarts, standbys, rungs}."""
    wrong = [*_evictions(expect, played), *_gone(expect, played), *_end(expect, played), *misclimbed(climb, played.rungs)]
    wrong += [] if played.complete else ["the fault did not come in full"]
    used = {machine for placed in played.placements for machine in placed.values()}
    return {
        "right": not wrong,
        "wrong": wrong,
        "end": played.end,
        "evicted": [played.name(machine) for machine in played.evicted],
        "accused": [played.name(machine) for machine in played.accused],
        "failures": len(played.failures),
        "restarts": max(0, len(played.placements) - 1),
        "standbys": len(used & set(played.standbys)),
        "rungs": played.rungs,
    }


def _evictions(expect: Expectation, played: Played) -> list[str]:
    wrongly = [machine for machine in played.evicted if played.roles.get(machine) not in expect.evictable]
    return [f"healthy {played.name(machine)} was evicted" for machine in wrongly]


def _gone(expect: Expectation, played: Played) -> list[str]:
    """By the last generation's placement, whether it was barred, put on trial or exchanged."""
    wrong = []
    last = set(played.placements[-1].values()) if played.placements else set()
    for machine, role in played.roles.items():
        failed = sum(failure["machine"] == machine for failure in played.failures)
        if role not in expect.gone:
            continue
        if failed > expect.failures:
            wrong.append(f"{role} failed {failed} times")
        elif machine in last and failed:
            wrong.append(f"{role} still has a rank after {failed} failures")
    return wrong


def _end(expect: Expectation, played: Played) -> list[str]:
    if played.end != expect.end:
        return [f"{played.end} instead of {expect.end}"]
    if expect.end == "failed":
        shown = json.dumps([dict(payload) for payload in played.of(*_SHOWN)], default=str)
        return [] if re.search(expect.evidence, shown, re.IGNORECASE) else [f"failed without evidence: nothing says {expect.evidence}"]
    missing = {rank: _missing(rank, played) for rank in range(played.ranks)}
    short = [f"rank {rank} never took step {steps[0]}" for rank, steps in missing.items() if steps]
    again = [] if short or not _started_again(played) else ["started again after all ranks had taken their last step"]
    return short[:1] + again + ([] if played.saved else ["finished without a final model"])


def _started_again(played: Played) -> bool:
    """A job whose work is done ends; it gets no further generation."""
    firsts_s: dict[int, float] = {}  # by rank: when it took the last step for the first time
    for item in played.traces:
        for step, time_s in zip(item.steps, item.times_s, strict=True):
            if step == played.steps:
                firsts_s[item.rank] = min(time_s, firsts_s.get(item.rank, time_s))
    return any(event.kind == kinds.GENERATION_STARTED and event.time_s > max(firsts_s.values()) for event in played.events)


def _missing(rank: int, played: Played) -> list[int]:
    taken = {step for trained in played.traces if trained.rank == rank for step in trained.steps}
    return sorted(set(range(1, played.steps + 1)) - taken)
