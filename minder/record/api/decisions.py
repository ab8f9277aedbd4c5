"""Evictions that wait for an operator."""

from __future__ import annotations

from typing import Literal

from minder.model.decision import Decision
from minder.record.api.fields import Answer, Request, Text

__all__ = ["AnswerRequest", "Question", "QuestionDetail", "QuestionState"]

QuestionState = Literal["waiting", "approved", "rejected", "expired", "carried_out"]


class Question(Answer):
    """An eviction that an operator was asked about. id: of the decision. open: whether an answer is still taken.

    until: when it can no longer be answered; then `on_timeout` follows: "page", "reject" or "approve". incidents: whom it concerns.
    by, note: who answered, and why. why: a word for an end that no person chose ("recovered", "restarted", "timeout", "paused", ...).
    controller: whether the one who would carry it out is heard; null once nothing follows any more. last_heard: when, where it is silent.
    """

    id: str
    job: str
    incidents: tuple[str, ...]
    machines: tuple[str, ...]
    cause: str
    confidence: float
    state: QuestionState
    open: bool
    asked: str
    until: str
    on_timeout: str
    answered: str | None
    by: str
    note: str
    why: str
    controller: Literal["heard", "silent", "unknown"] | None = None
    last_heard: str | None = None


class QuestionDetail(Question):
    """The question with all that speaks for and against it: the verdict's evidence, the price, the stages that passed."""

    generation: int
    decision: Decision


class AnswerRequest(Request):
    """reason: why; the next person reads it."""

    reason: Text
