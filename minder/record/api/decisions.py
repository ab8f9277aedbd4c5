"""Evictions that wait for an operator."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from minder.model.decision import Decision
from minder.record.api.fields import Answer, Request, Text

__all__ = ["AnswerRequest", "Question", "QuestionDetail", "QuestionState"]

QuestionState = Literal["waiting", "approved", "rejected", "expired", "carried_out"]


class Question(Answer):
    """An eviction that an operator was asked about."""

    id: str = Field(description="Id of the decision that is asked about.")
    job: str = Field(description="Job that the machines would leave.")
    incidents: tuple[str, ...] = Field(description="Incidents that the answer decides.")
    machines: tuple[str, ...] = Field(description="Machines that would be evicted.")
    cause: str = Field(description="Kind of fault that was found, such as `stall` or `slowdown`.")
    confidence: float = Field(description="Confidence of the verdict, 0 to 1.")
    state: QuestionState = Field(description="What became of it so far.")
    open: bool = Field(description="Whether an answer is still taken.")
    asked: str = Field(description="When the controller asked, ISO 8601 in UTC.")
    until: str = Field(description="When no answer is taken any more and `on_timeout` follows, ISO 8601 in UTC.")
    on_timeout: str = Field(description="What follows without an answer: `page`, `reject` or `approve`.")
    answered: str | None = Field(description="When it was answered, ISO 8601 in UTC; null: it is not.")
    by: str = Field(description="Name of the token that answered; empty before.")
    note: str = Field(description="Why it was answered so; empty before.")
    why: str = Field(
        description="A word for an end that no operator chose (`recovered`, `restarted`, `timeout`, `paused`, ...); else empty.",
    )
    controller: Literal["heard", "silent", "unknown"] | None = Field(
        default=None,
        description="Whether the controller that would carry it out is heard; null once nothing follows any more.",
    )
    last_heard: str | None = Field(
        default=None,
        description="When that controller was last heard, ISO 8601 in UTC; null while it is heard, or where it is not known.",
    )
    dry_run: bool | None = Field(
        default=None,
        description="Whether that controller is in dry run: it evicts nothing, whatever is approved; null where it does not say.",
    )


class QuestionDetail(Question):
    """The question with all that speaks for and against it: the verdict's evidence, the price, the stages that passed."""

    generation: int = Field(description="Generation of the job that the decision was made in: 1 is the first start.")
    decision: Decision = Field(description="The decision with its verdict, its price and the stages that it passed.")


class AnswerRequest(Request):
    """An answer: approve or reject is in the path."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "checked: GPU 3 is off the bus"}]})

    reason: Text = Field(description="Why; the next person reads it.")
