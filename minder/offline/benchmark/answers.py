"""What a program prints: JSON lines, each with the input, an answer and, of recordings, a time. Anything else is no answer."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from minder.model.clock import parse_time
from minder.model.errors import BadInputError
from minder.offline.benchmark.right import Name

__all__ = ["Answer", "Said", "read_answer"]

_WORDS = ("none", "unknown")


@dataclass(frozen=True, slots=True)
class Said:
    """One line. names: empty for "none" and "unknown". time_s: UTC seconds, NaN where an input has no time."""

    names: tuple[Name, ...]
    word: str | None = None
    time_s: float = math.nan


@dataclass(frozen=True, slots=True)
class Answer:
    """All that a program said of one input. problem: why it counts as unanswered, one line. seconds: its processor time."""

    said: tuple[Said, ...] = ()
    problem: str | None = None
    seconds: float = 0.0

    @property
    def accusations(self) -> list[Said]:
        """Lines that name something, the earliest first."""
        named = [item for item in self.said if item.names]
        return sorted(named, key=lambda item: 0.0 if math.isnan(item.time_s) else item.time_s)

    @property
    def word(self) -> str | None:
        """The last of "none" and "unknown" where nothing is named; None for no answer."""
        return None if self.accusations or not self.said else self.said[-1].word


def read_answer(text: str, name: str, timed: bool, ranks: bool) -> tuple[Said, ...]:
    """The lines of one input. timed: a line that names needs a time; ranks: names are whole numbers.

    Raises BadInputError, which says the line and what it must be.
    """
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise BadInputError('it printed nothing: print a line, with "none" or "unknown" where no machine is named')
    return tuple(_said(line, f"line {number}", name, timed, ranks) for number, line in lines)


def _said(line: str, where: str, name: str, timed: bool, ranks: bool) -> Said:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        raise BadInputError(f'{where} is no JSON: "{line[:60]}"') from None
    if not isinstance(item, dict) or item.get("input") != name:
        raise BadInputError(f'{where} does not say "input": "{name}"')
    answer = item.get("answer")
    if isinstance(answer, str):
        if answer not in _WORDS:
            raise BadInputError(f'{where}: answer is "{answer[:60]}": give a list of names, "none" or "unknown"')
        return Said((), answer)
    names = _names(answer, where, ranks)
    return Said(names, None, _time(item.get("time"), where) if timed else math.nan)


def _names(answer: object, where: str, ranks: bool) -> tuple[Name, ...]:
    kind = int if ranks else str
    if not isinstance(answer, list) or not answer or not all(isinstance(one, kind) and not isinstance(one, bool) for one in answer):
        what = "ranks, as whole numbers" if ranks else "machines"
        raise BadInputError(f'{where}: answer is {json.dumps(answer)[:60]}: give a list of {what}, "none" or "unknown"')
    return tuple(dict.fromkeys(answer))


def _time(value: object, where: str) -> float:
    try:
        return parse_time(value)  # type: ignore[arg-type]
    except (ValueError, AttributeError, TypeError, OverflowError):
        raise BadInputError(f"{where}: time is {json.dumps(value)[:60]}: give UTC as ISO 8601, like 2026-03-02T06:12:31Z") from None


def lines_of(name: str, said: Sequence[Said]) -> str:
    """The same as text, as a program prints it."""
    from minder.model.clock import format_time

    rows = []
    for item in said:
        row: dict[str, object] = {"input": name, "answer": list(item.names) or item.word}
        rows.append(row if math.isnan(item.time_s) else row | {"time": format_time(item.time_s)})
    return "".join(json.dumps(row) + "\n" for row in rows)
