"""What became of the groups of one phase of a replay, and how sure that is (pure).

A group fails on NaN, crash or hang, or where the hashes of two identical deterministic runs differ at any step. Groups of one phase run the
same model on the same data: where three or more of equal hardware have run, one whose hashes are unlike those of the majority fails too.
That finds what two runs of one group cannot: a machine that is wrong in the same way each time.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from minder.diagnose.diagnostics.replay_layout import ReplayGroup
from minder.model.errors import BadInputError
from minder.model.replay import RankRun

__all__ = ["GroupOutcome", "ReplayRun", "chance_missed", "join_runs", "judge_group", "judge_phase", "repeats_for"]


@dataclass(frozen=True, slots=True)
class ReplayRun:
    """One run of one group. hashes: of the state after each step, equal runs have equal ones; empty where the job hashes nothing.
    "not run": it never began, which says nothing of its machines."""

    end: Literal["finished", "nan", "crash", "hang", "not run"]
    hashes: tuple[str, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """state: "unknown" where too little was run to say. runs, failed: how many were run, how many of them failed."""

    group: str
    machines: tuple[str, ...]
    state: Literal["passed", "failed", "unknown"]
    reason: str
    runs: int = 0
    failed: int = 0


def judge_phase(
    groups: Sequence[ReplayGroup], runs: Mapping[str, Sequence[ReplayRun]], hardware: Mapping[str, str] | None = None
) -> tuple[GroupOutcome, ...]:  # fmt: skip
    """Group by group, in their order. runs: by name of the group. hardware: of each machine, as one string of model, driver and libraries;
    groups are compared with each other only where all machines of all of them are known to be equal."""
    alone = [judge_group(group, runs.get(group.name, ())) for group in groups]
    kinds = {(hardware or {}).get(machine, "") for group in groups for machine in group.machines}
    shapes = {group.parallelism for group in groups}
    if len(kinds) != 1 or "" in kinds or len(shapes) != 1:
        return tuple(alone)
    return _compare(alone, {group.name: _usual(runs.get(group.name, ())) for group in groups})


def join_runs(group: ReplayGroup, runs: int, ranks: Mapping[int, Sequence[RankRun]], silent: Mapping[str, str]) -> list[ReplayRun]:
    """The runs of a group, out of those of its ranks: up to the first that did not finish, since no rank can go on alone. silent: machines
    of which nothing came back, and why: the others waited for them in vain, so nothing is known of any.
    """
    for machine in group.machines:
        if machine in silent:
            return [ReplayRun("not run", (), f"{machine}: {silent[machine]}")]
    found: list[ReplayRun] = []
    for index in range(runs):
        of_run = {rank: own[index] for rank, own in ranks.items() if len(own) > index}
        if not of_run and found:
            break
        found.append(_join(of_run, group))
        if found[-1].end != "finished":
            break
    return found


def _join(of_run: Mapping[int, RankRun], group: ReplayGroup) -> ReplayRun:
    """A rank that never met the others says nothing of any machine: an address, a port or a library may be to blame as well."""
    absent = next((rank for rank in group.rank_machine if rank not in of_run or not of_run[rank].begun), None)
    broken = {run.end: f"rank {rank}: {run.detail}" for rank, run in reversed(list(of_run.items())) if run.end != "finished" and run.begun}
    if "nan" in broken:
        return ReplayRun("nan", (), broken["nan"])
    if absent is not None:
        why = of_run[absent].detail if absent in of_run else ""
        return ReplayRun("not run", (), f"rank {absent} on {group.rank_machine[absent]} did not begin{': ' + why if why else ''}")
    if broken:
        end: Literal["crash", "hang"] = "crash" if "crash" in broken else "hang"
        return ReplayRun(end, (), broken[end])
    hashes = [of_run[rank].hashes for rank in sorted(of_run) if of_run[rank].hashes]
    if len({len(own) for own in hashes}) > 1:
        return ReplayRun("not run", (), "its ranks report different numbers of steps")
    return ReplayRun("finished", tuple(hashlib.sha256("".join(step).encode()).hexdigest()[:16] for step in zip(*hashes, strict=True)))


def judge_group(group: ReplayGroup, runs: Sequence[ReplayRun]) -> GroupOutcome:
    """By its own runs. Two finished runs, or none with hashes, are needed to pass."""
    ran = [run for run in runs if run.end != "not run"]
    finished = [run for run in ran if run.end == "finished"]
    broken = next((run for run in ran if run.end != "finished"), None)
    odd = len(finished) - max(Counter(run.hashes for run in finished).values(), default=0)
    failed = len(ran) - len(finished) + odd
    state: Literal["passed", "failed", "unknown"] = "failed" if failed else "passed"
    if broken is not None:
        reason = f"{broken.end}{': ' + broken.detail if broken.detail else ''}"
    elif odd:
        reason = f"two identical runs differ from step {_first_step(finished)} on"
    elif not ran:
        state, reason = "unknown", next((f"it did not run: {run.detail}" for run in runs if run.detail), "it did not run")
    elif len(finished) == 1 and finished[0].hashes:
        state, reason = "unknown", "it ran once: its hashes were compared with nothing"
    else:
        reason = f"{len(finished)} run{'s' * (len(finished) > 1)} without a failure"
    return GroupOutcome(group.name, group.machines, state, reason, len(ran), failed)


def chance_missed(repeats: int, *, rate: float | None = None, failed: int = 0, runs: int = 0) -> float:
    """The probability that a faulty group passed `repeats` runs. rate: with which a run of a faulty group fails, where it is known; else
    estimated from `failed` of `runs` runs of the groups that failed, every rate being as likely before (beta-binomial). Raises
    BadInputError for a rate outside 0..1.

    >>> chance_missed(3, rate=0.5)
    0.125
    >>> round(chance_missed(2, failed=4, runs=4), 3), chance_missed(0, rate=0.9)
    (0.048, 1.0)
    """
    if rate is not None:
        if not 0.0 <= rate <= 1.0:
            raise BadInputError(f"the rate of failure is {rate}: give a number from 0 to 1")
        return (1.0 - rate) ** repeats
    a, b = failed + 1, runs - failed + 1
    return math.exp(math.lgamma(b + repeats) - math.lgamma(a + b + repeats) - math.lgamma(b) + math.lgamma(a + b))


def repeats_for(rate: float, missed: float) -> int:
    """Runs after which a group with a machine that fails a run with probability `rate` has passed them all with a probability of at most
    `missed`. Raises BadInputError for a rate of 0 or a `missed` outside 0..1, which no number of runs reaches.

    >>> repeats_for(0.3, missed=0.01), repeats_for(1.0, missed=0.01)
    (13, 1)
    """
    if not 0.0 < rate <= 1.0 or not 0.0 < missed < 1.0:
        raise BadInputError(f"no number of runs reaches {missed} at a rate of {rate}: give a rate above 0, and a chance between 0 and 1")
    return 1 if rate == 1.0 else max(1, math.ceil(math.log(missed) / math.log1p(-rate) - 1e-9))


def _compare(alone: Sequence[GroupOutcome], usual: Mapping[str, tuple[str, ...]]) -> tuple[GroupOutcome, ...]:
    """What each group computed, against the strict majority of the three or more that finished."""
    counts = Counter(hashes for hashes in usual.values() if hashes)
    right, most = counts.most_common(1)[0] if counts else ((), 0)
    if counts.total() < 3 or 2 * most <= counts.total():
        return tuple(alone)
    return tuple(_beside(outcome, usual[outcome.group], right, counts.total()) for outcome in alone)


def _beside(outcome: GroupOutcome, hashes: tuple[str, ...], right: tuple[str, ...], groups: int) -> GroupOutcome:
    if not hashes or outcome.state == "failed":
        return outcome
    if hashes == right:
        known = outcome.state == "passed"
        return outcome if known else replace(outcome, state="passed", reason=f"its one run is as that of most of {groups} groups")
    step = next((index for index, pair in enumerate(zip(hashes, right, strict=False)) if pair[0] != pair[1]), min(len(hashes), len(right)))
    return replace(
        outcome, state="failed", failed=outcome.runs, reason=f"its runs differ from most of {groups} groups from step {step + 1} on"
    )


def _usual(runs: Sequence[ReplayRun]) -> tuple[str, ...]:
    """The hashes of most of a group's finished runs; () without any."""
    counts = Counter(run.hashes for run in runs if run.end == "finished")
    return counts.most_common(1)[0][0] if counts else ()


def _first_step(runs: Sequence[ReplayRun]) -> int:
    """Counted from 1."""
    steps = list(zip(*(run.hashes for run in runs), strict=False))
    return next((index for index, hashes in enumerate(steps) if len(set(hashes)) > 1), len(steps)) + 1
