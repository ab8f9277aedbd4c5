"""The hand-set numbers of the default detector: detector.toml, read once, each section as a typed record of its module."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar, get_type_hints

from minder.model.errors import ConfigError

__all__ = ["number", "numbers", "read_sections"]

_KEYS = {"value", "unit", "what", "source"}
_RECORDS: dict[str, Any] = {}
R = TypeVar("R")


def numbers(section: str, kind: type[R]) -> R:
    """The record of a section, the same one for all who ask. Raises ConfigError in one line for a number that is missing, unknown or of
    another type."""
    made = _RECORDS.get(section)
    if not isinstance(made, kind):
        made = _RECORDS[section] = record_of(section, kind, read_sections().get(section, {}))
    return made


def record_of(section: str, kind: type[R], given: Mapping[str, Any]) -> R:
    """As `numbers`, from what stands in the section."""
    hints, names = get_type_hints(kind), [item.name for item in fields(kind)]  # type: ignore[arg-type]
    for name in (*_table(section, given, names), *names):
        if name not in hints or name not in given:
            what = "has no number" if name not in hints else "lacks"
            raise ConfigError(f"detector.toml: [{section}] {what} {name}: it has {', '.join(names)}")
    return kind(**{name: _value(section, name, hints[name], given) for name in names})


def number(section: str, name: str) -> float:
    """One decimal number, for a record that others may fill in otherwise. Raises ConfigError as `numbers` does."""
    given = _table(section, read_sections().get(section, {}), (name,))
    if name not in given:
        raise ConfigError(f"detector.toml: [{section}] lacks {name}")
    return float(_value(section, name, float, given))


def _table(section: str, given: Any, names: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"detector.toml: [{section}] is {given!r}: it has {', '.join(names)}")
    return given


def _value(section: str, name: str, kind: type, given: Mapping[str, Any]) -> Any:
    entry = given[name]
    if not isinstance(entry, Mapping) or set(entry) != _KEYS:
        raise ConfigError(f"detector.toml: [{section}] {name} needs {', '.join(sorted(_KEYS))}")
    if type(entry["value"]) is not kind:
        raise ConfigError(f"detector.toml: [{section}] {name} is {entry['value']!r}: give {kind.__name__}")
    return entry["value"]


@cache
def read_sections() -> Mapping[str, Mapping[str, Any]]:
    """Everything that the file has. Raises ConfigError in one line where it cannot be read."""
    try:
        return tomllib.loads(files(__package__).joinpath("detector.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # text that is no UTF-8 or no TOML is a ValueError
        raise ConfigError(f"detector.toml cannot be read: {error}") from error
