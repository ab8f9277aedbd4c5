"""The tables that say what a frame means (tools.toml, then roles.toml), compiled once, asked once for every frame that exists."""

from __future__ import annotations

import fnmatch
import functools
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from minder.diagnose.stacks.records import Frame, Kind
from minder.model.errors import ConfigError

__all__ = ["FrameMeaning", "Rule", "read_frame"]

Stance = Literal["waits", "may wait", "outside"]
Blame = Literal["machine", "software", "workload", "unknown"]
_TABLES = ("tools.toml", "roles.toml")  # of two rules that fit, the one that is read first counts
_LAYERS = ("doing", "over", "lock", "owner", "within", "duty", "aside", "apart", "rest", "hint")
_PLAIN = ("plumbing", "neutral")  # layers without a rule: patterns only
_KEYS = frozenset(
    {
        "kind",
        "stance",
        "reason",
        "blame",
        "weight",
        "patterns",
        "native",
        "start",
        "weak",
        "io",
        "backward",
        "imports",
        "bare",
        "spins",
        "service",
        "owns",
    }
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of tools.toml or roles.toml; their heads explain the fields."""

    reason: str
    kind: Kind = "other"
    stance: Stance = "outside"
    blame: Blame = "unknown"
    weight: float = 0.5
    start: bool = False
    weak: bool = False
    io: bool = False
    backward: bool = False
    imports: bool = False
    bare: bool = False
    spins: bool = False
    service: bool = False
    owns: Literal["", "files", "all"] = ""


@dataclass(frozen=True, slots=True)
class FrameMeaning:
    """What one frame says, layer by layer; plumbing says nothing at all."""

    doing: Rule | None = None
    over: Rule | None = None
    lock: Rule | None = None
    owner: Rule | None = None
    within: Rule | None = None
    duty: Rule | None = None
    aside: bool = False
    apart: Rule | None = None
    rest: bool = False
    hint: Rule | None = None
    plumbing: bool = False
    neutral: bool = False


@dataclass(frozen=True, slots=True)
class _Table:
    layers: Mapping[str, tuple[tuple[Rule, _Matcher], ...]]
    plumbing: _Matcher
    neutral: _Matcher


class _Matcher:
    """Patterns of one rule as one regular expression over "function\\nfile"."""

    def __init__(self, python: Iterable[str], native: Iterable[str]) -> None:
        self._python, self._native = _compile(python), _compile(native)

    def fits(self, frame: Frame) -> bool:
        expression = self._native if frame.native else self._python
        return expression is not None and expression.match(f"{frame.function}\n{frame.file}") is not None


def _compile(patterns: Iterable[str]) -> re.Pattern[str] | None:
    parts = []
    for pattern in patterns:
        function, _, file = (part.strip() for part in pattern.partition(" @ "))
        inside = f".*{re.escape(file).replace(chr(92) + '*', '.*')}" if file else ""
        parts.append(f"{fnmatch.translate(function).removesuffix(chr(92) + 'Z').removesuffix(chr(92) + 'z')}\n{inside}")
    return re.compile("|".join(f"(?:{part})" for part in parts)) if parts else None


def read_frame(frame: Frame) -> FrameMeaning:
    """What this frame says, by roles.toml.

    >>> read_frame(Frame("all_reduce", "torch/distributed/distributed_c10d.py", 2806)).doing.kind
    'collective'
    """
    return _meaning(frame.function, frame.file, frame.native)


@functools.lru_cache(maxsize=65536)
def _meaning(function: str, file: str, native: bool) -> FrameMeaning:
    """Whatever the line: in a large job every process may stand at another one."""
    table, frame = _table(), Frame(function, file, native=native)
    found = {layer: next((rule for rule, matcher in table.layers[layer] if matcher.fits(frame)), None) for layer in _LAYERS}
    return FrameMeaning(
        doing=found["doing"],
        over=found["over"],
        lock=found["lock"],
        owner=found["owner"],
        within=found["within"],
        duty=found["duty"],
        aside=found["aside"] is not None,
        apart=found["apart"],
        rest=found["rest"] is not None,
        hint=found["hint"],
        plumbing=table.plumbing.fits(frame),
        neutral=table.neutral.fits(frame),
    )


@functools.cache
def _table() -> _Table:
    read = [(path := Path(__file__).with_name(name), tomllib.loads(path.read_text(encoding="utf-8"))) for name in _TABLES]
    layers = {layer: tuple(_rule(entry, path) for path, data in read for entry in data.get(layer, ())) for layer in _LAYERS}
    plain = {
        layer: _Matcher(*([p for _, data in read for p in data.get(layer, {}).get(kind, ())] for kind in ("patterns", "native")))
        for layer in _PLAIN
    }
    return _Table(layers, plain["plumbing"], plain["neutral"])


def _rule(entry: Mapping[str, Any], path: Path) -> tuple[Rule, _Matcher]:
    unknown = entry.keys() - _KEYS
    if unknown:
        raise ConfigError(f"{path}: unknown key {sorted(unknown)[0]!r} in the rule {entry.get('reason')!r}")
    fields = {key: value for key, value in entry.items() if key not in ("patterns", "native")}
    rule = Rule(**fields)
    for name, value, allowed in (("kind", rule.kind, Kind), ("stance", rule.stance, Stance), ("blame", rule.blame, Blame)):
        if value not in get_args(allowed):
            raise ConfigError(f"{path}: {name} of {rule.reason!r} is {value!r}: use one of {', '.join(get_args(allowed))}")
    return rule, _Matcher(entry.get("patterns", ()), entry.get("native", ()))
