"""Which exported series make which canonical metric: typed rules from TOML, with a default for each common exporter."""

from __future__ import annotations

import re
import tomllib
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from minder.ingest.sources.invalid import first_problem
from minder.model.errors import ConfigError
from minder.model.metrics import CATALOGUE, find_metric

__all__ = ["MetricMapping", "Rule", "default_mappings", "load_mapping"]

_DEFAULTS = Path(__file__).parent / "mappings"


class _Matcher(NamedTuple):
    """What a label's whole value has to be, or must not be (negated)."""

    label: str
    negated: bool
    pattern: re.Pattern[str]


class Rule(BaseModel):
    """One way to a canonical metric. Of several rules for one metric the first that has data wins.

    series, over: patterns of whole series names; with `over` the metric is the ratio of the two sums.
    kind: gauge as it is; counter: its growth per second (a ratio's: the growths' ratio); total: the counter as it is.
    match, over_match: label to a pattern of its whole value; "!" in front excludes.
    combine: over the labels that are left, such as port or direction. complement: 1 - value. saturates: the counter stops at
    255, 65535 or 2^32 - 1, and its growth is then unknown. device: the label that names the device, with device_prefix in front.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    metric: str
    series: tuple[str, ...] = Field(min_length=1)
    kind: Literal["gauge", "counter", "total"] = "gauge"
    match: dict[str, str] = {}
    over: tuple[str, ...] = ()
    over_match: dict[str, str] = {}
    scale: float = 1.0
    combine: Literal["sum", "mean", "max", "min"] = "sum"
    complement: bool = False
    saturates: bool = False
    device: str | None = None
    device_prefix: str = ""

    @field_validator("metric")
    @classmethod
    def _in_catalogue(cls, name: str) -> str:
        if find_metric(name) is None:
            raise ValueError(f"{name!r} is not in the metric catalogue")
        return name

    @model_validator(mode="after")
    def _patterns_compile(self) -> Rule:
        for pattern in (*self.series, *self.over, *self.match.values(), *self.over_match.values()):
            try:
                re.compile(pattern.removeprefix("!"))
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        return self

    @cached_property
    def _sides(self) -> tuple[tuple[re.Pattern[str], list[_Matcher]], ...]:
        sides = ((self.series, self.match), (self.over, self.over_match))
        return tuple(
            (
                re.compile("|".join(f"(?:{name})" for name in names)),
                [_Matcher(label, text.startswith("!"), re.compile(text.removeprefix("!"))) for label, text in labels.items()],
            )
            for names, labels in sides
            if names
        )

    def sides_of(self, name: str, labels: dict[str, str]) -> tuple[int, ...]:
        """On which sides of the rule a series counts: 0 the value, 1 what it is divided by."""
        return tuple(side for side, (names, matchers) in enumerate(self._sides) if names.fullmatch(name) and _all_match(matchers, labels))

    def device_of(self, labels: dict[str, str]) -> str | None:
        """The device that a series belongs to, None for the whole machine."""
        value = labels.get(self.device) if self.device else None
        return f"{self.device_prefix}{value}" if value else None


def _all_match(matchers: list[_Matcher], labels: dict[str, str]) -> bool:
    return all((pattern.fullmatch(labels.get(label, "")) is not None) != negated for label, negated, pattern in matchers)


class MetricMapping(BaseModel):
    """Rules in order of preference. `prefix`: every catalogue metric without a rule of its own is also looked for as prefix +
    its name, and a rate as the growth of prefix + stem + `_total`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefix: str = ""
    device: str | None = None  # of the metrics that `prefix` finds
    saturating: tuple[str, ...] = ()  # metrics found by `prefix` whose counters stop at their top
    rules: tuple[Rule, ...] = Field(default=(), alias="rule")

    def all_rules(self) -> tuple[Rule, ...]:
        """Written rules first, then those that follow from the prefix."""
        if not self.prefix:
            return self.rules
        written = {rule.metric for rule in self.rules}
        return self.rules + tuple(rule for metric in CATALOGUE if metric.name not in written for rule in self._implied(metric.name))

    def _implied(self, name: str) -> list[Rule]:
        stops = name in self.saturating
        if name.endswith("_total"):
            return [Rule(metric=name, series=(self.prefix + name,), kind="total", device=self.device, saturates=stops)]
        rules = [Rule(metric=name, series=(self.prefix + name,), device=self.device, combine="mean")]
        if name.endswith("_per_second"):
            counter = f"{self.prefix}{name.removesuffix('_per_second')}_total"
            rules.append(Rule(metric=name, series=(counter,), kind="counter", device=self.device, saturates=stops))
        return rules

    def name_pattern(self) -> str:
        """One regular expression for the names of all series that are wanted, for `{__name__=~"..."}`."""
        names = dict.fromkeys(name for rule in self.all_rules() for name in (*rule.series, *rule.over))
        return "|".join(names)


def default_mappings() -> tuple[str, ...]:
    """Names of the mappings that come with the project."""
    return tuple(sorted(path.stem for path in _DEFAULTS.glob("*.toml")))


def load_mapping(text: str) -> MetricMapping:
    """A default by name ("minder", "dcgm", "node"), a TOML file by path, or several joined by "+", earlier ones preferred.

    Raises ConfigError that names the file and the key.
    """
    parts = [_default(part) if part in default_mappings() else _load_one(part) for part in map(str.strip, text.split("+"))]
    if len(parts) == 1:
        return parts[0]
    return MetricMapping(rule=tuple(rule for part in parts for rule in part.all_rules()))


@cache
def _default(name: str) -> MetricMapping:
    """One that comes with the project: it does not change."""
    return _load_one(name)


def _load_one(name: str) -> MetricMapping:
    path = _DEFAULTS / f"{name}.toml" if name in default_mappings() else Path(name)
    try:
        return MetricMapping.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(default_mappings())
        raise ConfigError(f'telemetry.mapping "{name}" cannot be read ({error}): use {known}, or the path of a TOML file') from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_problem(error, MetricMapping)}") from error
