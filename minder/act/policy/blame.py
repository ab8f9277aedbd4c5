"""Whose a failure is, by what the ledger remembers of the last 24 hours: the machine's, the program's, or unknown yet. Pure.

A verdict that carries evidence of the machine's class (a kernel or driver line, a lost device, the loss of the machine, an operator's
order) is taken as it is. For every other failure the memory of the same code version is asked, in this order:

| what is remembered | the failure is | kind of trouble |
|---|---|---|
| numbers of all ranks, at a batch that did it before | the data's: it comes again after a resume | data, seen before |
| a sum over all ranks, as all raise it, and numbers of all ranks before at another batch, or at one that is not known | unknown | nan |
| numbers of all ranks | the data's or the program's | data |
| one rank's numbers, at a batch that did it on another machine | the data's: it follows the batch | data, seen before |
| one rank's numbers on the same machine; the batch of before was done again, and went well | the machine's | machine |
| its fingerprint, on another machine | the program's | program |
| the same rank failed the same way on another machine | the program's: it follows the rank | program |
| the same step, made after a resume, though the machine accused then was exchanged | the program's or the data's | program |
| as one of the last two, a hang, and it comes back on that machine | two bad machines in turn, or the program's | unknown, seen before |
| the same machine failed the same way with other ranks, twice or after a trial | the machine's: it stays with the machine | machine |
| one rank's own gradient is not finite | unknown: a second look is needed | nan |
| the same machine failed with the same ranks | unknown: a second look is needed | unknown, seen before |
| nothing | unknown | unknown |

A batch is known where the job's loader numbers them (minder.skipped_batches); without it the step stands for it, of all ranks only.
What is done about a kind of trouble is the ladder's (minder.act.policy.ladder): here stands only whose it is.
A hang or a slowness that has other evidence against its machine is evicted at once unless the first three rows speak. A hang in which
one machine's ranks stand elsewhere than all others, and no more is known against it, is unknown like a crash. Sources:
ByteRobust (arXiv 2509.16293, automated fault tolerance: reattempt, rollback); TRANSOM (arXiv 2310.10046, exchange of suspects).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from minder.act.policy.context import PolicyContext
from minder.act.policy.ladder import Trouble
from minder.model.clock import format_time
from minder.model.evidence import Failure, Verdict
from minder.model.history import History

__all__ = ["FOLLOWS", "OF_NUMBERS", "STAYS", "Blame", "attribute"]

FOLLOWS, STAYS = "follows the rank", "stays with the machine"
OF_NUMBERS = frozenset({"nonfinite", "spike", "batch"})  # sorts of failures: of one rank, of one rank, of all
_OF_MACHINES = frozenset({"explicit", "absence"})  # causes: of verdicts that machines' own evidence brings about by itself
_OF_CAUSE: dict[str, Trouble] = {"stall": "hang", "slowdown": "slow", "unknown": "slow"}
_MOST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Blame:
    """Whose a verdict's trouble is, and why. machines: to evict or to exchange; () where none may be. finding: of a trial, "" if none.
    seen: how often the same trouble was remembered, which is how many restarts it has outlived."""

    trouble: Trouble
    machines: tuple[str, ...]
    say: str
    finding: str = ""
    seen: int = 0


def attribute(verdict: Verdict, history: History, context: PolicyContext) -> Blame:
    """The kind of trouble that a verdict reports, by the table above."""
    if not verdict.failures:
        return Blame(_plain(verdict), verdict.machines, "no failure with an identity")
    if _is_machines_own(verdict):
        return Blame(_machines_own(verdict), verdict.machines, "evidence that belongs to the machine")
    if (numbers := _of_numbers(verdict, history, context)) is not None:
        return numbers
    known = [failure for failure in verdict.failures if failure.kind == "program"]
    if known:
        return Blame("program", (), f"an error of the program: {_shown(known[:1])}", seen=_times(known[0], history, context))
    return _remembered(verdict, history, context)


def _plain(verdict: Verdict) -> Trouble:
    """By the verdict alone."""
    if verdict.kind == "job":
        return "order" if {"order", "grow", "update", "skip"} & set(verdict.sources) else "standstill"
    return _OF_CAUSE.get(verdict.cause) or _machines_own(verdict)


def _machines_own(verdict: Verdict) -> Trouble:
    """Links have two ends, and the other one stays: they are a kind of their own where nothing else speaks."""
    sources = {item.source for item in verdict.evidence if item.machine is not None}
    return "network" if sources == {"link"} and verdict.kind == "machine" else "machine"


def _times(failure: Failure, history: History, context: PolicyContext) -> int:
    """How often the same failure of the program is remembered, wherever it was."""
    return sum(item.is_like(failure) and item.kind == failure.kind and _counts(item, failure, context) for item in history.failures)


def _is_machines_own(verdict: Verdict) -> bool:
    """By the cause, which is that of the gravest evidence. A signal that is only watched, or worth a page, stands among a verdict's sources
    too, and settles nothing: a program that hangs its device makes the driver reset it on every machine that runs it."""
    if verdict.kind == "job":
        return False
    return verdict.cause in _OF_MACHINES or any(failure.kind == "machine" for failure in verdict.failures)


def _of_numbers(verdict: Verdict, history: History, context: PolicyContext) -> Blame | None:
    """Numbers that went wrong, by the batch: the data's, or surely the machine's; None where the batch says nothing."""
    failure = next((item for item in verdict.failures if item.sort in OF_NUMBERS), None)
    if failure is None:
        return None
    past = [item for item in history.failures if item.sort in OF_NUMBERS and _counts(item, failure, context)]
    again = [item for item in past if _is_same_batch(item, failure)]
    if failure.sort == "batch":
        where = f"step {failure.step}" if failure.batch is None else f"batch {failure.batch} (step {failure.step})"
        if again:
            return Blame("data", (), f"the data or the program: {where} again, in all ranks: {_shown(again[-1:])}", seen=_lives(again))
        stopped = [item for item in past if item.sort == "batch"]
        if stopped and failure.fingerprint:  # raised of a sum; all ranks' own gradients, from before it, are no one machine's
            say = "unknown whether the machines, the data or the program: numbers of all ranks, and not known to be at the same batch"
            return Blame("nan", (), f"{say}: {_shown(stopped[-1:])}", seen=_lives(stopped))
        return Blame("data", (), f"the data or the program: all ranks at {where}; the same batch after a resume says that it is the data")
    elsewhere = [item for item in again if item.sort == "batch" or item.machine != failure.machine]
    if elsewhere and failure.batch is not None:
        finding = FOLLOWS if _shares(elsewhere, failure) else ""
        say = f"the data: it follows batch {failure.batch}, now on {failure.machine}: {_shown(elsewhere)}"
        return Blame("data", (), say, finding, seen=_lives(elsewhere))
    passed = [item for item in past if item.sort == failure.sort == "nonfinite" and _went_well_since(item, failure)]
    if passed:
        say = f"not the data: batch {passed[-1].batch} was done again and went well, now batch {failure.batch} on the same machine"
        return Blame("machine", (failure.machine,), f"{STAYS}: {say}: {_shown(passed)}", STAYS, seen=len(passed))
    return None


def _is_same_batch(item: Failure, failure: Failure) -> bool:
    """By its number, which skips do not move; of all ranks' numbers by the step where batches have no number."""
    if item.batch is not None or failure.batch is not None:
        return item.batch == failure.batch
    return item.sort == failure.sort == "batch" and item.step is not None and item.step == failure.step


