"""Whose an exception is, by its structure: type, library and error code (exception_rules.toml). Pure and light: workers load it.

Words match as words: "maxidx" is no Xid. Paths and addresses are names that a person chose, and what stands between quotation marks is
another text, unless it is called a failure's or an error's own: no rule of kind machine reads them. A folder may be called as a fault is.
What no rule knows is unknown; an unknown exception never accuses a machine by itself.
"""

from __future__ import annotations

import errno as numbers
import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from minder.model.errors import ConfigError

__all__ = ["SUM_NOT_FINITE", "Disk", "ExceptionKind", "ExceptionRule", "Whose", "classify_exception", "hands_on", "load_exception_rules"]

ExceptionKind = Literal["machine", "program", "victim", "unknown"]
Disk = Literal["local", "network"]
SUM_NOT_FINITE = ("numeric", "sum not finite")  # library and code of the row on numbers that may be a sum over all ranks
_KEYS = {"name", "kind", "types", "words", "errno", "disk", "library", "code", "quotes", "hands_on", "examples"}
_ERRNO = re.compile(r"\[Errno (\d+)\]|\(os error (\d+)\)|\bOs \{ code: (\d+)")  # as Python and Rust write it
_NAMED = re.compile(r"'[^'\n]*/[^'\n]*'|\"[^\"\n]*/[^\"\n]*\"|\S*/\S*")  # paths and addresses
_QUOTED = re.compile(  # kept behind "failure 214" or "returned": so libraries write their own codes and texts
    r"(?P<own>\b(?:fail\w*|errors?|return\w*|with|status|code|entry)(?: \d+)?[\s:(=]+)?(?<!\w)('[^'\n]*'|\"[^\"\n]*\")(?!\w)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Whose:
    """What is known of an exception. library and code are "" where no rule knows them; rule: the name of the rule that decided."""

    kind: ExceptionKind
    library: str = ""
    code: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True)
class ExceptionRule:
    """One row of exception_rules.toml; what it does not name fits everything."""

    name: str
    kind: ExceptionKind
    types: frozenset[str]
    words: re.Pattern[str] | None
    errno: frozenset[str]
    disk: Disk | None
    library: str
    code: str
    examples: tuple[tuple[str, ...], ...]
    quotes: bool = False
    hands_on: bool = False

    def match(self, type_name: str, message: str, errno: str, disk: Disk | None) -> Whose | None:
        """What it says of an exception, or None where it does not fit."""
        if (self.types and type_name not in self.types) or (self.errno and errno not in self.errno) or (self.disk and disk != self.disk):
            return None
        found = self.words.search(message) if self.words is not None else None
        if self.words is not None and found is None:
            return None
        named = next((text for text in found.groupdict().values() if text), "") if found is not None else ""
        return Whose(self.kind, self.library, self.code or " ".join(named.lower().split()), self.name)


def classify_exception(type_name: str, message: str, *, errno: int | None = None, disk: Disk | None = None) -> Whose:
    """The first rule that fits. type_name: with or without its module; errno: of an OSError; disk: where its file lies, if known.

    >>> classify_exception("RuntimeError", "CUDA error: uncorrectable ECC error encountered").kind
    'machine'
    >>> classify_exception("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB").kind
    'program'
    >>> classify_exception("RuntimeError", "the loss is odd")
    Whose(kind='unknown', library='', code='', rule='')
    """
    name = _base(type_name)
    named = _ERRNO.search(message)
    number = errno if errno is not None else int(named[named.lastindex or 1]) if named else None
    word = numbers.errorcode.get(number, "") if number is not None else ""
    quotes = any(rule.quotes and name in rule.types for rule in load_exception_rules())
    own = _NAMED.sub(" ", _QUOTED.sub(lambda found: found[0] if found["own"] else " ", message))
    for rule in load_exception_rules():
        broken = rule.kind == "machine"
        found = None if quotes and broken else rule.match(name, own if broken else message, word, disk)
        if found is not None:
            return found
    return Whose("unknown", "os" if word else "", word)


def hands_on(type_name: str) -> bool:
    """Whether exceptions of this type carry what another process said."""
    return any(rule.hands_on and _base(type_name) in rule.types for rule in load_exception_rules())


def _base(type_name: str) -> str:
    return type_name.rsplit(".", 1)[-1].split("(", 1)[0].split("[", 1)[0]


@functools.cache
def load_exception_rules() -> tuple[ExceptionRule, ...]:
    """The rules that minder ships, in their order. Raises ConfigError that names the row."""
    with Path(__file__).with_name("exception_rules.toml").open("rb") as file:
        return tuple(_parse(entry) for entry in tomllib.load(file).get("rule", ()))


def _parse(entry: Mapping[str, Any]) -> ExceptionRule:
    name = str(entry.get("name"))
    kind: Any = entry.get("kind")
    unknown = sorted(entry.keys() - _KEYS)
    if unknown or kind not in get_args(ExceptionKind):
        raise ConfigError(f"exception_rules.toml, {name}: {unknown[0] if unknown else 'kind'} is not known here")
    words: Any = entry.get("words")
    pattern = None if words is None else _compile(words)
    types, codes = frozenset(entry.get("types", ())), frozenset(entry.get("errno", ()))
    examples = tuple(tuple(example) for example in entry.get("examples", ()))
    return ExceptionRule(
        name, kind, types, pattern, codes, entry.get("disk"), str(entry.get("library", "")), str(entry.get("code", "")), examples,
        entry.get("quotes") is True, entry.get("hands_on") is True,
    )  # fmt: skip


def _compile(words: list[str]) -> re.Pattern[str]:
    """One pattern of all, each bounded as words are. Named groups may repeat among them: they are numbered apart."""
    parts = [re.sub(r"\(\?P<code>", f"(?P<code{place}>", word) for place, word in enumerate(words)]
    return re.compile("|".join(_bounded(part) for part in parts), re.IGNORECASE)


def _bounded(word: str) -> str:
    return rf"(?<!\w)(?:{word})(?!\w)"
