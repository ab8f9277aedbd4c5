"""What a run trained on, by the logs of its ranks (pure): which samples at which step, and whether any are missing or came twice.

A resume cuts: steps that are trained again count once, as the last process trained them, and steps that a later start abandoned count not
at all. A line that is missing is unknown, which is neither a gap nor right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from minder.edge.data.order import fingerprint
from minder.edge.data.plan import Plan, Share
from minder.model.batch_ranges import format_ranges, parse_ranges

__all__ = ["Audit", "Begin", "Given", "RankLog", "Start", "audit", "join"]

_MOST_SAMPLES = 2_000_000  # of which fingerprints are compared: some seconds
_MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class Begin:
    """A process of a rank begins after `step` steps. time_s: Unix time."""

    time_s: float
    plan: Plan
    rank: int
    world: int
    step: int
    skipped: tuple[range, ...]
    generation: int


@dataclass(frozen=True, slots=True)
class Given:
    """A rank's share of a step went to its training loop. fingerprint: of the samples that were read."""

    begin: Begin
    step: int
    batch: int
    fingerprint: int


@dataclass(slots=True)
class RankLog:
    """One rank's file, its cuts applied. ends: how loader processes ended, each with its step."""

    rank: int
    begins: list[Begin] = field(default_factory=list)
    given: dict[int, Given] = field(default_factory=dict)
    ends: list[tuple[int, str]] = field(default_factory=list)
    damaged: int = 0

    def begin(self, begin: Begin) -> None:
        self.begins.append(begin)
        self.given = _up_to(begin.step, self.given)


@dataclass(frozen=True, slots=True)
class Start:
    """The ranks of one generation begin."""

    generation: int
    world: int
    step: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Audit:
    """problems: gaps, duplicates, batches and samples that are not the plan's. unknown: what no line says. steps: the first and the last
    that are known of; None without any. compared: steps whose fingerprints were computed again."""

    plan: Plan | None
    starts: tuple[Start, ...]
    steps: tuple[int, int] | None
    compared: int
    replaced: Mapping[str, int]
    problems: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        return self.steps is not None and not self.problems and not self.unknown


def join(logs: Iterable[RankLog]) -> tuple[dict[int, dict[int, Given]], tuple[Start, ...]]:
    """By step and rank what was trained on in the end, and the starts in the order of their times."""
    groups: dict[tuple[int, int], list[Begin]] = {}
    every = list(logs)
    for log in every:
        for begin in log.begins:
            groups.setdefault((begin.generation, begin.world), []).append(begin)
    starts = sorted(
        (Start(*key, min(begin.step for begin in found), max(begin.time_s for begin in found)) for key, found in groups.items()),
        key=lambda start: start.time_s,
    )
    steps: dict[int, dict[int, Given]] = {}
    for start in starts:
        steps = _up_to(start.step, steps)
        for log in every:
            for step, given in log.given.items():
                if (given.begin.generation, given.begin.world) == (start.generation, start.world):
                    steps.setdefault(step, {})[log.rank] = given
    return dict(sorted(steps.items())), tuple(starts)


def audit(logs: Iterable[RankLog]) -> Audit:
    """Compares what the ranks' logs say with their plan. The newest step may be under way: ranks without it are no lack."""
    every = list(logs)
    steps, starts = join(every)
    replaced = Counter(end for log in every for _, end in log.ends)
    unknown = [f"{log.damaged} lines of rank {log.rank} cannot be read" for log in every if log.damaged]
    if not steps:
        return Audit(None, starts, None, 0, replaced, (), (*unknown, "no step is in the log"))
    first, last = min(steps), max(steps)
    plan = next(iter(steps[last].values())).begin.plan
    problems, lacking = [], []
    for step in range(first, last + 1):
        ranks = steps.get(step, {})
        world = next(iter(ranks.values())).begin.world if ranks else 0
        if step < last and len(ranks) < max(1, world):
            lacking.append((step, [rank for rank in range(world) if rank not in ranks]))
        problems += _problems_of(step, ranks, plan)
    unknown += _lacking_lines(lacking)
    problems += _order_problems(steps, plan, known={step for step, _ in lacking})
    compared, wrong = _compare(steps, plan)
    return Audit(plan, starts, (first, last), compared, replaced, tuple(_short(problems + wrong)), tuple(_short(unknown)))


def _up_to(step: int, found: Mapping[int, Any]) -> dict[int, Any]:
    return {each: value for each, value in found.items() if each <= step}


def _problems_of(step: int, ranks: Mapping[int, Given], plan: Plan) -> list[str]:
    batches = {given.batch for given in ranks.values()}
    if len(batches) > 1:
        return [f"step {step}: ranks trained on different batches ({', '.join(map(str, sorted(batches)))})"]
    if any(given.begin.plan.identity() != plan.identity() for given in ranks.values()):
        return [f"step {step}: another data plan than that of the last step"]
    return []


def _order_problems(steps: Mapping[int, Mapping[int, Given]], plan: Plan, known: set[int]) -> list[str]:
    """Every batch once, from that of the first known step to that of the last; those that a start left out are no gap."""
    trained = Counter(next(iter(ranks.values())).batch for ranks in steps.values())
    left_out = {batch for ranks in steps.values() for one in next(iter(ranks.values())).begin.skipped for batch in one}
    # a step without any line may have trained on any batch: then nothing is known of gaps
    whole = all(step in steps for step in range(min(steps), max(steps) + 1))
    missing = [batch for batch in range(min(trained), max(trained)) if batch not in trained and batch not in left_out] if whole else []
    problems = [f"gap: no step trained on batch {text}" for text in _texts(missing)]
    return problems + [f"duplicate: {trained[batch]} steps trained on batch {batch}" for batch in sorted(trained) if trained[batch] > 1]


def _compare(steps: Mapping[int, Mapping[int, Given]], plan: Plan) -> tuple[int, list[str]]:
    """Fingerprints of the newest steps, as many as take some seconds."""
    wrong = []
    compared = 0
    for step in sorted(steps, reverse=True)[: max(1, _MOST_SAMPLES // plan.global_batch)]:
        compared += 1
        for rank, given in sorted(steps[step].items()):
            planned = fingerprint(plan.samples_of(given.batch, Share(rank, given.begin.world)))
            if planned != given.fingerprint:
                wrong.append(f"step {step}, rank {rank}: other samples were read than those of batch {given.batch}")
    return compared, wrong[::-1]


def _lacking_lines(lacking: list[tuple[int, list[int]]]) -> list[str]:
    by_ranks: dict[str, list[int]] = {}
    for step, ranks in lacking:
        by_ranks.setdefault(f"rank {', '.join(map(str, ranks))}" if ranks else "any rank", []).append(step)
    return [f"no line of {who} for step {text}" for who, found in by_ranks.items() for text in _texts(found)]


def _texts(numbers: list[int]) -> list[str]:
    joined = format_ranges(range(number, number + 1) for number in numbers)
    return [format_ranges([one]) for one in parse_ranges(joined)]


def _short(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _MOST_LINES else [*lines[:_MOST_LINES], f"and {len(lines) - _MOST_LINES} more"]
