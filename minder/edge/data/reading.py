"""The planner's logs as they lie in a folder, and what `minder job data` says of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from minder.edge.data.audit import Audit, Begin, Given, RankLog, join
from minder.edge.data.plan import Plan, Share
from minder.edge.data.record import older_half
from minder.model.batch_ranges import parse_ranges
from minder.model.errors import BadInputError

__all__ = ["as_json", "as_lines", "read_logs", "samples_of_step"]

_NAME = re.compile(r"rank-(\d+)\.log")


def read_logs(folder: Path) -> list[RankLog]:
    """Every rank's log. Raises BadInputError where there is none."""
    found = sorted((int(match[1]), path) for path in _listed(folder) if (match := _NAME.fullmatch(path.name)))
    if not found:
        raise BadInputError(f"{folder} has no log of a rank (rank-00000.log): name the folder that the script gave as log_dir")
    return [_read(rank, path) for rank, path in found]


def samples_of_step(logs: Iterable[RankLog], step: int) -> dict[int, tuple[Given, list[int]]]:
    """By rank: what the log says, and the samples of the plan. Raises BadInputError for a step that no log knows."""
    steps, _ = join(logs)
    if step not in steps:
        known = f"steps {min(steps)} to {max(steps)}" if steps else "no step"
        raise BadInputError(f"step {step} is not in the log, which has {known}")
    return {
        rank: (given, given.begin.plan.samples_of(given.batch, Share(rank, given.begin.world)))
        for rank, given in sorted(steps[step].items())
    }


def as_json(found: Audit) -> dict[str, Any]:
    """One document."""
    return {
        "plan": None if found.plan is None else {**found.plan.identity(), "epochs": found.plan.epochs},
        "starts": [
            {"generation": one.generation, "ranks": one.world, "after_step": one.step, "time": one.time_s} for one in found.starts
        ],
        "first_step": found.steps and found.steps[0], "last_step": found.steps and found.steps[1], "compared_steps": found.compared,
        "replaced_loaders": dict(found.replaced), "problems": list(found.problems), "unknown": list(found.unknown),
    }  # fmt: skip


def as_lines(found: Audit) -> list[str]:
    """For a terminal."""
    lines = []
    if found.plan is not None:
        order = "shuffled" if found.plan.shuffle else "in order"
        lines.append(f"{found.plan.samples} samples {order}, {found.plan.global_batch} a step, seed {found.plan.seed}")
    lines += [f"generation {one.generation}: {one.world} ranks, after step {one.step}" for one in found.starts]
    if found.replaced:
        lines.append("loader processes replaced: " + ", ".join(f"{count} {end}" for end, count in sorted(found.replaced.items())))
    lines += [f"problem: {line}" for line in found.problems] + [f"unknown: {line}" for line in found.unknown]
    if found.steps is not None:
        begin, end = found.steps
        right = "no gap, no duplicate" if found.is_right else "not as planned" if found.problems else "not known as a whole"
        lines.append(f"steps {begin} to {end}: {right}; samples of {found.compared} steps compared")
    return lines


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        raise BadInputError(f"{folder}: {error.strerror}; name the folder that the script gave as log_dir") from error


def _read(rank: int, path: Path) -> RankLog:
    log, begins = RankLog(rank), dict[str, Begin]()
    for part in (older_half(path), path):
        if part.exists():
            for line in part.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    _enter(log, begins, line)
                except (ValueError, KeyError, TypeError, IndexError):
                    log.damaged += 1
    return log


def _enter(log: RankLog, begins: dict[str, Begin], line: str) -> None:
    """A process that lives on beside its successor counts no more: its number is no longer the newest."""
    word, rest = line.split(" ", 1)
    if word == "begin":
        number, text = rest.split(" ", 1)
        if number not in begins:  # the second file begins with the line again
            begins[number] = _begin(json.loads(text))
            log.begin(begins[number])
        return
    if word == "loader":
        _, step, text = rest.split(" ", 2)
        log.ends.append((int(step), str(json.loads(text)["end"])))
        return
    if word not in begins:
        raise ValueError(word)
    if begins[word] is log.begins[-1]:
        step, batch, found = rest.split(" ")
        log.given[int(step)] = Given(begins[word], int(step), int(batch), int(found, 16))


def _begin(about: dict[str, Any]) -> Begin:
    plan = Plan(**about["plan"], epochs=about["epochs"])
    place = (about["rank"], about["world"], about["step"], parse_ranges(about["skipped"]), about["generation"])
    return Begin(float(about["time"]), plan, *place)
