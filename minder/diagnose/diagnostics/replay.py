"""Dual-phase replay: which machine breaks the job, found by replaying it on groups of its machines (ByteRobust, Algorithm 1; pure).

Phase one replays the job on horizontal groups at once, phase two on vertical ones: a faulty machine is where a failing group of the one
crosses a failing group of the other. With m <= n that is one machine. Where it is more (m > n), or where several machines are faulty, the
suspects are parted further: each group holds as few of them as possible, and is filled with machines that have passed.

    finding = advance(layout, [])                       # what to run first
    while finding.next is not None:
        history.append(judge_phase(finding.next.groups, run(finding.next)))
        finding = advance(layout, history)

A failure of every group is the program's or the data's, and names no machine; so does a failure that did not come back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from minder.diagnose.diagnostics.replay_layout import ReplayGroup, ReplayLayout
from minder.diagnose.diagnostics.replay_runs import GroupOutcome, chance_missed

__all__ = ["Order", "ReplayFinding", "ReplayPhase", "ReplayPrice", "advance", "price_of", "usual_order"]

Order = Literal["dual", "bisection"]
PhaseKind = Literal["horizontal", "vertical", "halves", "suspects"]

_AGAIN = "the failure comes and goes, repeat more often"
_OPENING: dict[Order, int] = {"dual": 2, "bisection": 1}


@dataclass(frozen=True, slots=True)
class ReplayPhase:
    """Groups that run at once; number from 1. In "suspects", machines that no group needs wait."""

    number: int
    kind: PhaseKind
    groups: tuple[ReplayGroup, ...]


@dataclass(frozen=True, slots=True)
class ReplayFinding:
    """machines: found faulty so far. suspects: neither found nor cleared. next: what to run now; None at the end. confidence: that no
    machine was cleared though it is faulty, that is, that no faulty group passed all its runs; 0.0 before the search has ended."""

    state: Literal["going_on", "found", "not_judged"]
    reason: str
    machines: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    next: ReplayPhase | None = None
    confidence: float = 0.0


@dataclass(frozen=True, slots=True)
class ReplayPrice:
    """What a search costs: the whole job stands meanwhile, so each phase costs the time of all its machines."""

    phases: int
    wall_s: float
    machine_s: float


def price_of(layout: ReplayLayout, run_s: float, *, repeats: int = 2, start_s: float = 0.0, order: Order = "dual") -> ReplayPrice:
    """For one faulty machine. run_s: of one run of a group; start_s: until a group runs, once a phase."""
    machines = len(layout.machines)
    suspects = math.ceil(layout.m / layout.n)
    phases = 2 + math.ceil(math.log(suspects, max(2, layout.n)) - 1e-9) if order == "dual" else math.ceil(math.log2(machines))
    wall_s = phases * (start_s + repeats * run_s)
    return ReplayPrice(phases, wall_s, wall_s * machines)


def usual_order(layout: ReplayLayout) -> Order:
    """Dual where groups can cross. Groups of one machine exchange nothing and cross nowhere (pure data parallelism on few machines, or on
    a prime number of them): then the replicas are halved instead."""
    return "dual" if layout.m > 1 else "bisection"


def advance(
    layout: ReplayLayout,
    history: Sequence[Sequence[GroupOutcome]],
    *,
    spares: Sequence[str] = (),
    rate: float | None = None,
    order: Order = "dual",
) -> ReplayFinding:
    """What is known after these phases, and what to run next. spares: machines proven good, not of the job, that may fill groups; a job
    that is one group (n = 1) needs m - 1 of them. rate: with which a run of a faulty group fails, if known. order: "bisection" halves the
    machines instead, for comparison. A group that did not run ends the search: put its outcome in its place in `history`, and call again.
    """
    unknown = next((outcome for phase in history for outcome in phase if outcome.state == "unknown"), None)
    if unknown is not None:
        return ReplayFinding("not_judged", f"group {unknown.group} says nothing: {unknown.reason}")
    sight = _Sight(layout, history, spares)
    if history and layout.n > 1 and (why := _not_a_machines(history[0], rate)):
        return ReplayFinding("not_judged", why)
    if sight.contradiction:
        return ReplayFinding("not_judged", sight.contradiction, sight.found, sight.unexplained)
    if layout.n > 1 and len(history) < _OPENING[order]:
        kind, groups = _open(layout, order, len(history))
        reason = "replay the job on groups of its machines" if not history else f"{_failing(history[0])} of phase one failed"
        return ReplayFinding("going_on", reason, suspects=sight.suspects, next=ReplayPhase(len(history) + 1, kind, groups))
    if not sight.suspects:
        return _found(history, sight, rate)
    parts = sight.part(len(layout.machines), layout.m) if order == "dual" else sight.part(2, _half(layout))
    if not parts:
        why = "too few machines are proven good to fill a group with: test standbys, and give them as spares"
        return ReplayFinding("not_judged", why, sight.found, sight.suspects)
    groups = tuple(layout.group(f"s{len(history) + 1}.{index}", machines) for index, machines in enumerate(parts))
    reason = f"{len(sight.suspects)} machines are suspect: {', '.join(sight.suspects[:8])}{', ...' * (len(sight.suspects) > 8)}"
    return ReplayFinding("going_on", reason, sight.found, sight.suspects, ReplayPhase(len(history) + 1, "suspects", groups))


def _open(layout: ReplayLayout, order: Order, phase: int) -> tuple[PhaseKind, tuple[ReplayGroup, ...]]:
    """The phases whose groups are known before any result."""
    if order == "dual":
        return ("vertical", layout.vertical()) if phase else ("horizontal", layout.horizontal())
    middle = _half(layout)
    halves = (layout.machines[:middle], layout.machines[middle:])
    return "halves", tuple(layout.group(f"half{index}", machines) for index, machines in enumerate(halves))


def _half(layout: ReplayLayout) -> int:
    """Machines of half of the replicas, at least of one."""
    return max(1, len(layout.machines) // layout.block // 2) * layout.block


def _failing(phase: Sequence[GroupOutcome]) -> str:
    names = [outcome.group for outcome in phase if outcome.state == "failed"]
    return f"{len(names)} groups ({', '.join(names)})" if len(names) > 1 else f"group {', '.join(names)}"


def _not_a_machines(first: Sequence[GroupOutcome], rate: float | None) -> str:
    """Why the first phase says that no machine can be named; "" if it does not."""
    failed = [outcome for outcome in first if outcome.state == "failed"]
    if not failed:
        repeats = min(outcome.runs for outcome in first)
        chance = f"; one at a rate of {rate:g} is missed with a probability of {chance_missed(repeats, rate=rate):.2g}" if rate else ""
        return f"the failure did not come back in {repeats} runs of each group{chance}"
    if len(failed) == len(first):
        return "every group fails: the program, its data, or what all machines share, not a machine"
    return ""


def _found(history: Sequence[Sequence[GroupOutcome]], sight: _Sight, rate: float | None) -> ReplayFinding:
    outcomes = [outcome for phase in history for outcome in phase]
    if not sight.found:
        return ReplayFinding("not_judged", "the failure did not come back: each machine was in a group that passed")
    bad = [outcome for outcome in outcomes if outcome.state == "failed"]
    repeats = [outcome.runs for outcome in outcomes if outcome.state == "passed"]
    seen = {"failed": sum(one.failed for one in bad), "runs": sum(one.runs for one in bad)}
    missed = chance_missed(min(repeats), rate=rate, **seen) if repeats else 0.0
    only = "is the only machine" if len(sight.found) == 1 else "are the only machines"
    reason = f"{', '.join(sight.found)} {only} of {', '.join(one.group for one in bad)} that passed in no other group"
    return ReplayFinding("found", reason, sight.found, confidence=1.0 - missed)


class _Sight:
    """Which machines are cleared, found or suspect. cleared: was in a group that passed. found: the only machine of a failing group not
    cleared. unexplained: machines of a group that failed, all of which passed elsewhere."""

    def __init__(self, layout: ReplayLayout, history: Sequence[Sequence[GroupOutcome]], spares: Sequence[str]) -> None:
        outcomes = [outcome for phase in history for outcome in phase]
        self._layout = layout
        self._cleared = set(spares).union(*(outcome.machines for outcome in outcomes if outcome.state == "passed"))
        failed = [outcome for outcome in outcomes if outcome.state == "failed"]
        left = [[machine for machine in outcome.machines if machine not in self._cleared] for outcome in failed]
        found = {machines[0] for machines in left if len(machines) == 1}
        self.found = tuple(machine for machine in layout.machines if machine in found)
        self.suspects = tuple(machine for machine in layout.machines if machine not in self._cleared | found)
        explained = next((one for one, machines in zip(failed, left, strict=True) if not machines), None)
        self.unexplained = explained.machines if explained else ()
        self.contradiction = f"group {explained.group} failed, and each of its machines passed in another: {_AGAIN}" if explained else ""
        self._sets = [machines for machines in left if len(machines) > 1 and not found & set(machines)]
        self._fill = [*(machine for machine in layout.machines if machine in self._cleared), *spares]

    def part(self, most: int, largest: int) -> list[list[str]]:
        """Machines of at most `most` groups of at most `largest` machines, in which as few suspects as possible stand together; none if no
        group can be filled. All suspects are parted if each can have a group, else those of the smallest set that is known to hold a faulty
        machine; where two groups cannot be filled, about half of them are tested and the others wait."""
        for size in range(largest, 0, -self._layout.block):
            if self._groups(self.suspects, 1, size) <= most and (parts := self._split(self.suspects, 1, size)):
                return parts
            target = min(self._sets, key=len, default=list(self.suspects))
            for together in range(1, len(target)):
                if self._groups(target, together, size) <= most and (parts := self._split(target, together, size)):
                    return parts
            for some in range(max(1, len(target) // 2), min(size + 1, len(target))):
                if parts := self._split(target[:some], some, size):
                    return parts
        return []

    @staticmethod
    def _groups(suspects: Sequence[str], together: int, size: int) -> int:
        return math.ceil(len(suspects) / min(together, size))

    def _split(self, suspects: Sequence[str], together: int, size: int) -> list[list[str]]:
        """Groups of `size` machines with at most so many suspects each, filled up; none if there are too few to fill with."""
        together = min(together, size)
        parts = [list(suspects[begin : begin + together]) for begin in range(0, len(suspects), together)]
        if sum(size - len(part) for part in parts) > len(self._fill):
            return []
        fill = iter(self._fill)
        return [part + [next(fill) for _ in range(size - len(part))] for part in parts]
