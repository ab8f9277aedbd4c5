"""One answer against what is right: the rule of RULES.md (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from minder.offline.benchmark.answers import Answer
from minder.offline.benchmark.card import TIMED
from minder.offline.benchmark.right import Right
from minder.offline.evaluation.scoring import LIMIT_S, Judged

__all__ = ["Row", "judge"]

_NO_TIME = 1e9


@dataclass(frozen=True, slots=True)
class Row:
    """One input of one entry, judged.

    state: "answered", "unknown" (it said so) or "unanswered" (problem says why). right: found, or rightly quiet. false_accusations: lines
    that name another machine than may be named then. delay_s: of a timed input with a fault; a miss counts as LIMIT_S.
    """

    judged: Judged
    part: str
    state: str
    right: bool
    false_accusations: int
    days: float
    delay_s: float | None
    seconds: float
    problem: str | None = None


def judge(right: Right, answer: Answer, looked_ahead: bool = False) -> Row:
    """looked_ahead: its accusation did not stand when the recording was cut off at its time, which makes it wrong."""
    timed = right.part in TIMED
    accused = answer.accusations
    named = tuple(dict.fromkeys(str(name) for item in accused for name in item.names))
    outcome, delay_s = _outcome(right, answer, timed)
    if looked_ahead and outcome == "found":
        outcome = "wrong"
    judged = Judged(right.input, right.fault, outcome, delay_s, named)
    state = "unanswered" if answer.problem is not None else "unknown" if answer.word == "unknown" else "answered"
    is_right = outcome == "found" or (outcome == "quiet" and state != "unanswered" and (state == "unknown") == right.unknown)
    wait_s = None
    if timed and right.fault is not None:
        wait_s = delay_s if outcome == "found" and delay_s is not None else LIMIT_S
    days = right.seconds / 86_400.0 if timed else 0.0
    problem = "its verdict did not stand when the recording was cut off at it" if looked_ahead else answer.problem
    return Row(judged, right.part, state, is_right, _false(right, answer, timed), days, wait_s, answer.seconds, problem)


def _outcome(right: Right, answer: Answer, timed: bool) -> tuple[str, float | None]:
    """found, wrong, missed or quiet, and the delay of a timed accusation."""
    accused = answer.accusations
    if not accused:
        return ("missed" if right.fault else "quiet"), None
    named = {name for item in accused for name in item.names}
    is_named = bool(right.names) and named <= set(right.names)
    if not timed:
        return ("found" if is_named else "wrong"), None
    delay_s = accused[0].time_s - (right.onset_s if right.onset_s is not None else _NO_TIME)
    good = right.fault is not None and is_named and 0.0 <= delay_s <= LIMIT_S
    return ("found" if good else "wrong"), (delay_s if right.onset_s is not None and math.isfinite(delay_s) else None)


def _false(right: Right, answer: Answer, timed: bool) -> int:
    def is_false(item: object) -> bool:
        names, time_s = set(item.names), item.time_s  # type: ignore[attr-defined]
        early = timed and right.onset_s is not None and time_s < right.onset_s
        return early or not names <= set(right.names)

    return sum(is_false(item) for item in answer.accusations)
