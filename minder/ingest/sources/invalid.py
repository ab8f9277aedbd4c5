"""What is wrong with a file of settings, in one line: the key, what is wrong with it, and how to mend it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

__all__ = ["first_problem", "what_is_wrong"]

_MOST_NAMES = 12  # of settings in one line; of more, the reference has the list
_NO_TABLE = ("model_type", "model_attributes_type", "dict_type", "mapping_type")
_SHOWN = ("literal_error", "enum", "bool_", "int_", "float_", "greater_than", "less_than")  # errors of values that are no secrets


def first_problem(error: ValidationError, model: type[BaseModel]) -> str:
    """The first of them, for a file that is one `model`."""
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"]))
    return f"{key}: {what_is_wrong(first, model)}" if key else what_is_wrong(first, model)


def what_is_wrong(problem: ErrorDetails, model: type[BaseModel]) -> str:
    """One problem without its key."""
    kind, place, value = problem["type"], problem["loc"], problem["input"]
    if kind == "extra_forbidden":
        return f"there is no such setting: {_instead(str(place[-1]), _settings_at(model, place[:-1]))}"
    if kind == "missing":
        return "is missing: give it"
    if kind in _NO_TABLE:
        form = f"[[{place[-2]}]]" if len(place) > 1 and isinstance(place[-1], int) else f"[{'.'.join(map(str, place))}]"
        return f"is {value!r}, which is no table: write it as {form} with a line for each setting"
    said = problem["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{said.partition(', unable')[0]}, not {value!r}" if kind.startswith(_SHOWN) else said


def _instead(name: str, settings: set[str]) -> str:
    close = difflib.get_close_matches(name, sorted(settings), 1)
    if close:
        return f"did you mean {close[0]}?"
    if settings and len(settings) <= _MOST_NAMES:
        return f"use one of {', '.join(sorted(settings))}"
    return "docs/reference/configuration.md lists all"


def _settings_at(model: type[BaseModel], place: tuple[int | str, ...]) -> set[str]:
    """The settings of the table that stands there; of a choice of tables, those of all."""
    models: set[Any] = {model}
    for key in place:
        fields = [each.model_fields[key] for each in models if key in each.model_fields]
        if fields:  # else it counts an item of a list, or names one of a choice
            models = {found for field in fields for found in _models_in(field.annotation)}
    return {field.alias or name for each in models for name, field in each.model_fields.items()}


def _models_in(annotation: Any) -> set[Any]:
    if hasattr(annotation, "model_fields"):
        return {annotation}
    return {found for part in get_args(annotation) for found in _models_in(part)}