def _went_well_since(item: Failure, failure: Failure) -> bool:
    """The same ranks on the same machine came past the batch at which they failed."""
    known = item.batch is not None and failure.batch is not None and item.batch < failure.batch
    return known and item.machine == failure.machine and set(item.ranks) == set(failure.ranks)


def _lives(items: Sequence[Failure]) -> int:
    """In how many generations."""
    return len({(item.generation, item.time_s if not item.generation else 0.0) for item in items})


def _remembered(verdict: Verdict, history: History, context: PolicyContext) -> Blame:
    first = verdict.failures[0]
    for failure in verdict.failures:
        past = [item for item in history.failures if _counts(item, failure, context)]
        program = _program(failure, past, history, context)
        if program and _hangs_again(failure, past):
            say = f"unknown: {program[0]}, and {failure.machine} hangs again: the program's, or two bad machines in turn"
            return Blame("unknown", (failure.machine,), say, seen=1)
        if program:
            return Blame("program", (), program[0], program[1], seen=len(_alike(past, failure)))
        moved = [item for item in _placed_alike(past, failure, context) if item.machine == failure.machine and _is_elsewhere(item, context)]
        if moved and (len(_here(past, failure)) > 1 or _was_tried(failure.machine, history)):
            say = f"{STAYS}: {failure.machine} failed with rank {_ranks(failure)}, and before with other ranks: {_shown(moved)}"
            return Blame("machine", (failure.machine,), say, STAYS)
    if first.sort not in ("crash", "nonfinite") and verdict.kind != "job":
        return Blame(_plain(verdict), verdict.machines, "no earlier failure speaks for the program")
    if len({failure.machine for failure in verdict.failures}) > 1:
        trouble: Trouble = "standstill" if verdict.kind == "job" else "machine"
        return Blame(trouble, verdict.machines, "unknown, on several machines at once")
    return _unknown(first, _here(past, first))


