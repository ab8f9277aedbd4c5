"""Strings and numbers as the service takes them: bounded, printable, storable in any database."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, StringConstraints
from pydantic_core import CoreSchema, core_schema

__all__ = ["NAME", "Answer", "EventId", "IncidentId", "JobName", "MachineName", "Page", "Request", "Text"]

Item = TypeVar("Item")
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.:-]*$"


def open_words(schema: CoreSchema, handler: GetCoreSchemaHandler) -> CoreSchema:
    """The schema with any string where it had a choice of strings; the choice becomes examples. Changes it in place."""
    seen: set[int] = set()

    def visit(part: Any) -> None:
        if id(part) in seen or not isinstance(part, (dict, list, tuple)):
            return
        seen.add(id(part))
        if not isinstance(part, dict):
            for item in part:
                visit(item)
            return
        if part.get("type") == "definition-ref":
            visit(handler.resolve_ref_schema(cast(CoreSchema, part)))
        elif part.get("type") == "literal" and all(isinstance(word, str) for word in part["expected"]):
            words = list(part["expected"])
            part.clear()
            part |= core_schema.str_schema(metadata={"pydantic_js_updates": {"examples": words}})
        for key, item in list(part.items()):
            if key not in ("metadata", "serialization"):
                visit(item)

    visit(schema)
    return schema


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
    """What the service answers: a client ignores keys that it does not know, and takes words that it does not know as they are.

    A Literal of strings, also inside of minder.model's records, names what this version says; a newer one, or a ledger that a newer one
    wrote, may say more. (A Request stays strict: what a caller wants done must be understood.)
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return open_words(handler(source), handler)


class Page(Answer, Generic[Item]):
    """Some of a list."""

    items: tuple[Item, ...] = Field(description="The entries of this page.")
    next: str | None = Field(default=None, description="Give it as `cursor` for the entries that follow; null at the end.")
