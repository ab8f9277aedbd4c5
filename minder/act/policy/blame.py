"""Whose a failure is, by what the ledger remembers of the last 24 hours: the machine's, the program's, or unknown yet. Pure.

A verdict that carries evidence of the machine's class (a kernel or driver line, a lost device, the loss of the machine, an operator's
order) is taken as it is. For every other failure the memory of the same code version is asked, in this order:

| what is remembered | the failure is | what follows |
|---|---|---|
| its fingerprint, on another machine | the program's | restart in place |
| the same rank failed the same way on another machine | the program's: it follows the rank | restart in place |
| the same step, made after a resume, though the machine accused then was exchanged | the program's or the data's | restart in place |
| as the second row, a hang, and it comes back on that machine | two bad machines in turn, or the program's | trial swap |
| the same machine failed the same way with other ranks | the machine's: it stays with the machine | evict |
| the same machine failed with the same ranks; or one rank's own gradient is not finite | unknown: a second look is needed | trial swap |
| nothing | unknown | restart in place, remember |

A hang or a slowness that has other evidence against its machine is evicted at once unless the first three rows speak. A hang in which
one machine's ranks stand elsewhere than all others, and no more is known against it, is unknown like a crash. Sources:
ByteRobust (arXiv 2509.16293, automated fault tolerance: reattempt, rollback); TRANSOM (arXiv 2310.10046, exchange of suspects).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from minder.act.policy.context import PolicyContext
from minder.model.clock import format_time
from minder.model.evidence import Failure, Verdict
from minder.model.history import History

__all__ = ["FOLLOWS", "STAYS", "Blame", "Course", "attribute"]

Course = Literal["evict", "trial", "restart"]
FOLLOWS, STAYS = "follows the rank", "stays with the machine"
_MACHINE_SOURCES = frozenset({"signals", "absence"})
_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Blame:
    """What a verdict asks for, and why. machines: to evict or to exchange; () for a restart. finding: of a trial, "" if none."""

    course: Course
    machines: tuple[str, ...]
    say: str
    finding: str = ""


def attribute(verdict: Verdict, history: History, context: PolicyContext) -> Blame:
    """The course that a verdict's failures ask for, by the table above."""
    course: Course = "restart" if verdict.kind == "job" else "evict"
    if not verdict.failures:
        return Blame(course, verdict.machines, "no failure with an identity")
    if _is_machines_own(verdict):
        return Blame(course, verdict.machines, "evidence that belongs to the machine")
    known = [failure for failure in verdict.failures if failure.kind == "program"]
    if known:
        return Blame("restart", (), f"an error of the program: {_shown(known[:1])}")
    return _remembered(verdict, course, history, context)


def _is_machines_own(verdict: Verdict) -> bool:
    if verdict.kind == "job":
        return False
    broken = any(failure.kind == "machine" for failure in verdict.failures)
    return broken or verdict.cause == "absence" or not _MACHINE_SOURCES.isdisjoint(verdict.sources)


def _remembered(verdict: Verdict, course: Course, history: History, context: PolicyContext) -> Blame:
    first = verdict.failures[0]
    for failure in verdict.failures:
        past = [item for item in history.failures if _counts(item, failure, context)]
        program = _program(failure, past, history, context)
        if program and _hangs_again(failure, past, program):
            say = f"unknown: {program[0]}, and {failure.machine} hangs again: another machine takes its ranks to tell"
            return Blame("trial", (failure.machine,), say)
        if program:
            return Blame("restart", (), program[0], program[1])
        moved = [item for item in _alike(past, failure) if item.machine == failure.machine and _is_elsewhere(item, context)]
        if moved:
            say = f"{STAYS}: {failure.machine} failed with rank {_ranks(failure)}, and before with other ranks: {_shown(moved)}"
            return Blame("evict", (failure.machine,), say, STAYS)
    if first.sort not in ("crash", "nonfinite") and verdict.kind != "job":
        return Blame(course, verdict.machines, "no earlier failure speaks for the program")
    if len({failure.machine for failure in verdict.failures}) > 1:
        return Blame(course, verdict.machines, "unknown, on several machines at once: remembered")
    here = [item for item in _alike(past, first) if item.machine == first.machine]
    if here or first.sort == "nonfinite":
        why = f"failed before: {_shown(here)}" if here else "its rank's own gradient is not finite"
        return Blame("trial", (first.machine,), f"unknown whether the machine or the program: {first.machine} {why}")
    return Blame("restart", (), "unknown, seen for the first time: restarted in place and remembered")


