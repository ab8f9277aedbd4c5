"""Strings and numbers as the service takes them: bounded, printable, storable in any database."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

__all__ = ["NAME", "Answer", "EventId", "IncidentId", "JobName", "MachineName", "Page", "Request", "Text"]

Item = TypeVar("Item")
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$"


def _printable(text: str) -> str:
    """No control characters but line breaks and tabs, no half of a surrogate pair, something besides blanks."""
    if any(not (letter.isprintable() or letter in "\n\t") for letter in text):
        raise ValueError("holds a character that cannot be printed")
    if not text.strip():
        raise ValueError("is empty: say why")
    return text.strip()


JobName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=63)]
MachineName = Annotated[str, StringConstraints(pattern=NAME, max_length=255)]
IncidentId = Annotated[str, StringConstraints(pattern=NAME, max_length=255)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=2000), AfterValidator(_printable)]
EventId = Annotated[int, Field(ge=0, le=2**53)]


class Request(BaseModel):
    """What a caller sends: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Answer(BaseModel):
    """What the service answers: a client ignores keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Page(Answer, Generic[Item]):
    """Some of a list. next: give it as `cursor` to get those that follow; null at the end."""

    items: tuple[Item, ...]
    next: str | None = None
