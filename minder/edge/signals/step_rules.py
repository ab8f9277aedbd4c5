"""What a training step looks like in a log: the rules of step_rules.toml, compiled."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from minder.edge.signals.numerals import COUNT, VALUE, parse_value

__all__ = ["StepRule", "StepRules", "load_step_rules"]

_PLACE = re.compile(r"<(?P<kind>COUNT|VALUE)(?::(?P<name>\w+))?>")
_FILE = re.compile(r"\S*/\S+\.py\S*")  # whose folders may be called anything
_NAMES = r"[\w/@.-]*[ :=_-]{0,3}(?:[A-Za-z_]\w*[ :=_-]{1,3}){0,2}?"  # up to the value, past no comma and no bracket
_KINDS = {"COUNT": COUNT, "VALUE": VALUE}


@dataclass(frozen=True, slots=True)
class StepRule:
    """One kind of line. counter: see step_rules.toml; epoch_base: the number of the first epoch, None where it is unknown."""

    trainer: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    reject: re.Pattern[str] | None
    others: re.Pattern[str] | None  # what `reject` names, with its value
    counter: Literal["job", "epoch", "unknown"]
    epoch_base: int | None
    measured: bool


@dataclass(frozen=True, slots=True)
class StepRules:
    """All of them. fields: where loss, grad_norm, seconds and milliseconds stand in a line that has a step."""

    rules: tuple[StepRule, ...]
    details: tuple[re.Pattern[str], ...]
    fields: Mapping[str, re.Pattern[str]]
    measures: re.Pattern[str]
    set_up: re.Pattern[str]
    training_bar: re.Pattern[str]
    other_bar: re.Pattern[str]
    bar_units: re.Pattern[str]

    def find(self, line: str) -> tuple[StepRule, re.Match[str]] | None:
        """The first rule that the line fits, None where it is no training step."""
        low = line.lower()
        for rule in self.rules:
            if any(hint in low for hint in rule.hints) and (match := rule.pattern.search(line)):
                if rule.measured:
                    return (rule, match) if self._is_measured(rule, line, match) else None
                return None if rule.reject is not None and rule.reject.search(line) else (rule, match)
        return None

    def _is_measured(self, rule: StepRule, line: str, match: re.Match[str]) -> bool:
        """Whether a measure of training stands beside the number, and nothing before it says that it is another one's."""
        before, behind = _FILE.sub("", line[: match.start("step")]), line[match.end("step") :]
        if (rule.reject is not None and rule.reject.search(before)) or self.set_up.search(line[: match.start()]):
            return False
        return self.measures.search(before + (behind if rule.others is None else rule.others.sub("", behind))) is not None

    def value(self, name: str, line: str, match: re.Match[str] | None = None) -> float | None:
        """A field of the line, None where the line does not tell it, or not clearly."""
        if match is not None and match.groupdict().get(name):
            return parse_value(match[name])
        found = self.fields[name].search(line)
        return parse_value(found["value"]) if found else None


@functools.cache
def load_step_rules() -> StepRules:
    with Path(__file__).with_name("step_rules.toml").open("rb") as file:
        table = tomllib.load(file)
    return StepRules(
        rules=tuple(_rule(row) for row in table["rule"]),
        details=tuple(_compile(row["pattern"]) for row in table["detail"]),
        fields={name: _compile(text) for name, text in table["fields"].items()},
        measures=_compile(table["measures"]["pattern"]),
        set_up=_compile(table["measures"]["set_up"]),
        training_bar=_compile(table["bars"]["training"]),
        other_bar=_compile(table["bars"]["other"]),
        bar_units=_compile(table["bars"]["units"]),
    )


def _rule(row: Mapping[str, Any]) -> StepRule:
    reject = row.get("reject")
    return StepRule(
        trainer=row["trainer"],
        hints=tuple(row["hint"]) if isinstance(row["hint"], list) else (row["hint"],),
        pattern=_compile(row["pattern"]),
        reject=_compile(reject) if reject is not None else None,
        others=_compile(rf"(?:{reject}){_NAMES}<VALUE>") if reject is not None else None,
        counter=row.get("counter", "unknown"),
        epoch_base=row.get("epoch_base"),
        measured=row.get("measured", False),
    )


def _compile(text: str) -> re.Pattern[str]:
    return re.compile(_PLACE.sub(_place, text), re.IGNORECASE)


def _place(match: re.Match[str]) -> str:
    name = match["name"]
    return f"(?P<{name}>{_KINDS[match['kind']]})" if name else _KINDS[match["kind"]]