def _unknown(first: Failure, here: Sequence[Failure]) -> Blame:
    if not here and first.sort != "nonfinite":
        return Blame("unknown", (first.machine,), "unknown whether the machine or the program: seen for the first time")
    why = f"failed before: {_shown(here)}" if here else "its rank's own gradient is not finite"
    say = f"unknown whether the machine or the program: {first.machine} {why}"
    return Blame("nan" if first.sort == "nonfinite" else "unknown", (first.machine,), say, seen=len(here))


def _counts(item: Failure, failure: Failure, context: PolicyContext) -> bool:
    """Of an earlier generation and of the same code, as far as both are known. Hardware's failures say nothing of the program. By its
    number too: where the clock was set back, what came before seems to come later."""
    earlier = item.time_s < context.job.generation_start_s or 0 < item.generation < context.job.generation
    return earlier and item.is_same_code(failure) and item.kind != "machine"


def _here(past: Sequence[Failure], failure: Failure) -> list[Failure]:
    return [item for item in _alike(past, failure) if item.machine == failure.machine]


def _was_tried(machine: str, history: History) -> bool:
    """Its ranks were given to another machine to see whether the failure follows them, and it did not. Ranks move for other reasons too, as
    with a new run, and two failures of one machine, without a structure to be known by, evict none."""
    return any(trial.machine == machine and trial.finding != FOLLOWS for trial in history.trials)


def _program(failure: Failure, past: Sequence[Failure], history: History, context: PolicyContext) -> tuple[str, str] | None:
    """(why it is the program's or the data's, the trial's finding), or None."""
    elsewhere = [item for item in past if item.machine != failure.machine]
    seen = [item for item in elsewhere if failure.fingerprint and item.fingerprint == failure.fingerprint]
    if seen:
        return f"the program: {failure.fingerprint} was seen on another machine: {_shown(seen)}", FOLLOWS if _shares(seen, failure) else ""
    followed = _followed(failure, _placed_alike(past, failure, context), history)
    if followed:
        return f"{FOLLOWS} {_ranks(failure)}, now on {failure.machine}: {_shown(followed)}", FOLLOWS
    again = [item for item in elsewhere if _is_same_step(item, failure, context)]
    if again:
        return f"the program or the data: step {failure.step} again, with {again[-1].machine} exchanged: {_shown(again)}", ""
    return None


def _hangs_again(failure: Failure, past: Sequence[Failure]) -> bool:
    """A hang that speaks for the program, since another machine hung before with the same rank or at the same step, and comes back on this
    one: two bad machines in turn look the same as the program until a third one runs the rank. A machine that hangs so long after each
    resume does so at the same step. The same fingerprint leaves no such doubt."""
    same = any(item.fingerprint == failure.fingerprint != "" for item in past)
    return failure.sort == "hang" and not same and bool(_here(past, failure))


def _placed_alike(past: Iterable[Failure], failure: Failure, context: PolicyContext) -> list[Failure]:
    """Of those that are alike the ones whose rank numbers mean what they mean now: the job had as many ranks."""
    return [item for item in _alike(past, failure) if item.generation >= context.job.sized_in]


def _followed(failure: Failure, past: Sequence[Failure], history: History) -> list[Failure]:
    """Failures of the same ranks on another machine. One that the job left behind by progress since counts only if it was the last."""
    same = [item for item in past if set(item.ranks) & set(failure.ranks)]
    left = set(history.failures[: history.left_behind])
    recent = [item for item in same if item not in left] or same[-1:]
    return [item for item in recent if item.machine != failure.machine]


def _alike(past: Iterable[Failure], failure: Failure) -> list[Failure]:
    """Unknown ones of the same sort, without two fingerprints that differ, in the ledger's order: the clock may have been set back."""
    return [item for item in past if item.kind == "unknown" and item.is_like(failure)]


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
