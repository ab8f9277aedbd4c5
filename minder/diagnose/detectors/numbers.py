"""The hand-set numbers of the default detector: detector.toml, read once, each section as a typed record of its module."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from minder.model.errors import ConfigError

__all__ = ["PATH", "numbers", "read_sections"]

PATH = Path(__file__).with_name("detector.toml")
_KEYS = {"value", "unit", "what", "source"}
R = TypeVar("R")


def numbers(section: str, kind: type[R]) -> R:
    """The record of a section. Raises ConfigError in one line for a number that is missing, unknown or of another type."""
    return record_of(section, kind, read_sections().get(section, {}))


def record_of(section: str, kind: type[R], given: Mapping[str, Any]) -> R:
    """As `numbers`, from what stands in the section."""
    hints, names = get_type_hints(kind), [item.name for item in fields(kind)]  # type: ignore[arg-type]
    for name in (*given, *names):
        if name not in hints or name not in given:
            what = "has no number" if name not in hints else "lacks"
            raise ConfigError(f"detector.toml: [{section}] {what} {name}: it has {', '.join(names)}")
        entry = given[name]
        if not isinstance(entry, Mapping) or set(entry) != _KEYS:
            raise ConfigError(f"detector.toml: [{section}] {name} needs {', '.join(sorted(_KEYS))}")
        if type(entry["value"]) is not hints[name]:
            raise ConfigError(f"detector.toml: [{section}] {name} is {entry['value']!r}: give {hints[name].__name__}")
    return kind(**{name: given[name]["value"] for name in names})


@cache
def read_sections() -> Mapping[str, Mapping[str, Any]]:
    """Everything that the file has."""
    return tomllib.loads(PATH.read_text(encoding="utf-8"))