def _counts(item: Failure, failure: Failure, context: PolicyContext) -> bool:
    """Of an earlier generation and of the same code, as far as both are known. Hardware's failures say nothing of the program."""
    same_code = not item.code_version or not failure.code_version or item.code_version == failure.code_version
    return item.time_s < context.job.generation_start_s and same_code and item.kind != "machine"


def _program(failure: Failure, past: Sequence[Failure], history: History, context: PolicyContext) -> tuple[str, str] | None:
    """(why it is the program's or the data's, the trial's finding), or None."""
    elsewhere = [item for item in past if item.machine != failure.machine]
    seen = [item for item in elsewhere if failure.fingerprint and item.fingerprint == failure.fingerprint]
    if seen:
        return f"the program: {failure.fingerprint} was seen on another machine: {_shown(seen)}", FOLLOWS if _shares(seen, failure) else ""
    followed = _followed(failure, past, history)
    if followed:
        return f"{FOLLOWS} {_ranks(failure)}, now on {failure.machine}: {_shown(followed)}", FOLLOWS
    again = [item for item in elsewhere if _is_same_step(item, failure, context)]
    if again:
        return f"the program or the data: step {failure.step} again, with {again[-1].machine} exchanged: {_shown(again)}", ""
    return None


def _hangs_again(failure: Failure, past: Sequence[Failure], program: tuple[str, str]) -> bool:
    """A hang that followed the rank to a machine, and comes back there: two bad machines in turn look the same as the program until a
    third one runs the rank. The same fingerprint, and the same step, leave no such doubt."""
    here = [item for item in _alike(past, failure) if item.machine == failure.machine]
    followed = program[1] == FOLLOWS and not any(item.fingerprint == failure.fingerprint != "" for item in past)
    return failure.sort == "hang" and followed and bool(here)


def _followed(failure: Failure, past: Sequence[Failure], history: History) -> list[Failure]:
    """Failures of the same ranks on another machine. One that the job left behind by progress since counts only if it was the last."""
    same = [item for item in _alike(past, failure) if set(item.ranks) & set(failure.ranks)]
    recent = [item for item in same if item.time_s > history.progress_s] or same[-1:]
    return [item for item in recent if item.machine != failure.machine]


def _alike(past: Iterable[Failure], failure: Failure) -> list[Failure]:
    """Unknown ones of the same sort, without two fingerprints that differ, oldest first."""
    found = [
        item
        for item in past
        if (item.kind, item.sort) == ("unknown", failure.sort)
        and (not item.fingerprint or not failure.fingerprint or item.fingerprint == failure.fingerprint)
    ]
    return sorted(found, key=lambda item: item.time_s)


def _is_elsewhere(item: Failure, context: PolicyContext) -> bool:
    """Whether none of the ranks that failed then runs on that machine now."""
    return all(context.job.rank_machine.get(rank) != item.machine for rank in item.ranks)


def _is_same_step(item: Failure, failure: Failure, context: PolicyContext) -> bool:
    return failure.stepped and failure.step is not None and item.step == failure.step and _is_elsewhere(item, context)


def _shares(items: Iterable[Failure], failure: Failure) -> bool:
    return any(set(item.ranks) & set(failure.ranks) for item in items)


def _ranks(failure: Failure) -> str:
    return ", ".join(map(str, failure.ranks[:4])) + (", ..." if len(failure.ranks) > 4 else "")


def _shown(items: Sequence[Failure]) -> str:
    """The newest of them, in words."""
    lines = [
        f"{item.machine} at {format_time(item.time_s)}, rank {_ranks(item)}, step {item.step}: {item.text[:80]}"
        for item in items[-_MOST_SHOWN:]
    ]
    return "; ".join(lines)
